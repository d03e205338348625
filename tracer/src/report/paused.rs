//! Memory that was given back while its user keeps the addresses (`tms_pause` of `torch_memory_saver`), until it is taken again.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

use super::query::Moments;
use crate::ledger::{Allocation, Book, Death};
use crate::lifecycle::{Axes, Axis, phase_order};
use crate::map::Map;

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
    for (first, bytes) in waiting(axes.book(), moments) {
        let row = &axes.book().allocations[first];
        let sum = sums.entry((row.process, row.gpu, axes.cell(Axis::Phase, row))).or_default();
        *sum = (sum.0.saturating_add(bytes), sum.1 + 1);
    }
    let place = |process: &usize| axes.order().iter().position(|other| other == process);
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
        ((place(&process), gpu, phase_order(&paused.phase)), paused)
    };
    let mut all: Vec<_> = sums.into_iter().map(named).collect();
    all.sort_by_key(|(order, _)| *order);
    all.into_iter().map(|(_, paused)| paused).collect()
}

/// A pause or a resumption: when, whether it resumes, and the row that ends or begins with it.
type Step = (u64, bool, usize);

/// For each piece that waits to be resumed the row it first was, and its bytes. What is resumed is what has the size and has
/// waited longest: requests name no piece.
fn waiting(book: &Book, moments: &Moments) -> Vec<(usize, u64)> {
    let rows = &book.allocations;
    let is_paused = |row: &&Allocation| matches!(row.died, Some((_, Death::Paused)));
    if !rows.iter().any(|row| is_paused(&row)) {
        return Vec::new();
    }
    let until = |row: &Allocation| moments.of(row.process, row.gpu);
    let numbered = || rows.iter().enumerate();
    let pauses = numbered().filter(|(_, row)| is_paused(row)).filter_map(|(n, row)| Some((row.died?.0, false, n)));
    let resumptions = numbered().filter(|(_, row)| row.is_resumed()).map(|(n, row)| (row.born, true, n));
    let mut steps: Vec<Step> = pauses.chain(resumptions).filter(|(t, _, n)| *t <= until(&rows[*n])).collect();
    steps.sort_unstable();
    let mut waiting: Map<(usize, usize, u64), VecDeque<usize>> = Map::default();
    let mut firsts: Map<usize, usize> = Map::default();
    for (_, resumes, n) in steps {
        let row = &rows[n];
        let alike = waiting.entry((row.process, row.gpu, row.bytes)).or_default();
        if resumes {
            firsts.extend(alike.pop_front().map(|first| (n, first)));
        } else {
            alike.push_back(firsts.get(&n).copied().unwrap_or(n));
        }
    }
    waiting.into_iter().flat_map(|((_, _, bytes), firsts)| firsts.into_iter().map(move |n| (n, bytes))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::testbook::TestBook;
    use super::*;
    use crate::report::At;

    fn resume(t: &mut TestBook, process: usize, bytes: u64) -> usize {
        let row = t.allocate_by(process, 0, bytes, &["resume_memory_occupation"]);
        t.book.allocations[row].calls = ["tms_resume".to_owned(), "cuMemCreate".to_owned()].into();
        row
    }

    fn seen(t: &TestBook) -> Vec<(String, u64, u64)> {
        let axes = Axes::new(&t.book);
        let paused = paused(&axes, &Moments::new(&t.book, At::End).unwrap());
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
        let again = resume(&mut t, process, 100);
        assert_eq!(seen(&t), [(label.clone(), 120, 2)]);
        t.pause(again);
        assert_eq!(seen(&t), [(label.clone(), 220, 3)], "it is not another piece");
        for bytes in [20, 100, 100] {
            resume(&mut t, process, bytes);
        }
        assert_eq!(seen(&t), []);
        // What was freed is gone, not paused; and a resumption of something from before tracing is none of these.
        let freed = t.allocate(process, gpu, 50);
        t.free(freed);
        resume(&mut t, process, 70);
        assert_eq!(seen(&t), []);
    }
}
