//! `cargo xtask demo`: the founding case on a machine without a GPU. A simulated `SGLang` server with eight ranks is traced
//! through real probes, with custom all-reduce off and on; the reports, and what changed, are left in `target/demo/`.
//!
//! Only the simulated driver (which stands in for a kernel module) and the tracer run as root; whoever calls this builds,
//! reads the traces and owns all files.

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use crate::{
    command::{as_root, cargo, is_root, line, output, owner, root, run, target, which},
    setup,
};

/// A server that is traced.
struct Run {
    /// Base name of its files.
    name: &'static str,
    about: &'static str,
    /// `--mem-fraction-static`.
    fraction: &'static str,
    /// Environment of the run.
    environment: &'static [&'static str],
    /// What it says when it has come as far as it must.
    says: &'static str,
}

/// What asked for custom all-reduce in the founding case.
const ALL_REDUCE: &[&str] = &["SGLANG_FORCE_CUSTOM_AR_PCIE=1", "SGLANG_CUSTOM_ALLREDUCE_ALGO=1stage"];

const RUNS: [Run; 3] = [
    Run {
        name: "off",
        about: "custom all-reduce off, memory fraction 0.88",
        fraction: "0.88",
        environment: &[],
        says: "fired up and ready to roll",
    },
    Run {
        name: "on",
        about: "custom all-reduce on, memory fraction 0.55: it does not start",
        fraction: "0.55",
        environment: ALL_REDUCE,
        says: "Not enough memory",
    },
    Run {
        name: "on-same-fraction",
        about: "custom all-reduce on, memory fraction 0.88",
        fraction: "0.88",
        environment: ALL_REDUCE,
        says: "fired up and ready to roll",
    },
];

/// Pairs of runs that are compared, and the base names of what says how they differ.
const PAIRS: [(&str, &str, &str); 2] = [("off", "on", "diff"), ("off", "on-same-fraction", "diff-same-fraction")];

/// GPUs of the simulated machine and the bytes of each. With these, free memory is that of the case: 94.08 GiB after the
/// communicators, 21.71 GiB after the weights (21.70 with all-reduce), so that the cache gets 10.42 GiB.
const GPUS: &str = "8";
const GPU_BYTES: u64 = 97_495 << 20;
/// Lines of a text that make its first screen.
const SCREEN: usize = 40;
/// The server ends as `SGLang`'s does, by killing itself.
const KILLED: i32 = 128 + 9;

/// Leaves traces, reports, comparisons, flame graphs and pages in `target/demo/`.
pub(crate) fn main() -> Result<()> {
    setup::demo()?;
    run(cargo().args(["build", "--quiet", "--package", "tracer", "--package", "live-tests", "--bins"]))?;
    let libraries =
        PathBuf::from(output(cargo().args(["run", "--quiet", "--package", "live-tests", "--bin", "sim-build"]))?);
    let dir = target().join("demo");
    fs::create_dir_all(dir.join("dev")).with_context(|| format!("cannot create {}", dir.display()))?;

    let driver = Driver::start(&dir)?;
    for server in &RUNS {
        println!("tracing {}: {}", server.name, server.about);
        trace(server, &dir, &libraries)?;
    }
    driver.stop()?;
    give_back(&dir)?;

    for server in &RUNS {
        report(server.name, &dir)?;
    }
    for (base, other, name) in PAIRS {
        compare(base, other, name, &dir)?;
    }
    println!("\nTraces, reports, comparisons, flame graphs and pages are in {}", dir.display());
    println!("All of the first comparison on one page, in a browser: {}", file(&dir, "diff", "html").display());
    Ok(())
}

/// A program of this workspace.
fn built(name: &str) -> PathBuf {
    target().join("debug").join(name)
}

fn trace(server: &Run, dir: &Path, libraries: &Path) -> Result<()> {
    // By env(1), since sudo lets nothing else through.
    let mut trace = as_root("env")?;
    trace.arg(format!("LD_LIBRARY_PATH={}", libraries.display()));
    trace.arg(format!("VRAMTRACE_SIM_DEV={}", dir.join("dev").display()));
    trace.arg(format!("VRAMTRACE_NVML={}", libraries.join("libnvidia-ml.so.1").display()));
    trace.arg(format!("PYTHONPATH={}", root().join("tests/server").display()));
    trace.arg("PYTHONDONTWRITEBYTECODE=1").args(server.environment);
    trace.arg(built("vramtrace")).args(["run", "--force", "-o"]).arg(file(dir, server.name, "vrt"));
    trace.arg("--").arg(python()?).args(["-m", "sglang.launch_server", "--model-path", "sim/large"]);
    trace.args(["--tp-size", GPUS, "--mem-fraction-static", server.fraction]);
    let log = file(dir, server.name, "log");
    trace.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&log)?);
    let status = trace.status().with_context(|| format!("cannot run `{}`", line(&trace)))?;
    let said = fs::read_to_string(&log)?;
    let came_far = status.code() == Some(KILLED) && said.contains(server.says);
    ensure!(came_far, "`{}` went wrong ({status}): see {}", line(&trace), log.display());
    Ok(())
}

/// The system's interpreter, rather than a version manager's script of that name.
fn python() -> Result<PathBuf> {
    let system = PathBuf::from("/usr/bin/python3");
    if system.exists() { Ok(system) } else { which("python3").context("no python3: install it") }
}

/// `vramtrace` with these arguments.
fn vramtrace(args: &[&str], traces: &[PathBuf]) -> Command {
    let mut command = Command::new(built("vramtrace"));
    command.args(args).args(traces);
    command
}

fn report(name: &str, dir: &Path) -> Result<()> {
    let trace = [file(dir, name, "vrt")];
    let text = output(&mut vramtrace(&["report"], &trace))?;
    let out = format!("report-{name}");
    fs::write(file(dir, &out, "txt"), format!("{text}\n"))?;
    fs::write(file(dir, &out, "json"), output(&mut vramtrace(&["report", "--format", "json"], &trace))? + "\n")?;
    run(vramtrace(&["flamegraph"], &trace).args(["--force", "-o"]).arg(file(dir, name, "svg")))?;
    show("report", &trace, &text);
    Ok(())
}

fn compare(base: &str, other: &str, name: &str, dir: &Path) -> Result<()> {
    let traces = [file(dir, base, "vrt"), file(dir, other, "vrt")];
    let text = output(&mut vramtrace(&["diff"], &traces))?;
    fs::write(file(dir, name, "txt"), format!("{text}\n"))?;
    fs::write(file(dir, name, "json"), output(&mut vramtrace(&["diff", "--format", "json"], &traces))? + "\n")?;
    let [base, other] = &traces;
    let mut flamegraph = vramtrace(&["flamegraph", "--force"], std::slice::from_ref(other));
    run(flamegraph.arg("--vs").arg(base).arg("-o").arg(file(dir, name, "svg")))?;
    let mut page = vramtrace(&["html", "--force"], std::slice::from_ref(other));
    run(page.arg("--vs").arg(base).arg("-o").arg(file(dir, name, "html")))?;
    show("diff", &traces, &text);
    Ok(())
}

/// The first screen of what a command prints.
fn show(command: &str, traces: &[PathBuf], text: &str) {
    let names: Vec<_> = traces.iter().map(|trace| trace.display().to_string()).collect();
    println!("\n$ vramtrace {command} {}", names.join(" "));
    text.lines().take(SCREEN).for_each(|line| println!("{line}"));
}

fn file(dir: &Path, name: &str, extension: &str) -> PathBuf {
    dir.join(format!("{name}.{extension}"))
}

/// The simulated driver, for as long as this lives.
struct Driver(Child);

impl Driver {
    fn start(dir: &Path) -> Result<Self> {
        let mut command = as_root(&built("sim-driver").to_string_lossy())?;
        command.arg("--mount").arg(dir.join("dev")).arg("--truth").arg(dir.join("truth.jsonl"));
        command.args(["--gpus", GPUS, "--gpu-bytes", &GPU_BYTES.to_string()]);
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
