//! What must hold after a kill.

use std::fs::{self, File};
use std::io::Read as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tracer::attach::find::processes;
use tracer::ledger::Book;
use tracer::trace::Reader;

use crate::live::{book, history, state};
use crate::sim::Sim;
use crate::truth::Truth;

/// Longest time that somebody may be stopped: more than the guard lets pass while the tracer is there.
const STOPPED: Duration = Duration::from_secs(15);
/// Longest wait for the end of all processes of a simulation.
const END: Duration = Duration::from_secs(120);

/// Processes that run in a simulation: the target and its children, the tracer and its guard.
pub(super) fn members(sim: &Sim) -> Vec<u32> {
    let variable = format!("VRAMTRACE_SIM_DEV={}", sim.devices().display());
    let is_member = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
    };
    processes().into_iter().filter(is_member).collect()
}

/// Waits until nobody is left in a simulation. Nobody may stay stopped on the way.
pub(super) fn all_end(sim: &Sim) -> Result<()> {
    let (begun, mut went_on) = (Instant::now(), Instant::now());
    loop {
        let left = members(sim);
        if left.is_empty() {
            return Ok(());
        }
        let stopped: Vec<u32> = left.iter().copied().filter(|pid| state(*pid) == Some('T')).collect();
        if stopped.is_empty() {
            went_on = Instant::now();
        }
        ensure!(went_on.elapsed() < STOPPED, "stopped and forgotten: {stopped:?}");
        ensure!(begun.elapsed() < END, "these do not end: {left:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whole lines in a trace, counted without the reader.
fn lines(file: &Path) -> Result<u64> {
    let mut decoder = zstd::stream::read::Decoder::new(File::open(file)?)?;
    let (mut lines, mut buffer) = (0, [0; 4096]);
    // An error is where the file was cut.
    while let Ok(read @ 1..) = decoder.read(&mut buffer) {
        lines += buffer[..read].iter().filter(|byte| **byte == b'\n').count() as u64;
    }
    Ok(lines)
}

/// Reads what was written: every whole line of it is a record. `None` where not even the header was.
pub(super) fn read(file: &Path) -> Result<Option<Book>> {
    if !file.exists() || lines(file)? == 0 {
        return Ok(None);
    }
    let mut reader = Reader::open(file)?;
    let mut records = 0;
    for record in &mut reader {
        record.context("in a trace that was only cut")?;
        records += 1;
    }
    let (lines, unknown) = (lines(file)?, reader.unknown());
    ensure!(unknown == 0 && records == lines, "{records} records and {unknown} unknown of {lines} lines");
    book(file).map(Some)
}

/// Losses that cost neither bytes nor labels of those that were seen.
fn nothing_lost(book: &Book) -> Result<()> {
    let harmless = ["unreadable_stack", "unknown_return", "unfollowed", "output", "missed_return"];
    let lost: Vec<_> = book.losses.iter().filter(|(why, _)| !harmless.contains(&why.as_str())).collect();
    ensure!(lost.is_empty(), "{lost:?}");
    Ok(())
}

/// How far a ledger must have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent {
    /// To somewhere: it says what the driver did up to there.
    Beginning,
    /// To the end of each process.
    All,
}

/// Holds the ledger of each process against the driver's, step by step.
pub(super) fn agrees(book: &Book, truth: &Truth, extent: Extent) -> Result<()> {
    nothing_lost(book)?;
    // A request in which its thread died counts as done, which is said: the driver may have come to it or not.
    let cut_short = book.notices.iter().any(|text| text.contains("ended with the death of the calling thread"));
    for pid in truth.processes() {
        let died = book.processes.iter().find(|p| p.pid == pid).and_then(|p| p.died);
        let ours = history(book, pid, died.unwrap_or(u64::MAX));
        let theirs: Vec<(u64, u64)> = truth.history(pid, 0);
        let same = ours.iter().zip(&theirs).take_while(|(ours, (_, theirs))| *ours == theirs).count();
        let allowed = usize::from(cut_short);
        ensure!(
            same + allowed >= ours.len(),
            "process {pid} has {} steps, the driver {}; they part after {same}: {:?}, {:?}",
            ours.len(),
            theirs.len(),
            ours.get(same),
            theirs.get(same)
        );
        if extent == Extent::All {
            let end = died.with_context(|| format!("process {pid} has no end"))?;
            let steps = theirs.iter().take_while(|(t, _)| *t < end).count();
            ensure!(same + allowed >= steps, "process {pid}: {same} of {steps} steps");
        }
    }
    Ok(())
}

/// Where no allocation was in flight, NVML's figure is the ledger's.
pub(super) fn agrees_with_nvml(book: &Book) -> Result<()> {
    let wrong: Vec<_> = book.samples.iter().filter(|sample| sample.quiet && sample.nvml != sample.live).collect();
    ensure!(wrong.is_empty(), "{wrong:?}");
    nothing_lost(book)
}
