//! What each GPU and each process holds.

use std::collections::BTreeMap;

use serde::Serialize;

use super::cells::{self, Sum};
use super::physical::{self, Compared, Reading};
use super::query::Moments;
use super::summary::{Bytes, since_start};
use super::tables::{self, Cell};
use super::torch::{self, TorchMemory};
use crate::ledger::{Allocation, GpuRef, ProcessInfo};
use crate::lifecycle::{Axes, Axis, RankEvidence, Role};
use crate::map::Map;

/// Axes that tell the devices of processes apart.
const DEVICES: [Axis; 2] = [Axis::Process, Axis::Device];
/// Axes that divide the cells of a process's device, whatever the query divides by.
const DEVICE_AXES: [Axis; 3] = [Axis::Phase, Axis::Kind, Axis::Owner];

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
    /// Moment looked at: one for all processes, the latest of theirs.
    pub at_ns: u64,
    /// When traced processes held most of it at once.
    pub peak_at_ns: u64,
    /// Held by traced processes together.
    #[serde(flatten)]
    pub bytes: Bytes,
}

/// A traced process.
#[derive(Clone, Debug, Serialize)]
pub struct Process {
    /// Process id.
    pub pid: u32,
    /// Its host, in a report of several traces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Rank label.
    pub rank: String,
    /// What it does in the server.
    pub role: Role,
    /// What tells the rank.
    pub rank_evidence: RankEvidence,
    /// Rank and size of the largest communicator it is in.
    pub world: Option<(u32, u32)>,
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
    /// What `PyTorch`'s caching allocator did with the bytes it had, where blocks of it were seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub torch: Option<TorchMemory>,
}

pub(super) fn gpus(axes: &Axes<'_>, moments: &Moments) -> Vec<Gpu> {
    let book = axes.book();
    let rows = &book.allocations;
    let peaks = axes.changes().peaks(rows, |row| row.gpu);
    let moments = moments.common(rows, &peaks);
    let mut sums: Map<usize, Sum> = Map::default();
    for row in rows {
        let at = moments.get(&row.gpu).copied().unwrap_or(0);
        sums.entry(row.gpu).or_default().add(row, row.live_at(at));
    }
    let gpu = |(number, gpu): (usize, &GpuRef)| {
        let known = book.listed(number);
        let peak = peaks.get(&number).copied().unwrap_or_default();
        let sum = Sum { peak: peak.bytes, ..sums.get(&number).copied().unwrap_or_default() };
        Gpu {
            index: gpu.index,
            uuid: gpu.uuid.clone(),
            label: axes.gpu(number),
            name: known.map(|g| g.name.clone()),
            total_bytes: book.size_of(number),
            at_ns: since_start(book, moments.get(&number).copied().unwrap_or(0)),
            peak_at_ns: since_start(book, peak.t),
            bytes: sum.into(),
        }
    };
    book.gpus.iter().enumerate().map(gpu).collect()
}

pub(super) fn processes(axes: &Axes<'_>, moments: &Moments) -> Vec<Process> {
    let book = axes.book();
    let mut devices = devices(axes, moments);
    let (host, imports) = (live_by_process(&book.host, moments), live_by_process(&book.imports, moments));
    let process = |(number, process): (usize, &ProcessInfo)| Process {
        pid: process.pid,
        host: axes.book().host_name(number).map(str::to_owned),
        rank: axes.rank(number).to_owned(),
        role: axes.role(number),
        rank_evidence: axes.ranks()[number].evidence,
        world: axes.ranks()[number].world,
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
    let all = [&DEVICES[..], &DEVICE_AXES].concat();
    let [sums, all] = cells::divide_each(axes, [&DEVICES, &all], moments);
    let mut parts = tables::split(axes, &DEVICE_AXES, all.cells);
    let mut samples = physical::by_device(&book.samples);
    let mut pairs: BTreeMap<(usize, usize), Sum> = samples.keys().map(|pair| (*pair, Sum::default())).collect();
    pairs.extend(sums.cells.iter().map(|cell| ((cell.key[0] as usize, cell.key[1] as usize), cell.sum)));

    let mut torch = torch::by_device(axes, moments);
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
            torch: torch.remove(&pair),
        });
    }
    devices
}
