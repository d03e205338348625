//! What the running kernel takes, and that it is said alike everywhere. `cargo xtask kernels` runs these on old and new
//! kernels, and again on hosts made harder; they hold on any.

use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use live_tests::live::{book, exact, vramtrace};
use live_tests::sim::{Config, Sim, workspace_binary};
use tracer::ledger::Kind;
use tracer::trace::record::FrameKind;

/// Verified instructions of one program, of the million that the kernel allows: room for kernels whose verifier goes through
/// more.
const MOST: u64 = 400_000;

/// `vramtrace check`, as text.
fn check() -> Result<String> {
    let output = Command::new(vramtrace()?).arg("check").output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What a line of `check` calls missing, in the groups that a start depends on, and what it says of it.
fn missing(check: &str) -> Vec<String> {
    let groups = check.split("\ndriver\n").next().unwrap_or_default();
    groups.lines().filter_map(|line| line.strip_prefix("  missing ")).map(|line| line.trim().to_owned()).collect()
}

/// `vramtrace run` of a program that allocates, and whether it was traced to the byte.
fn run() -> Result<(Output, Result<()>)> {
    let sim = Sim::start(Config::default())?;
    let file = sim.scratch().join("run.vrt");
    let mut command = sim.command(&vramtrace()?.to_string_lossy())?;
    command.args(["run", "--as-root", "-o"]).arg(&file).arg("--").arg(sim.program("scenario")).arg("small");
    let output = command.output()?;
    let traced = || {
        let (book, truth) = (book(&file)?, sim.settled()?);
        println!("probes: {}", book.header.probes);
        let pid = truth.processes().into_iter().next().context("the driver saw no process")?;
        exact(&book, &truth, pid)
    };
    Ok((output, traced()))
}

/// One that works traces to the byte; one that does not says why in one line, which `check` has too. `VRAMTRACE_EXPECT` says
/// which it must be (`works`, `refused`), where that is known.
#[test]
fn check_and_run_say_the_same() -> Result<()> {
    let (check, (output, traced)) = (check()?, run()?);
    let (missing, errors) = (missing(&check), String::from_utf8_lossy(&output.stderr).into_owned());
    let works = output.status.success();
    if let Ok(expected) = std::env::var("VRAMTRACE_EXPECT") {
        ensure!(expected == if works { "works" } else { "refused" }, "not {expected}: {errors}\n{check}");
    }
    if works {
        ensure!(missing.is_empty(), "works, and check says: {missing:?}");
        return traced.with_context(|| errors.clone());
    }
    println!("said: {}", errors.trim_end());
    let line = errors.strip_prefix("vramtrace: ").and_then(|line| line.strip_suffix('\n')).unwrap_or_default();
    ensure!(!line.is_empty() && !line.contains('\n'), "not one line: {errors}");
    let (what, rest) = line.split_once(": ").context("it does not say what")?;
    ensure!(rest.contains(". Needed: "), "no remedy: {line}");
    ensure!(missing.first().is_some_and(|first| first.starts_with(what)), "{line}\n{check}");
    Ok(())
}

/// One trace has all of it, and nothing is lost: a library opened late, bytes, native and Python frames, a line of output,
/// another process.
#[test]
fn one_trace_of_everything() -> Result<()> {
    if !missing(&check()?).is_empty() {
        return Ok(());
    }
    let sim = Sim::start(Config::default())?;
    let file = sim.scratch().join("run.vrt");
    let mut command = sim.command(&vramtrace()?.to_string_lossy())?;
    command.args(["run", "--as-root", "-o"]).arg(&file).args(["--", "/usr/bin/python3"]);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/everything.py")).arg(sim.program("scenario"));
    let output = command.arg("small").output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{errors}");
    let (book, truth) = (book(&file)?, sim.settled()?);
    let pids = truth.processes();
    ensure!(pids.len() == 2, "{pids:?}");
    for pid in pids {
        exact(&book, &truth, pid).with_context(|| errors.clone())?;
    }
    let lines: Vec<&str> = book.logs.iter().map(|log| log.text.as_str()).collect();
    ensure!(lines == ["Load weight begin. avail mem=1.00 GB"], "{lines:?}");
    let by_python = book.allocations.iter().find(|a| a.kind == Kind::CudaMalloc && a.bytes == 6 << 20);
    let stack =
        by_python.and_then(|a| book.stacks.get(a.stack? as usize)).context("no stack of Python's allocation")?;
    let frames: Vec<_> = stack.iter().filter_map(|frame| book.frames.get(*frame as usize)).collect();
    let python = frames.iter().filter(|frame| frame.kind == FrameKind::Python).map(|frame| frame.function.as_str());
    ensure!(python.eq(["<module>", "load", "allocate"]), "{frames:?}");
    ensure!(frames.iter().any(|frame| frame.function == "cudaMalloc"), "{frames:?}");
    println!("probes: {}", book.header.probes);
    Ok(())
}

/// Where tracing is possible, no program is refused or near the verifier's limit.
#[test]
fn the_kernel_takes_every_program() -> Result<()> {
    if !missing(&check()?).is_empty() {
        // What is said then is the other test's.
        return Ok(());
    }
    let output = Command::new(workspace_binary("load-programs")?).output()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    print!("{text}");
    ensure!(output.status.success(), "refused: {text}{}", String::from_utf8_lossy(&output.stderr));
    for line in text.lines() {
        let verified: u64 = line.split(' ').nth(2).context("no count")?.parse()?;
        // Kernels before 5.16 do not tell: 0.
        ensure!(verified < MOST, "{line}: of {MOST}");
    }
    Ok(())
}
