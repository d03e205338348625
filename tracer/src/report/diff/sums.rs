//! Live bytes of both runs, divided in the same way.

use std::collections::{BTreeMap, HashMap};

use super::Run;
use super::model::Change;
use super::pair::Pairs;
use super::stack_key::StackKeys;
use crate::ledger::Allocation;
use crate::lifecycle::{Axes, Axis};
use crate::report::query::Moments;

/// A cell's name on an axis, the same in both runs. Those of an axis with an order of its own stand in that.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Part {
    pub(super) order: u32,
    pub(super) name: String,
}

/// Live bytes and allocations of a group in each run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) bytes: [u64; 2],
    pub(super) count: [u64; 2],
}

impl Held {
    pub(super) fn change(self) -> Change {
        Change::new(self.bytes[0], self.bytes[1])
    }

    pub(super) fn add(&mut self, side: usize, bytes: u64, count: u64) {
        self.bytes[side] = self.bytes[side].saturating_add(bytes);
        self.count[side] += count;
    }
}

/// Two runs, each at its moments.
pub(super) struct Both<'r, 'a, 'b> {
    pub(super) runs: [&'r Run<'a, 'b>; 2],
    pub(super) moments: &'r [Moments; 2],
    pub(super) pairs: &'r Pairs,
}

impl Both<'_, '_, '_> {
    /// Divides the live rows of both by `by`.
    pub(super) fn divide(&self, by: &[Axis], keys: &mut [StackKeys<'_>; 2]) -> BTreeMap<Vec<Part>, Held> {
        let mut cells: BTreeMap<Vec<Part>, Held> = BTreeMap::new();
        for side in [0, 1] {
            for (key, (bytes, count)) in self.numbers(side, by) {
                let name = |(axis, cell): (&Axis, &u32)| self.part(side, *axis, *cell, &mut keys[side]);
                let parts = by.iter().zip(&key).map(name).collect();
                cells.entry(parts).or_default().add(side, bytes, count);
            }
        }
        cells
    }

    /// Live bytes and counts of one run by numbers of cells: names are made once a cell, not once an allocation.
    pub(super) fn numbers(&self, side: usize, by: &[Axis]) -> HashMap<Vec<u32>, (u64, u64)> {
        let (axes, moments) = (self.runs[side].axes, &self.moments[side]);
        let mut sums: HashMap<Vec<u32>, (u64, u64)> = HashMap::new();
        for (row, sum) in axes.firsts().zip(axes.sums(|row| moments.is_live(row))).filter(|(_, sum)| sum.1 > 0) {
            let key = by.iter().map(|axis| cell(axes, *axis, row)).collect();
            let (bytes, count) = sums.entry(key).or_default();
            *bytes = bytes.saturating_add(sum.0);
            *count += sum.1;
        }
        sums
    }

    fn part(&self, side: usize, axis: Axis, cell: u32, keys: &mut StackKeys<'_>) -> Part {
        let axes = self.runs[side].axes;
        match axis {
            Axis::Rank | Axis::Process => {
                let place = self.pairs.of(side, cell as usize);
                let label = place.map(|at| self.pairs.places[at].label.clone());
                Part { order: place.map_or(u32::MAX, |at| at as u32), name: label.unwrap_or_default() }
            }
            Axis::Stack => Part { order: 0, name: keys.key(Axes::stack_of(cell)).to_string() },
            Axis::Device => {
                let index = axes.book().gpus.get(cell as usize).and_then(|gpu| gpu.index);
                Part { order: index.unwrap_or(u32::MAX), name: axes.label(axis, cell).into_owned() }
            }
            // Both runs are read by the same rules: phases and roles have the same numbers.
            Axis::Phase | Axis::Role => Part { order: cell, name: axes.label(axis, cell).into_owned() },
            _ => Part { order: 0, name: axes.label(axis, cell).into_owned() },
        }
    }

    /// Live bytes of rows that stand apart from the GPU's sum, by place.
    pub(super) fn apart<'x>(&'x self, rows: impl Fn(&'x Axes<'_>) -> &'x [Allocation]) -> HashMap<usize, Change> {
        let mut sums: HashMap<usize, Held> = HashMap::new();
        for (side, run) in self.runs.iter().enumerate() {
            for row in rows(run.axes).iter().filter(|row| self.moments[side].is_live(row)) {
                if let Some(place) = self.pairs.of(side, row.process) {
                    sums.entry(place).or_default().add(side, row.bytes, 1);
                }
            }
        }
        sums.into_iter().map(|(place, held)| (place, held.change())).collect()
    }
}

/// A row's cell; on the axis of ranks its process, which [`Pairs`] finds the place of.
fn cell(axes: &Axes<'_>, axis: Axis, row: &Allocation) -> u32 {
    match axis {
        Axis::Rank | Axis::Process => row.process as u32,
        axis => axes.cell(axis, row),
    }
}
