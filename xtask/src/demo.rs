//! `cargo xtask demo`: traces simulated CUDA programs through real probes, on a machine without a GPU.
//!
//! Only the simulated driver (which stands in for a kernel module) and the tracer run as root; whoever calls this builds,
//! reads the traces and owns all files.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use crate::{
    command::{as_root, cargo, is_root, line, output, owner, run, target},
    setup,
};

/// A simulated program and what is shown of it.
struct Program {
    /// Base name of its files.
    name: &'static str,
    about: &'static str,
    /// Scenario of `tests/programs/`.
    scenario: &'static str,
}

/// In this order: the last one fills a GPU.
const PROGRAMS: [Program; 2] = [
    Program { name: "segments", about: "expandable segments, as PyTorch maps them", scenario: "expandable_segments" },
    Program { name: "out-of-memory", about: "allocations until one fails", scenario: "out_of_memory" },
];

/// How long a program stays at each of its steps: NVML is sampled once a second.
const STEP: Duration = Duration::from_millis(1200);

/// GPUs of the simulated machine, and lines of a report that make its first screen.
const GPUS: &str = "2";
const SCREEN: usize = 40;

/// Leaves traces, reports and flame graphs in `target/demo/`.
pub(crate) fn main() -> Result<()> {
    setup::demo()?;
    run(cargo().args(["build", "--quiet", "--package", "tracer", "--package", "live-tests", "--bins"]))?;
    let libraries =
        PathBuf::from(output(cargo().args(["run", "--quiet", "--package", "live-tests", "--bin", "sim-build"]))?);
    let dir = target().join("demo");
    fs::create_dir_all(dir.join("dev")).with_context(|| format!("cannot create {}", dir.display()))?;

    let driver = Driver::start(&dir)?;
    for program in &PROGRAMS {
        println!("tracing {}: {}", program.name, program.about);
        trace(program, &dir, &libraries)?;
    }
    driver.stop()?;
    give_back(&dir)?;

    for program in &PROGRAMS {
        report(program, &dir)?;
    }
    println!("\nTraces, reports and flame graphs are in {}", dir.display());
    Ok(())
}

/// A program of this workspace.
fn built(name: &str) -> PathBuf {
    target().join("debug").join(name)
}

fn trace(program: &Program, dir: &Path, libraries: &Path) -> Result<()> {
    // By env(1), since sudo lets nothing else through.
    let mut trace = as_root("env")?;
    trace.arg(format!("LD_LIBRARY_PATH={}", libraries.display()));
    trace.arg("VRAMTRACE_SIM_STEP=1");
    trace.arg(format!("VRAMTRACE_SIM_DEV={}", dir.join("dev").display()));
    trace.arg(format!("VRAMTRACE_NVML={}", libraries.join("libnvidia-ml.so.1").display()));
    trace.arg(built("vramtrace")).args(["run", "--force", "-o"]).arg(file(dir, program, "vrt"));
    trace.arg("--").arg(libraries.join("scenario")).arg(program.scenario);
    trace.stdin(Stdio::piped()).stdout(File::create(file(dir, program, "log"))?);
    let mut child = trace.spawn().with_context(|| format!("cannot run `{}`", line(&trace)))?;
    // The program stops at each of its steps until it reads a byte: long enough for NVML to be asked in between.
    let mut steps = child.stdin.take().context("the program has no input")?;
    let status = loop {
        thread::sleep(STEP);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        // Its last step taken, it reads no more and is about to end.
        let _ = steps.write_all(b"\n");
    };
    ensure!(status.success(), "`{}` failed ({status})", line(&trace));
    Ok(())
}

fn report(program: &Program, dir: &Path) -> Result<()> {
    let trace = file(dir, program, "vrt");
    let vramtrace = |args: &[&str]| {
        let mut command = Command::new(built("vramtrace"));
        command.args(args).arg(&trace);
        command
    };
    let text = output(&mut vramtrace(&["report"]))?;
    fs::write(file(dir, program, "txt"), format!("{text}\n"))?;
    fs::write(file(dir, program, "json"), output(&mut vramtrace(&["report", "--format", "json"]))? + "\n")?;
    run(vramtrace(&["flamegraph"]).args(["--force", "-o"]).arg(file(dir, program, "svg")))?;

    println!("\n$ vramtrace report {}", trace.display());
    text.lines().take(SCREEN).for_each(|line| println!("{line}"));
    Ok(())
}

fn file(dir: &Path, program: &Program, extension: &str) -> PathBuf {
    dir.join(program.name).with_extension(extension)
}

/// The simulated driver, for as long as this lives.
struct Driver(Child);

impl Driver {
    fn start(dir: &Path) -> Result<Self> {
        let mut command = as_root(&built("sim-driver").to_string_lossy())?;
        command.arg("--mount").arg(dir.join("dev")).arg("--truth").arg(dir.join("truth.jsonl")).args(["--gpus", GPUS]);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start the driver")?;
        let stdout = child.stdout.take().context("the simulated driver has no output")?;
        let mut ready = String::new();
        BufReader::new(stdout).read_line(&mut ready)?;
        let driver = Self(child);
        ensure!(ready.starts_with("ready"), "the simulated driver did not start: is /dev/fuse there?");
        Ok(driver)
    }

    fn stop(mut self) -> Result<()> {
        self.end()
    }

    /// It ends with its input, and takes its mount away.
    fn end(&mut self) -> Result<()> {
        drop(self.0.stdin.take());
        let status = self.0.wait()?;
        ensure!(status.success(), "the simulated driver failed ({status})");
        Ok(())
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // After `stop` this waits for nothing; after an error there is nobody to tell.
        let _ = self.end();
    }
}

/// What the driver wrote as root goes to the user.
fn give_back(dir: &Path) -> Result<()> {
    if is_root()? {
        return Ok(());
    }
    let (user, group) = owner()?;
    run(as_root("chown")?.args(["-R", "--from=root"]).arg(format!("{user}:{group}")).arg(dir))
}
