//! The ledger of a traced server, and the driver's.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use tracer::ledger::{Allocation, Book};

use crate::truth::Truth;

/// Reads a trace.
///
/// # Errors
/// It cannot be read.
pub fn book(file: &Path) -> Result<Book> {
    Book::read(file).with_context(|| format!("cannot read {}", file.display()))
}

/// Live bytes of a process at the end of a trace, while it lived.
#[must_use]
pub fn held_at_end(book: &Book, pid: u32) -> u64 {
    let of = |a: &&Allocation| book.processes[a.process].pid == pid && a.died.is_none();
    book.allocations.iter().filter(of).map(|a| a.bytes).sum()
}

/// Live bytes of a process (by pid: of whatever it executed) after each moment before `end` at which they changed.
#[must_use]
pub fn history(book: &Book, pid: u32, end: u64) -> Vec<u64> {
    let mut changes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for row in book.allocations.iter().filter(|a| book.processes[a.process].pid == pid) {
        changes.entry(row.born).or_default().0 += row.bytes;
        if let Some((died, _)) = row.died {
            changes.entry(died).or_default().1 += row.bytes;
        }
    }
    let (mut live, mut steps) = (0, Vec::new());
    for (_, (plus, minus)) in changes.into_iter().take_while(|(t, _)| *t < end) {
        let before = live;
        live = live + plus - minus;
        steps.extend((live != before).then_some(live));
    }
    steps
}

/// The ledger of a process that was traced from its first call to its end is the driver's, step by step, on GPU 0.
///
/// # Errors
/// It differs, or the driver saw no memory.
pub fn exact(book: &Book, truth: &Truth, pid: u32) -> Result<()> {
    let process = book.processes.iter().find(|p| p.pid == pid).with_context(|| format!("no process {pid}"))?;
    // Then the driver takes back file by file what the ledger closes at once.
    let end = process.died.with_context(|| format!("no end of process {pid}"))?;
    let theirs = truth.history(pid, 0).into_iter().take_while(|(t, _)| *t < end).map(|(_, live)| live);
    let (ours, theirs) = (history(book, pid, end), theirs.collect::<Vec<_>>());
    ensure!(!theirs.is_empty(), "the driver gave process {pid} nothing");
    let equal = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
    ensure!(ours == theirs, "process {pid}, step {equal}: {:?}, truth {:?}", ours.get(equal), theirs.get(equal));
    ensure!(held_at_end(book, pid) == 0, "process {pid} is gone and holds memory");
    // The call in which a process becomes ours was entered before.
    let harmless = ["unreadable_stack", "unknown_return", "unfollowed"];
    let lost: Vec<_> = book.losses.iter().filter(|(why, _)| !harmless.contains(&why.as_str())).collect();
    ensure!(lost.is_empty(), "{lost:?}");
    Ok(())
}
