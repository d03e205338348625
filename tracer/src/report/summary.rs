//! What a report says: computed once, shown by the text and the JSON renderer, which therefore cannot disagree.
//!
//! Serialized as it stands, [`Summary`] is the JSON report. Bytes are exact; times are nanoseconds since tracing began.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::thread;

use serde::Serialize;

use super::cells::{self, Sum};
use super::errors::{self, ProcessError};
use super::explain::kv_budget::{self, KvBudget};
use super::explain::verdict::{Facts, Verdict};
use super::failures::{self, Failed, Holder};
use super::holdings::{self, Device, Gpu, Process};
use super::paused::{self, Paused};
use super::physical;
use super::printed::{self, MemoryReadings, PrintedMemory};
use super::query::{self, Moments, Query};
use super::tables::{self, Cell, StackRow};
use super::trust::{self, Outcome, Probes};
use crate::ledger::Book;
use crate::lifecycle::{Axes, Decided, Group};
use crate::trace::record::Source;

/// Name and version of the JSON form.
pub const SCHEMA: &str = "vramtrace.report/1";

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
    /// False when that is another moment in each process: live bytes of several then sum to what was never held at once.
    pub one_moment: bool,
    /// Axes of `cells`.
    pub by: Vec<&'static str>,
    /// Memory of all traced processes on all GPUs.
    pub total: Bytes,
    /// The same, divided by `by`.
    pub cells: Vec<Cell>,
    /// Axes of `then_cells`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub then_by: Vec<&'static str>,
    /// The same memory, divided by `then_by`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub then_cells: Vec<Cell>,
    /// Memory of all traced processes on each GPU, at one moment.
    pub gpus: Vec<Gpu>,
    /// The memory of `total`, a process and GPU.
    pub processes: Vec<Process>,
    /// Stacks that hold most.
    pub stacks: Vec<StackRow>,
    /// Failed calls; equal ones are one entry with a count.
    pub failures: Vec<Failed>,
    /// Errors that processes wrote, and deaths by signal.
    pub errors: Vec<ProcessError>,
    /// What is the matter with the run.
    pub verdict: Verdict,
    /// What decided phase, role and owner of how much memory.
    pub evidence: Vec<Decided>,
    /// NCCL communicators across processes.
    pub groups: Vec<Group>,
    /// Free memory as the server printed it, beside its own readings.
    pub printed_memory: Vec<PrintedMemory>,
    /// Its readings, by process and place in its code.
    pub memory_readings: Vec<MemoryReadings>,
    /// How the server sized its KV cache, a rank each.
    pub kv_budget: Vec<KvBudget>,
    /// Memory that was given back and will be taken again.
    pub paused: Vec<Paused>,
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

impl Summary {
    /// Answers `query` from `book` by the standard rules.
    ///
    /// # Errors
    ///
    /// When the trace has no such moment as the query asks for.
    pub fn new(book: &Book, query: &Query) -> Result<Self, query::Error> {
        Self::of(&Axes::new(book), query)
    }

    /// Answers `query` from the book of `axes`.
    ///
    /// # Errors
    ///
    /// When the trace has no such moment as the query asks for.
    pub fn of(axes: &Axes<'_>, query: &Query) -> Result<Self, query::Error> {
        let book = axes.book();
        let moments = Moments::new(axes, query.at)?;
        let losses = &book.losses;
        // Each part goes through all rows: two at a time.
        let parts = thread::scope(|scope| {
            let holders = scope.spawn(|| {
                (
                    holdings::gpus(axes, &moments),
                    holdings::processes(axes, &moments),
                    tables::biggest_stacks(axes, &moments),
                )
            });
            let (table, then) = match &query.then[..] {
                [] => (cells::divide(axes, &query.by, &moments), Vec::new()),
                then => {
                    let [table, then] = cells::divide_each(axes, [&query.by, then], &moments);
                    (table, then.cells)
                }
            };
            let (kv_budget, errors) = (kv_budget::kv_budgets(axes), errors::errors(axes));
            let verdict = Verdict::of_one(&Facts::with("", axes, &moments, kv_budget.clone(), errors.clone()));
            let holders = holders.join().unwrap_or_else(|panic| resume_unwind(panic));
            (holders, table, then, kv_budget, errors, verdict)
        });
        let ((gpus, processes, stacks), table, then, kv_budget, errors, verdict) = parts;
        Ok(Self {
            schema: SCHEMA,
            trace: origin(book),
            outcome: trust::outcome(book, axes),
            lost_events: losses.iter().filter(|(why, _)| trust::costs_bytes(book, why)).map(|(_, count)| count).sum(),
            losses: losses.clone(),
            unknown_records: book.unknown_records,
            notices: book.notices.clone(),
            probes: trust::probes(book),
            ledger: book.header.ledger,
            explained_percent: physical::explained_percent(&book.samples),
            at: query.at.to_string(),
            one_moment: moments.is_one(&book.allocations),
            by: query.by.iter().map(|axis| axis.name()).collect(),
            total: table.total.into(),
            cells: tables::cells(axes, &query.by, table.cells),
            then_by: query.then.iter().map(|axis| axis.name()).collect(),
            then_cells: tables::cells(axes, &query.then, then),
            gpus,
            processes,
            stacks,
            failures: failures::failures(axes),
            errors,
            verdict,
            evidence: axes.decided(),
            groups: axes.groups(),
            printed_memory: printed::printed(axes),
            memory_readings: printed::readings(axes),
            kv_budget,
            paused: paused::paused(axes, &moments),
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
