//! A ledger that is looked at while it grows, and kept small over a run of any length.
//!
//! What bounds it: rows by the memory that is live (a dead one is kept for [`KEPT`], then folded into sums); NVML samples,
//! failures and requests by the same time; frames and stacks by the program's code; log lines, communicators and captures
//! by the caps below; processes by how many there ever were (some hundred bytes each).

use std::collections::BTreeMap;

use super::{Allocation, Book, GpuRef, Kind, Ledger, kind};
use crate::trace::record::{Gpu, Nvml, Record};

/// How long what has ended is kept, nanoseconds. Far longer than anything that the kind of a row is decided by.
const KEPT: u64 = 10_000_000_000;
/// Records after which the past is folded.
const EVERY: u64 = 32_768;
/// Log lines kept of the beginning and, again as many, of late: a start tells the phases, the newest lines the state.
const LINES: usize = 5_000;
/// Communicators, and captures, kept: the oldest, for they stand around what stays.
const WINDOWS: usize = 65_536;

/// What was folded.
#[derive(Clone, Debug, Default)]
pub struct Past {
    /// Most bytes that each process held on a GPU, until then.
    peaks: BTreeMap<(usize, GpuKey), u64>,
    /// Failures by process and GPU, by whether the GPU was out of memory.
    failures: BTreeMap<(usize, Option<GpuKey>, bool), u64>,
    /// Memory of attached processes from before tracing began, by process and UUID, with the time of that figure.
    pub(super) before: super::samples::Before,
    /// Records since the last time.
    records: u64,
}

/// A GPU apart from any order.
type GpuKey = (Option<u32>, String, Option<u32>);

fn key(gpu: &GpuRef) -> GpuKey {
    (gpu.index, gpu.uuid.clone(), gpu.instance)
}

impl Past {
    /// Most bytes that a process held on a GPU.
    #[must_use]
    pub fn peak(&self, process: usize, gpu: &GpuRef) -> u64 {
        self.peaks.get(&(process, key(gpu))).copied().unwrap_or(0)
    }

    /// Failures: process, GPU where known, out of memory or not, how many.
    pub fn failures(&self) -> impl Iterator<Item = (usize, Option<GpuRef>, bool, u64)> {
        self.failures.iter().map(|((process, gpu, is_oom), count)| {
            let gpu = gpu.clone().map(|(index, uuid, instance)| GpuRef { index, uuid, instance });
            (*process, gpu, *is_oom, *count)
        })
    }

    /// Adds what `book` says; of failures those before `t`.
    fn take(&mut self, book: &Book, t: u64) {
        for ((process, gpu), peak) in book.peaks() {
            if let Some(gpu) = book.gpus.get(gpu) {
                let known = self.peaks.entry((process, key(gpu))).or_default();
                *known = peak.bytes.max(*known);
            }
        }
        for failure in book.failures.iter().filter(|failure| failure.t < t) {
            let gpu = failure.gpu.and_then(|gpu| book.gpus.get(gpu)).map(key);
            *self.failures.entry((failure.process, gpu, failure.out_of_memory)).or_default() += 1;
        }
    }
}

/// A GPU as NVML last saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// What it is.
    pub gpu: Gpu,
    /// Used and free bytes; `None` before the first sample.
    pub memory: Option<(u64, u64)>,
}

impl Ledger {
    /// Takes the next record of a session that goes on. Blocks of `PyTorch`'s allocator are left out: they own no bytes,
    /// and come by the ten thousand a second.
    pub fn push_live(&mut self, record: &Record) {
        if matches!(record, Record::Block(_)) {
            return;
        }
        self.push(record.clone());
        self.past.records += 1;
        if self.past.records >= EVERY {
            self.fold(self.book.end.saturating_sub(KEPT));
        }
    }

    /// What was folded so far.
    #[must_use]
    pub const fn past(&self) -> &Past {
        &self.past
    }

    /// GPUs of the machine, with NVML's last figures.
    #[must_use]
    pub fn cards(&self) -> Vec<Card> {
        let last = |gpu: &Gpu| self.nvml.iter().rfind(|sample| sample.uuid == gpu.uuid);
        let memory = |sample: &Nvml| (sample.used, sample.free);
        self.book.header.gpus.iter().map(|gpu| Card { gpu: gpu.clone(), memory: last(gpu).map(memory) }).collect()
    }

    /// Turns what ended before `t` into sums.
    ///
    /// Bytes stay exact. The kind of what is older is settled by what is known now: a later row that would have told more
    /// (a burst at the same place) no longer does.
    pub fn fold(&mut self, t: u64) {
        self.past.records = 0;
        let book = self.clone().finish();
        self.past.take(&book, t);
        self.fold_rows(t);
        self.fold_samples(&book, t);
        self.failures.fold(t);
        self.allocators.fold(t);
        self.requests.fold(t);
        self.channels.retain(|_, times| {
            times.retain(|&time| time >= t);
            !times.is_empty()
        });
        let book = &mut self.book;
        book.readings.clear();
        let lines = book.logs.len();
        if lines > 2 * LINES {
            book.logs.drain(LINES..lines - LINES);
        }
        book.communicators.truncate(WINDOWS);
        book.captures.truncate(WINDOWS);
    }

    fn fold_rows(&mut self, t: u64) {
        let Self { rows, channels, processes, objects, fallback, mappings, .. } = self;
        let numbers = rows.fold(t, |rows| {
            kind::classify(rows, channels, &processes.list);
            kind::witnesses(rows, &processes.list)
        });
        objects.renumber(&numbers);
        fallback.renumber(&numbers);
        mappings.renumber(&numbers);
    }

    /// Samples go, and what they told of memory from before tracing began is kept as one figure.
    fn fold_samples(&mut self, book: &Book, t: u64) {
        // Rows around a sample tell whether it is quiet: all must be there still.
        let kept = t.saturating_add(super::samples::QUIET * 2);
        let mut last: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        for sample in book.samples.iter().filter(|sample| sample.quiet && sample.t < kept) {
            if book.processes[sample.process].attached {
                last.insert((sample.process, sample.gpu), sample.t);
            }
        }
        for ((process, gpu), t) in last {
            let is_it = |row: &&Allocation| {
                row.kind == Kind::PreAttach && (row.process, row.gpu) == (process, gpu) && row.live_at(t)
            };
            let held = book.allocations.iter().find(is_it).map_or(0, |row| row.bytes);
            self.past.before.insert((process, book.gpus[gpu].uuid.clone()), (held, t));
        }
        self.nvml.retain(|sample| sample.begin >= kept);
        let Self { unknown_frees, past, processes, .. } = self;
        unknown_frees.retain(|&process, times| {
            // Those since the figure still tell when it became less.
            let since =
                past.before.range((process, String::new())..(process + 1, String::new())).map(|(_, b)| b.1).min();
            let waits = processes.list[process].attached && times.len() < WINDOWS;
            let from = if waits { since.unwrap_or(0) } else { kept };
            times.retain(|&time| time > from);
            !times.is_empty()
        });
    }
}

#[cfg(test)]
mod tests;
