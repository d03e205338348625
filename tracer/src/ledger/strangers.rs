//! Processes that NVML lists and that are not traced.

use std::collections::BTreeMap;

use super::Stranger;
use super::processes::Processes;
use crate::trace::record::Nvml;

/// Those on GPUs that `gpu` knows, by GPU and pid.
pub(super) fn find(nvml: &[Nvml], processes: &Processes, gpu: impl Fn(&str) -> Option<usize>) -> Vec<Stranger> {
    let mut strangers: BTreeMap<(usize, u32), Stranger> = BTreeMap::new();
    for sample in nvml {
        let Some(gpu) = gpu(&sample.uuid) else { continue };
        // NVML lists a process for a moment after its exit, and one that is traced later before that.
        for listed in sample.processes.iter().filter(|listed| !processes.had(listed.pid)) {
            let new = Stranger { gpu, pid: listed.pid, first: sample.begin, last: sample.t, bytes: None };
            let stranger = strangers.entry((gpu, listed.pid)).or_insert(new);
            stranger.last = sample.t;
            stranger.bytes = stranger.bytes.max(listed.bytes);
        }
    }
    strangers.into_values().collect()
}
