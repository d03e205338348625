//! A tracer that does not come to read: what finds no room in the ring buffer is counted by kind, bytes last.

use anyhow::{Context, Result, ensure};
use live_tests::live::{book, exact, held_at_end, history, wait_until};
use nix::sys::signal::Signal;

use super::{CONTEXT, MIB, json, report, start, stop, traced};

/// Stacks and calls leave room for driver requests: bytes stay exact when thousands of stacks are lost.
#[test]
fn stacks_are_lost_before_bytes() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = traced(&sim, &file)?;
    stop(&run)?;
    run.order("churn 5000")?;
    run.signal(Signal::SIGCONT)?;
    let pid = run.server_pid();
    run.finish()?;
    let book = book(&file)?;
    ensure!(book.losses.get("ring_full_stack").is_some_and(|n| *n > 1000), "{:?}", book.losses);
    ensure!(!book.losses.contains_key("ring_full"), "{:?}", book.losses);
    let truth = sim.settled()?;
    let end = book.processes.iter().find(|p| p.pid == pid).and_then(|p| p.died).context("no end")?;
    let theirs: Vec<u64> = truth.history(pid, 0).into_iter().take_while(|(t, _)| *t < end).map(|(_, live)| live).collect();
    ensure!(history(&book, pid, end) == theirs, "{} steps", theirs.len());
    let text = report(&file, &[])?;
    let head: Vec<&str> = text.lines().take(6).collect();
    ensure!(head.iter().any(|line| line.contains("Lost events: none that carry bytes")), "{head:#?}");
    ensure!(json(&file)?["lost_events"] == 0);
    Ok(())
}

/// More than fits: the report says how much is missing, in its first lines, and shows NVML's figures all the same.
#[test]
fn lost_driver_requests_are_counted_and_shown() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = traced(&sim, &file)?;
    stop(&run)?;
    run.order("churn 60000")?;
    run.order("alloc 30")?;
    run.order("alloc 50")?;
    run.signal(Signal::SIGCONT)?;
    run.order("alloc 70")?;
    let pid = run.server_pid();
    wait_until("a tracer that has caught up", || Ok(std::fs::metadata(&file)?.len() > 0))?;
    std::thread::sleep(std::time::Duration::from_millis(2500));
    // Three frees: of one that was seen, and of two that were not.
    for _ in 0..3 {
        run.order("free")?;
    }
    std::thread::sleep(std::time::Duration::from_millis(1500));
    let truth = sim.truth()?.live(pid, 0);
    ensure!(truth == CONTEXT + 10 * MIB, "{truth}");
    run.signal(Signal::SIGTERM)?;
    run.wait()?;
    let book = book(&file)?;
    println!("{:?} {} {:?}", book.losses, held_at_end(&book, pid), book.samples);
    let text = report(&file, &[])?;
    println!("{text}");
    let _ = exact;
    Ok(())
}
