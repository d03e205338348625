//! Free memory as the server printed it, beside what it read.

use std::collections::HashMap;

use serde::Serialize;

use super::frames;
use super::summary::since_start;
use crate::ledger::{Book, Reading};
use crate::lifecycle::{Axes, printed as printed_lines};
use crate::trace::record::FrameKind;

/// A line that prints free memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PrintedMemory {
    /// When, since tracing began.
    pub time_ns: u64,
    /// Rank label of the process.
    pub rank: String,
    /// The line up to the figure.
    pub mark: String,
    /// The figure, hundredths of a GiB.
    pub printed_centi_gib: u64,
    /// The process's own reading nearest in time, bytes.
    pub read_bytes: Option<u64>,
    /// Function that read it: the innermost of Python's, else of any.
    pub read_by: Option<String>,
    /// True when the one is the other, rounded.
    pub agrees: Option<bool>,
}

/// The lines, in order of time.
pub(super) fn printed(axes: &Axes<'_>) -> Vec<PrintedMemory> {
    let row = |line: crate::lifecycle::Printed| PrintedMemory {
        time_ns: since_start(axes.book(), line.t),
        rank: axes.rank(line.process).to_owned(),
        printed_centi_gib: line.centi_gib,
        read_by: line.reading.and_then(|reading| reader(axes.book(), &reading)),
        read_bytes: line.reading.map(|reading| reading.free),
        agrees: line.agrees(),
        mark: line.mark,
    };
    printed_lines(axes.book()).into_iter().map(row).collect()
}

/// Free memory as a process read it in one place of its code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemoryReadings {
    /// Rank label of the process.
    pub rank: String,
    /// Function that read: the innermost of Python's, else of any.
    pub read_by: Option<String>,
    /// How often.
    pub count: u64,
    /// When first, since tracing began.
    pub first_ns: u64,
    /// What it read then, bytes.
    pub first_bytes: u64,
    /// When last.
    pub last_ns: u64,
    /// What it read then.
    pub last_bytes: u64,
    /// The least that it read.
    pub least_bytes: u64,
}

/// The readings, by process and place, in order of their first.
pub(super) fn readings(axes: &Axes<'_>) -> Vec<MemoryReadings> {
    let book = axes.book();
    let mut places: Vec<MemoryReadings> = Vec::new();
    let mut known: HashMap<(usize, Option<u32>), usize> = HashMap::new();
    for reading in &book.readings {
        let (time, free) = (since_start(book, reading.t), reading.free);
        let place = *known.entry((reading.process, reading.stack)).or_insert_with(|| {
            places.push(MemoryReadings {
                rank: axes.rank(reading.process).to_owned(),
                read_by: reader(book, reading),
                count: 0,
                first_ns: time,
                first_bytes: free,
                last_ns: time,
                last_bytes: free,
                least_bytes: free,
            });
            places.len() - 1
        });
        let place = &mut places[place];
        place.count += 1;
        (place.last_ns, place.last_bytes) = (time, free);
        place.least_bytes = place.least_bytes.min(free);
    }
    places
}

fn reader(book: &Book, reading: &Reading) -> Option<String> {
    let stack = reading.stack?;
    let frames = || frames::of_stack(book, stack).rev();
    let frame = frames().find(|frame| frame.kind == FrameKind::Python).or_else(|| frames().next())?;
    Some(frames::function(frame).into_owned())
}
