//! A snapshot in the text exposition format of Prometheus, version 0.0.4
//! (<https://prometheus.io/docs/instrumenting/exposition_formats/>).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::Snapshot;
use crate::text::prefix;

/// The format's media type.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Distinct label sets of one metric. A server of eight ranks has some two hundred; what comes beyond is summed up in one.
pub const LABEL_SETS: usize = 1_000;
/// Longest label value, bytes: names come from the traced machine.
const VALUE: usize = 128;
/// Value of each label of the sum of what has no label set of its own.
pub const OTHER: &str = "other";

/// Label values.
type Labels = Vec<String>;

/// Writes snapshots. It remembers which label sets have a series of their own, so that one does not come and go.
#[derive(Debug, Default)]
pub struct Exporter {
    own: BTreeMap<&'static str, BTreeSet<Labels>>,
}

/// A metric.
struct Metric {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    labels: &'static [&'static str],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Gauge,
    Counter,
}

const fn gauge(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Metric {
    Metric { name, help, kind: Kind::Gauge, labels }
}

const fn counter(name: &'static str, help: &'static str, labels: &'static [&'static str]) -> Metric {
    Metric { name, help, kind: Kind::Counter, labels }
}

const INFO: Metric = gauge("vramtrace_info", "Version of vramtrace and of the NVIDIA driver.", &["version", "driver"]);
const LIVE: Metric = gauge(
    "vramtrace_live_bytes",
    "GPU memory that traced processes hold, as the driver charges it.",
    &["gpu", "rank", "phase", "kind", "owner"],
);
const PEAK: Metric =
    gauge("vramtrace_peak_bytes", "Most GPU memory that a process held at once since tracing began.", &["gpu", "rank"]);
const FAILURES: Metric = counter(
    "vramtrace_failures_total",
    "Calls that failed, for want of GPU memory or for another reason.",
    &["gpu", "rank", "reason"],
);
const TOTAL: Metric = gauge("vramtrace_gpu_total_bytes", "Memory of a GPU, by NVML.", &["gpu", "uuid"]);
const USED: Metric = gauge(
    "vramtrace_gpu_used_bytes",
    "Used memory of a GPU, of whatever processes, by NVML's last sample.",
    &["gpu", "uuid"],
);
const FREE: Metric =
    gauge("vramtrace_gpu_free_bytes", "Free memory of a GPU, by NVML's last sample.", &["gpu", "uuid"]);
const LOST: Metric = counter(
    "vramtrace_lost_total",
    "What tracing lost, by reason. Figures are exact while ring_full, unread, unreadable_ioctl, undecoded_ioctl, unsized_allocation and impossible_figure are zero or absent.",
    &["reason"],
);
const EVENTS: Metric = counter("vramtrace_events_total", "Events that the kernel sent.", &[]);
const LOST_EVENTS: Metric = counter(
    "vramtrace_lost_events_total",
    "Lost events that could carry bytes: figures are exact while this is 0.",
    &[],
);
const PROCESSES: Metric = gauge("vramtrace_processes", "Live traced processes.", &[]);

impl Exporter {
    /// The text for a snapshot.
    pub fn text(&mut self, snapshot: &Snapshot) -> String {
        let mut text = String::new();
        let own = |text: &str| text.to_owned();
        let one = |value: u64| vec![(Vec::new(), value)];
        let driver = snapshot.driver.clone().unwrap_or_default();
        self.write(&mut text, &INFO, vec![(vec![own(env!("CARGO_PKG_VERSION")), driver], 1)]);
        let gpu = |row: &super::Row| number(&snapshot.gpus[row.gpu]);
        let cells = snapshot.rows.iter().flat_map(|row| row.cells.iter().map(move |cell| (row, cell)));
        let live = cells.map(|(row, cell)| {
            (vec![gpu(row), row.rank.clone(), cell.phase.clone(), cell.kind.clone(), cell.owner.clone()], cell.live)
        });
        self.write(&mut text, &LIVE, live.collect());
        let ranks = || snapshot.rows.iter().map(|row| (vec![gpu(row), row.rank.clone()], row));
        self.write(&mut text, &PEAK, ranks().map(|(labels, row)| (labels, row.peak)).collect());
        let failures = ranks().flat_map(|(labels, row)| {
            let (oom, other) = row.failures;
            [("out_of_memory", oom), ("error", other)].map(|(reason, n)| ([&labels[..], &[own(reason)]].concat(), n))
        });
        self.write(&mut text, &FAILURES, failures.collect());
        let cards = || snapshot.gpus.iter().map(|gpu| (vec![number(gpu), gpu.uuid.clone()], gpu));
        let of_cards = |value: fn(&super::Gpu) -> Option<u64>| -> Vec<(Labels, u64)> {
            cards().filter_map(|(labels, gpu)| Some((labels, value(gpu)?))).collect()
        };
        self.write(&mut text, &TOTAL, of_cards(|gpu| gpu.total));
        self.write(&mut text, &USED, of_cards(|gpu| gpu.memory.map(|(used, _)| used)));
        self.write(&mut text, &FREE, of_cards(|gpu| gpu.memory.map(|(_, free)| free)));
        let losses = snapshot.losses.iter().map(|(why, count)| (vec![why.clone()], *count));
        self.write(&mut text, &LOST, losses.collect());
        self.write(&mut text, &LOST_EVENTS, one(snapshot.lost_events()));
        self.write(&mut text, &EVENTS, one(snapshot.status.events));
        self.write(&mut text, &PROCESSES, one(snapshot.status.processes as u64));
        text
    }

    /// One metric with its samples. Nothing of one without any.
    fn write(&mut self, text: &mut String, metric: &Metric, samples: Vec<(Labels, u64)>) {
        let Metric { name, help, kind, labels } = metric;
        let samples = self.bound(metric, samples);
        if samples.is_empty() {
            return;
        }
        let kind = if *kind == Kind::Gauge { "gauge" } else { "counter" };
        _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (values, value) in samples {
            let pairs: Vec<_> =
                labels.iter().zip(&values).map(|(label, v)| format!("{label}=\"{}\"", escape(v))).collect();
            let set = if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
            _ = writeln!(text, "{name}{set} {value}");
        }
    }

    /// Sums by label set: at most [`LABEL_SETS`], and all others in one.
    ///
    /// A set keeps its series while it has a value; a counter's keeps it for good, for its value must not fall.
    fn bound(&mut self, metric: &Metric, samples: Vec<(Labels, u64)>) -> BTreeMap<Labels, u64> {
        let mut sums: BTreeMap<Labels, u64> = BTreeMap::new();
        for (labels, value) in samples {
            let labels = labels.into_iter().map(|value| shorten(&value)).collect();
            let sum = sums.entry(labels).or_default();
            *sum = sum.saturating_add(value);
        }
        let own = self.own.entry(metric.name).or_default();
        if metric.kind == Kind::Gauge {
            own.retain(|labels| sums.contains_key(labels));
        }
        let mut fresh: Vec<(u64, Labels)> =
            sums.iter().filter(|(labels, _)| !own.contains(*labels)).map(|(labels, n)| (*n, labels.clone())).collect();
        fresh.sort_by(|a, b| b.cmp(a));
        own.extend(fresh.into_iter().map(|(_, labels)| labels).take(LABEL_SETS.saturating_sub(own.len())));
        let mut bounded: BTreeMap<Labels, u64> = BTreeMap::new();
        for (labels, value) in sums {
            let labels = if own.contains(&labels) { labels } else { vec![OTHER.to_owned(); metric.labels.len()] };
            let sum = bounded.entry(labels).or_default();
            *sum = sum.saturating_add(value);
        }
        bounded
    }
}

/// `0` for GPU 0, as other exporters name it; what else is known of one that NVML does not list.
fn number(gpu: &super::Gpu) -> String {
    gpu.label.strip_prefix("GPU ").unwrap_or(&gpu.label).to_owned()
}

/// What fits in a label.
fn shorten(value: &str) -> String {
    prefix(value, VALUE).to_owned()
}

/// A label value as the format wants it.
fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests;
