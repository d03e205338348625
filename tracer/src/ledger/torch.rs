//! `PyTorch`'s caching allocator: its blocks, and the segments that they lie in.
//!
//! Blocks own no bytes of the ledger: they subdivide segments, which are rows of [`Book::allocations`](super::Book). The
//! allocator says with each block how much it has handed out and reserved in all, so that its account and this one can be
//! held against each other, and what was there before tracing began is known.

use super::query::Timeline;
use super::{Allocation, Book, Death, ProcessInfo};
use crate::map::Map;

/// All that a trace says about `PyTorch`'s caching allocators.
#[derive(Clone, Debug, Default)]
pub struct Torch {
    /// Allocators: one for each process and CUDA device that blocks were reported of, in order of appearance.
    pub devices: Vec<TorchDevice>,
    /// Blocks in order of birth.
    pub blocks: Vec<Block>,
    /// Times at which an allocator gave up (`torch.OutOfMemoryError`), in order.
    pub failures: Vec<OutOfMemory>,
}

/// The allocator of one device in one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TorchDevice {
    /// Index into [`Book::processes`].
    pub process: usize,
    /// CUDA device ordinal in the process.
    pub ordinal: u32,
    /// Index into [`Book::gpus`]; `None` where no block lay in memory of a known GPU.
    pub gpu: Option<usize>,
    /// Its segments: memory that its blocks were seen to lie in.
    pub segments: Vec<Segment>,
    /// Its own account, wherever that is not what the blocks seen make it.
    pub figures: Vec<Figures>,
    /// Blocks handed out and taken back.
    pub events: u64,
    /// Of these, those after which its account did not follow from the one before: reports were lost.
    pub mismatches: u64,
}

/// A row of the ledger that blocks lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Index into [`Book::allocations`].
    pub row: u32,
    /// Address in the process.
    pub address: u64,
    /// It was made while its thread captured a stream: it is of a graph's private pool (`PyTorch` turns to that for what
    /// a captured stream asks for).
    pub in_graph_pool: bool,
}

/// The allocator's own account from a moment on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// When.
    pub t: u64,
    /// Bytes handed out that no block seen accounts for: those from before tracing began.
    pub before: i64,
    /// Bytes of its segments.
    pub reserved: u64,
}

/// A block while it was handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block {
    /// When it was handed out.
    pub born: u64,
    /// When it was taken back.
    pub died: Option<u64>,
    /// Bytes, as the allocator rounded them.
    pub bytes: u64,
    /// Address.
    pub address: u64,
    /// Index into [`Torch::devices`].
    pub device: u32,
    /// Thread that asked for it.
    pub tid: u32,
    /// Stack number.
    pub stack: Option<u32>,
    /// It lies in a segment of a graph's private pool.
    pub in_graph_pool: bool,
}

impl Block {
    /// True when it was handed out at time `t`.
    #[must_use]
    pub fn live_at(&self, t: u64) -> bool {
        self.born <= t && self.died.is_none_or(|died| t < died)
    }
}

/// The allocator gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// When.
    pub t: u64,
    /// Index into [`Book::processes`].
    pub process: usize,
    /// CUDA device ordinal in the process.
    pub ordinal: u32,
    /// Bytes of the block that could not be had.
    pub requested: u64,
    /// Bytes of all blocks of the device then, by the allocator's own account.
    pub allocated: u64,
    /// Bytes of all its segments then, by the same.
    pub reserved: u64,
    /// Stack number.
    pub stack: Option<u32>,
}

impl Torch {
    /// A sentence on each allocator that no report can place.
    pub(super) fn lost_devices(&self, processes: &[ProcessInfo]) -> Vec<String> {
        let sentence = |device: &TorchDevice| {
            let (ordinal, pid) = (device.ordinal, processes.get(device.process)?.pid);
            let why = "is on no known GPU: none of its blocks lies in memory that was seen to be mapped";
            Some(format!("PyTorch's device {ordinal} of process {pid} {why}; its blocks are left out"))
        };
        self.devices.iter().filter(|device| device.gpu.is_none()).filter_map(sentence).collect()
    }
}

impl TorchDevice {
    /// Its account at `t`; `None` before it said anything.
    #[must_use]
    pub fn figures_at(&self, t: u64) -> Option<Figures> {
        self.figures[..self.figures.partition_point(|figures| figures.t <= t)].last().copied()
    }

    /// Its segments as rows of the ledger.
    pub fn segments<'b>(&'b self, book: &'b Book) -> impl Iterator<Item = &'b Allocation> {
        self.segments.iter().filter_map(|segment| book.allocations.get(segment.row as usize))
    }

    /// The same as the allocator has them. It notices nothing when memory is paused: to it a segment is there until other memory
    /// takes its place at its address. `died` is [`Death::Paused`] for no row.
    #[must_use]
    pub fn kept(&self, book: &Book) -> Vec<Allocation> {
        let mut births: Map<u64, Vec<u64>> = Map::default();
        for (segment, row) in self.segments.iter().zip(self.segments(book)) {
            births.entry(segment.address).or_default().push(row.born);
        }
        let next = |address: u64, t: u64| {
            // In order, as segments are.
            let births = births.get(&address)?;
            births.get(births.partition_point(|born| *born < t)).copied()
        };
        let kept = |(segment, row): (&Segment, &Allocation)| match row.died {
            Some((t, Death::Paused)) => {
                Allocation { died: next(segment.address, t).map(|t| (t, Death::Freed)), ..row.clone() }
            }
            _ => row.clone(),
        };
        self.segments.iter().zip(self.segments(book)).map(kept).collect()
    }

    /// Bytes reserved at `t`: what it last said, and what came and went since (a cache that is emptied is not reported).
    /// `segments` is of those [`kept`](Self::kept).
    #[must_use]
    pub fn reserved_at(&self, t: u64, segments: &Timeline) -> u64 {
        let figures = self.figures_at(t).unwrap_or_default();
        let since = i128::from(segments.at(t)) - i128::from(segments.at(figures.t));
        u64::try_from(i128::from(figures.reserved) + since).unwrap_or(0)
    }

    /// How often what it said of its segments was not what the ledger has of them, beside what was there before tracing
    /// began: that can only become less.
    #[must_use]
    pub fn reserved_mismatches(&self, segments: &Timeline, attached: bool) -> u64 {
        let off = |figures: &Figures| i128::from(figures.reserved) - i128::from(segments.at(figures.t));
        let mut before = if attached { self.figures.first().map_or(0, off) } else { 0 };
        let mut is_off = |figures: &&Figures| {
            let off = off(figures);
            let fits = (0..=before).contains(&off);
            if fits {
                before = off;
            }
            !fits
        };
        self.figures.iter().filter(&mut is_off).count() as u64
    }
}
