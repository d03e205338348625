//! `cargo xtask test`: everything that must hold, in order of cost, up to the first step that fails.

use std::{env, process::Command, time::Instant};

use anyhow::{Result, bail, ensure};

use crate::{
    command::{as_root, cargo, is_root, owner, root, run, target},
    kernels, readers, real_libs, setup,
    tally::{self, Tally},
};

/// Arguments of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run only these steps (may be repeated)
    #[arg(long, value_name = "STEP", value_parser = names())]
    only: Vec<String>,
    /// Only the steps that need neither root nor set-up
    #[arg(long, conflicts_with = "only")]
    fast: bool,
}

struct Step {
    name: &'static str,
    about: &'static str,
    fast: bool,
    run: fn(&mut Tally) -> Result<()>,
}

const STEPS: [Step; 9] = [
    Step { name: "setup", about: "what the tests need", fast: false, run: |_| setup::main() },
    Step { name: "fmt", about: "rustfmt", fast: true, run: |_| run(cargo().args(["fmt", "--all", "--check"])) },
    Step { name: "clippy", about: "clippy, warnings are errors", fast: true, run: |_| clippy() },
    Step { name: "unit", about: "unit, property and command-line tests", fast: true, run: unit },
    Step { name: "ebpf", about: "the committed eBPF object comes from this source", fast: false, run: |_| ebpf() },
    Step { name: "live", about: "real probes on simulated CUDA programs", fast: false, run: live },
    Step { name: "kernels", about: "the same on Linux 6.1 and 6.12", fast: false, run: kernels::quick },
    Step { name: "real", about: "real libcudart and libcuda", fast: false, run: real },
    Step { name: "readers", about: "exports, read back by other programs", fast: false, run: readers },
];

/// The package of the simulation and the live tests: they mount a file system and load BPF programs.
const LIVE: &str = "live-tests";

fn names() -> Vec<&'static str> {
    STEPS.iter().map(|step| step.name).collect()
}

/// Runs the steps; the last line counts the tests.
pub(crate) fn main(args: &Args) -> Result<()> {
    let wanted = |step: &&Step| match args.only.as_slice() {
        [] => step.fast || !args.fast,
        only => only.iter().any(|name| name == step.name),
    };
    let (mut total, begin) = (Tally::default(), Instant::now());
    for step in STEPS.iter().filter(wanted) {
        println!("=== {}: {}", step.name, step.about);
        let (mut tally, started) = (Tally::default(), Instant::now());
        let result = (step.run)(&mut tally);
        // A step that fails without a failing test (does not build, is not formatted) counts as one.
        tally.failed = tally.failed.max(u64::from(result.is_err()));
        total += tally;
        if let Err(error) = result {
            println!("=== {} FAILED after {:.1?}: {error:#}", step.name, started.elapsed());
            break;
        }
        println!("=== {} ok, {:.1?}", step.name, started.elapsed());
    }
    println!("=== {:.1?} in all", begin.elapsed());
    println!("{} passed, {} failed", total.passed, total.failed);
    // Not an error to return: its text would follow the closing line.
    if total.failed > 0 {
        std::process::exit(1);
    }
    Ok(())
}

fn clippy() -> Result<()> {
    // Without the eBPF binary: it builds for its own target alone (step `ebpf`).
    let packages = ["--package", "tracer", "--package", "xtask", "--package", LIVE, "--all-targets"];
    run(cargo_built("clippy")?.args(packages).args(["--", "-D", "warnings"]))?;
    run(cargo_built("clippy")?.args(["--package", "tracer-ebpf", "--lib", "--", "-D", "warnings"]))
}

fn unit(tally: &mut Tally) -> Result<()> {
    count(cargo_built("test")?.args(["--no-fail-fast", "--workspace", "--exclude", LIVE]), tally)
}

fn ebpf() -> Result<()> {
    // A process of its own, as a person would call it.
    run(Command::new(env::current_exe()?).args(["ebpf", "--check"]))
}

fn live(tally: &mut Tally) -> Result<()> {
    let result = count(&mut live_tests(&["--no-fail-fast"])?, tally);
    give_back_target()?;
    result?;
    all_ran(tally)
}

/// The live tests, with what they run, built as the user who calls and to be run as root. [`give_back_target`] after it.
pub(crate) fn live_tests(arguments: &[&str]) -> Result<Command> {
    run(cargo_built("build")?.args(["--package", "tracer", "--package", LIVE]))?;
    let mut test = cargo_built("test")?;
    test.args(["--package", LIVE]).args(arguments);
    if !is_root()? {
        let path = env::var("PATH").unwrap_or_default();
        // sudo puts a PATH of its own; the tests start programs by the user's.
        test.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", format!("sudo -E env PATH={path}"));
    }
    Ok(test)
}

fn real(tally: &mut Tally) -> Result<()> {
    whole("real_libraries", tally)
}

fn readers(tally: &mut Tally) -> Result<()> {
    setup::readers()?;
    whole("readers", tally)
}

/// Runs the tests of a file that set-up alone makes possible.
fn whole(test: &str, tally: &mut Tally) -> Result<()> {
    let test = ["--no-fail-fast", "--package", "tracer", "--test", test, "--", "--include-ignored"];
    count(cargo_built("test")?.args(test), tally)?;
    all_ran(tally)
}

/// A test that could not run has failed.
fn all_ran(tally: &Tally) -> Result<()> {
    ensure!(tally.passed > 0, "no test ran");
    ensure!(tally.ignored == 0, "{} tests are ignored: they were not run", tally.ignored);
    Ok(())
}

/// Files that tests made as root under the target directory go to the user.
pub(crate) fn give_back_target() -> Result<()> {
    if is_root()? {
        return Ok(());
    }
    let (user, group) = owner()?;
    run(as_root("chown")?.args(["-R", "--from=root"]).arg(format!("{user}:{group}")).arg(target()))
}

fn count(command: &mut Command, tally: &mut Tally) -> Result<()> {
    let (counted, succeeded) = tally::run(command)?;
    *tally += counted;
    if counted.failed > 0 {
        bail!("{} tests failed", counted.failed);
    }
    ensure!(succeeded, "`{}` failed before its tests could run", crate::command::line(command));
    Ok(())
}

/// A cargo command with builds no wider than this machine bears.
fn cargo_built(subcommand: &str) -> Result<Command> {
    let mut cargo = cargo();
    cargo.arg(subcommand).env("CARGO_BUILD_JOBS", jobs()?.to_string()).env("CARGO_TERM_PROGRESS_WHEN", "never");
    cargo.env("VRAMTRACE_REAL_LIBS", real_libs::dir()).current_dir(root());
    cargo.env("VRAMTRACE_READERS", readers::dir());
    Ok(cargo)
}

/// Compilers at a time: one a core, and 2 GiB of free memory each.
fn jobs() -> Result<usize> {
    let meminfo = std::fs::read_to_string("/proc/meminfo")?;
    let kib =
        meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().split(' ').next()?.parse().ok());
    let by_memory = kib.unwrap_or(0_usize) / (2 << 20);
    Ok(std::thread::available_parallelism()?.get().min(by_memory).max(1))
}
