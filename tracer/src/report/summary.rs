//! What a report says: computed once, shown by the text and the JSON renderer, which therefore cannot disagree.
//!
//! Serialized as it stands, [`Summary`] is the JSON report. Bytes are exact; times are nanoseconds since tracing began.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cells::{self, Sum};
use super::failures::{self, Failed, Holder};
use super::physical::{self, Compared, Reading};
use super::query::{self, Moments, Query};
use super::tables::{self, Cell, StackRow};
use super::trust::{self, Outcome, Probes};
use crate::ledger::{Allocation, Book};
use crate::lifecycle::{Axes, Axis};
use crate::trace::record::Source;

/// Name and version of the JSON form.
pub const SCHEMA: &str = "vramtrace.report/1";

/// Axes that divide the cells of a process's device, whatever the query divides by.
const DEVICE_AXES: [Axis; 3] = [Axis::Phase, Axis::Kind, Axis::Owner];

/// All that a report says.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// Where the trace comes from.
    pub trace: Origin,
    /// How it ended.
    pub outcome: Outcome,
    /// Lost events that could carry bytes.
    pub lost_events: u64,
    /// All losses by reason, those that cost no bytes too.
    pub losses: BTreeMap<String, u64>,
    /// Lines of kinds this version does not know.
    pub unknown_records: u64,
    /// Degradations, as the tracer noted them.
    pub notices: Vec<String>,
    /// Probes that were placed and that were not.
    pub probes: Probes,
    /// Where the physical bytes come from.
    pub ledger: Source,
    /// Share of NVML's bytes that the ledger explains, over quiet samples; `None` without one.
    pub explained_percent: Option<f64>,
    /// Moment looked at: `end`, `peak`, `oom` or a time.
    pub at: String,
    /// Axes of `cells`.
    pub by: Vec<&'static str>,
    /// Memory of all traced processes on all GPUs.
    pub total: Bytes,
    /// The same, divided by `by`.
    pub cells: Vec<Cell>,
    /// The same, a GPU.
    pub gpus: Vec<Gpu>,
    /// The same, a process and GPU.
    pub processes: Vec<Process>,
    /// Stacks that hold most.
    pub stacks: Vec<StackRow>,
    /// Failed calls; equal ones are one entry with a count.
    pub failures: Vec<Failed>,
    /// How the server sized its KV cache. Always empty: no rule reads it yet.
    pub kv_budget: Vec<()>,
}

/// Where a trace comes from.
#[derive(Clone, Debug, Serialize)]
pub struct Origin {
    /// Version of vramtrace that wrote it.
    pub tool: String,
    /// Host name.
    pub host: String,
    /// Kernel release.
    pub kernel: String,
    /// NVIDIA driver version.
    pub driver: Option<String>,
    /// Traced command; empty when vramtrace attached.
    pub command: Vec<String>,
    /// Kernel function the driver hook sat on.
    pub hook: String,
    /// How probes were placed.
    pub probes: String,
    /// True when tracing began beside processes that already ran.
    pub attached: bool,
    /// When tracing began, nanoseconds since the Unix epoch.
    pub start_unix_ns: u64,
    /// The same moment on the trace's clock (`CLOCK_MONOTONIC`).
    pub start_ns: u64,
    /// From there to the last record, nanoseconds.
    pub duration_ns: u64,
}

/// Bytes of some memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Bytes {
    /// Live at the moment asked for.
    pub live_bytes: u64,
    /// Most live at once, over the whole trace.
    pub peak_bytes: u64,
    /// Of all allocations there ever were.
    pub allocated_bytes: u64,
    /// Allocations live at the moment asked for.
    pub live_count: u64,
    /// Allocations there ever were.
    pub count: u64,
}

impl From<Sum> for Bytes {
    fn from(sum: Sum) -> Self {
        Self {
            live_bytes: sum.live,
            peak_bytes: sum.peak,
            allocated_bytes: sum.allocated,
            live_count: sum.live_count,
            count: sum.count,
        }
    }
}

/// A GPU and what traced processes hold on it.
#[derive(Clone, Debug, Serialize)]
pub struct Gpu {
    /// NVML index, where known.
    pub index: Option<u32>,
    /// UUID; empty where unknown.
    pub uuid: String,
    /// `GPU 0`, or what else is known of it.
    pub label: String,
    /// Product name.
    pub name: Option<String>,
    /// Total memory.
    pub total_bytes: Option<u64>,
    /// Held by traced processes.
    #[serde(flatten)]
    pub bytes: Bytes,
}

/// A traced process.
#[derive(Clone, Debug, Serialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Rank label.
    pub rank: String,
    /// What it does in the server.
    pub role: &'static str,
    /// Command line.
    pub command: Vec<String>,
    /// Title it gave itself last.
    pub title: String,
    /// Exit code, if it exited.
    pub exit_code: Option<i32>,
    /// Signal that killed it.
    pub exit_signal: Option<i32>,
    /// True when it ran before tracing began.
    pub attached: bool,
    /// GPUs it held memory on, or NVML says it did.
    pub devices: Vec<Device>,
    /// Pinned host memory it holds, apart from every GPU sum.
    pub host_bytes: u64,
    /// Memory of others that it has mapped, apart from every GPU sum.
    pub imported_bytes: u64,
}

/// What a process holds on a GPU.
#[derive(Clone, Debug, Serialize)]
pub struct Device {
    /// NVML index, where known.
    pub index: Option<u32>,
    /// UUID; empty where unknown.
    pub uuid: String,
    /// `GPU 0`, or what else is known of it.
    pub label: String,
    /// Moment looked at.
    pub at_ns: u64,
    /// Its bytes.
    #[serde(flatten)]
    pub bytes: Bytes,
    /// Of the live ones, those held before tracing began: without stack or kind.
    pub pre_attach_bytes: u64,
    /// The ledger against NVML, over the samples below.
    pub compared: Compared,
    /// NVML's samples.
    pub nvml: Vec<Reading>,
    /// Its bytes by phase, kind and owner.
    pub cells: Vec<Cell>,
}

impl Summary {
    /// Answers `query` from `book`.
    ///
    /// # Errors
    ///
    /// When the trace has no such moment as the query asks for.
    pub fn new(book: &Book, query: &Query) -> Result<Self, query::Error> {
        let moments = Moments::new(book, query.at)?;
        let axes = Axes::new(book);
        let table = cells::divide(&axes, &query.by, &book.allocations, &moments);
        let losses = &book.losses;
        Ok(Self {
            schema: SCHEMA,
            trace: origin(book),
            outcome: trust::outcome(book, &axes),
            lost_events: losses.iter().filter(|(why, _)| trust::costs_bytes(book, why)).map(|(_, count)| count).sum(),
            losses: losses.clone(),
            unknown_records: book.unknown_records,
            notices: book.notices.clone(),
            probes: trust::probes(book),
            ledger: book.header.ledger,
            explained_percent: physical::explained_percent(&book.samples),
            at: query.at.to_string(),
            by: query.by.iter().map(|axis| axis.name()).collect(),
            total: table.total.into(),
            cells: tables::cells(&axes, &query.by, table.cells),
            gpus: gpus(&axes, &moments),
            processes: processes(&axes, &moments),
            stacks: tables::biggest_stacks(&axes, &moments),
            failures: failures::failures(&axes),
            kv_budget: Vec::new(),
        })
    }

    /// Of the live bytes, those held before tracing began.
    #[must_use]
    pub fn pre_attach_bytes(&self) -> u64 {
        self.devices().map(|(_, device)| device.pre_attach_bytes).sum()
    }

    /// Every process and GPU.
    pub fn devices(&self) -> impl Iterator<Item = (&Process, &Device)> {
        self.processes.iter().flat_map(|process| process.devices.iter().map(move |device| (process, device)))
    }

    /// What holds the GPU of a failure, where that was worked out.
    #[must_use]
    pub fn holders<'a>(&self, failed: &'a Failed) -> &'a [Holder] {
        failed.holders.as_deref().unwrap_or_default()
    }
}

fn origin(book: &Book) -> Origin {
    let header = &book.header;
    Origin {
        tool: header.tool.clone(),
        host: header.host.clone(),
        kernel: header.kernel.clone(),
        driver: header.driver.clone(),
        command: header.command.clone(),
        hook: header.hook.clone(),
        probes: header.probes.clone(),
        attached: header.attached,
        start_unix_ns: header.unix_ns,
        start_ns: header.t,
        duration_ns: since_start(book, book.end),
    }
}

/// A time of the trace's clock as nanoseconds since tracing began.
pub(super) fn since_start(book: &Book, t: u64) -> u64 {
    t.saturating_sub(book.header.t)
}

fn gpus(axes: &Axes<'_>, moments: &Moments) -> Vec<Gpu> {
    let book = axes.book();
    let sums = cells::divide(axes, &[Axis::Device], &book.allocations, moments);
    let gpu = |(number, gpu): (usize, &crate::ledger::GpuRef)| {
        let known = book
            .header
            .gpus
            .iter()
            .find(|g| if gpu.uuid.is_empty() { Some(g.index) == gpu.index } else { g.uuid == gpu.uuid });
        let cell = sums.cells.iter().find(|cell| cell.key == [number as u32]);
        Gpu {
            index: gpu.index,
            uuid: gpu.uuid.clone(),
            label: axes.gpu(number),
            name: known.map(|g| g.name.clone()),
            total_bytes: known.map(|g| g.total_bytes),
            bytes: cell.map(|cell| cell.sum).unwrap_or_default().into(),
        }
    };
    book.gpus.iter().enumerate().map(gpu).collect()
}

fn processes(axes: &Axes<'_>, moments: &Moments) -> Vec<Process> {
    let book = axes.book();
    let mut devices = devices(axes, moments);
    let (host, imports) = (live_by_process(&book.host, moments), live_by_process(&book.imports, moments));
    let process = |(number, process): (usize, &crate::ledger::ProcessInfo)| Process {
        pid: process.pid,
        rank: axes.rank(number).to_owned(),
        role: axes.role(number),
        command: process.command.clone(),
        title: process.title.clone(),
        exit_code: process.exit_code,
        exit_signal: process.exit_signal,
        attached: process.attached,
        devices: devices.remove(&number).unwrap_or_default(),
        host_bytes: host.get(&number).copied().unwrap_or(0),
        imported_bytes: imports.get(&number).copied().unwrap_or(0),
    };
    book.processes.iter().enumerate().map(process).collect()
}

fn live_by_process(rows: &[Allocation], moments: &Moments) -> BTreeMap<usize, u64> {
    let mut live: BTreeMap<usize, u64> = BTreeMap::new();
    for row in rows.iter().filter(|row| moments.is_live(row)) {
        let sum = live.entry(row.process).or_default();
        *sum = sum.saturating_add(row.bytes);
    }
    live
}

/// The devices of each process, in order of GPU.
fn devices(axes: &Axes<'_>, moments: &Moments) -> BTreeMap<usize, Vec<Device>> {
    let book = axes.book();
    let sums = cells::divide(axes, &[Axis::Process, Axis::Device], &book.allocations, moments);
    let mut parts = tables::split(axes, &DEVICE_AXES, moments);
    let mut samples = physical::by_device(&book.samples);
    let mut pairs: BTreeMap<(usize, usize), Sum> = samples.keys().map(|pair| (*pair, Sum::default())).collect();
    pairs.extend(sums.cells.iter().map(|cell| ((cell.key[0] as usize, cell.key[1] as usize), cell.sum)));

    let mut devices: BTreeMap<usize, Vec<Device>> = BTreeMap::new();
    for (pair @ (process, gpu), sum) in pairs {
        let known = book.gpus.get(gpu).cloned().unwrap_or_default();
        let cells = parts.remove(&pair).unwrap_or_default();
        let readings = samples.remove(&pair).unwrap_or_default();
        let at = moments.of(process, gpu);
        devices.entry(process).or_default().push(Device {
            index: known.index,
            uuid: known.uuid,
            label: axes.gpu(gpu),
            at_ns: since_start(book, at),
            bytes: sum.into(),
            pre_attach_bytes: cells.iter().filter(|cell| cell.is_pre_attach()).map(|cell| cell.bytes.live_bytes).sum(),
            compared: Compared::new(&readings, at),
            nvml: readings.iter().map(|sample| Reading::new(book, sample)).collect(),
            cells,
        });
    }
    devices
}
