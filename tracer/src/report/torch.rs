//! `PyTorch`'s caching allocator: what it handed out of what it had taken.

use std::collections::BTreeMap;

use serde::Serialize;

use super::frames;
use super::query::Moments;
use super::summary::since_start;
use crate::ledger::torch::{Block, Figures, OutOfMemory, TorchDevice};
use crate::ledger::{Allocation, Timeline};
use crate::lifecycle::{Axes, Axis, UNATTRIBUTED, phase_order};

/// The allocator of a process on a GPU, at the moment looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TorchMemory {
    /// CUDA device ordinal in the process.
    pub ordinal: u32,
    /// All of it: `torch.cuda.memory_allocated()`, `memory_reserved()`.
    #[serde(flatten)]
    pub sum: TorchSum,
    /// Of this, in private pools of CUDA graphs.
    pub graph_pools: TorchSum,
    /// Of the allocated bytes, those that no block seen accounts for: handed out before tracing began.
    pub before_bytes: i64,
    /// Live bytes that the ledger has of its segments: physical memory, as the driver rounded it.
    pub segments_bytes: u64,
    /// These segments.
    pub segments: u64,
    /// The allocator's own account when it last reported a block.
    pub reported: Option<Reported>,
    /// Blocks handed out and taken back in the whole trace.
    pub events: u64,
    /// Times at which its own account did not follow from the one before: reports were lost.
    pub mismatches: u64,
    /// Times at which what it said of its segments was not what the ledger has of them.
    pub reserved_mismatches: u64,
    /// The same bytes by phase: blocks by when they were asked for, segments by when they were made.
    pub phases: Vec<TorchPhase>,
    /// Times at which it gave up (`torch.OutOfMemoryError`), in the whole trace.
    pub out_of_memory: Vec<GaveUp>,
}

/// Bytes of an allocator or a part of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TorchSum {
    /// Blocks handed out.
    pub allocated_bytes: u64,
    /// Segments taken.
    pub reserved_bytes: u64,
    /// Reserved less allocated. Of a phase it is negative where its blocks lie in segments of another.
    pub slack_bytes: i64,
    /// Blocks that were seen to be handed out.
    pub blocks: u64,
}

/// The allocator's own account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Reported {
    /// From when on it holds, since tracing began.
    pub time_ns: u64,
    /// Segments, by its account then.
    pub reserved_bytes: u64,
}

/// The allocator's bytes of one phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TorchPhase {
    /// Phase.
    pub phase: String,
    /// Its bytes.
    #[serde(flatten)]
    pub sum: TorchSum,
}

/// The allocator gave up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct GaveUp {
    /// When, since tracing began.
    pub time_ns: u64,
    /// Bytes of the block that could not be had.
    pub requested_bytes: u64,
    /// Blocks handed out then, by its own account.
    pub allocated_bytes: u64,
    /// Segments it had then, by its own account.
    pub reserved_bytes: u64,
    /// Lifecycle phase.
    pub phase: String,
    /// Call stack, outermost first.
    pub stack: Vec<String>,
}

/// Allocators by process and GPU.
pub(super) fn by_device(axes: &Axes<'_>, moments: &Moments) -> BTreeMap<(usize, usize), TorchMemory> {
    let torch = &axes.book().torch;
    let mut blocks: Vec<Vec<&Block>> = vec![Vec::new(); torch.devices.len()];
    let moment = |device: &TorchDevice| device.gpu.map(|gpu| moments.of(device.process, gpu));
    let moment: Vec<Option<u64>> = torch.devices.iter().map(moment).collect();
    for block in &torch.blocks {
        let device = block.device as usize;
        if moment[device].is_some_and(|t| block.live_at(t)) {
            blocks[device].push(block);
        }
    }
    let devices = torch.devices.iter().zip(moment).zip(&blocks);
    let memory = |((device, t), blocks): ((&TorchDevice, Option<u64>), &Vec<&Block>)| {
        Some(((device.process, device.gpu?), allocator(axes, device, t?, blocks)))
    };
    devices.filter_map(memory).collect()
}

fn allocator(axes: &Axes<'_>, device: &TorchDevice, t: u64, blocks: &[&Block]) -> TorchMemory {
    let book = axes.book();
    let kept = device.kept(book);
    let timeline = Timeline::of(&kept);
    let figures = device.figures_at(t);
    let before = figures.map_or(0, |figures| figures.before);
    let mut sum = TorchSum { reserved_bytes: device.reserved_at(t, &timeline), ..TorchSum::default() };
    let mut graph_pools = TorchSum::default();
    let mut phases: BTreeMap<&str, TorchSum> = BTreeMap::new();
    for block in blocks {
        sum.hand_out(block);
        phases.entry(axes.block_phase(device.process, block)).or_default().hand_out(block);
        if block.in_graph_pool {
            graph_pools.hand_out(block);
        }
    }
    let segments = device.segments.iter().zip(device.segments(book)).zip(&kept);
    for ((segment, row), _) in segments.filter(|(_, kept)| kept.live_at(t)) {
        phases.entry(phase(axes, row)).or_default().reserved_bytes += row.bytes;
        graph_pools.reserved_bytes += if segment.in_graph_pool { row.bytes } else { 0 };
    }
    sum.allocated_bytes = sum.allocated_bytes.saturating_add_signed(before);
    unaccounted(&mut phases, &sum);
    let reported =
        figures.map(|Figures { t, reserved, .. }| Reported { time_ns: since_start(book, t), reserved_bytes: reserved });
    let attached = book.processes.get(device.process).is_some_and(|process| process.attached);
    let live = || device.segments(book).filter(|row| row.live_at(t));
    TorchMemory {
        ordinal: device.ordinal,
        sum: sum.settled(),
        graph_pools: graph_pools.settled(),
        before_bytes: before,
        segments_bytes: live().fold(0, |sum, row| row.bytes.saturating_add(sum)),
        segments: live().count() as u64,
        reported,
        events: device.events,
        mismatches: device.mismatches,
        reserved_mismatches: device.reserved_mismatches(&timeline, attached),
        phases: in_order(phases),
        out_of_memory: gave_up(axes, device),
    }
}

fn phase<'a>(axes: &'a Axes<'_>, row: &Allocation) -> &'a str {
    axes.phase_name(axes.cell(Axis::Phase, row))
}

/// What was there before tracing began is of no known phase.
fn unaccounted(phases: &mut BTreeMap<&str, TorchSum>, sum: &TorchSum) {
    let of = |get: fn(&TorchSum) -> u64| phases.values().map(get).fold(0, u64::saturating_add);
    let allocated = sum.allocated_bytes.saturating_sub(of(|sum| sum.allocated_bytes));
    let reserved = sum.reserved_bytes.saturating_sub(of(|sum| sum.reserved_bytes));
    if allocated > 0 || reserved > 0 {
        let rest = phases.entry(UNATTRIBUTED).or_default();
        rest.allocated_bytes += allocated;
        rest.reserved_bytes += reserved;
    }
}

/// Phases as a server goes through them.
fn in_order(phases: BTreeMap<&str, TorchSum>) -> Vec<TorchPhase> {
    let phase = |(phase, sum): (&str, TorchSum)| TorchPhase { phase: phase.to_owned(), sum: sum.settled() };
    let mut phases: Vec<TorchPhase> = phases.into_iter().map(phase).collect();
    phases.sort_by_key(|of| phase_order(&of.phase));
    phases
}

fn gave_up(axes: &Axes<'_>, device: &TorchDevice) -> Vec<GaveUp> {
    let book = axes.book();
    let of_device = |failure: &&OutOfMemory| (failure.process, failure.ordinal) == (device.process, device.ordinal);
    let row = |failure: &OutOfMemory| GaveUp {
        time_ns: since_start(book, failure.t),
        requested_bytes: failure.requested,
        allocated_bytes: failure.allocated,
        reserved_bytes: failure.reserved,
        phase: axes.give_up_phase(failure).to_owned(),
        stack: failure.stack.map(|s| frames::of_stack(book, s).map(frames::describe).collect()).unwrap_or_default(),
    };
    book.torch.failures.iter().filter(of_device).map(row).collect()
}

impl TorchSum {
    fn hand_out(&mut self, block: &Block) {
        self.allocated_bytes = self.allocated_bytes.saturating_add(block.bytes);
        self.blocks += 1;
    }

    fn settled(self) -> Self {
        let slack = i128::from(self.reserved_bytes) - i128::from(self.allocated_bytes);
        Self { slack_bytes: i64::try_from(slack).unwrap_or(if slack < 0 { i64::MIN } else { i64::MAX }), ..self }
    }

    /// Adds another's bytes.
    pub(super) fn add(&mut self, other: &Self) {
        self.allocated_bytes = self.allocated_bytes.saturating_add(other.allocated_bytes);
        self.reserved_bytes = self.reserved_bytes.saturating_add(other.reserved_bytes);
        self.slack_bytes = self.slack_bytes.saturating_add(other.slack_bytes);
        self.blocks += other.blocks;
    }
}

#[cfg(test)]
mod tests;
