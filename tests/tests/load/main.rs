//! Load: full ring buffers, crowds of threads and processes, pids used again, odd disks. A figure is right to the byte, or the
//! report says that it may not be.

mod crowds;
mod disks;
mod identity;
mod long;
mod ring;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use live_tests::live::{Talk, run_command, state, vramtrace, wait_until};
use live_tests::sim::{Config, Sim};
use nix::sys::signal::Signal;

const MIB: u64 = 1 << 20;
/// A context of the simulated GPU.
const CONTEXT: u64 = 518 * MIB;

fn start() -> Result<(Sim, PathBuf)> {
    let sim = Sim::start(Config::default())?;
    let file = sim.scratch().join("run.vrt");
    Ok((sim, file))
}

/// A traced server that has made its context and holds 10 MiB.
fn traced(sim: &Sim, file: &Path) -> Result<Talk> {
    let mut run = Talk::server(run_command(sim, file, &[])?)?;
    run.order("alloc 10")?;
    Ok(run)
}

/// Stops the tracer: what happens meanwhile stays in the ring buffer, as far as there is room.
fn stop(run: &Talk) -> Result<()> {
    run.signal(Signal::SIGSTOP)?;
    wait_until("a stopped tracer", || Ok(state(run.pid()) == Some('T')))
}

/// What `vramtrace report` prints.
fn report(file: &Path, options: &[&str]) -> Result<String> {
    let output = std::process::Command::new(vramtrace()?).arg("report").arg(file).args(options).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).context("no text")
}

/// `vramtrace report --format json`.
fn json(file: &Path) -> Result<serde_json::Value> {
    Ok(serde_json::from_str(&report(file, &["--format", "json"])?)?)
}
