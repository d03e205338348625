//! Processes that are stopped while their probes are placed.

use std::fs;

use anyhow::{Context, Result, ensure};
use live_tests::live::{Footprint, Talk, attach, book, guard, run_command, state, wait_until};
use live_tests::sim::Sim;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::{let_it_flush, start};

/// A second libcuda, for the moment at which a process is held.
fn odd_library(sim: &Sim) -> Result<String> {
    let path = sim.scratch().join("odd/libcuda.so.1");
    fs::create_dir(sim.scratch().join("odd"))?;
    fs::copy(sim.libraries().join("libcuda.so.1"), &path)?;
    Ok(path.to_string_lossy().into_owned())
}

fn wait_for_state(pid: u32, wanted: char) -> Result<()> {
    wait_until(&format!("state {wanted} of {pid}"), || Ok(state(pid) == Some(wanted)))
        .with_context(|| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default())
}

#[test]
fn kill_9_while_the_target_is_held() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    let footprint = Footprint::of(run.pid())?;
    killed_while_it_holds(&mut run, &sim)?;
    footprint.gone()
}

/// Kills a tracer while its target is held; the target goes on.
fn killed_while_it_holds(run: &mut Talk, sim: &Sim) -> Result<()> {
    // A tracer that cannot place the probes.
    run.signal(Signal::SIGSTOP)?;
    wait_for_state(run.pid(), 'T')?;
    run.say(&format!("driver {}", odd_library(sim)?))?;
    wait_for_state(run.server_pid(), 'T')?;
    run.signal(Signal::SIGKILL)?;
    ensure!(run.answer("driver")? == 0);
    Ok(())
}

/// Two kills: of the guard, and, when there is another, of the tracer that holds somebody.
#[test]
fn a_guard_that_is_killed_is_replaced() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    let first = guard(run.pid()).context("no guard")?;
    kill(Pid::from_raw(first.cast_signed()), Signal::SIGKILL)?;
    wait_until("another guard", || Ok(guard(run.pid()).is_some_and(|pid| pid != first) && state(first).is_none()))?;
    killed_while_it_holds(&mut run, &sim)
}

#[test]
fn a_process_held_when_tracing_ends_goes_on() -> Result<()> {
    let (sim, file) = start()?;
    let mut server = Talk::server(sim.command("server")?)?;
    let mut tracer = attach(&sim, &file, &["--pid", &server.server_pid().to_string()])?;
    tracer.signal(Signal::SIGSTOP)?;
    wait_for_state(tracer.pid(), 'T')?;
    server.say(&format!("driver {}", odd_library(&sim)?))?;
    wait_for_state(server.server_pid(), 'T')?;
    tracer.signal(Signal::SIGINT)?;
    tracer.signal(Signal::SIGCONT)?;
    ensure!(server.answer("driver")? == 0);
    ensure!(tracer.wait()?.success());
    Ok(())
}

/// A tracer that does not get round to it: the process is continued without it, and the trace says that probes were late.
#[test]
fn nobody_is_held_for_long() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    run.signal(Signal::SIGSTOP)?;
    wait_for_state(run.pid(), 'T')?;
    let odd = odd_library(&sim)?;
    run.say(&format!("driver {odd}"))?;
    wait_for_state(run.server_pid(), 'T')?;
    ensure!(run.answer("driver")? == 0);
    run.signal(Signal::SIGCONT)?;
    let_it_flush();
    run.close();
    ensure!(run.wait()?.success());
    let book = book(&file)?;
    let library = book.libraries.iter().find(|library| library.path == odd).context("it is not in the trace")?;
    ensure!(library.late, "{library:?}");
    Ok(())
}

#[test]
fn a_target_that_stops_itself_stays_stopped() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = Talk::server(run_command(&sim, &file, &["--until", "1s"])?)?;
    run.order("alloc 10")?;
    run.say("raise 19")?;
    wait_for_state(run.server_pid(), 'T')?;
    let footprint = Footprint::of(run.pid())?;
    // Through its ticks, its end and its last look at who is held.
    footprint.gone()?;
    ensure!(state(run.server_pid()) == Some('T'), "{:?}", state(run.server_pid()));
    kill(Pid::from_raw(run.server_pid().cast_signed()), Signal::SIGCONT)?;
    ensure!(run.answer("raised")? == 19);
    Ok(())
}
