//! Free memory as the server printed it, beside what it read.

use serde::Serialize;

use super::summary::since_start;
use crate::lifecycle::{Axes, printed as printed_lines};

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
    /// True when the one is the other, rounded.
    pub agrees: Option<bool>,
}

/// The lines, in order of time.
pub(super) fn printed(axes: &Axes<'_>) -> Vec<PrintedMemory> {
    let row = |line: crate::lifecycle::Printed| PrintedMemory {
        time_ns: since_start(axes.book(), line.t),
        rank: axes.rank(line.process).to_owned(),
        printed_centi_gib: line.centi_gib,
        read_bytes: line.reading.map(|reading| reading.free),
        agrees: line.agrees(),
        mark: line.mark,
    };
    printed_lines(axes.book()).into_iter().map(row).collect()
}
