//! Sums over the ledger: live, peak and allocated bytes of each cell.

use super::query::Moments;
use crate::ledger::Allocation;
use crate::lifecycle::{Axes, Axis};
use crate::map::Map;

/// Bytes of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Bytes live at the moment asked for.
    pub live: u64,
    /// Most bytes live at once, over the whole trace.
    pub peak: u64,
    /// Bytes of all allocations there ever were.
    pub allocated: u64,
    /// Allocations live at the moment asked for.
    pub live_count: u64,
    /// Allocations there ever were.
    pub count: u64,
}

/// One cell: its number on each axis asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// Cell numbers, in the order of the axes.
    pub key: Vec<u32>,
    /// Its bytes.
    pub sum: Sum,
}

/// Memory divided by some axes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cells {
    /// The cells, in order of first appearance. Live and allocated bytes and counts sum to those of `total`.
    pub cells: Vec<Cell>,
    /// All of them together. Its peak is that of the sum, at most the sum of the peaks.
    pub total: Sum,
}

/// Divides the ledger's rows by `by`.
pub fn divide(axes: &Axes<'_>, by: &[Axis], moments: &Moments) -> Cells {
    let [cells] = divide_each(axes, [by], moments);
    cells
}

/// Divides the ledger's rows in several ways.
pub(super) fn divide_each<const N: usize>(axes: &Axes<'_>, ways: [&[Axis]; N], moments: &Moments) -> [Cells; N] {
    let rows = &axes.book().allocations;
    let classes = axes.classes();
    let mut ways = ways.map(|by| Way::new(axes, by));
    let mut total = Sum::default();
    for (row, class) in rows.iter().zip(classes) {
        let live = moments.is_live(row);
        for way in &mut ways {
            way.cells[way.cell_of[*class as usize]].sum.add(row, live);
        }
        total.add(row, live);
    }
    let mut total_now = 0;
    axes.changes().visit(|n, change| {
        let (bytes, class) = (rows[n].bytes, classes[n] as usize);
        for way in &mut ways {
            let cell = way.cell_of[class];
            change.apply(&mut way.now[cell], bytes);
            let sum = &mut way.cells[cell].sum;
            sum.peak = sum.peak.max(way.now[cell]);
        }
        change.apply(&mut total_now, bytes);
        total.peak = total.peak.max(total_now);
    });
    ways.map(|way| Cells { cells: way.cells, total })
}

/// A way to divide rows.
struct Way {
    cells: Vec<Cell>,
    /// The cell of each class of rows that are alike.
    cell_of: Vec<usize>,
    /// Bytes live in each cell, while time goes by.
    now: Vec<u64>,
}

impl Way {
    fn new(axes: &Axes<'_>, by: &[Axis]) -> Self {
        let mut numbers: Map<Vec<u32>, usize> = Map::default();
        let mut cells: Vec<Cell> = Vec::new();
        let cell = |row: &Allocation| {
            let key: Vec<u32> = by.iter().map(|axis| axes.cell(*axis, row)).collect();
            *numbers.entry(key).or_insert_with_key(|key| {
                cells.push(Cell { key: key.clone(), sum: Sum::default() });
                cells.len() - 1
            })
        };
        let cell_of = axes.firsts().map(cell).collect();
        let now = vec![0; cells.len()];
        Self { cells, cell_of, now }
    }
}

impl Sum {
    pub(super) fn add(&mut self, row: &Allocation, live: bool) {
        self.allocated = self.allocated.saturating_add(row.bytes);
        self.count += 1;
        if live {
            self.live = self.live.saturating_add(row.bytes);
            self.live_count += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Book;
    use crate::report::query::At;
    use crate::report::testbook::{TestBook, any_book};
    use proptest::prelude::*;

    fn divided(book: &Book, by: &[Axis], at: At) -> Cells {
        let axes = Axes::new(book);
        divide(&axes, by, &Moments::new(&axes, at).unwrap())
    }

    #[test]
    fn memory_replaced_at_one_instant_is_no_peak() {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(1, "a"), t.gpu(0));
        let old = t.allocate(process, gpu, 400);
        t.at(50).free(old);
        t.at(50).allocate(process, gpu, 500);
        assert_eq!(
            divided(&t.book, &[], At::End).total,
            Sum { live: 500, peak: 500, allocated: 900, live_count: 1, count: 2 }
        );
    }

    #[test]
    fn memory_that_died_as_it_was_born_was_never_live() {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(1, "a"), t.gpu(0));
        let row = t.at(50).allocate(process, gpu, 400);
        t.at(50).free(row);
        assert_eq!(divided(&t.book, &[], At::End).total, Sum { allocated: 400, count: 1, ..Sum::default() });
    }

    proptest! {
        #[test]
        fn cells_sum_to_the_total_for_any_axes(
            book in any_book(),
            by in prop::sample::subsequence(Axis::ALL.to_vec(), 0..=Axis::ALL.len()),
            peak: bool,
        ) {
            let Cells { cells, total } = divided(&book, &by, if peak { At::Peak } else { At::End });
            prop_assert_eq!(cells.iter().map(|c| c.sum.live).sum::<u64>(), total.live);
            prop_assert_eq!(cells.iter().map(|c| c.sum.allocated).sum::<u64>(), total.allocated);
            prop_assert_eq!(cells.iter().map(|c| c.sum.count).sum::<u64>(), total.count);
            prop_assert!(cells.iter().map(|c| c.sum.peak).sum::<u64>() >= total.peak);
            prop_assert!(cells.iter().all(|c| c.sum.peak <= total.peak && c.sum.peak <= c.sum.allocated));
        }

        #[test]
        fn the_peak_is_the_highest_of_all_moments(book in any_book()) {
            let live = |t: u64| book.allocations.iter().filter(|row| row.live_at(t)).map(|row| row.bytes).sum::<u64>();
            let highest = book.allocations.iter().map(|row| live(row.born)).max().unwrap_or(0);
            prop_assert_eq!(divided(&book, &[], At::End).total.peak, highest);
        }

        #[test]
        fn at_its_peak_a_process_holds_its_peak(book in any_book()) {
            for cell in divided(&book, &[Axis::Process, Axis::Device], At::Peak).cells {
                prop_assert_eq!(cell.sum.live, cell.sum.peak);
            }
        }
    }
}
