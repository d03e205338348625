//! Births and deaths of memory in order of time.

use crate::ledger::Allocation;
use crate::ledger::torch::Block;

/// A piece of memory came or went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Change {
    /// When, on the trace's clock.
    pub(super) t: u64,
    /// Row of the table.
    pub(super) row: usize,
    /// True when it came.
    pub(super) born: bool,
}

/// All changes of the rows that `keep` lets through. Deaths come first where they coincide with births, so that memory replaced at one instant is
/// never counted twice; memory that died as it was born comes and goes in a row.
pub(super) fn changes(rows: &[Allocation], keep: impl Fn(&Allocation) -> bool) -> Changes<'_> {
    let numbers = 0..u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let mut births: Vec<u32> = numbers.filter(|row| keep(&rows[*row as usize])).collect();
    births.sort_by_key(|row| rows[*row as usize].born);
    let mut deaths: Vec<u32> = births.iter().copied().filter(|row| is_lasting(&rows[*row as usize])).collect();
    deaths.sort_by_key(|row| died(&rows[*row as usize]));
    let ends_at_once = None;
    Changes { rows, births: births.into_iter().peekable(), deaths: deaths.into_iter().peekable(), ends_at_once }
}

/// Iterator of [`changes`]; holds eight bytes a row.
pub(super) struct Changes<'a> {
    rows: &'a [Allocation],
    births: std::iter::Peekable<std::vec::IntoIter<u32>>,
    deaths: std::iter::Peekable<std::vec::IntoIter<u32>>,
    ends_at_once: Option<u32>,
}

/// True when it died, after it was born.
fn is_lasting(row: &Allocation) -> bool {
    row.died.is_some_and(|(t, _)| t > row.born)
}

fn died(row: &Allocation) -> u64 {
    row.died.map_or(u64::MAX, |(t, _)| t)
}

impl Iterator for Changes<'_> {
    type Item = Change;

    fn next(&mut self) -> Option<Change> {
        let change = |row: u32, t, born| Some(Change { t, row: row as usize, born });
        if let Some(row) = self.ends_at_once.take() {
            return change(row, died(&self.rows[row as usize]), false);
        }
        let birth = self.births.peek().map(|row| self.rows[*row as usize].born);
        let is_next = |row: &u32| birth.is_none_or(|born| died(&self.rows[*row as usize]) <= born);
        if let Some(row) = self.deaths.next_if(is_next) {
            return change(row, died(&self.rows[row as usize]), false);
        }
        let row = self.births.next()?;
        let allocation = &self.rows[row as usize];
        self.ends_at_once = allocation.died.filter(|(t, _)| *t <= allocation.born).map(|_| row);
        change(row, allocation.born, true)
    }
}

/// Blocks of `PyTorch`'s allocators as they are handed out (true) and taken back, by number and in order of time, what is
/// taken back first.
pub(super) fn block_changes(blocks: &[Block]) -> Vec<(u64, bool, u32)> {
    let numbered = || blocks.iter().zip(0_u32..);
    let births = numbered().map(|(block, number)| (block.born, true, number));
    let deaths = numbered().filter_map(|(block, number)| Some((block.died?, false, number)));
    let mut changes: Vec<_> = births.chain(deaths).collect();
    changes.sort_unstable();
    changes
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testbook::{TestBook, any_book};
    use proptest::prelude::*;

    #[test]
    fn deaths_go_before_births_of_the_same_instant() {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(1, "a"), t.gpu(0));
        let old = t.at(10).allocate(process, gpu, 1);
        t.at(50).free(old);
        let brief = t.at(50).allocate(process, gpu, 2);
        t.at(50).free(brief);
        let seen: Vec<_> = changes(&t.book.allocations, |_| true).map(|c| (c.t, c.row, c.born)).collect();
        assert_eq!(seen, [(10, 0, true), (50, 0, false), (50, 1, true), (50, 1, false)]);
    }

    proptest! {
        #[test]
        fn everything_comes_once_and_goes_after_it_came(book in any_book()) {
            let rows = &book.allocations;
            let (mut live, mut before) = (vec![false; rows.len()], 0);
            for Change { t, row, born } in changes(rows, |_| true) {
                prop_assert!(t >= before && live[row] != born);
                (live[row], before) = (born, t);
            }
            for (row, live) in rows.iter().zip(live) {
                prop_assert_eq!(row.died.is_none(), live);
            }
        }
    }
}
