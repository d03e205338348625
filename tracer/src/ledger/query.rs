//! Questions to a [`Book`].

use std::collections::BTreeMap;

use super::{Allocation, Book, Changes};
use crate::trace::record::Gpu;

/// The moment of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// The last moment before each process began to die, or the end of the trace.
    End,
    /// For each process and GPU, when it held most there.
    Peak,
    /// When the first call failed for want of memory; the end where none did.
    Oom,
    /// A time of the trace's clock, nanoseconds.
    Time(u64),
}

/// Most bytes held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// When first reached.
    pub t: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Sums over a group of allocations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Bytes live at the snapshot.
    pub live: u64,
    /// Most bytes that the group held at once, at any time.
    pub peak: u64,
    /// Bytes ever allocated.
    pub allocated: u64,
    /// Allocations live at the snapshot.
    pub live_count: u64,
    /// Allocations ever made.
    pub count: u64,
}

/// Live bytes over time.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    times: Vec<u64>,
    live: Vec<u64>,
}

impl Timeline {
    /// Of the given allocations.
    pub fn of<'a>(allocations: impl IntoIterator<Item = &'a Allocation>) -> Self {
        // No figure of a row is above 2^50 (see `plausible`), so that a sign has room.
        let (mut events, mut deaths) = (Vec::<(u64, i64)>::new(), Vec::new());
        for allocation in allocations {
            let bytes = i64::try_from(allocation.bytes).unwrap_or(i64::MAX);
            events.push((allocation.born, bytes));
            deaths.extend(allocation.died.map(|(died, _)| (died, -bytes)));
        }
        // Births mostly stand in order, and so do deaths: of such runs this sort makes use.
        events.append(&mut deaths);
        events.sort_by_key(|(t, _)| *t);
        let mut timeline = Self::default();
        let mut live = 0i128;
        for group in events.chunk_by(|a, b| a.0 == b.0) {
            live += group.iter().map(|e| i128::from(e.1)).sum::<i128>();
            timeline.times.push(group[0].0);
            timeline.live.push(u64::try_from(live.max(0)).unwrap_or(u64::MAX));
        }
        timeline
    }

    /// Bytes live at `t`.
    #[must_use]
    pub fn at(&self, t: u64) -> u64 {
        match self.times.partition_point(|&time| time <= t) {
            0 => 0,
            n => self.live[n - 1],
        }
    }

    /// Most bytes live.
    #[must_use]
    pub fn peak(&self) -> Peak {
        let mut peak = Peak::default();
        for (&t, &bytes) in self.times.iter().zip(&self.live) {
            if bytes > peak.bytes {
                peak = Peak { t, bytes };
            }
        }
        peak
    }

    /// True when something changed from `from` to `to`, both included.
    #[must_use]
    pub fn changes(&self, from: u64, to: u64) -> bool {
        let first = self.times.partition_point(|&time| time < from);
        self.times.get(first).is_some_and(|&time| time <= to)
    }
}

impl Book {
    /// Bytes live at `t` among the allocations that `filter` lets through.
    pub fn live_at(&self, t: u64, filter: impl Fn(&Allocation) -> bool) -> u64 {
        self.allocations.iter().filter(|a| a.live_at(t) && filter(a)).fold(0, |sum, a| sum.saturating_add(a.bytes))
    }

    /// What NVML said of a GPU at the start, by its number in the book.
    #[must_use]
    pub fn listed(&self, gpu: usize) -> Option<&Gpu> {
        let known = self.gpus.get(gpu)?;
        let is_it = |listed: &&Gpu| match known.uuid.as_str() {
            "" => known.index == Some(listed.index),
            uuid => listed.uuid == uuid,
        };
        self.header.gpus.iter().find(is_it)
    }

    /// Memory that a GPU has, bytes, where NVML told.
    #[must_use]
    pub fn size_of(&self, gpu: usize) -> Option<u64> {
        self.listed(gpu).map(|listed| listed.total_bytes).filter(|&bytes| bytes > 0)
    }

    /// The last moment of a process before it began to die, or the end of the trace.
    #[must_use]
    pub fn end_of(&self, process: usize) -> u64 {
        self.processes.get(process).and_then(|p| p.died).unwrap_or(self.end)
    }

    /// Most bytes that each process held on each GPU, by their indices, and when.
    #[must_use]
    pub fn peaks(&self) -> BTreeMap<(usize, usize), Peak> {
        let rows = &self.allocations;
        let place = |row: &Allocation| (row.process, row.gpu);
        let mut peaks: BTreeMap<(usize, usize), Peak> = rows.iter().map(|row| (place(row), Peak::default())).collect();
        peaks.extend(Changes::of(rows).peaks(rows, place));
        peaks
    }

    /// When the first call failed for want of memory.
    #[must_use]
    pub fn oom(&self) -> Option<u64> {
        self.failures.iter().find(|f| f.out_of_memory).map(|f| f.t)
    }

    /// The moment that `at` means for a process and GPU; `peaks` from [`peaks`](Self::peaks).
    fn moment(&self, at: At, place: (usize, usize), peaks: &BTreeMap<(usize, usize), Peak>) -> u64 {
        match (at, self.oom()) {
            (At::Time(t), _) | (At::Oom, Some(t)) => t,
            (At::Peak, _) => peaks.get(&place).map_or(self.end, |peak| peak.t),
            (At::End, _) | (At::Oom, None) => self.end_of(place.0),
        }
    }

    /// Sums by a key of your choice: every allocation counts in exactly one group.
    ///
    /// Memory that changed hands ([`Kind::IpcImport`](super::Kind::IpcImport)) counts as allocated by both processes.
    pub fn group_by<K: Ord>(&self, at: At, key: impl Fn(&Allocation) -> K) -> BTreeMap<K, Totals> {
        let peaks = if at == At::Peak { self.peaks() } else { BTreeMap::new() };
        let mut moments: BTreeMap<(usize, usize), u64> = BTreeMap::new();
        let mut groups: BTreeMap<K, (Totals, Vec<&Allocation>)> = BTreeMap::new();
        for allocation in &self.allocations {
            let place = (allocation.process, allocation.gpu);
            let t = *moments.entry(place).or_insert_with(|| self.moment(at, place, &peaks));
            let (totals, members) = groups.entry(key(allocation)).or_default();
            members.push(allocation);
            totals.allocated = totals.allocated.saturating_add(allocation.bytes);
            totals.count += 1;
            if allocation.live_at(t) {
                totals.live = totals.live.saturating_add(allocation.bytes);
                totals.live_count += 1;
            }
        }
        let sum_up = |(totals, members)| Totals { peak: Timeline::of(members).peak().bytes, ..totals };
        groups.into_iter().map(|(key, group)| (key, sum_up(group))).collect()
    }
}
