//! Rows that are alike: in the same cell on every axis.
//!
//! A trace has millions of rows and hundreds of places that they come from. What is worked out once for rows that are
//! alike need not be for each.

use std::ops::Range;

use super::Axes;
use super::attribute::{Attribution, Mark};
use crate::ledger::{Allocation, Book, Kind};
use crate::map::Map;
use crate::parallel::{in_parallel, workers};

/// Fewest rows that are worth a thread.
const PART: usize = 1 << 16;

/// All that decides a row's cells: process, GPU, kind, owner, list of calls, stack, and what rules say.
type Key<'r> = (usize, usize, Kind, &'r str, usize, Option<u32>, Mark);

/// Which rows are alike.
#[derive(Debug, Default)]
pub(super) struct Alike {
    /// Number of each row's class.
    pub(super) of: Vec<u32>,
    /// Classes, in order of first appearance.
    pub(super) classes: Vec<Class>,
}

/// Rows that are alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct Class {
    /// The first of them.
    pub(super) first: u32,
    pub(super) mark: Mark,
}

impl Alike {
    /// Decides for each row of `book`, and puts together those that are alike.
    pub(super) fn new(book: &Book, attribution: &Attribution<'_>) -> Self {
        let rows = &book.allocations;
        let size = rows.len().div_ceil(workers()).max(PART);
        let starts: Vec<usize> = (0..rows.len()).step_by(size).collect();
        let part = |start: usize| Self::of(book, start..rows.len().min(start + size), attribution);
        let mut parts = in_parallel(starts, part);
        if parts.len() > 1 { Self::join(rows, parts) } else { parts.pop().unwrap_or_default() }
    }

    fn of(book: &Book, range: Range<usize>, attribution: &Attribution<'_>) -> Self {
        let rows = &book.allocations;
        let mut part = Self { of: Vec::with_capacity(range.len()), classes: Vec::new() };
        let mut numbers: Map<Key<'_>, u32> = Map::default();
        // By list: rows share them.
        let mut fitting: Map<usize, Vec<u16>> = Map::default();
        for (number, row) in (range.start as u32..).zip(&rows[range]) {
            // What is resumed is for what it was before it was paused, whoever resumes it.
            let first = book.resumed.get(&number).and_then(|first| rows.get(*first as usize)).unwrap_or(row);
            let calls = fitting.entry(list(first)).or_insert_with(|| attribution.fitting_calls(first));
            let mark = attribution.decide(first, calls);
            let class = *numbers.entry(key(row, mark)).or_insert_with(|| {
                part.classes.push(Class { first: number, mark });
                part.classes.len() as u32 - 1
            });
            part.of.push(class);
        }
        part
    }

    /// Puts parts together that follow each other.
    fn join(rows: &[Allocation], parts: Vec<Self>) -> Self {
        let mut joined = Self { of: Vec::with_capacity(rows.len()), classes: Vec::new() };
        let mut numbers: Map<Key<'_>, u32> = Map::default();
        for part in parts {
            let number = |class: Class| {
                *numbers.entry(key(&rows[class.first as usize], class.mark)).or_insert_with(|| {
                    joined.classes.push(class);
                    joined.classes.len() as u32 - 1
                })
            };
            let joint: Vec<u32> = part.classes.into_iter().map(number).collect();
            joined.of.extend(part.of.into_iter().map(|own| joint[own as usize]));
        }
        joined
    }

    /// The first of `rows`, which this was made of, in each class.
    pub(super) fn firsts<'r>(&self, rows: &'r [Allocation]) -> impl ExactSizeIterator<Item = &'r Allocation> {
        self.classes.iter().map(|class| &rows[class.first as usize])
    }

    /// What was decided for the row that stands at `at`.
    pub(super) fn mark(&self, at: usize) -> Mark {
        self.classes[self.of[at] as usize].mark
    }
}

fn key(row: &Allocation, mark: Mark) -> Key<'_> {
    (row.process, row.gpu, row.kind, &row.owner.0, list(row), row.stack, mark)
}

/// What tells the list of calls from others.
fn list(row: &Allocation) -> usize {
    row.calls.as_ptr().addr()
}

impl<'b> Axes<'b> {
    /// Number of the class of each of the book's rows: those of one class are in the same cell on every axis, and of the same
    /// process and GPU.
    #[must_use]
    pub fn classes(&self) -> &[u32] {
        &self.alike.of
    }

    /// The first row of each class; classes are in order of these.
    pub fn firsts(&self) -> impl ExactSizeIterator<Item = &'b Allocation> {
        self.alike.firsts(&self.book.allocations)
    }

    /// Bytes and number of those rows of each class that `which` is true for.
    pub fn sums(&self, which: impl Fn(&Allocation) -> bool) -> Vec<(u64, u64)> {
        let mut sums = vec![(0_u64, 0); self.alike.classes.len()];
        for (row, class) in self.book.allocations.iter().zip(&self.alike.of).filter(|(row, _)| which(row)) {
            let (bytes, count) = &mut sums[*class as usize];
            *bytes = bytes.saturating_add(row.bytes);
            *count += 1;
        }
        sums
    }
}
