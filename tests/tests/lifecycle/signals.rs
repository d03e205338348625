//! Signals, for the tracer alone and for its whole process group.

use std::thread::sleep;
use std::time::Duration;

use anyhow::{Result, ensure};
use live_tests::live::{Footprint, Talk, book, held_at_end, run_command};
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
