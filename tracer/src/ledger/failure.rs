//! Calls and requests that failed.

use std::collections::HashMap;

use super::rows::Place;
use super::{Failure, api};
use crate::trace::record::{Alloc, Call, Nvml, Rm};

/// `CUDA_ERROR_OUT_OF_MEMORY`, `cudaErrorMemoryAllocation`.
const CUDA_OUT_OF_MEMORY: i64 = 2;
/// `NV_ERR_NO_MEMORY` (`nvstatuscodes.h`).
const NO_MEMORY: u32 = 0x51;
/// `NV_ERR_INSUFFICIENT_RESOURCES`: some allocation paths say that instead.
const INSUFFICIENT_RESOURCES: u32 = 0x1a;

/// A failure whose GPU and free bytes are settled at the end.
#[derive(Clone)]
pub(super) struct Draft {
    failure: Failure,
    place: Option<Place>,
    reading: Option<(u64, u64)>,
}

/// What failed inside an outermost call that has not returned.
#[derive(Clone, Default)]
struct Pending {
    outer: u64,
    t: u64,
    api: String,
    requested: Option<u64>,
    refused: Option<u64>,
    place: Option<Place>,
    result: i64,
    status: u32,
    stack: Option<u32>,
    out_of_memory: bool,
}

/// Name of a request of which neither probes nor a stack tell the call.
const NO_CALL: &str = "request to the driver outside any known call";

/// Collects failures: one an outermost call, however often it retried inside.
#[derive(Clone, Default)]
pub(super) struct Failures {
    drafts: Vec<Draft>,
    pending: HashMap<(usize, u32), Pending>,
    readings: HashMap<usize, (u64, u64)>,
}

impl Failures {
    /// The driver refused video memory, inside `calls`.
    pub(super) fn request(&mut self, rm: &Rm, calls: &[String], alloc: &Alloc, process: usize, place: Place) {
        let new = Pending {
            outer: rm.outer,
            t: rm.t,
            api: calls.first().map_or(NO_CALL, String::as_str).to_owned(),
            refused: alloc.requested.or(alloc.size),
            place: Some(place),
            status: rm.status,
            stack: rm.stack,
            out_of_memory: matches!(rm.status, NO_MEMORY | INSUFFICIENT_RESOURCES),
            ..Pending::default()
        };
        // Of a call that is not probed no return will be seen.
        if rm.outer == 0 {
            self.add(process, new);
        } else {
            self.remember(process, rm.tid, new);
        }
    }

    /// A call returned, well or not.
    pub(super) fn call(&mut self, call: &Call, process: usize) {
        if let (0, Some(free)) = (call.result, call.free) {
            self.readings.insert(process, (call.t, free));
        }
        if api::is_failure(&call.api, call.result) {
            let new = Pending {
                outer: call.outer,
                t: call.t,
                api: call.api.clone(),
                requested: call.size,
                result: call.result,
                stack: call.stack,
                out_of_memory: is_cuda(&call.api) && call.result == CUDA_OUT_OF_MEMORY,
                ..Pending::default()
            };
            self.remember(process, call.tid, new);
        }
        if call.depth == 0 {
            self.returned(call, process);
        }
    }

    /// Keeps the first failure inside an outermost call, completed by later ones.
    fn remember(&mut self, process: usize, tid: u32, new: Pending) {
        let pending = self.pending.entry((process, tid)).or_default();
        if pending.outer != new.outer || pending.api.is_empty() {
            let old = std::mem::replace(pending, new);
            // The call around it never returned to us (killed, or its return was missed).
            if !old.api.is_empty() {
                self.add(process, old);
            }
            return;
        }
        pending.requested = new.requested.or(pending.requested);
        pending.refused = pending.refused.max(new.refused);
        pending.status = if pending.status == 0 { new.status } else { pending.status };
        pending.place = pending.place.or(new.place);
        pending.stack = pending.stack.or(new.stack);
        pending.out_of_memory |= new.out_of_memory;
    }

    /// The outermost call returned: what failed inside is its failure, or was mended by a retry.
    fn returned(&mut self, call: &Call, process: usize) {
        let key = (process, call.tid);
        if self.pending.is_empty() || self.pending.get(&key).is_none_or(|p| p.outer != call.outer) {
            return;
        }
        let Some(inside) = self.pending.remove(&key) else { return };
        if api::is_failure(&call.api, call.result) {
            let stack = call.stack.or(inside.stack);
            let (api, result) = (call.api.clone(), call.result);
            self.add(process, Pending { t: call.t, api, result, stack, ..inside });
        }
    }

    fn add(&mut self, process: usize, p: Pending) {
        let Pending { t, api, refused, place, result, status, stack, out_of_memory, .. } = p;
        let requested = p.requested.or(refused);
        let (free, free_at, gpu) = (None, None, None);
        let failure =
            Failure { t, process, api, result, status, requested, refused, free, free_at, gpu, stack, out_of_memory };
        let reading = self.readings.get(&process).copied();
        self.drafts.push(Draft { failure, place, reading });
    }

    /// GPUs that failures name, with their processes.
    pub(super) fn places(&self) -> impl Iterator<Item = (Place, usize)> {
        let drafts = self.drafts.iter().map(|draft| (draft.place, draft.failure.process));
        let pending = self.pending.iter().map(|(&(process, _), pending)| (pending.place, process));
        drafts.chain(pending).filter_map(|(place, process)| Some((place?, process)))
    }

    /// Forgets those before `t`.
    pub(super) fn fold(&mut self, t: u64) {
        self.drafts.retain(|draft| draft.failure.t >= t);
    }

    /// All failures in order of time. `locate` gives the GPU and its UUID.
    pub(super) fn finish(
        mut self,
        nvml: &[Nvml],
        locate: impl Fn(Option<Place>, usize) -> Option<(usize, String)>,
    ) -> Vec<Failure> {
        let open: Vec<_> = self.pending.drain().filter(|(_, p)| !p.api.is_empty()).collect();
        for ((process, _), pending) in open {
            self.add(process, pending);
        }
        let mut samples: HashMap<&str, Vec<(u64, u64)>> = HashMap::new();
        for sample in nvml {
            samples.entry(&sample.uuid).or_default().push((sample.t, sample.free));
        }
        samples.values_mut().for_each(|samples| samples.sort_by_key(|(t, _)| *t));
        let mut failures: Vec<Failure> = self
            .drafts
            .into_iter()
            .map(|Draft { mut failure, place, reading }| {
                let gpu = locate(place, failure.process);
                let samples = gpu.as_ref().and_then(|(_, uuid)| samples.get(uuid.as_str()));
                let sampled = samples.and_then(|samples| nearest(samples, failure.t));
                let near = [sampled, reading].into_iter().flatten().min_by_key(|(t, _)| t.abs_diff(failure.t));
                (failure.free_at, failure.free) = near.unzip();
                failure.gpu = gpu.map(|(index, _)| index);
                failure
            })
            .collect();
        failures.sort_by_key(|f| (f.t, f.process));
        failures
    }
}

/// Time and free bytes of the sample nearest in time, the earlier of two that are; `samples` are in order of time.
fn nearest(samples: &[(u64, u64)], t: u64) -> Option<(u64, u64)> {
    let after = samples.partition_point(|(at, _)| *at < t);
    let near = &samples[after.saturating_sub(1)..samples.len().min(after + 1)];
    near.iter().min_by_key(|(at, _)| at.abs_diff(t)).copied()
}

fn is_cuda(name: &str) -> bool {
    name.starts_with("cu")
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_sample_nearest_in_time_counts() {
        let samples = [(10, 1), (20, 2), (40, 3)];
        let at = |t| nearest(&samples, t).map(|(_, free)| free);
        assert_eq!([0, 10, 14, 15, 16, 29, 30, 31, 99].map(at), [1, 1, 1, 1, 2, 2, 2, 3, 3].map(Some));
        assert_eq!(nearest(&[], 5), None);
    }
}
