//! What processes have mapped, and where: in which memory a block of an allocator lies, and which memory takes the place of
//! what was paused.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::rows::{Numbers, Place, Row, RowId, Rows, Table};
use crate::map::Map;

/// Memory mapped at an address.
#[derive(Clone)]
struct Mapped {
    bytes: u64,
    row: RowId,
}

/// What a process has mapped, by address. Large blocks come and go above many pieces of an expandable segment, so that what is asked of
/// pieces is kept apart from those that have no answer to give.
#[derive(Clone, Default)]
struct Space {
    mapped: BTreeMap<u64, Mapped>,
    /// Video memory in which no block was seen yet.
    unclaimed: BTreeSet<u64>,
    /// Video memory made while its thread captured a stream.
    captured: BTreeSet<u64>,
}

/// Memory that was paused.
#[derive(Clone)]
struct Paused {
    /// What it is resumed as, too.
    piece: u32,
    /// The `PyTorch` allocator that it is a segment of, by number.
    device: Option<u32>,
}

/// Mappings while the trace is read.
#[derive(Clone, Default)]
pub(super) struct Mappings {
    spaces: Map<usize, Space>,
    /// What is paused, by process and address.
    paused: Map<(usize, u64), Paused>,
}

impl Mappings {
    /// Memory was mapped in a process. `resumes`: by a call that resumes what is paused at the address.
    pub(super) fn map(&mut self, process: usize, base: u64, bytes: u64, row: RowId, resumes: bool, rows: &mut Rows) {
        if let Some(paused) = self.paused.remove(&(process, base)).filter(|_| resumes) {
            let row = rows.get(row);
            row.is_resumed(paused.piece);
            paused.device.into_iter().for_each(|device| row.is_segment_of(device, base));
        }
        self.spaces.entry(process).or_default().map(base, Mapped { bytes, row }, rows);
    }

    /// It is mapped no more. `pauses`: by a call that keeps the address, to map memory there again.
    pub(super) fn unmap(&mut self, process: usize, base: u64, pauses: bool, rows: &mut Rows) {
        let Some(gone) = self.spaces.get_mut(&process).and_then(|space| space.unmap(base)) else { return };
        if pauses {
            let device = rows.get(gone.row).segment().map(|(device, _)| device);
            self.paused.insert((process, base), Paused { piece: rows.paused(gone.row), device });
        }
    }

    /// A block of `allocator` was handed out: what it lies in is a segment. A block of an expandable segment may lie in several
    /// pieces.
    pub(super) fn hold(&mut self, process: usize, block: Range<u64>, allocator: u32, rows: &mut Rows) -> Held {
        let Some(space) = self.spaces.get_mut(&process) else { return Held::default() };
        let mut held = Held::default();
        while let Some(base) = space.under(&block, &space.unclaimed) {
            space.unclaimed.remove(&base);
            if let Some(row) = space.live(base, rows) {
                row.is_segment_of(allocator, base);
                held.place.get_or_insert(row.place);
            }
        }
        while let Some(base) = space.under(&block, &space.captured) {
            held.in_graph_pool = space.live(base, rows).is_some();
            if held.in_graph_pool {
                break;
            }
            space.captured.remove(&base);
        }
        held
    }

    /// Rows have new numbers.
    pub(super) fn renumber(&mut self, numbers: &Numbers) {
        self.spaces.values_mut().for_each(|space| space.renumber(numbers));
    }
}

/// What a block lies in.
#[derive(Default)]
pub(super) struct Held {
    /// Where that is, if nothing was known of it before.
    pub(super) place: Option<Place>,
    /// Some of it was made for a graph's private pool.
    pub(super) in_graph_pool: bool,
}

impl Space {
    fn map(&mut self, base: u64, mapped: Mapped, rows: &mut Rows) {
        self.unmap(base);
        if mapped.row.table == Table::Gpu {
            self.unclaimed.insert(base);
            if rows.get(mapped.row).capture {
                self.captured.insert(base);
            }
        }
        self.mapped.insert(base, mapped);
    }

    fn unmap(&mut self, base: u64) -> Option<Mapped> {
        self.unclaimed.remove(&base);
        self.captured.remove(&base);
        self.mapped.remove(&base)
    }

    /// The first piece that reaches into `block`, of some.
    fn under(&self, block: &Range<u64>, some: &BTreeSet<u64>) -> Option<u64> {
        let below = self.mapped.range(..=block.start).next_back();
        let reaching = below.filter(|(base, piece)| base.saturating_add(piece.bytes) > block.start);
        let start = reaching.map_or(block.start, |(base, _)| *base);
        some.range(start..block.end.max(start)).next().copied()
    }

    /// The row of a piece, unless it has gone without its mapping being seen to.
    fn live<'r>(&self, base: u64, rows: &'r mut Rows) -> Option<&'r mut Row> {
        let row = rows.get(self.mapped.get(&base)?.row);
        row.allocation.died.is_none().then_some(row)
    }

    fn renumber(&mut self, numbers: &Numbers) {
        let Self { mapped, unclaimed, captured } = self;
        mapped.retain(|base, mapped| {
            let Some(new) = numbers.of(mapped.row) else {
                unclaimed.remove(base);
                captured.remove(base);
                return false;
            };
            mapped.row = new;
            true
        });
    }
}
