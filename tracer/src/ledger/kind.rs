//! What memory is for, and why we think so.
//!
//! Evidence comes from the names of the API calls around a request, probed or read off its stack. Where none decides (a
//! kernel launch, a library's set-up), structure does: what was freed just before, what else the thread made around it.
//! Seen on an H200, driver 580: a launch that needs more local memory frees the old pool and makes a larger one; a stream's
//! first use makes some thirty smallest objects within milliseconds and from one place, for its channels; a captured
//! launch may need one for its graph; code comes in smallest objects, one or two a launch.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

use super::rows::{Place, Row};
use super::{Allocation, Kind, Owner, ProcessInfo, api};
use crate::map::Map;
use crate::probe::Effect;

/// A larger pool follows the old one's free within this time, nanoseconds.
const REPLACED_WITHIN: u64 = 50_000_000;
/// Members of a burst follow each other within this time, nanoseconds.
const BURST_GAP: u64 = 5_000_000;
/// The same for members from one place in the driver, which need no haste to be told from others: a busy machine has gaps.
const BURST_GAP_OF_PLACE: u64 = 50_000_000;
/// Fewest members of a burst: a launch makes one or two objects for code, a stream over thirty for channels.
const BURST: usize = 8;
/// A channel object tells of memory this close in time, nanoseconds.
const CHANNEL_WITHIN: u64 = 10_000_000;

/// `KEPLER_CHANNEL_GROUP_A`.
const CLASS_CHANNEL_GROUP: u32 = 0xa06c;

/// True for classes of channels: the group, and the GPFIFO of each generation (0xc36f Volta … 0xc96f Blackwell).
pub(super) fn is_channel(class: u32) -> bool {
    class == CLASS_CHANNEL_GROUP || (class > 0xa000 && class & 0xff == 0x6f)
}

/// Where and when channel objects were made: process and thread → times.
pub(super) type Channels = HashMap<(usize, u32), Vec<u64>>;

/// Gives each row its kind, evidence and owner. Rows stand in order of birth.
pub(super) fn classify(rows: &mut [Row], channels: &Channels, processes: &[ProcessInfo]) {
    let first = first_calls(rows, processes);
    let smallest = smallest(rows);
    let burst = bursts(rows, &smallest);
    let mut replaced = Replaced::default();
    // By list: rows share them.
    let mut told: Map<*const String, Told> = Map::default();
    for (i, row) in rows.iter_mut().enumerate() {
        let calls = &row.allocation.calls;
        let told = *told.entry(calls.as_ptr()).or_insert_with(|| Told::by(calls));
        let by_call = by_call(row, told, &first);
        let is_small = smallest.get(&row.allocation.process) == Some(&row.allocation.bytes);
        let decided = if row.allocation.kind != Kind::Other {
            None
        } else if by_call.is_none_or(|(kind, _)| may_grow_local_memory(kind, is_small)) && replaced.by(row) {
            Some((Kind::LocalMemory, "replaces local memory freed just before"))
        } else {
            by_call.or_else(|| by_structure(row, is_small, burst[i], channels))
        };
        if let Some((kind, evidence)) = decided {
            (row.allocation.kind, row.allocation.evidence) = (kind, evidence);
        } else if row.allocation.kind == Kind::Other {
            row.allocation.evidence = "no probed call, no pattern";
        }
        row.allocation.owner = owner(row.allocation.kind);
        replaced.watch(row);
    }
}

fn owner(kind: Kind) -> Owner {
    let driver = matches!(kind, Kind::Context | Kind::Module | Kind::LocalMemory | Kind::Channel);
    Owner(Cow::Borrowed(if driver { "driver" } else { "unknown" }))
}

/// For each process traced from its start, and GPU, the first call that made memory there.
type FirstCalls = Map<(usize, Place), (u32, u64)>;

fn first_calls(rows: &[Row], processes: &[ProcessInfo]) -> FirstCalls {
    let mut first = FirstCalls::default();
    let attached = |row: &Row| processes.get(row.allocation.process).is_some_and(|p| p.attached);
    // Calls read off a stack have no entry time to tell them apart by.
    for row in rows.iter().filter(|row| row.outer != 0 && !attached(row)) {
        let key = (row.allocation.process, row.place);
        first.entry(key).or_insert((row.allocation.tid, row.outer));
    }
    first
}

/// Which rows tell what others are however long they are gone: the first of a process on a GPU, and its smallest.
pub(super) fn witnesses(rows: &[Row], processes: &[ProcessInfo]) -> Vec<bool> {
    let (mut first, mut smallest) = (first_calls(rows, processes), smallest(rows));
    let mut tells = |row: &Row| {
        let Allocation { process, tid, bytes, .. } = row.allocation;
        let is_first = first.get(&(process, row.place)) == Some(&(tid, row.outer));
        let is_smallest = smallest.get(&process) == Some(&bytes);
        // One of each is enough.
        if is_first {
            first.remove(&(process, row.place));
        }
        if is_smallest {
            smallest.remove(&process);
        }
        is_first || is_smallest
    };
    rows.iter().map(&mut tells).collect()
}

/// What the names of the calls around say by themselves.
#[derive(Clone, Copy)]
struct Told {
    makes_context: bool,
    innermost_is_runtime: bool,
    /// A limit is changed inside the call that `kind` is of.
    limit: bool,
    /// By the innermost that tells.
    kind: Option<(Kind, &'static str)>,
}

impl Told {
    fn by(calls: &[String]) -> Self {
        let mut told = Self {
            makes_context: calls.iter().any(|name| api::makes_context(name)),
            innermost_is_runtime: calls.last().is_some_and(|name| api::is_runtime(name)),
            limit: false,
            kind: None,
        };
        for name in calls.iter().rev() {
            told.limit |= api::effect(name) == Some(Effect::Limit);
            told.kind = api::kind(name);
            if told.kind.is_some() {
                break;
            }
        }
        told
    }
}

/// What the calls around say: context creation anywhere, else the innermost that tells.
fn by_call(row: &Row, told: Told, first: &FirstCalls) -> Option<(Kind, &'static str)> {
    let allocation = &row.allocation;
    if told.makes_context {
        return Some((Kind::Context, "inside context creation"));
    }
    // Some runtimes create the context through private driver entry points. Its objects then stand directly inside the
    // first runtime call, where an allocation proper stands inside the driver call nested in it.
    let is_first = first.get(&(allocation.process, row.place)) == Some(&(allocation.tid, row.outer));
    if told.innermost_is_runtime && is_first {
        return Some((Kind::Context, "directly inside the process's first runtime call"));
    }
    row.limit().filter(|_| told.limit).map(by_limit).or(told.kind)
}

/// What a change of a limit makes (`CUlimit`, `cuda.h`): 0 is the stack of each thread, the others size heaps and FIFOs.
fn by_limit(limit: u64) -> (Kind, &'static str) {
    match limit {
        0 => (Kind::LocalMemory, "inside a change of the stack limit"),
        _ => (Kind::Context, "inside a change of a heap's or FIFO's limit"),
    }
}

fn by_structure(row: &Row, is_small: bool, in_burst: bool, channels: &Channels) -> Option<(Kind, &'static str)> {
    let allocation = &row.allocation;
    let times = channels.get(&(allocation.process, allocation.tid)).map_or(&[][..], Vec::as_slice);
    let after = times.partition_point(|&t| t.saturating_add(CHANNEL_WITHIN) < allocation.born);
    if times.get(after).is_some_and(|&t| t <= allocation.born.saturating_add(CHANNEL_WITHIN)) {
        Some((Kind::Channel, "beside a channel made on the same thread"))
    } else if in_burst {
        Some((Kind::Channel, "in a burst of smallest objects, as a stream's first use makes"))
    } else if is_small && row.capture {
        Some((Kind::GraphExec, "a smallest object made while its thread captured a graph"))
    } else if is_small && is_launch(allocation) {
        Some((Kind::Module, "a smallest object at a launch or outside any known call, as is made for code"))
    } else if is_small {
        Some((Kind::Module, "a smallest object inside a call that allocates nothing itself"))
    } else {
        None
    }
}

/// Size of the smallest object of each process: the driver's unit of suballocation.
fn smallest(rows: &[Row]) -> Map<usize, u64> {
    let mut smallest = Map::default();
    for Row { allocation, .. } in rows {
        let least = smallest.entry(allocation.process).or_insert(allocation.bytes);
        *least = allocation.bytes.min(*least);
    }
    smallest
}

/// True for what is made at a kernel launch, or outside any known call: there launches may be.
fn is_launch(allocation: &Allocation) -> bool {
    allocation.calls.last().is_none_or(|name| api::is_kernel_launch(name))
}

/// Which rows are part of a burst: smallest objects at launches, close together on one thread and, where stacks tell, from
/// one place.
fn bursts(rows: &[Row], smallest: &Map<usize, u64>) -> Vec<bool> {
    let mut places: Map<(usize, u32, Option<u32>), Vec<usize>> = Map::default();
    for (i, Row { allocation, .. }) in rows.iter().enumerate() {
        if is_launch(allocation) && smallest.get(&allocation.process) == Some(&allocation.bytes) {
            places.entry((allocation.process, allocation.tid, allocation.stack)).or_default().push(i);
        }
    }
    let mut burst = vec![false; rows.len()];
    for ((.., stack), members) in &places {
        let gap = if stack.is_some() { BURST_GAP_OF_PLACE } else { BURST_GAP };
        let close = |a: &usize, b: &usize| rows[*b].allocation.born - rows[*a].allocation.born <= gap;
        let groups = members.chunk_by(close).filter(|group| group.len() >= BURST);
        // A place in the driver that made one burst makes nothing else, however slowly.
        let all = stack.is_some() && groups.clone().next().is_some();
        let found: Vec<&[usize]> = if all { vec![members] } else { groups.collect() };
        for &i in found.into_iter().flatten() {
            burst[i] = true;
        }
    }
    burst
}

/// True for what is made in calls that may also make the driver replace its local memory: those that launch, and those that
/// load a kernel which needs more of it (NCCL's do at `ncclCommInitRank`). Code itself comes in smallest objects.
fn may_grow_local_memory(kind: Kind, is_small: bool) -> bool {
    kind == Kind::GraphExec || (kind == Kind::Module && !is_small)
}

/// Local memory that ended: process, time, bytes.
#[derive(Default)]
struct Replaced {
    ended: BTreeSet<(usize, u64, u64)>,
}

impl Replaced {
    /// Notes the end of a row that is, or holds, local memory: the pool is the context's largest part.
    fn watch(&mut self, row: &Row) {
        let allocation = &row.allocation;
        if let (Kind::Context | Kind::LocalMemory, Some((died, _))) = (allocation.kind, allocation.died) {
            self.ended.insert((allocation.process, died, allocation.bytes));
        }
    }

    /// True when the row takes the place of one that ended just before, and is larger.
    fn by(&self, row: &Row) -> bool {
        let Allocation { process, born, bytes, .. } = row.allocation;
        let recent = (process, born.saturating_sub(REPLACED_WITHIN), 0)..=(process, born, u64::MAX);
        self.ended.range(recent).any(|&(_, _, old)| old < bytes)
    }
}
