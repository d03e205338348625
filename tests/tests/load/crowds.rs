//! Many threads and many processes at once, and processes that are born and die in ways a tracer may miss.

use anyhow::{Context, Result, ensure};
use live_tests::live::{book, exact, held_at_end};
use live_tests::truth::Truth;
use tracer::ledger::Book;

use super::{CONTEXT, MIB, report, start, traced};

/// What a process owned, piece by piece, without regard to order: threads that run at once return in another order than the
/// driver served them.
fn pieces(book: &Book, truth: &Truth, pid: u32) -> (Vec<u64>, Vec<u64>) {
    let ours = book.allocations.iter().filter(|a| book.processes[a.process].pid == pid).map(|a| a.bytes);
    let theirs = truth.owned(pid, 0).into_iter().map(|owned| owned.bytes);
    let (mut ours, mut theirs): (Vec<u64>, Vec<u64>) = (ours.collect(), theirs.collect());
    ours.sort_unstable();
    theirs.sort_unstable();
    (ours, theirs)
}

#[test]
fn five_hundred_and_twelve_threads_at_once() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = traced(&sim, &file)?;
    run.order("crowd 512")?;
    let pid = run.server_pid();
    let (status, ..) = run.finish()?;
    ensure!(status.success(), "{status}");
    let (book, truth) = (book(&file)?, sim.settled()?);
    let (ours, theirs) = pieces(&book, &truth, pid);
    ensure!(ours.len() >= 512 + 18 && ours == theirs, "{} and {} pieces", ours.len(), theirs.len());
    ensure!(book.losses.is_empty() && held_at_end(&book, pid) == 0, "{:?}", book.losses);
    // All held theirs at once.
    let peak = book.peaks().values().map(|peak| peak.bytes).max().context("no peak")?;
    let crowd: u64 = (0..512).map(|i| (2 + 2 * (i % 8)) * MIB).sum();
    ensure!(peak == CONTEXT + 10 * MIB + crowd, "{peak}");
    Ok(())
}

#[test]
fn sixty_four_processes_at_once() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = traced(&sim, &file)?;
    run.order("family 64")?;
    run.finish()?;
    let (book, truth) = (book(&file)?, sim.settled()?);
    let pids = truth.processes();
    ensure!(pids.len() == 65, "{}", pids.len());
    pids.iter().try_for_each(|&pid| exact(&book, &truth, pid))?;
    ensure!(report(&file, &[])?.contains("64"), "the report shows them");
    Ok(())
}

/// Children by vfork and posix_spawn, and children of children that nobody waits for.
#[test]
fn storms_of_other_children() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = traced(&sim, &file)?;
    for storm in ["spawned", "vforked", "orphaned"] {
        run.order(&format!("{storm} 50"))?;
    }
    run.order("alloc 20")?;
    let pid = run.server_pid();
    let (status, ..) = run.finish()?;
    ensure!(status.success(), "{status}");
    let (book, truth) = (book(&file)?, sim.settled()?);
    exact(&book, &truth, pid)?;
    ensure!(book.processes.len() == 1 + 50 + 50 + 100, "{} processes", book.processes.len());
    let ended = |code| book.processes.iter().filter(|p| p.exit_code == Some(code)).count();
    ensure!((ended(0), ended(7)) == (151, 50), "{} {}", ended(0), ended(7));
    Ok(())
}

/// A thread executes another program while a second one is in the driver: that one dies there, and its request is counted as
/// done, which is said.
#[test]
fn an_exec_while_another_thread_is_in_a_call() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = traced(&sim, &file)?;
    run.say("exec_in_call")?;
    run.answer("again")?;
    run.order("alloc 6")?;
    let pid = run.server_pid();
    let (status, ..) = run.finish()?;
    ensure!(status.success(), "{status}");
    let (book, truth) = (book(&file)?, sim.settled()?);
    let (ours, theirs) = pieces(&book, &truth, pid);
    ensure!(ours == theirs && ours.contains(&(100 * MIB)), "{ours:?} {theirs:?}");
    ensure!(book.notices.iter().any(|text| text.contains("1 driver request for memory")), "{:?}", book.notices);
    // What the old image held went with it.
    let peak = book.peaks().values().map(|peak| peak.bytes).max().context("no peak")?;
    ensure!(peak == CONTEXT + 110 * MIB && held_at_end(&book, pid) == 0, "{peak}");
    Ok(())
}
