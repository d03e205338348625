//! Stacks and their bytes, as a tree that a page can lay out in any order of roots.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use crate::ledger::Allocation;
use crate::lifecycle::{Axes, Axis, NO_API, NO_STACK, UNATTRIBUTED, kind_name};
use crate::report::diff::Change;
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
        let (moments, peaks) = (Moments::new(axes, at)?, Moments::new(axes, At::Peak)?);
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

impl Flame {
    /// Stacks whose bytes changed between two runs, from stacks folded below rank and phase: in the place of live bytes what
    /// came, in that of peak bytes what went.
    pub(super) fn of_changes(folded: &BTreeMap<String, Change>) -> Self {
        let mut changed: Vec<_> = folded.iter().filter(|(_, change)| change.delta_bytes != 0).collect();
        changed.sort_by_key(|(_, change)| std::cmp::Reverse(change.delta_bytes.unsigned_abs()));
        let mut tree = Tree::default();
        for (stack, change) in changed {
            let mut frames = stack.split(';');
            let roots = [frames.next(), frames.next()].map(Option::unwrap_or_default);
            if tree.flame.nodes.len() >= NODES {
                tree.flame.merged += 1;
                frames = "[smaller stacks]".split(';');
            }
            let rank = listed(&mut tree.flame.ranks, roots[0]);
            let phase = listed(&mut tree.flame.phases, roots[1]);
            let node = frames.fold(0, |parent, frame| tree.node(parent, frame, "", Look::Native) + 1).saturating_sub(1);
            let delta = change.delta_bytes.unsigned_abs();
            let (came, went) = if change.delta_bytes > 0 { (delta, 0) } else { (0, delta) };
            tree.flame.rows.push([rank, phase, 0, node.into(), came, went, 0]);
        }
        tree.flame.owners.push(UNATTRIBUTED.to_owned());
        tree.flame
    }
}

/// Position of `name` in `names`, to which it is added if need be.
fn listed(names: &mut Vec<String>, name: &str) -> u64 {
    let at = names.iter().position(|known| known == name).unwrap_or_else(|| {
        names.push(name.to_owned());
        names.len() - 1
    });
    at as u64
}

/// Nodes and texts under construction, none twice.
#[derive(Default)]
struct Tree {
    flame: Flame,
    texts: HashMap<String, u32>,
    children: HashMap<(u32, u32, u32, Look), u32>,
}

impl Tree {
    /// The node with this look below `parent` (its number + 1; 0 for none).
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

struct Builder<'a, 'b> {
    axes: &'a Axes<'b>,
    tree: Tree,
}

impl<'a, 'b> Builder<'a, 'b> {
    fn new(axes: &'a Axes<'b>) -> Self {
        Self { axes, tree: Tree::default() }
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
        let mut rest: BTreeMap<[u64; 3], Sum> = BTreeMap::new();
        for (key, (row, sum)) in sums {
            let roots = [number(0, key[0]), number(1, key[1]), number(2, key[2])];
            if self.tree.flame.nodes.len() < NODES {
                let node = self.leaf(row);
                self.tree.flame.rows.push([
                    roots[0],
                    roots[1],
                    roots[2],
                    node.into(),
                    sum.live,
                    sum.peak,
                    sum.allocated,
                ]);
            } else {
                self.tree.flame.merged += 1;
                let of_roots = rest.entry(roots).or_default();
                of_roots.live = of_roots.live.saturating_add(sum.live);
                of_roots.peak = of_roots.peak.saturating_add(sum.peak);
                of_roots.allocated = of_roots.allocated.saturating_add(sum.allocated);
            }
        }
        if !rest.is_empty() {
            let text = format!("[{} smaller stacks]", self.tree.flame.merged);
            let node = self.tree.node(0, &text, "", Look::Call);
            let row = |(roots, sum): ([u64; 3], Sum)| {
                [roots[0], roots[1], roots[2], node.into(), sum.live, sum.peak, sum.allocated]
            };
            self.tree.flame.rows.extend(rest.into_iter().map(row));
        }
        let names = |n: usize| labels[n].iter().map(|cell| self.axes.label(ROOTS[n], *cell).into_owned()).collect();
        (self.tree.flame.ranks, self.tree.flame.phases, self.tree.flame.owners) = (names(0), names(1), names(2));
        self.tree.flame
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
                parent = self.tree.node(parent, &function, &frames::place(frame), look(frame)) + 1;
            }
            nameless = module;
        }
        if parent == 0 {
            parent = self.tree.node(0, NO_STACK, "", Look::Plumbing) + 1;
        }
        self.tree.node(parent, &format!("{api} ({})", kind_name(row.kind)), "", Look::Call)
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
