//! `cargo xtask bench`: what tracing costs, as ratios within one run, on this machine.
//!
//! Whatever is compared is run in turn, over and over, and medians are taken: what else the machine does hits all alike.
//! Nothing here is a test: a figure above its target fails nothing, it is printed.

mod beside;
mod calls;
mod events;
mod peers;
mod readers;
mod running;
mod torch;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result};

use crate::{
    command::{cargo, output, run, target},
    setup,
};

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these parts (may be repeated): calls, events, readers, beside
    #[arg(long, value_name = "PART", value_parser = ["calls", "events", "readers", "beside"])]
    only: Vec<String>,
    /// How often each row of calls and of beside is run
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Interpreter for the rows with Python
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// Seconds of each step of the rates tried
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Measure the release build that is there, as it is
    #[arg(long)]
    built: bool,
    /// Events of the largest trace that is read, and of the long run
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(10_000..))]
    events: u64,
}

/// What all parts need.
struct Bench<'a> {
    args: &'a Args,
    /// The simulated libraries and programs.
    libraries: PathBuf,
    /// Traces and tables go there.
    dir: PathBuf,
}

/// A part: its name, and what makes its table.
type Part = (&'static str, fn(&Bench<'_>) -> Result<String>);

const PARTS: [Part; 4] =
    [("calls", calls::table), ("events", events::table), ("readers", readers::table), ("beside", beside::table)];

/// Prints the tables, and leaves them in `target/bench/`.
pub(crate) fn main(args: &Args) -> Result<()> {
    setup::demo()?;
    if !args.built {
        // What users have is a release build.
        let packages = ["--package", "tracer", "--package", "live-tests"];
        run(cargo().args(["build", "--quiet", "--release", "--bins"]).args(packages))?;
    }
    let libraries = PathBuf::from(output(&mut Command::new(built("sim-build")))?);
    let dir = target().join("bench");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let bench = Bench { args, libraries, dir };
    let wanted = |part: &&Part| args.only.is_empty() || args.only.iter().any(|name| name == part.0);
    for (name, table) in PARTS.iter().filter(wanted) {
        let text = format!("{name}: {}, {}\n{}", machine(), version(&args.python)?, table(&bench)?);
        println!("{text}");
        fs::write(bench.dir.join(format!("{name}.txt")), text)?;
    }
    Ok(())
}

/// A program of the release build.
fn built(name: &str) -> PathBuf {
    target().join("release").join(name)
}

impl Bench<'_> {
    /// A simulated library or program.
    fn library(&self, name: &str) -> PathBuf {
        self.libraries.join(name)
    }

    /// A command, as root, that finds the simulated libraries. By env(1), since sudo lets nothing else through.
    fn root(&self, before: &[&str]) -> Result<Command> {
        let mut command = crate::command::as_root("env")?;
        command.arg(format!("LD_LIBRARY_PATH={}", self.libraries.display())).args(before);
        Ok(command)
    }

    /// Adds the tracer in front of what comes next, writing to `trace`.
    fn traced(&self, command: &mut Command, options: &[&str], trace: &Path) {
        command.arg(built("vramtrace")).args(["run", "--as-root", "--force", "-o"]).arg(trace);
        command.args(options).arg("--");
    }
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What the interpreter calls itself.
fn version(python: &str) -> Result<String> {
    output(
        Command::new(python).args(["-c", "import platform as p; print(p.python_implementation(), p.python_version())"]),
    )
}

/// Kernel, processor, number of its cores, memory.
fn machine() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| cpus.lines().find_map(|line| line.strip_prefix(name)?.split_once(": ")).map(|(_, v)| v);
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib: u64 = memory.split_ascii_whitespace().nth(1).and_then(|kib| kib.parse().ok()).unwrap_or(0);
    let kernel = output(Command::new("uname").arg("-sr")).unwrap_or_default();
    let (model, family) = (field("model name").unwrap_or("unknown processor"), field("model\t").unwrap_or("?"));
    format!("{kernel}, {count} × {model} (model {family}), {:.0} GiB", kib as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_what_was_measured() {
        assert!(median(&[]).is_nan());
        assert!((median(&[9.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
