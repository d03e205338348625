//! Live bytes over time, stacked by phase, small enough to draw.
//!
//! Few changes are kept one by one. Many are put into buckets of equal width, of which each keeps what it held at most (with
//! its parts at that moment), at least and last: a spike of a microsecond stays as high as it was.

use std::collections::BTreeMap;

use serde::Serialize;

use super::marks::{self, Failing, Free, Nvml};
use crate::ledger::{Allocation, Book};
use crate::lifecycle::{Axes, Axis, UNATTRIBUTED, root};
use crate::report::summary::since_start;

/// Changes of one track that are kept one by one.
const EXACT: usize = 3000;
/// Most buckets of a track.
const BUCKETS: u64 = 2000;
/// Tracks drawn; those of the processes that held most.
const TRACKS: usize = 64;

/// The time line of a trace.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Timeline {
    /// Axis of the layers: `phase` (without sub-phases), or `kind` where phases tell little.
    pub(super) by: &'static str,
    /// Names of the layers, lowest first.
    pub(super) layers: Vec<String>,
    /// Length of the trace.
    pub(super) end_ns: u64,
    /// Width of the buckets of those tracks that have any, and of the marks on all.
    pub(super) bucket_ns: u64,
    /// A track for each process and GPU.
    pub(super) tracks: Vec<Track>,
    /// Processes and GPUs left out, for there are too many.
    pub(super) left_out: usize,
}

/// Live bytes of a process on a GPU. Numbers in arrays are differences, each to the one before it.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Track {
    /// Index into [`Book::processes`].
    pub(super) process: usize,
    /// Index into [`Book::gpus`].
    pub(super) gpu: usize,
    /// Rank label.
    pub(super) rank: String,
    /// GPU's label.
    pub(super) gpu_label: String,
    /// Most bytes at once.
    pub(super) peak_bytes: u64,
    /// Changes of which it was made.
    pub(super) changes: usize,
    /// True when every change is there: `at` are times, else numbers of buckets.
    pub(super) exact: bool,
    /// Where each point begins; it holds until the next.
    pub(super) at: Vec<u64>,
    /// Bytes of each layer when the bucket held most, by number of the layer. Layers without bytes are not there.
    pub(super) parts: BTreeMap<usize, Vec<i64>>,
    /// Least bytes held in each bucket; empty when exact.
    pub(super) low: Vec<i64>,
    /// Bytes held at the end of each bucket; empty when exact.
    pub(super) last: Vec<i64>,
    /// NVML's figures.
    pub(super) nvml: Nvml,
    /// Free memory as the process read it.
    pub(super) free: Free,
    /// Failed calls.
    pub(super) failures: Vec<Failing>,
}

/// One step: the moment, and what changed.
struct Change {
    t: u64,
    layer: usize,
    bytes: i128,
}

/// A point of a track while it is made.
struct Point {
    at: u64,
    parts: Vec<u64>,
    low: u64,
    last: u64,
}

impl Timeline {
    /// The time line of the book of `axes`.
    pub(super) fn new(axes: &Axes<'_>) -> Self {
        let book = axes.book();
        let axis = if is_told_by_phase(axes) { Axis::Phase } else { Axis::Kind };
        let (layers, layer_of) = layers(axes, axis);
        let end_ns = since_start(book, book.end);
        let bucket_ns = nice_width(end_ns.div_ceil(BUCKETS).max(1));
        let mut changes: BTreeMap<(usize, usize), Vec<Change>> = BTreeMap::new();
        // A row that died as it was born was never live.
        let lived = |row: &&Allocation| row.died.is_none_or(|(died, _)| died > row.born);
        for row in book.allocations.iter().filter(lived) {
            let layer = layer_of[&axes.cell(axis, row)];
            let of_track = changes.entry((row.process, row.gpu)).or_default();
            let bytes = i128::from(row.bytes);
            of_track.push(Change { t: since_start(book, row.born), layer, bytes });
            if let Some((died, _)) = row.died {
                of_track.push(Change { t: since_start(book, died), layer, bytes: -bytes });
            }
        }
        let mut tracks: Vec<Track> =
            changes.into_iter().map(|(pair, changes)| track(axes, pair, changes, layers.len(), bucket_ns)).collect();
        let left_out = tracks.len().saturating_sub(TRACKS);
        if left_out > 0 {
            tracks.sort_by_key(|track| std::cmp::Reverse(track.peak_bytes));
            tracks.truncate(TRACKS);
            tracks.sort_by_key(|track| (track.process, track.gpu));
        }
        marks::place(book, axes, &mut tracks, bucket_ns);
        Self { by: axis.name(), layers, end_ns, bucket_ns, tracks, left_out }
    }
}

/// True when the phase is known of at least half of all bytes there ever were.
fn is_told_by_phase(axes: &Axes<'_>) -> bool {
    let (mut known, mut all) = (0_u128, 0_u128);
    for row in &axes.book().allocations {
        let is_known = axes.label(Axis::Phase, axes.cell(Axis::Phase, row)) != UNATTRIBUTED;
        known += if is_known { u128::from(row.bytes) } else { 0 };
        all += u128::from(row.bytes);
    }
    axes.has_phases() && known * 2 >= all
}

/// Names of the layers in order, and the layer of each cell of `axis` that occurs.
fn layers(axes: &Axes<'_>, axis: Axis) -> (Vec<String>, BTreeMap<u32, usize>) {
    let cells: std::collections::BTreeSet<u32> =
        axes.book().allocations.iter().map(|row| axes.cell(axis, row)).collect();
    let (mut names, mut layer_of): (Vec<String>, _) = (Vec::new(), BTreeMap::new());
    // Cells stand in the order of their axis, sub-phases beside their phase.
    for cell in cells {
        let label = axes.label(axis, cell);
        let name = root(&label);
        let layer = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        layer_of.insert(cell, layer);
    }
    (names, layer_of)
}

/// The next of 1, 2, 5, 10, … not below `least`: a width that can be read out.
fn nice_width(least: u64) -> u64 {
    let mut ten = 1_u64;
    loop {
        if let Some(width) = [1, 2, 5].iter().map(|n| ten.saturating_mul(*n)).find(|width| *width >= least) {
            return width;
        }
        ten = ten.saturating_mul(10);
    }
}

fn track(
    axes: &Axes<'_>,
    (process, gpu): (usize, usize),
    mut changes: Vec<Change>,
    layers: usize,
    bucket_ns: u64,
) -> Track {
    changes.sort_by_key(|change| change.t);
    let moments = changes.chunk_by(|a, b| a.t == b.t).count();
    let exact = moments <= EXACT;
    let points = if exact { every(&changes, layers) } else { buckets(&changes, layers, bucket_ns) };
    let sum = |point: &Point| point.parts.iter().fold(0_u64, |sum, part| sum.saturating_add(*part));
    let steps = |of: &dyn Fn(&Point) -> u64| differences(points.iter().map(of));
    let used = (0..layers).filter(|layer| points.iter().any(|point| point.parts[*layer] > 0));
    Track {
        process,
        gpu,
        rank: axes.rank(process).to_owned(),
        gpu_label: axes.gpu(gpu),
        peak_bytes: points.iter().map(sum).max().unwrap_or(0),
        changes: moments,
        exact,
        at: points.iter().scan(0, |before, point| Some(point.at - std::mem::replace(before, point.at))).collect(),
        parts: used.map(|layer| (layer, steps(&|point| point.parts[layer]))).collect(),
        low: if exact { Vec::new() } else { steps(&|point| point.low) },
        last: if exact { Vec::new() } else { steps(&|point| point.last) },
        nvml: Nvml::default(),
        free: Free::default(),
        failures: Vec::new(),
    }
}

/// Each value less the one before it. Damaged traces alone hold more than an `i64` takes.
fn differences(values: impl Iterator<Item = u64>) -> Vec<i64> {
    let signed = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    values.scan(0, |before, value| Some(signed(value) - std::mem::replace(before, signed(value)))).collect()
}

/// Live bytes by layer, kept from going below zero.
struct Held(Vec<i128>);

impl Held {
    fn apply(&mut self, moment: &[Change]) {
        moment.iter().for_each(|change| self.0[change.layer] += change.bytes);
    }

    fn parts(&self) -> Vec<u64> {
        self.0.iter().map(|bytes| u64::try_from((*bytes).max(0)).unwrap_or(u64::MAX)).collect()
    }

    fn total(&self) -> u64 {
        u64::try_from(self.0.iter().sum::<i128>().max(0)).unwrap_or(u64::MAX)
    }
}

/// A point for every moment at which something changed.
fn every(changes: &[Change], layers: usize) -> Vec<Point> {
    let mut held = Held(vec![0; layers]);
    let point = |moment: &[Change]| {
        held.apply(moment);
        Point { at: moment[0].t, parts: held.parts(), low: 0, last: 0 }
    };
    changes.chunk_by(|a, b| a.t == b.t).map(point).collect()
}

/// A point for every bucket in which something changed, and one after it where nothing does: that holds on.
fn buckets(changes: &[Change], layers: usize, width: u64) -> Vec<Point> {
    let mut held = Held(vec![0; layers]);
    let mut points: Vec<Point> = Vec::new();
    for bucket in changes.chunk_by(|a, b| a.t / width == b.t / width) {
        let at = bucket[0].t / width;
        if points.last().is_some_and(|before| before.at + 1 < at) {
            let after = points[points.len() - 1].at + 1;
            points.push(Point { at: after, parts: held.parts(), low: held.total(), last: held.total() });
        }
        // What was held before counts too, unless it changed as the bucket began.
        let carried = bucket[0].t > at * width;
        let (mut low, mut high) = if carried { (held.total(), Some(held.total())) } else { (u64::MAX, None) };
        let mut parts = held.parts();
        for moment in bucket.chunk_by(|a, b| a.t == b.t) {
            held.apply(moment);
            let total = held.total();
            low = low.min(total);
            if high.is_none_or(|high| total > high) {
                (high, parts) = (Some(total), held.parts());
            }
        }
        points.push(Point { at, parts, low, last: held.total() });
    }
    if let Some(last) = points.last() {
        let at = last.at + 1;
        points.push(Point { at, parts: held.parts(), low: held.total(), last: held.total() });
    }
    points
}

/// Which bucket a time of the book falls in.
pub(super) fn bucket_of(book: &Book, t: u64, width: u64) -> u64 {
    since_start(book, t) / width
}

#[cfg(test)]
mod tests;
