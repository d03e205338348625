//! Figures that no machine can have, taken out before they get anywhere: a damaged trace or a lying target may claim any,
//! and sums over what is left cannot overflow.

use super::{Book, Kind, Ledger};
use crate::trace::record::{Call, Header, Nvml, Process, Record, Rm};

/// Most bytes that one figure can be: 1 PiB, a thousand times what a GPU or its host has.
const BYTES: u64 = 1 << 50;
/// Most bytes of all rows, and of all blocks, that a book can have: 1 EiB, as by ten million allocations of a whole GPU.
const SUM: u64 = 1 << 60;
/// Most lost events counted.
pub(super) const EVENTS: u64 = 1 << 50;
/// Latest time: 146 years after the machine started, or after 1970.
const TIME: u64 = 1 << 62;

/// Reason of a loss: figures were left out.
const IMPOSSIBLE: &str = "impossible_figure";

/// What bytes may still be claimed.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    claimed: u64,
    /// Claims that were refused.
    refused: u64,
}

impl Budget {
    /// `bytes`, or 0 where so many cannot be.
    pub(super) fn take(&mut self, bytes: u64) -> u64 {
        match self.claimed.checked_add(bytes).filter(|sum| *sum <= SUM && bytes <= BYTES) {
            Some(sum) => {
                self.claimed = sum;
                bytes
            }
            None => {
                self.refused += 1;
                0
            }
        }
    }

    /// Checks the rows that were made last, of memory from before tracing began, and says what was refused.
    pub(super) fn close(mut self, book: &mut Book) {
        for row in book.allocations.iter_mut().filter(|row| row.kind == Kind::PreAttach) {
            row.bytes = self.take(row.bytes);
        }
        if self.refused > 0 {
            let sum = book.losses.entry(IMPOSSIBLE.to_owned()).or_default();
            *sum = sum.saturating_add(self.refused);
        }
    }
}

impl Ledger {
    /// Takes out of a record what cannot be; false when nothing of it is left.
    pub(super) fn check(&mut self, record: &mut Record) -> bool {
        let (is_left, refused) = check(record, &mut self.blocks);
        if refused > 0 {
            self.lost(IMPOSSIBLE.to_owned(), refused);
        }
        is_left
    }
}

/// Takes figures that cannot be out of a record. Gives whether anything is left of it, and how many there were.
fn check(record: &mut Record, blocks: &mut Budget) -> (bool, u64) {
    // The most frequent have nothing else to look at.
    if let Record::Rm(rm) = record
        && rm.t.max(rm.start).max(rm.outer) <= TIME
    {
        return (true, 0);
    }
    let mut refused = 0;
    for t in times(record) {
        refused += u64::from(*t > TIME);
        *t = (*t).min(TIME);
    }
    let is_left = match record {
        Record::Header(header) => header_figures(header, &mut refused),
        Record::Call(call) => call_figures(call, &mut refused),
        Record::Nvml(nvml) => nvml_figures(nvml),
        Record::Block(block) => {
            let bytes = block.bytes.unsigned_abs();
            [bytes, block.allocated, block.reserved].into_iter().all(fits) && blocks.take(bytes) == bytes
        }
        _ => true,
    };
    (is_left, refused + u64::from(!is_left))
}

const fn fits(bytes: u64) -> bool {
    bytes <= BYTES
}

/// All times of a record.
fn times(record: &mut Record) -> impl Iterator<Item = &mut u64> {
    let times: [Option<&mut u64>; 3] = match record {
        Record::Header(Header { t, unix_ns, .. }) => [Some(t), Some(unix_ns), None],
        Record::Rm(Rm { t, start, outer, .. }) | Record::Call(Call { t, start, outer, .. }) => {
            [Some(t), Some(start), Some(outer)]
        }
        Record::Nvml(Nvml { begin, t, .. }) => [Some(begin), Some(t), None],
        Record::Process(Process { t, .. }) => [Some(t), None, None],
        Record::Library(library) => [Some(&mut library.t), None, None],
        Record::Block(block) => [Some(&mut block.t), None, None],
        Record::Log(log) => [Some(&mut log.t), None, None],
        Record::Loss(loss) => [Some(&mut loss.t), Some(&mut loss.since), None],
        Record::Notice(notice) => [Some(&mut notice.t), None, None],
        Record::Footer(footer) => [Some(&mut footer.t), None, None],
        Record::Frame(_) | Record::Stack(_) => [None, None, None],
    };
    times.into_iter().flatten()
}

fn header_figures(header: &mut Header, refused: &mut u64) -> bool {
    for gpu in header.gpus.iter_mut().filter(|gpu| !fits(gpu.total_bytes)) {
        gpu.total_bytes = 0;
        *refused += 1;
    }
    true
}

/// A call that failed may well have asked for more than there can be. What one that did not fail allocated is checked
/// where it becomes a row.
fn call_figures(call: &mut Call, refused: &mut u64) -> bool {
    for figure in [&mut call.free, &mut call.total] {
        if figure.is_some_and(|bytes| !fits(bytes)) {
            *figure = None;
            *refused += 1;
        }
    }
    true
}

fn nvml_figures(nvml: &Nvml) -> bool {
    let listed = nvml.processes.iter().filter_map(|process| process.bytes);
    listed.chain([nvml.used, nvml.free, nvml.reserved]).all(fits)
}
