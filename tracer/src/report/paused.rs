//! Memory that was given back while its user keeps the addresses (`tms_pause` of `torch_memory_saver`), until it is taken again.

use std::collections::BTreeMap;

use serde::Serialize;

use super::query::Moments;
use crate::ledger::{Allocation, Book, Death};
use crate::lifecycle::{Axes, Axis, phase_order};

/// What a process has paused at the moment looked at. The GPU does not hold it: it is part of no sum.
///
/// What is freed for good while it is paused makes no request to the driver, so it counts here to the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Paused {
    /// Index into [`Book::processes`].
    #[serde(skip)]
    pub process: usize,
    /// Rank, or what the process is.
    pub rank: String,
    /// Label of the GPU it was on.
    pub gpu: String,
    /// Phase it was made in, before it was first paused.
    pub phase: String,
    /// Bytes given back.
    pub bytes: u64,
    /// Pieces of memory.
    pub allocations: u64,
}

/// Process, GPU and phase of what is paused.
type Key = (usize, usize, u32);

/// Paused memory by rank, GPU and phase, in the order of reports.
#[must_use]
pub fn paused(axes: &Axes<'_>, moments: &Moments) -> Vec<Paused> {
    let mut sums: BTreeMap<Key, (u64, u64)> = BTreeMap::new();
    for row in waiting(axes.book(), moments) {
        let sum = sums.entry((row.process, row.gpu, axes.cell(Axis::Phase, row))).or_default();
        *sum = (sum.0.saturating_add(row.bytes), sum.1 + 1);
    }
    let named = |((process, gpu, phase), (bytes, allocations)): (Key, (u64, u64))| {
        let phase = axes.label(Axis::Phase, phase).into_owned();
        let paused = Paused {
            process,
            rank: axes.rank(process).to_owned(),
            gpu: axes.gpu(gpu).clone(),
            phase,
            bytes,
            allocations,
        };
        ((axes.place(process), gpu, phase_order(&paused.phase)), paused)
    };
    let mut all: Vec<_> = sums.into_iter().map(named).collect();
    all.sort_by_key(|(order, _)| *order);
    all.into_iter().map(|(_, paused)| paused).collect()
}

/// What each piece that waits to be resumed last was.
fn waiting<'b>(book: &'b Book, moments: &Moments) -> impl Iterator<Item = &'b Allocation> {
    let until = |row: &Allocation| moments.of(row.process, row.gpu);
    let is_paused = move |row: &Allocation| matches!(row.died, Some((t, Death::Paused)) if t <= until(row));
    // By the row that it first was. Rows are in order of birth.
    let mut last: BTreeMap<u32, &Allocation> = BTreeMap::new();
    for (n, row) in (0..).zip(&book.allocations) {
        let resumed = book.resumed.get(&n).copied().filter(|_| row.born <= until(row));
        if let Some(first) = resumed.or_else(|| is_paused(row).then_some(n)) {
            last.insert(first, row);
        }
    }
    last.into_values().filter(move |row| is_paused(row))
}

#[cfg(test)]
mod tests {
    use super::super::testbook::TestBook;
    use super::*;
    use crate::report::At;

    fn seen(t: &TestBook) -> Vec<(String, u64, u64)> {
        let axes = Axes::new(&t.book);
        let paused = paused(&axes, &Moments::new(&axes, At::End).unwrap());
        paused.into_iter().map(|paused| (paused.rank, paused.bytes, paused.allocations)).collect()
    }

    #[test]
    fn what_is_resumed_is_paused_no_more() {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(7, "server"), t.gpu(0));
        let [weights, cache, more] = [20, 100, 100].map(|bytes| t.allocate(process, gpu, bytes));
        assert_eq!(seen(&t), []);
        let label = Axes::new(&t.book).rank(process).to_owned();
        t.pause(weights);
        t.pause(cache);
        t.pause(more);
        assert_eq!(seen(&t), [(label.clone(), 220, 3)]);
        let again = t.resume(cache);
        assert_eq!(seen(&t), [(label.clone(), 120, 2)]);
        t.pause(again);
        assert_eq!(seen(&t), [(label.clone(), 220, 3)], "it is not another piece");
        for piece in [again, weights, more] {
            t.resume(piece);
        }
        assert_eq!(seen(&t), []);
        // What was freed is gone, not paused.
        let freed = t.allocate(process, gpu, 50);
        t.free(freed);
        assert_eq!(seen(&t), []);
    }
}
