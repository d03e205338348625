//! Stacks and their bytes, as a tree that a page can lay out in any order of roots.

use std::collections::HashMap;

use serde::Serialize;

use crate::ledger::Allocation;
use crate::lifecycle::{Axes, Axis, NO_API, NO_STACK, kind_name};
use crate::report::frames;
use crate::report::query::{self, At, Moments};
use crate::trace::record::{Frame, FrameKind};

/// Frames kept; where a trace has more, its smallest stacks are told together.
const NODES: usize = 40_000;

/// What a frame is, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(into = "u8")]
enum Look {
    Native = 0,
    Python = 1,
    /// Interpreter, runtime and driver: says nothing about who asked.
    Plumbing = 2,
    /// The call or request that brought the memory.
    Call = 3,
}

impl From<Look> for u8 {
    fn from(look: Look) -> Self {
        look as Self
    }
}

/// Stacks of a trace with the bytes that came by them.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Flame {
    /// Texts that nodes name.
    pub(super) names: Vec<String>,
    /// Frames, each after its parent: `[parent + 1 (0: none), function, place, look]`; texts by number.
    nodes: Vec<(u32, u32, u32, Look)>,
    /// Ranks that rows name.
    pub(super) ranks: Vec<String>,
    /// Phases that rows name, in the order of the server's life.
    pub(super) phases: Vec<String>,
    /// Owners that rows name.
    pub(super) owners: Vec<String>,
    /// `[rank, phase, owner, node, live, peak, allocated]`: bytes live at the moment looked at, live when each process
    /// held most on each GPU, and ever allocated.
    pub(super) rows: Vec<[u64; 7]>,
    /// Stacks that are told together with others.
    pub(super) merged: usize,
}

/// Bytes of one stack.
#[derive(Clone, Copy, Default)]
struct Sum {
    live: u64,
    peak: u64,
    allocated: u64,
}

/// Axes of a row that its node does not tell.
const ROOTS: [Axis; 3] = [Axis::Rank, Axis::Phase, Axis::Owner];

impl Flame {
    /// The stacks of the book of `axes`, live bytes at `at`.
    ///
    /// # Errors
    ///
    /// When the trace has no such moment.
    pub(super) fn new(axes: &Axes<'_>, at: At) -> Result<Self, query::Error> {
        let book = axes.book();
        let (moments, peaks) = (Moments::new(book, at)?, Moments::new(book, At::Peak)?);
        let mut sums: HashMap<[u32; 6], (&Allocation, Sum)> = HashMap::new();
        for row in &book.allocations {
            let cell = |axis| axes.cell(axis, row);
            let key = [ROOTS[0], ROOTS[1], ROOTS[2], Axis::Stack, Axis::Api, Axis::Kind].map(cell);
            let (_, sum) = sums.entry(key).or_insert((row, Sum::default()));
            sum.allocated = sum.allocated.saturating_add(row.bytes);
            for (bytes, moments) in [(&mut sum.live, &moments), (&mut sum.peak, &peaks)] {
                *bytes = bytes.saturating_add(if moments.is_live(row) { row.bytes } else { 0 });
            }
        }
        let mut sums: Vec<_> = sums.into_iter().collect();
        // The biggest first: what does not fit any more is small. The key makes equal traces give equal pages.
        let weight = |sum: &Sum| u128::from(sum.live) + u128::from(sum.peak) + u128::from(sum.allocated);
        sums.sort_by(|(a_key, (_, a)), (b_key, (_, b))| weight(b).cmp(&weight(a)).then_with(|| a_key.cmp(b_key)));
        Ok(Builder::new(axes).build(sums))
    }
}

struct Builder<'a, 'b> {
    axes: &'a Axes<'b>,
    flame: Flame,
    texts: HashMap<String, u32>,
    children: HashMap<(u32, u32, u32, Look), u32>,
}

impl<'a, 'b> Builder<'a, 'b> {
    fn new(axes: &'a Axes<'b>) -> Self {
        Self { axes, flame: Flame::default(), texts: HashMap::new(), children: HashMap::new() }
    }

    fn build(mut self, sums: Vec<([u32; 6], (&Allocation, Sum))>) -> Flame {
        let mut labels: [Vec<u32>; 3] = ROOTS.map(|_| Vec::new());
        for (list, n) in labels.iter_mut().zip(0..) {
            list.extend(sums.iter().map(|(key, _)| key[n]));
            list.sort_unstable();
            list.dedup();
        }
        let number = |n: usize, cell: u32| labels[n].binary_search(&cell).map_or(0, |at| at as u64);
        // By rank, phase and owner: what is told together.
        let mut rest: std::collections::BTreeMap<[u64; 3], Sum> = std::collections::BTreeMap::new();
        for (key, (row, sum)) in sums {
            let roots = [number(0, key[0]), number(1, key[1]), number(2, key[2])];
            if self.flame.nodes.len() < NODES {
                let node = self.leaf(row);
                self.flame.rows.push([roots[0], roots[1], roots[2], node.into(), sum.live, sum.peak, sum.allocated]);
            } else {
                self.flame.merged += 1;
                let of_roots = rest.entry(roots).or_default();
                of_roots.live = of_roots.live.saturating_add(sum.live);
                of_roots.peak = of_roots.peak.saturating_add(sum.peak);
                of_roots.allocated = of_roots.allocated.saturating_add(sum.allocated);
            }
        }
        if !rest.is_empty() {
            let text = format!("[{} smaller stacks]", self.flame.merged);
            let node = self.node(0, &text, "", Look::Call);
            let row = |(roots, sum): ([u64; 3], Sum)| {
                [roots[0], roots[1], roots[2], node.into(), sum.live, sum.peak, sum.allocated]
            };
            self.flame.rows.extend(rest.into_iter().map(row));
        }
        let names = |n: usize| labels[n].iter().map(|cell| self.axes.label(ROOTS[n], *cell).into_owned()).collect();
        (self.flame.ranks, self.flame.phases, self.flame.owners) = (names(0), names(1), names(2));
        self.flame
    }

    /// The node of the call that brought `row`, below its frames.
    fn leaf(&mut self, row: &Allocation) -> u32 {
        let api = row.calls.first().map_or(NO_API, String::as_str);
        let book = self.axes.book();
        let frames: Vec<&Frame> = row.stack.into_iter().flat_map(|stack| frames::of_stack(book, stack)).collect();
        // The stack was copied at the call's entry, where the call itself is the innermost frame.
        let own = frames.last().is_some_and(|frame| frames::function(frame) == api);
        let frames = &frames[..frames.len() - usize::from(own)];
        let (mut parent, mut nameless) = (0, None);
        for frame in frames {
            // A run of frames without symbols is one box, as in folded stacks.
            let module = frames::nameless_module(frame);
            if module.is_none() || module != nameless {
                let function = module.map_or_else(|| frames::function(frame), |module| format!("[{module}]").into());
                parent = self.node(parent, &function, &frames::place(frame), look(frame)) + 1;
            }
            nameless = module;
        }
        if parent == 0 {
            parent = self.node(0, NO_STACK, "", Look::Plumbing) + 1;
        }
        self.node(parent, &format!("{api} ({})", kind_name(row.kind)), "", Look::Call)
    }

    fn node(&mut self, parent: u32, function: &str, place: &str, look: Look) -> u32 {
        let key = (parent, self.text(function), self.text(place), look);
        let next = self.flame.nodes.len() as u32;
        let node = *self.children.entry(key).or_insert(next);
        if node == next {
            self.flame.nodes.push(key);
        }
        node
    }

    fn text(&mut self, text: &str) -> u32 {
        if let Some(number) = self.texts.get(text) {
            return *number;
        }
        let number = self.flame.names.len() as u32;
        self.texts.insert(text.to_owned(), number);
        self.flame.names.push(text.to_owned());
        number
    }
}

fn look(frame: &Frame) -> Look {
    match frame.kind {
        FrameKind::Python => Look::Python,
        FrameKind::Native if frames::is_plumbing(frame) => Look::Plumbing,
        FrameKind::Native | FrameKind::Cut => Look::Native,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testbook::any_book;
    use crate::report::{Query, Summary};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_sum_to_the_reports_bytes(book in any_book()) {
            let axes = Axes::new(&book);
            let flame = Flame::new(&axes, At::End).unwrap();
            let sum = |column: usize| flame.rows.iter().map(|row| row[column]).sum::<u64>();
            let summary = Summary::of(&axes, &Query::default()).unwrap();
            prop_assert_eq!(sum(4), summary.total.live_bytes);
            prop_assert_eq!(sum(6), summary.total.allocated_bytes);
            let peaks: u64 = summary.devices().map(|(_, device)| device.bytes.peak_bytes).sum();
            prop_assert_eq!(sum(5), peaks);
        }

        #[test]
        fn numbers_point_to_what_is_there(book in any_book()) {
            let flame = Flame::new(&Axes::new(&book), At::End).unwrap();
            for (n, node) in flame.nodes.iter().enumerate() {
                prop_assert!(node.0 as usize <= n, "a parent stands before its children");
                prop_assert!((node.1 as usize) < flame.names.len() && (node.2 as usize) < flame.names.len());
            }
            for row in &flame.rows {
                prop_assert!((row[0] as usize) < flame.ranks.len() && (row[1] as usize) < flame.phases.len());
                prop_assert!((row[2] as usize) < flame.owners.len() && (row[3] as usize) < flame.nodes.len());
            }
        }
    }
}
