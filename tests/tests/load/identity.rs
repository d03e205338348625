//! Process ids that are used again. A process is its number and its start, whatever was lost in between.

use anyhow::{Result, ensure};
use live_tests::live::{Talk, book, wait_until};
use nix::sys::signal::Signal;
use tracer::ledger::Book;

use super::{CONTEXT, MIB, start, stop, traced};

/// A pid that nobody has: of a child that has ended.
fn free_pid(run: &mut Talk) -> Result<i32> {
    run.say("child")?;
    let pid = run.answer("ready")?;
    run.order("bury")?;
    Ok(pid)
}

/// Has a child with this pid make a context and hold `mib`.
fn child(run: &mut Talk, pid: i32, mib: u64) -> Result<()> {
    run.say(&format!("twin {pid}"))?;
    ensure!(run.answer("twin")? == pid, "no child with pid {pid}");
    run.say(&format!("below alloc {mib}"))?;
    ensure!(run.answer("alloc")? == 0);
    Ok(())
}

/// Peaks of the processes that had a pid, in order of birth, without those that held nothing.
fn peaks(book: &Book, pid: i32) -> Vec<u64> {
    let has = |process: usize| i64::from(book.processes[process].pid) == i64::from(pid);
    let peaks = book.peaks();
    let mut held: Vec<_> = peaks.iter().filter(|((process, _), _)| has(*process)).collect();
    held.sort_by_key(|((process, _), _)| book.processes[*process].born);
    held.into_iter().map(|(_, peak)| peak.bytes).filter(|bytes| *bytes > 0).collect()
}

#[test]
fn a_pid_used_again_is_another_process() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = traced(&sim, &file)?;
    let pid = free_pid(&mut run)?;
    for mib in [20, 40] {
        child(&mut run, pid, mib)?;
        run.order("bury")?;
    }
    run.finish()?;
    let (book, _) = (book(&file)?, sim.settled()?);
    ensure!(book.losses.is_empty(), "{:?}", book.losses);
    ensure!(peaks(&book, pid) == [CONTEXT + 20 * MIB, CONTEXT + 40 * MIB], "{:?}", peaks(&book, pid));
    ensure!(book.processes.iter().filter(|p| i64::from(p.pid) == i64::from(pid)).all(|p| p.exit_code == Some(0)));
    Ok(())
}

/// The end of the first process with the pid and the birth of the second are lost: the first must not live on in the second.
#[test]
fn a_pid_used_again_while_events_are_lost() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = traced(&sim, &file)?;
    let pid = free_pid(&mut run)?;
    child(&mut run, pid, 20)?;
    // Until all of that was read.
    wait_until("its allocation in the trace", || Ok(peaks(&book(&file)?, pid) == [CONTEXT + 20 * MIB]))?;
    stop(&run)?;
    // More than finds room.
    run.order("churn 10000")?;
    // Nor does what is smaller than a driver request, in the rest that those leave.
    run.say("below orphaned 20")?;
    ensure!(run.answer("orphaned")? == 0);
    run.order("bury")?;
    child(&mut run, pid, 40)?;
    run.signal(Signal::SIGCONT)?;
    // Found by looking at /proc twice once all is read.
    let ends =
        |book: &Book| book.processes.iter().filter(|p| i64::from(p.pid) == i64::from(pid) && p.died.is_some()).count();
    wait_until("the end of the first one", || Ok(ends(&book(&file)?) == 2))?;
    // It is gone before the tracer could ask it for its title.
    stop(&run)?;
    run.say("below alloc 8")?;
    ensure!(run.answer("alloc")? == 0);
    run.order("bury")?;
    run.signal(Signal::SIGCONT)?;
    run.finish()?;
    let book = book(&file)?;
    ensure!(book.losses.contains_key("ring_full_process"), "{:?}", book.losses);
    let held = peaks(&book, pid);
    // Of the second nothing but its last allocation was seen.
    ensure!(held == [CONTEXT + 20 * MIB, 8 * MIB], "{held:?}: {:#?}", book.processes);
    let ends: Vec<_> =
        book.processes.iter().filter(|p| i64::from(p.pid) == i64::from(pid)).map(|p| p.exit_code).collect();
    ensure!(ends == [Some(0), None, Some(0)], "nobody knows how the first one ended: {:#?}", book.processes);
    Ok(())
}
