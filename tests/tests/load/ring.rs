//! A tracer that does not come to read: what finds no room in the ring buffer is counted by kind, bytes last.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use live_tests::live::{book, history, wait_until};
use nix::sys::signal::Signal;
use tracer::trace::{Reader, record::Record};

use super::{CONTEXT, MIB, json, report, start, stop, traced};

/// Stacks and calls leave room for driver requests: bytes stay exact when hundreds of stacks are lost.
#[test]
fn stacks_are_lost_before_bytes() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = traced(&sim, &file)?;
    stop(&run)?;
    run.order("churn 2500")?;
    run.signal(Signal::SIGCONT)?;
    let pid = run.server_pid();
    run.finish()?;
    let book = book(&file)?;
    ensure!(book.losses.get("ring_full_stack").is_some_and(|n| *n > 500), "{:?}", book.losses);
    ensure!(!book.losses.contains_key("ring_full"), "{:?}", book.losses);
    let truth = sim.settled()?;
    let end = book.processes.iter().find(|p| p.pid == pid).and_then(|p| p.died).context("no end")?;
    let theirs = truth.history(pid, 0).into_iter().take_while(|(t, _)| *t < end).map(|(_, live)| live);
    ensure!(history(&book, pid, end).into_iter().eq(theirs));
    let text = report(&file, &[])?;
    let head: Vec<&str> = text.lines().take(4).collect();
    ensure!(head.iter().any(|line| line.contains("Lost events: none that carry bytes")), "{head:#?}");
    ensure!(json(&file)?["lost_events"] == 0);
    Ok(())
}

/// Events that were seen and events that were lost, together.
fn all_events(file: &Path) -> Result<u64> {
    let mut all = 0;
    for record in Reader::open(file)? {
        match record? {
            Record::Footer(footer) => all += footer.events,
            Record::Loss(loss) => all += loss.count,
            _ => {}
        }
    }
    Ok(all)
}

/// What a server does that allocates and frees so often; the tracer sees all of it.
fn events_of(churns: u64) -> Result<u64> {
    let (sim, file) = start()?;
    let mut run = traced(&sim, &file)?;
    run.order(&format!("churn {churns}"))?;
    run.finish()?;
    ensure!(book(&file)?.losses.is_empty());
    all_events(&file)
}

/// Every event is seen or counted: as many as in runs in which none was lost.
#[test]
fn what_is_lost_is_counted_to_the_last_event() -> Result<()> {
    const CHURNS: u64 = 10_000;
    let (few, more) = (events_of(1)?, events_of(101)?);
    let each = (more - few) / 100;
    ensure!(few + 100 * each == more, "{few} {more}");
    let (sim, file) = start()?;
    let mut run = traced(&sim, &file)?;
    stop(&run)?;
    run.order(&format!("churn {CHURNS}"))?;
    run.signal(Signal::SIGCONT)?;
    run.finish()?;
    let losses = book(&file)?.losses;
    ensure!(
        ["ring_full", "ring_full_call", "ring_full_stack"].iter().all(|why| losses.contains_key(*why)),
        "{losses:?}"
    );
    let all = all_events(&file)?;
    ensure!(all == few + (CHURNS - 1) * each, "{all}, not {}: {losses:?}", few + (CHURNS - 1) * each);
    Ok(())
}

/// Memory that was allocated and freed unseen: nothing negative, NVML's figure stands beside the ledger's, and the first lines of
/// the report say that figures may be off.
#[test]
fn lost_driver_requests_are_shown() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = traced(&sim, &file)?;
    let pid = run.server_pid();
    stop(&run)?;
    run.order("churn 10000")?;
    run.order("alloc 30")?;
    run.order("alloc 50")?;
    run.signal(Signal::SIGCONT)?;
    // What is told of after that had room.
    wait_until("the count of what was lost", || Ok(book(&file)?.losses.contains_key("ring_full")))?;
    let samples = |bytes: u64| -> Result<bool> {
        Ok(book(&file)?.samples.iter().filter(|sample| sample.nvml == bytes && sample.quiet).count() > 0)
    };
    run.order("alloc 70")?;
    wait_until("a sample with all that is held", || samples(CONTEXT + 160 * MIB))?;
    // One that was seen, two that were not.
    for _ in 0..3 {
        run.order("free")?;
    }
    wait_until("a sample with the rest", || samples(CONTEXT + 10 * MIB))?;
    ensure!(sim.truth()?.live(pid, 0) == CONTEXT + 10 * MIB);
    run.signal(Signal::SIGTERM)?;
    run.wait()?;
    let book = book(&file)?;
    let lost = book.losses.get("ring_full").copied().context("nothing lost")?;
    // One free at most found no room whose allocation had found some.
    let left = |live: u64, seen: u64| live == seen || live == seen + 2 * MIB;
    for sample in book.samples.iter().filter(|sample| sample.quiet) {
        match sample.nvml / MIB - CONTEXT / MIB {
            160 => ensure!(left(sample.live, CONTEXT + 80 * MIB), "{sample:?}"),
            10 => ensure!(left(sample.live, CONTEXT + 10 * MIB), "{sample:?}"),
            _ => {}
        }
    }
    let (text, json) = (report(&file, &[])?, json(&file)?);
    let head: Vec<&str> = text.lines().take(4).collect();
    ensure!(head.iter().any(|line| line.starts_with(&format!("LOST {lost} events: figures may be off"))), "{head:#?}");
    let explained = json["explained_percent"].as_f64().context("nothing compared")?;
    ensure!(json["lost_events"] == lost && explained < 100.0, "{} {lost} {explained}", json["lost_events"]);
    let nvml = &json["processes"][0]["devices"][0]["nvml"];
    ensure!(nvml.as_array().is_some_and(|nvml| nvml.iter().any(|n| n["nvml_bytes"] == CONTEXT + 160 * MIB)), "{nvml}");
    Ok(())
}
