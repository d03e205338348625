//! Rows of a report's tables, named and in order.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::cells;
use super::frames;
use super::query::Moments;
use super::summary::Bytes;
use crate::ledger::Kind;
use crate::lifecycle::{Axes, Axis, kind_name};

/// Stacks shown.
const STACKS: usize = 10;
/// Frames kept of each.
const FRAMES: usize = 6;

/// A cell: its label on each axis, and its bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// Label by name of the axis.
    #[serde(flatten)]
    pub labels: BTreeMap<&'static str, String>,
    /// Innermost frame that says who asked, where the cell is of one stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<String>,
    /// Its bytes.
    #[serde(flatten)]
    pub bytes: Bytes,
}

impl Cell {
    /// Label on an axis that divides the cells.
    #[must_use]
    pub fn label(&self, axis: &str) -> &str {
        self.labels.get(axis).map_or("", String::as_str)
    }

    pub(super) fn is_pre_attach(&self) -> bool {
        self.label(Axis::Kind.name()) == kind_name(Kind::PreAttach)
    }
}

/// Names and orders cells divided by `by`: axes with an order of their own in that, the others by size.
pub(super) fn cells(axes: &Axes<'_>, by: &[Axis], mut cells: Vec<cells::Cell>) -> Vec<Cell> {
    sort(by, &mut cells);
    let named = |cell: cells::Cell| {
        let keys = || by.iter().zip(&cell.key);
        let stack = keys().find(|(axis, _)| **axis == Axis::Stack).and_then(|(_, key)| Axes::stack_of(*key));
        Cell {
            labels: keys().map(|(axis, key)| (axis.name(), axes.label(*axis, *key).into_owned())).collect(),
            frame: stack.and_then(|stack| frames::innermost_useful(axes.book(), stack, 1).pop()),
            bytes: cell.sum.into(),
        }
    };
    cells.into_iter().map(named).collect()
}

fn sort(by: &[Axis], cells: &mut [cells::Cell]) {
    // Live bytes, then peak, of all cells that share the first n labels.
    let mut sizes: HashMap<Vec<u32>, (u64, u64)> = HashMap::new();
    for cell in cells.iter() {
        for n in 1..=by.len() {
            let (live, peak) = sizes.entry(cell.key[..n].to_vec()).or_default();
            *live = live.saturating_add(cell.sum.live);
            *peak = peak.saturating_add(cell.sum.peak);
        }
    }
    cells.sort_by(|a, b| {
        let Some(n) = (0..by.len()).find(|n| a.key[*n] != b.key[*n]) else { return Ordering::Equal };
        let by_name = a.key[n].cmp(&b.key[n]);
        if by[n].is_ordered() { by_name } else { sizes[&b.key[..=n]].cmp(&sizes[&a.key[..=n]]).then(by_name) }
    });
}

/// Cells of each process and GPU, divided by `by`. `all` was divided by process and device before that.
pub(super) fn split(axes: &Axes<'_>, by: &[Axis], all: Vec<cells::Cell>) -> BTreeMap<(usize, usize), Vec<Cell>> {
    let mut pairs: BTreeMap<(usize, usize), Vec<cells::Cell>> = BTreeMap::new();
    for mut cell in all {
        let key = cell.key.split_off(2);
        let pair = (cell.key[0] as usize, cell.key[1] as usize);
        pairs.entry(pair).or_default().push(cells::Cell { key, ..cell });
    }
    pairs.into_iter().map(|(pair, part)| (pair, cells(axes, by, part))).collect()
}

/// A stack and what it holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StackRow {
    /// Stack number in the trace.
    pub stack: Option<u32>,
    /// Outermost probed API call.
    pub api: String,
    /// What the memory is for.
    pub kind: String,
    /// Processes that hold memory from it.
    pub processes: u64,
    /// Live bytes.
    pub live_bytes: u64,
    /// Live allocations.
    pub live_count: u64,
    /// Innermost frames that say who asked, innermost first.
    pub frames: Vec<String>,
}

/// The stacks that hold most live bytes, biggest first.
pub(super) fn biggest_stacks(axes: &Axes<'_>, moments: &Moments) -> Vec<StackRow> {
    let by = [Axis::Stack, Axis::Api, Axis::Kind, Axis::Process];
    let mut cells: BTreeMap<[u32; 4], (u64, u64)> = BTreeMap::new();
    let live = axes.sums(|row| moments.is_live(row));
    for (row, (bytes, number)) in axes.firsts().zip(live).filter(|(_, (_, number))| *number > 0) {
        let (live, count) = cells.entry(by.map(|axis| axes.cell(axis, row))).or_default();
        *live = live.saturating_add(bytes);
        *count += number;
    }
    let mut groups: Vec<([u32; 3], (u64, u64, u64))> = Vec::new();
    for ([stack, api, kind, _], (bytes, number)) in cells {
        let key = [stack, api, kind];
        if groups.last().is_none_or(|(last, _)| *last != key) {
            groups.push((key, (0, 0, 0)));
        }
        if let Some((_, (live, count, processes))) = groups.last_mut() {
            *live = live.saturating_add(bytes);
            *count += number;
            *processes += 1;
        }
    }
    groups.sort_by_key(|(_, (live, ..))| std::cmp::Reverse(*live));
    groups.truncate(STACKS);
    let row = |(key, (live_bytes, live_count, processes)): ([u32; 3], (u64, u64, u64))| {
        let stack = Axes::stack_of(key[0]);
        StackRow {
            stack,
            api: axes.label(Axis::Api, key[1]).into_owned(),
            kind: axes.label(Axis::Kind, key[2]).into_owned(),
            processes,
            live_bytes,
            live_count,
            frames: stack.map(|s| frames::innermost_useful(axes.book(), s, FRAMES)).unwrap_or_default(),
        }
    };
    groups.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::query::{At, Query};
    use crate::report::summary::Summary;
    use crate::report::testbook::TestBook;

    #[test]
    fn ordered_axes_keep_their_order_and_the_others_go_by_size() {
        let mut t = TestBook::new();
        let (first, second, gpu) = (t.process(1, "a"), t.process(2, "b"), t.gpu(0));
        t.allocate(second, gpu, 500);
        t.allocate(first, gpu, 10);
        t.allocate_kind(first, gpu, 30, Kind::Context);
        let query = Query { by: vec![Axis::Rank, Axis::Kind], at: At::End, ..Query::default() };
        let cells = Summary::new(&t.book, &query).unwrap().cells;
        let order: Vec<_> = cells.iter().map(|cell| (cell.label("rank"), cell.label("kind"))).collect();
        assert_eq!(order, [("1 a", "context"), ("1 a", "cuda_malloc"), ("2 b", "cuda_malloc")]);
    }

    #[test]
    fn the_biggest_stacks_gather_all_processes() {
        let mut t = TestBook::new();
        let (first, second, gpu) = (t.process(1, "a"), t.process(2, "b"), t.gpu(0));
        let stack = t.stack(&[("main", "server"), ("load", "libtorch.so"), ("cudaMalloc", "libcudart.so.12")]);
        for process in [first, second, second] {
            let row = t.allocate(process, gpu, 100);
            t.book.allocations[row].stack = Some(stack);
        }
        t.allocate(first, gpu, 250);
        let stacks = Summary::new(&t.book, &Query::default()).unwrap().stacks;
        let sizes: Vec<_> = stacks.iter().map(|s| (s.live_bytes, s.live_count, s.processes, s.frames.len())).collect();
        assert_eq!(sizes, [(300, 3, 2, 2), (250, 1, 1, 0)]);
        assert_eq!(stacks[0].frames, ["load (libtorch.so)", "main (server)"]);
    }
}
