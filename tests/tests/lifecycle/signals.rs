//! Signals, for the tracer alone and for its whole process group.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use live_tests::live::{Footprint, Talk, attach, attach_command, book, held_at_end, run_command, state, wait_until};
use live_tests::sim::Sim;
use nix::sys::signal::Signal;
use tracer::trace::record::Outcome;

use super::{CONTEXT, MIB, running, start, unharmed};

#[test]
fn ctrl_c_ends_the_target_and_then_the_trace() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    run.order("alloc 10")?;
    let pid = run.server_pid();
    run.signal_group(Signal::SIGINT)?;
    let (status, _, errors) = run.finish()?;
    ensure!(status.code() == Some(130), "{status}: {errors}");
    let book = book(&file)?;
    ensure!(book.outcome == Some(Outcome::Killed { signal: 2 }), "{:?}", book.outcome);
    ensure!(held_at_end(&book, pid) == 0 && !book.allocations.is_empty());
    Ok(())
}

#[test]
fn a_second_ctrl_c_leaves_the_target_alone() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    run.order("alloc 10")?;
    run.order("report 2")?;
    let footprint = Footprint::of(run.pid())?;
    for _ in 0..2 {
        run.signal_group(Signal::SIGINT)?;
        ensure!(run.answer("signal")? == 2);
        // Two that come before the first is looked at are one.
        sleep(Duration::from_millis(200));
    }
    ensure!(run.wait()?.code() == Some(130));
    // It got each once: the next thing it says is an answer.
    unharmed(&mut run, &footprint)?;
    let book = book(&file)?;
    ensure!(book.outcome == running("interrupted"), "{:?}", book.outcome);
    ensure!(held_at_end(&book, run.server_pid()) == CONTEXT + 10 * MIB);
    Ok(())
}

#[test]
fn signals_for_the_tracer_alone_are_passed_on() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    for signal in [Signal::SIGUSR1, Signal::SIGUSR2] {
        run.order(&format!("report {}", signal as i32))?;
        for _ in 0..3 {
            run.signal(signal)?;
            ensure!(run.answer("signal")? == signal as i32);
        }
    }
    run.order("ending 15")?;
    run.order("alloc 10")?;
    run.signal(Signal::SIGTERM)?;
    run.answer("ending")?;
    let (status, rest, errors) = run.finish()?;
    ensure!(status.code() == Some(5) && rest.is_empty(), "{status}: {rest}{errors}");
    let outcome = book(&file)?.outcome;
    ensure!(outcome == Some(Outcome::Exited { code: 5 }), "{outcome:?}");
    Ok(())
}

#[test]
fn signals_for_the_whole_group_arrive_once() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    run.order("report 10")?;
    run.order("report 15")?;
    run.signal_group(Signal::SIGUSR1)?;
    ensure!(run.answer("signal")? == 10);
    run.signal_group(Signal::SIGTERM)?;
    ensure!(run.answer("signal")? == 15);
    sleep(Duration::from_millis(200));
    run.order("alloc 1")?;
    Ok(())
}

/// A server that made a process group of its own does not get its starter's signals: the tracer does.
#[test]
fn a_target_that_left_the_group_gets_its_signals_too() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    run.order("leave")?;
    run.order("ending 2")?;
    run.signal_group(Signal::SIGINT)?;
    run.answer("ending")?;
    ensure!(run.wait()?.code() == Some(5));
    Ok(())
}

/// Ctrl-Z and `fg`, or a container that is frozen and thawed, while programs are loaded: the kernel gives up on those with `EAGAIN`.
#[test]
fn a_tracer_that_is_stopped_while_it_starts() -> Result<()> {
    let (sim, file) = start()?;
    let mut server = Talk::server(sim.command("server")?)?;
    let pid = server.server_pid().to_string();
    let mut probes = Vec::new();
    for is_stopped in [false, true] {
        let tracer =
            if is_stopped { stopped_at_start(&sim, &file, &pid)? } else { attach(&sim, &file, &["--pid", &pid])? };
        server.order("alloc 10")?;
        tracer.signal(Signal::SIGINT)?;
        let (status, _, errors) = tracer.finish()?;
        ensure!(status.success(), "{status}: {errors}");
        probes.push(book(&file)?.header.probes);
        std::fs::remove_file(&file)?;
    }
    ensure!(probes[0] == probes[1], "not placed as they would have been: {probes:?}");
    Ok(())
}

/// A tracer that traces, after it was stopped again and again.
fn stopped_at_start(sim: &Sim, file: &Path, pid: &str) -> Result<Talk> {
    let mut tracer = Talk::start(attach_command(sim, file, &["--pid", pid])?)?;
    let (mut said, mut pause) = (String::new(), Duration::from_millis(2));
    wait_until("a tracer that has started", || {
        tracer.signal(Signal::SIGSTOP)?;
        wait_until("a stopped tracer", || Ok(matches!(state(tracer.pid()), Some('T' | 'Z'))))?;
        tracer.signal(Signal::SIGCONT)?;
        sleep(pause);
        // The longest program must be loaded between two stops at last.
        pause = pause.mul_f64(1.05);
        said.push_str(&tracer.errors());
        ensure!(!said.contains("refused"), "{said}");
        Ok(said.contains("Ctrl-C ends it"))
    })?;
    Ok(tracer)
}
