//! `cargo xtask bench`: what a probed call costs the program that makes it, as ratios to an empty uprobe and uretprobe pair.
//!
//! The probed function does nothing, so that all of its time is the probes'. Kinds are run in turn, over and over, and
//! medians of the calling thread's own time compared: what else the machine does hits all alike.

use std::{
    fmt::Write as _,
    fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use crate::{
    command::{as_root, cargo, line, output, run, target},
    setup,
};

/// Calls a run: so few that their stacks fit the ring buffer, since a call whose record is dropped costs less.
const ROUNDS: &str = "1000";
/// The same where there are no stacks.
const PLAIN_ROUNDS: &str = "20000";
/// Python calls below which the probed function is called. A server's stacks have 20 to 60.
const DEEP: u32 = 30;
const SHALLOW: u32 = 5;
/// Function behind `call`: its event brings stacks, as allocations do.
const CALL: &str = "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE";

/// Arguments of `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// How often each kind is run
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Interpreter for the rows with Python
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
}

/// What is around the calls.
enum Around {
    /// Nothing.
    Bare,
    /// An empty pair of probes.
    Pair,
    /// vramtrace, with options.
    Traced(&'static [&'static str]),
}

/// One row of the table.
struct Kind {
    name: &'static str,
    around: Around,
    /// The calls come from Python code so many calls deep, else from C alone.
    python: Option<u32>,
    /// `call` or `block`.
    what: &'static str,
    /// SPEC §12, as a ratio.
    limit: Option<f64>,
}

impl Kind {
    fn rounds(&self) -> &'static str {
        if self.name.contains(" stack") && !self.name.contains("no stack") { ROUNDS } else { PLAIN_ROUNDS }
    }
}

const fn kind(name: &'static str, around: Around, python: Option<u32>, what: &'static str, limit: Option<f64>) -> Kind {
    Kind { name, around, python, what, limit }
}

/// vramtrace without native stacks.
const NO_NATIVE: Around = Around::Traced(&["--native-stacks", "off"]);
const TENSORS: Around = Around::Traced(&["--tensors", "on"]);

const KINDS: [Kind; 12] = [
    kind("no probe", Around::Bare, None, "call", None),
    kind("no probe, Python", Around::Bare, Some(DEEP), "call", None),
    kind("empty uprobe + uretprobe", Around::Pair, None, "call", None),
    kind("call, no stack", NO_NATIVE, None, "call", Some(1.3)),
    kind("call, native stack", Around::Traced(&[]), None, "call", Some(2.5)),
    kind("call, Python stack (5 calls)", NO_NATIVE, Some(SHALLOW), "call", Some(2.5)),
    kind("call, Python stack (30 calls)", NO_NATIVE, Some(DEEP), "call", Some(2.5)),
    kind("call, Python and native stack (5 calls)", Around::Traced(&[]), Some(SHALLOW), "call", Some(2.5)),
    kind("call, Python and native stack (30 calls)", Around::Traced(&[]), Some(DEEP), "call", Some(2.5)),
    kind("PyTorch block", Around::Traced(&[]), None, "block", Some(1.3)),
    kind("PyTorch block, Python stack (5 calls)", TENSORS, Some(SHALLOW), "block", Some(2.5)),
    kind("PyTorch block, Python stack (30 calls)", TENSORS, Some(DEEP), "block", Some(2.5)),
];

/// Prints the table, and leaves it in `target/bench/`.
pub(crate) fn main(args: &Args) -> Result<()> {
    setup::demo()?;
    run(cargo().args(["build", "--quiet", "--package", "tracer", "--package", "live-tests", "--bins"]))?;
    let libraries =
        PathBuf::from(output(cargo().args(["run", "--quiet", "--package", "live-tests", "--bin", "sim-build"]))?);
    let dir = target().join("bench");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let mut times: Vec<Vec<f64>> = vec![Vec::new(); KINDS.len()];
    for _ in 0..args.repeat {
        for (kind, times) in KINDS.iter().zip(&mut times) {
            times.push(measure(kind, &args.python, &libraries, &dir).context(kind.name)?);
        }
    }
    let text = format!("{}, {}\n{}", machine(), version(&args.python)?, table(&times, args.repeat));
    print!("{text}");
    fs::write(dir.join("calls.txt"), text)?;
    Ok(())
}

/// Nanoseconds a call.
fn measure(kind: &Kind, python: &str, libraries: &Path, dir: &Path) -> Result<f64> {
    let pair = matches!(kind.around, Around::Pair).then(|| Pair::start(&libraries.join("libc10.so"))).transpose()?;
    // By env(1), since sudo lets nothing else through.
    let mut command = as_root("env")?;
    command.arg(format!("LD_LIBRARY_PATH={}", libraries.display()));
    if let Around::Traced(options) = kind.around {
        command.arg(target().join("debug/vramtrace")).args(["run", "--as-root", "--force", "-o"]);
        command.arg(dir.join("bench.vrt")).args(options).arg("--");
    }
    match kind.python {
        Some(_) => command.arg(python).arg(crate::command::root().join("tests/programs/bench.py")),
        None => command.arg(libraries.join("bench")),
    };
    command.args([kind.what, kind.rounds()]).args(kind.python.map(|depth| depth.to_string()));
    let result = command.stdin(Stdio::null()).output()?;
    let told = String::from_utf8_lossy(&result.stderr);
    ensure!(result.status.success(), "`{}` failed: {}", line(&command), told.trim());
    let is_traced = matches!(kind.around, Around::Traced(_));
    ensure!(!is_traced || told.contains("none lost"), "events were lost: {}", told.trim());
    drop(pair);
    Ok(String::from_utf8_lossy(&result.stdout).trim().parse()?)
}

/// Empty probes, for as long as this lives.
struct Pair(Child);

impl Pair {
    fn start(library: &Path) -> Result<Self> {
        let mut command = as_root(&target().join("debug/empty-probes").to_string_lossy())?;
        let mut child = command.arg(library).arg(CALL).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut ready = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut ready)?;
        let pair = Self(child);
        ensure!(ready == "ready\n", "no empty probes could be placed (its error is above)");
        Ok(pair)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn median(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

fn table(times: &[Vec<f64>], repeat: u32) -> String {
    let medians: Vec<f64> = times.iter().map(|times| median(times)).collect();
    // What the same program takes without probes is not theirs.
    let cost = |n: usize| medians[n] - medians[usize::from(KINDS[n].python.is_some())];
    let pair = cost(2);
    let mut text = format!("Medians of {repeat} runs of {PLAIN_ROUNDS} calls ({ROUNDS} with stacks), in turn\n\n");
    let _ = writeln!(text, "{:<42}{:>12}{:>12}{:>9}{:>9}", "", "ns a call", "probes' ns", "ratio", "target");
    for (n, kind) in KINDS.iter().enumerate() {
        let (ratio, limit) = (cost(n) / pair, kind.limit.map_or(String::new(), |limit| format!("≤ {limit}")));
        let ratio = if n < 2 { String::new() } else { format!("{ratio:.2}") };
        let _ = writeln!(text, "{:<42}{:>12.0}{:>12.0}{ratio:>9}{limit:>9}", kind.name, medians[n], cost(n));
    }
    text
}

/// What the interpreter calls itself.
fn version(python: &str) -> Result<String> {
    output(
        Command::new(python).args(["-c", "import platform as p; print(p.python_implementation(), p.python_version())"]),
    )
}

/// Processor, number of its cores, kernel.
fn machine() -> String {
    let cpus = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpus.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ")).map(|(_, name)| name);
    let count = cpus.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = output(Command::new("uname").arg("-nr")).unwrap_or_default();
    format!("{kernel}, {count} × {}", model.unwrap_or("unknown processor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_what_the_probes_add() {
        let times: Vec<Vec<f64>> = [2.0, 4.0, 102.0, 127.0, 252.0, 154.0, 204.0, 254.0, 304.0, 52.0, 104.0, 154.0]
            .iter()
            .map(|n| vec![*n, *n, 9e9])
            .collect();
        let text = table(&times, 3);
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().split_whitespace().rev();
        assert_eq!(row("call, no stack").take(3).collect::<Vec<_>>(), ["1.3", "≤", "1.25"]);
        assert_eq!(row("call, Python and native stack (30").nth(2), Some("3.00"));
        assert_eq!(row("empty uprobe").next(), Some("1.00"));
    }
}
