//! Failed calls, and who held the GPU when memory ran out.

use std::collections::HashMap;

use serde::Serialize;

use super::cells::Sum;
use super::frames;
use super::summary::since_start;
use crate::ledger::torch::OutOfMemory;
use crate::ledger::{Book, Failure};
use crate::lifecycle::{Axes, Axis};
use crate::map::Map;

/// Failures for want of memory whose holders are worked out: the last ones (a server dies of the last).
const WITH_HOLDERS: usize = 16;
/// Holders kept of each.
const HOLDERS: usize = 10;

/// Equal failed calls of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failed {
    /// Process id.
    pub pid: u32,
    /// Rank label.
    pub rank: String,
    /// Outermost probed API call.
    pub api: String,
    /// What it returned; `None` where that was not seen.
    pub result: Option<i64>,
    /// Status of the driver request that failed inside (`NV_STATUS`), if one did.
    pub driver_status: Option<u32>,
    /// True when there was no memory.
    pub out_of_memory: bool,
    /// Bytes asked for.
    pub requested_bytes: Option<u64>,
    /// Bytes that the driver refused: a pool asks for more than the call that made it grow.
    pub refused_bytes: Option<u64>,
    /// Bytes free on the GPU at the last of them: as last measured (NVML, or the process's own reading), less what traced
    /// processes took since.
    pub free_bytes: Option<u64>,
    /// True when nothing was measured: the GPU's memory less what traced processes held, at most.
    pub free_is_bound: bool,
    /// Lifecycle phase.
    pub phase: String,
    /// GPU's NVML index.
    pub device: Option<u32>,
    /// GPU's label.
    pub gpu: Option<String>,
    /// When the first one failed, since tracing began.
    pub first_time_ns: u64,
    /// When the last one failed.
    pub time_ns: u64,
    /// How many there were.
    pub count: u64,
    /// Call stack, outermost first.
    pub stack: Vec<String>,
    /// The frames of it that say who asked, innermost first.
    pub asked_by: Vec<String>,
    /// Bytes that `PyTorch`'s caching allocator of the process had handed out when it gave up over this call.
    pub torch_allocated_bytes: Option<u64>,
    /// Bytes that it had reserved beside these.
    pub torch_slack_bytes: Option<u64>,
    /// Bytes that traced processes held on the GPU at the last of them.
    pub held_bytes: Option<u64>,
    /// Who held most of them; only for want of memory.
    pub holders: Option<Vec<Holder>>,
}

/// Memory held on a GPU at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// Rank label of the process.
    pub rank: String,
    /// Lifecycle phase.
    pub phase: String,
    /// What it is for.
    pub kind: String,
    /// Whose code asked for it.
    pub owner: String,
    /// Innermost frame that says who asked.
    pub frame: Option<String>,
    /// Bytes.
    pub live_bytes: u64,
    /// Allocations.
    pub live_count: u64,
}

/// The failed calls of a trace, equal ones together, in order of the first.
pub(super) fn failures(axes: &Axes<'_>) -> Vec<Failed> {
    let book = axes.book();
    let mut numbers: HashMap<_, usize> = HashMap::new();
    let mut groups: Vec<(&Failure, Failed)> = Vec::new();
    let mut gave_up = GaveUp::default();
    for torch in &book.torch.failures {
        gave_up.entry(torch.process).or_default().push(torch);
    }
    gave_up.values_mut().for_each(|of| of.sort_by_key(|torch| torch.t));
    for failure in &book.failures {
        let returned = (failure.result, failure.status);
        let asked = (failure.requested, failure.refused, failure.gpu);
        let same = (failure.process, failure.api.as_str(), returned, asked, failure.stack);
        let number = *numbers.entry(same).or_insert_with(|| {
            groups.push((failure, failed(axes, failure, &gave_up)));
            groups.len() - 1
        });
        let (last, group) = &mut groups[number];
        *last = failure;
        group.count += 1;
        (group.time_ns, group.free_bytes) = (since_start(book, failure.t), failure.free);
    }
    let mut out_of_memory: Vec<_> = groups.iter_mut().filter(|(failure, _)| failure.out_of_memory).collect();
    out_of_memory.sort_by_key(|(failure, _)| std::cmp::Reverse(failure.t));
    for (failure, group) in out_of_memory.into_iter().take(WITH_HOLDERS) {
        if let Some(gpu) = failure.gpu {
            let (held, holders) = holders(axes, gpu, failure.t);
            (group.held_bytes, group.holders) = (Some(held), Some(holders));
            if let Some(free) = free(book, failure) {
                (group.free_bytes, group.free_is_bound) = (Some(free.bytes), free.is_bound);
            }
        }
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Free memory of a GPU when a call failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Free {
    pub(super) bytes: u64,
    /// Others may have held some of it.
    pub(super) is_bound: bool,
}

/// What was free on the GPU of a failure at its moment.
pub(super) fn free(book: &Book, failure: &Failure) -> Option<Free> {
    let gpu = failure.gpu?;
    let held = |t| i128::from(book.live_at(t, |row| row.gpu == gpu));
    let left = |before: u64, taken: i128| u64::try_from((i128::from(before) - taken).max(0)).unwrap_or(u64::MAX);
    if let (Some(measured), Some(at)) = (failure.free, failure.free_at) {
        return Some(Free { bytes: left(measured, held(failure.t) - held(at)), is_bound: false });
    }
    book.size_of(gpu).map(|total| Free { bytes: left(total, held(failure.t)), is_bound: true })
}

/// `PyTorch` gives up this soon after the call that failed, nanoseconds: it empties its cache and tries again before.
const GIVES_UP: u64 = 5_000_000_000;

/// Where allocators gave up, by process, in order of time.
type GaveUp<'b> = Map<usize, Vec<&'b OutOfMemory>>;

fn failed(axes: &Axes<'_>, failure: &Failure, gave_up: &GaveUp<'_>) -> Failed {
    let book = axes.book();
    let later = gave_up.get(&failure.process).and_then(|of| of.get(of.partition_point(|torch| torch.t < failure.t)));
    let torch = later.filter(|torch| torch.t - failure.t <= GIVES_UP);
    Failed {
        pid: book.processes[failure.process].pid,
        rank: axes.rank(failure.process).to_owned(),
        api: failure.api.clone(),
        result: Some(failure.result).filter(|&result| result != 0),
        driver_status: Some(failure.status).filter(|&status| status != 0),
        out_of_memory: failure.out_of_memory,
        requested_bytes: failure.requested,
        refused_bytes: failure.refused,
        free_bytes: failure.free,
        free_is_bound: false,
        phase: axes.failure_phase(failure).to_owned(),
        device: failure.gpu.and_then(|gpu| book.gpus.get(gpu)).and_then(|gpu| gpu.index),
        gpu: failure.gpu.map(|gpu| axes.gpu(gpu)),
        first_time_ns: since_start(book, failure.t),
        time_ns: 0,
        count: 0,
        stack: failure.stack.map(|s| frames::of_stack(book, s).map(frames::describe).collect()).unwrap_or_default(),
        asked_by: failure.stack.map(|s| frames::innermost_useful(book, s, usize::MAX)).unwrap_or_default(),
        torch_allocated_bytes: torch.map(|torch| torch.allocated),
        torch_slack_bytes: torch.map(|torch| torch.reserved.saturating_sub(torch.allocated)),
        held_bytes: None,
        holders: None,
    }
}

/// What traced processes held on `gpu` at `t`, and the biggest parts of it.
fn holders(axes: &Axes<'_>, gpu: usize, t: u64) -> (u64, Vec<Holder>) {
    let by = [Axis::Rank, Axis::Phase, Axis::Kind, Axis::Owner, Axis::Stack];
    let (mut cells, total) = live_cells(axes, &by, gpu, t);
    cells.sort_by(|(a_key, a), (b_key, b)| b.live.cmp(&a.live).then_with(|| a_key.cmp(b_key)));
    cells.truncate(HOLDERS);
    let holder = |(key, sum): (Vec<u32>, Sum)| {
        let label = |n: usize| axes.label(by[n], key[n]).into_owned();
        let stack = Axes::stack_of(key[4]);
        Holder {
            rank: label(0),
            phase: label(1),
            kind: label(2),
            owner: label(3),
            frame: stack.and_then(|stack| frames::innermost_useful(axes.book(), stack, 1).pop()),
            live_bytes: sum.live,
            live_count: sum.live_count,
        }
    };
    (total, cells.into_iter().map(holder).collect())
}

fn live_cells(axes: &Axes<'_>, by: &[Axis], gpu: usize, t: u64) -> (Vec<(Vec<u32>, Sum)>, u64) {
    let book: &Book = axes.book();
    let mut cells: HashMap<Vec<u32>, Sum> = HashMap::new();
    let mut total = Sum::default();
    for row in book.allocations.iter().filter(|row| row.gpu == gpu && row.live_at(t)) {
        let key = by.iter().map(|axis| axes.cell(*axis, row)).collect();
        cells.entry(key).or_default().add(row, true);
        total.add(row, true);
    }
    (cells.into_iter().collect(), total.live)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testbook::TestBook;

    #[test]
    fn equal_failures_are_one_entry_and_the_last_one_counts() {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(1, "a"), t.gpu(0));
        let cache = t.allocate(process, gpu, 300);
        t.at(100).fail(process, gpu, 1000);
        t.free(cache);
        t.allocate(process, gpu, 20);
        t.at(200).fail(process, gpu, 1000);
        t.fail(process, gpu, 999);
        let failures = failures(&Axes::new(&t.book));
        assert_eq!(failures.len(), 2);
        assert_eq!((failures[0].count, failures[0].first_time_ns, failures[0].time_ns), (2, 100, 200));
        // The cache was given back between the two: what the second one met is what matters.
        assert_eq!(failures[0].held_bytes, Some(20));
    }

    #[test]
    fn holders_are_those_of_that_gpu_at_that_time() {
        let mut t = TestBook::new();
        let (first, second) = (t.process(1, "a"), t.process(2, "b"));
        let (gpu, other) = (t.gpu(0), t.gpu(1));
        t.allocate(first, gpu, 300);
        t.allocate(second, gpu, 400);
        t.allocate(second, other, 5000);
        t.fail(first, gpu, 1000);
        t.allocate(second, gpu, 7000);
        let failures = failures(&Axes::new(&t.book));
        let holders: Vec<_> =
            failures[0].holders.as_ref().unwrap().iter().map(|h| (h.rank.as_str(), h.live_bytes)).collect();
        assert_eq!(holders, [("2 b", 400), ("1 a", 300)]);
        assert_eq!(failures[0].held_bytes, Some(700));
    }

    #[test]
    fn what_was_free_is_what_was_measured_less_what_was_taken_since() {
        let mut t = TestBook::new();
        let (process, other, gpu) = (t.process(1, "a"), t.process(2, "b"), t.gpu(0));
        t.fail(process, gpu, 5 << 30);
        let failure = t.book.failures.last_mut().unwrap();
        (failure.free_at, failure.t) = (Some(failure.t), failure.t + 100);
        t.allocate(other, gpu, 300 << 20);
        let freed = t.allocate(process, gpu, 1 << 20);
        t.free(freed);
        let free = |t: &TestBook| {
            let failed = failures(&Axes::new(&t.book)).remove(0);
            (failed.free_bytes, failed.free_is_bound)
        };
        assert_eq!(free(&t), (Some(724 << 20), false));
        // Never measured: the GPU has 80 GiB.
        let failure = t.book.failures.last_mut().unwrap();
        (failure.free, failure.free_at) = (None, None);
        assert_eq!(free(&t), (Some((80 << 30) - (300 << 20)), true));
        t.book.header.gpus.clear();
        assert_eq!(free(&t), (None, false));
    }

    #[test]
    fn a_flood_of_failures_stays_cheap() {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(1, "a"), t.gpu(0));
        for size in 0..100 {
            t.fail(process, gpu, size);
        }
        let failures = failures(&Axes::new(&t.book));
        assert_eq!(failures.iter().filter(|f| f.holders.is_some()).count(), WITH_HOLDERS);
        assert!(failures[99].holders.is_some(), "the last one is what the process died of");
    }
}
