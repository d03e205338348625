//! What is marked on the time line: NVML's figures, free memory as processes read it, failed calls.
//!
//! Samples come once a second for as long as a server lives, so of each bucket the one that says most is kept, and how many
//! there were is said.

use std::collections::BTreeMap;

use serde::Serialize;

use super::timeline::{Track, bucket_of};
use crate::ledger::{Book, Failure, Reading, Sample};
use crate::lifecycle::Axes;
use crate::report::summary::since_start;

/// Failed calls marked on a track: the first and the last ones.
const FAILURES: usize = 200;

/// NVML's samples on a track: of each bucket the quiet one that differs most from the ledger, else the last.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Nvml {
    /// How many samples there were.
    pub(super) samples: usize,
    /// `[time_ns, nvml_bytes, live_bytes, 1 if quiet]`.
    pub(super) shown: Vec<[u64; 4]>,
}

/// Free memory as a process read it: of each bucket the least. The calls do not say on which GPU; they stand with the one on
/// which the process held most.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Free {
    /// How many readings there were.
    pub(super) readings: usize,
    /// Time, free bytes, total bytes.
    pub(super) shown: Vec<(u64, u64, Option<u64>)>,
}

/// A failed call on a track.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Failing {
    /// When.
    pub(super) t: u64,
    /// What failed.
    pub(super) api: String,
    /// Bytes asked for.
    pub(super) requested_bytes: Option<u64>,
    /// Lifecycle phase.
    pub(super) phase: String,
    /// True when there was no memory.
    pub(super) out_of_memory: bool,
}

/// Puts the marks of `book` on `tracks`.
pub(super) fn place(book: &Book, axes: &Axes<'_>, tracks: &mut [Track], width: u64) {
    // The track that stands for a process where its GPU is not told.
    let mut main: BTreeMap<usize, usize> = BTreeMap::new();
    for (number, track) in tracks.iter().enumerate() {
        let of_process = main.entry(track.process).or_insert(number);
        if tracks[*of_process].peak_bytes < track.peak_bytes {
            *of_process = number;
        }
    }
    let numbers: BTreeMap<(usize, usize), usize> =
        tracks.iter().enumerate().map(|(number, track)| ((track.process, track.gpu), number)).collect();
    let mut samples: Vec<Vec<&Sample>> = vec![Vec::new(); tracks.len()];
    for sample in &book.samples {
        if let Some(number) = numbers.get(&(sample.process, sample.gpu)) {
            samples[*number].push(sample);
        }
    }
    let mut readings: Vec<Vec<&Reading>> = vec![Vec::new(); tracks.len()];
    for reading in &book.readings {
        if let Some(number) = main.get(&reading.process) {
            readings[*number].push(reading);
        }
    }
    let mut failures: Vec<Vec<&Failure>> = vec![Vec::new(); tracks.len()];
    for failure in &book.failures {
        let exactly = failure.gpu.and_then(|gpu| numbers.get(&(failure.process, gpu)));
        if let Some(number) = exactly.or_else(|| main.get(&failure.process)) {
            failures[*number].push(failure);
        }
    }
    for (number, track) in tracks.iter_mut().enumerate() {
        track.nvml = nvml(book, &samples[number], width);
        track.free = free(book, &readings[number], width);
        track.failures = ends(&failures[number]).map(|failure| failing(book, axes, failure)).collect();
    }
}

fn nvml(book: &Book, samples: &[&Sample], width: u64) -> Nvml {
    // The more it says, the greater: quiet before not, the larger difference, the later.
    let telling = |sample: &&&Sample| (sample.quiet, sample.nvml.abs_diff(sample.live), sample.t);
    let of_bucket = |bucket: &[&Sample]| {
        let sample = bucket.iter().max_by_key(telling).expect("a chunk holds at least one");
        [since_start(book, sample.t), sample.nvml, sample.live, u64::from(sample.quiet)]
    };
    let shown = samples.chunk_by(|a, b| bucket_of(book, a.t, width) == bucket_of(book, b.t, width));
    Nvml { samples: samples.len(), shown: shown.map(of_bucket).collect() }
}

fn free(book: &Book, readings: &[&Reading], width: u64) -> Free {
    let of_bucket = |bucket: &[&Reading]| {
        let reading = bucket.iter().min_by_key(|reading| reading.free).expect("a chunk holds at least one");
        (since_start(book, reading.t), reading.free, reading.total)
    };
    let shown = readings.chunk_by(|a, b| bucket_of(book, a.t, width) == bucket_of(book, b.t, width));
    Free { readings: readings.len(), shown: shown.map(of_bucket).collect() }
}

/// The first and the last of `failures`.
fn ends<'a>(failures: &'a [&'a Failure]) -> impl Iterator<Item = &'a Failure> {
    let left_out = FAILURES / 2..failures.len().saturating_sub(FAILURES / 2);
    failures.iter().enumerate().filter(move |(n, _)| !left_out.contains(n)).map(|(_, failure)| *failure)
}

fn failing(book: &Book, axes: &Axes<'_>, failure: &Failure) -> Failing {
    Failing {
        t: since_start(book, failure.t),
        api: failure.api.clone(),
        requested_bytes: failure.requested,
        phase: axes.failure_phase(failure).to_owned(),
        out_of_memory: failure.out_of_memory,
    }
}
