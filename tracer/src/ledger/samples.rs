//! NVML's figures beside the ledger's, and memory from before tracing began.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use super::processes::Processes;
use super::query::Timeline;
use super::requests::{Requests, SHORT};
use super::{Allocation, Death, GpuRef, Kind, Owner, ProcessInfo, Sample};
use crate::parallel::in_parallel;
use crate::trace::record::Nvml;

/// A sample is quiet when the process neither allocated nor freed this close to the query, nanoseconds, and no longer
/// request was in flight: an ioctl is recorded when it returns, after the driver has changed its books.
pub(super) const QUIET: u64 = SHORT;

/// Figures of 0 bytes for processes that a sample does not list: a week of samples of eight GPUs has five million for each
/// process that has freed all it had.
const UNLISTED: u64 = 32 << 20;

/// What a process, on a GPU, was seen to hold.
#[derive(Clone, Copy, Debug)]
struct Reading {
    begin: u64,
    t: u64,
    bytes: u64,
}

/// By process and GPU.
type Keyed<T> = BTreeMap<(usize, usize), T>;

/// What NVML said of traced processes while they lived, and by its silence: 0 bytes where it lists none.
fn readings(
    nvml: &[Nvml],
    processes: &Processes,
    folded: &Keyed<(u64, u64)>,
    gpu: impl Fn(&str) -> Option<usize>,
) -> Keyed<Vec<Reading>> {
    let mut readings = Keyed::<Vec<Reading>>::new();
    // Which processes to expect on a GPU: those with memory there at any time, by either account.
    let mut expected: HashMap<usize, HashSet<usize>> = HashMap::new();
    for &(process, gpu) in folded.keys() {
        expected.entry(gpu).or_default().insert(process);
        readings.insert((process, gpu), Vec::new());
    }
    for sample in nvml {
        let Some(gpu) = gpu(&sample.uuid) else { continue };
        for listed in &sample.processes {
            if let Some(process) = processes.at(listed.pid, sample.begin) {
                expected.entry(gpu).or_default().insert(process);
            }
        }
    }
    // Of those that a sample does not list there may be as many as there are samples, each time.
    let mut left = UNLISTED;
    for sample in nvml {
        let Some(gpu) = gpu(&sample.uuid) else { continue };
        let listed: HashMap<u32, Option<u64>> = sample.processes.iter().rev().map(|p| (p.pid, p.bytes)).collect();
        for &process in expected.get(&gpu).into_iter().flatten() {
            let ProcessInfo { pid, born, died, .. } = processes.list[process];
            if sample.begin < born || died.is_some_and(|died| died < sample.t) {
                continue;
            }
            let bytes = match listed.get(&pid) {
                Some(listed) => *listed,
                None if left == 0 => None,
                None => {
                    left -= 1;
                    Some(0)
                }
            };
            if let Some(bytes) = bytes {
                let reading = Reading { begin: sample.begin, t: sample.t, bytes };
                readings.entry((process, gpu)).or_default().push(reading);
            }
        }
    }
    readings
}

/// Frees of handles that were there before tracing began, by process: times in order.
pub(super) type UnknownFrees = HashMap<usize, Vec<u64>>;

/// Bytes from before tracing began, by process and UUID, and the time they are of, where older samples were folded.
pub(super) type Before = BTreeMap<(usize, String), (u64, u64)>;

/// Compares the ledger with NVML. Adds rows for memory from before tracing began to `allocations`.
pub(super) fn compare(
    allocations: &mut Vec<Allocation>,
    nvml: &[Nvml],
    processes: &Processes,
    frees: &UnknownFrees,
    requests: &Requests,
    past: &Before,
    gpu: impl Fn(&str) -> Option<usize>,
) -> Vec<Sample> {
    let mut groups = groups(allocations);
    let folded = past.iter().filter_map(|((process, uuid), held)| Some(((*process, gpu(uuid)?), *held)));
    let folded: Keyed<(u64, u64)> = folded.collect();
    let cases: Vec<_> = readings(nvml, processes, &folded, gpu)
        .into_iter()
        .map(|(key, readings)| (key, readings, groups.remove(&key).unwrap_or_default()))
        .collect();
    let compared = in_parallel(cases, |(key, readings, group)| {
        let (process, gpu) = key;
        let timeline = Timeline::of(group);
        let frees = frees.get(&process).map_or(&[][..], Vec::as_slice);
        let is_quiet = |r: &Reading| {
            let (from, to) = (r.begin.saturating_sub(QUIET), r.t.saturating_add(QUIET));
            let free = frees.partition_point(|&t| t < from);
            let changes = timeline.changes(from, to) || frees.get(free).is_some_and(|&t| t <= to);
            !changes && !requests.in_flight(process, from, to)
        };
        let readings: Vec<(Reading, bool)> = readings.into_iter().map(|r| (r, is_quiet(&r))).collect();
        let info = &processes.list[process];
        let folded = folded.get(&key).copied();
        let before = if info.attached { before(info, folded, &readings, &timeline, frees) } else { Vec::new() };
        let sample = |(Reading { t, bytes, .. }, quiet)| {
            let held = before.iter().rfind(|step| step.0 <= t).map_or(0, |step| step.1);
            let live = timeline.at(t).saturating_add(held);
            Sample { t, process, gpu, nvml: bytes, live, quiet }
        };
        let samples: Vec<Sample> = readings.into_iter().map(sample).collect();
        (samples, rows(&before, process, gpu, info.died))
    });
    let mut samples = Vec::new();
    for (some, more) in compared {
        samples.extend(some);
        allocations.extend(more);
    }
    samples.sort_by_key(|s| (s.t, s.process, s.gpu));
    samples
}

fn groups(allocations: &[Allocation]) -> Keyed<Vec<&Allocation>> {
    let mut groups = Keyed::<Vec<&Allocation>>::new();
    for allocation in allocations {
        groups.entry((allocation.process, allocation.gpu)).or_default().push(allocation);
    }
    groups
}

/// What an attached process held from before, as steps of time and bytes: the first quiet sample tells how much; it
/// shrinks only by what NVML shows after frees of handles that the ledger does not know (a free names no size).
/// `folded`: what was known at a time before all these readings.
fn before(
    info: &ProcessInfo,
    folded: Option<(u64, u64)>,
    readings: &[(Reading, bool)],
    timeline: &Timeline,
    frees: &[u64],
) -> Vec<(u64, u64)> {
    let mut steps: Vec<(u64, u64)> = folded.iter().map(|(held, _)| (info.born, *held)).collect();
    let mut since = folded.map_or(0, |(_, t)| t);
    for (reading, _) in readings.iter().filter(|(_, quiet)| *quiet) {
        let rest = reading.bytes.saturating_sub(timeline.at(reading.t));
        match steps.last() {
            None => steps.push((info.born, rest)),
            Some(&(_, held)) => {
                let between = frees.partition_point(|&t| t <= since)..frees.partition_point(|&t| t <= reading.t);
                // None where a forged trace has its samples out of order.
                let last = frees.get(between).and_then(<[u64]>::last);
                if let (Some(&last), true) = (last, rest < held) {
                    steps.push((last, rest));
                }
            }
        }
        since = reading.t;
    }
    steps
}

/// Rows for the steps.
fn rows(steps: &[(u64, u64)], process: usize, gpu: usize, exit: Option<u64>) -> Vec<Allocation> {
    let row = |(i, &(born, bytes)): (usize, &(u64, u64))| Allocation {
        process,
        tid: 0,
        gpu,
        bytes,
        born,
        died: match steps.get(i + 1) {
            Some(&(next, _)) => Some((next, Death::Adjusted)),
            None => exit.map(|t| (t.saturating_add(1), Death::Reclaimed)),
        },
        kind: Kind::PreAttach,
        owner: Owner(Cow::Borrowed("unknown")),
        calls: Arc::default(),
        stack: None,
        evidence: "NVML's figure beyond the ledger's, when tracing began",
    };
    steps.iter().enumerate().map(row).filter(|row| row.bytes > 0).collect()
}

/// GPUs that NVML saw traced processes on.
pub(super) fn gpus<'a>(
    nvml: &'a [Nvml],
    processes: &'a Processes,
    by_uuid: impl Fn(&str) -> GpuRef + 'a,
) -> impl Iterator<Item = GpuRef> + 'a {
    let traced = |sample: &&Nvml| sample.processes.iter().any(|p| processes.at(p.pid, sample.begin).is_some());
    nvml.iter().filter(traced).map(move |sample| by_uuid(&sample.uuid))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a trace whose samples go back in time: found by fuzzing.
    #[test]
    fn samples_out_of_order_are_survived() {
        let info = ProcessInfo { attached: true, ..ProcessInfo::default() };
        let reading = |t, bytes| (Reading { begin: t, t, bytes }, true);
        let steps = before(&info, None, &[reading(100, 50), reading(10, 20)], &Timeline::default(), &[50, 60]);
        assert_eq!(steps, [(0, 50)]);
        let steps = before(&info, None, &[reading(10, 50), reading(100, 20)], &Timeline::default(), &[50, 60]);
        assert_eq!(steps, [(0, 50), (60, 20)]);
    }
}
