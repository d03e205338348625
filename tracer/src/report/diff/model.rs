//! What a comparison says. Serialized as it stands, [`Diff`] is the JSON of `vramtrace diff`.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::report::explain::Verdict;
use crate::report::trust::Outcome;

/// Name and version of the JSON form.
pub const SCHEMA: &str = "vramtrace.diff/1";

/// Two runs compared: what OTHER has more or less than BASE.
///
/// Differences are signed: positive where OTHER holds more. Those of `ranks`, of their `phases`, of `cells` and of
/// `stacks` each sum to `bytes`.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    /// [`SCHEMA`].
    pub schema: &'static str,
    /// The run compared with.
    pub base: RunFacts,
    /// The run compared.
    pub other: RunFacts,
    /// Where in their lives the runs are compared.
    pub compared: Compared,
    /// What differs in how the runs were started and where they ran, what may be a cause first.
    pub configuration: Vec<Setting>,
    /// What the runs' memory comes to: `total_base_bytes`, `total_other_bytes`, `total_delta_bytes`.
    #[serde(flatten, with = "total")]
    pub bytes: Change,
    /// Ranks of either run, and other processes that held memory.
    pub ranks: Vec<RankChange>,
    /// Axes of `cells`.
    pub by: Vec<&'static str>,
    /// The same difference divided by `by`; cells that are equal in both are there too.
    pub cells: Vec<CellChange>,
    /// The same difference by call stack, the largest change first; equal ones are left out.
    pub stacks: Vec<StackChange>,
    /// What is the matter.
    pub verdict: Verdict,
}

/// Bytes of something in both runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Live in BASE at the moment compared.
    pub base_bytes: u64,
    /// Live in OTHER.
    pub other_bytes: u64,
    /// OTHER less BASE.
    pub delta_bytes: i64,
}

/// One of the runs.
#[derive(Clone, Debug, Serialize)]
pub struct RunFacts {
    /// Name of its trace file.
    pub name: String,
    /// Host it ran on.
    pub host: String,
    /// How it ended.
    pub outcome: Outcome,
    /// Lost events that could carry bytes.
    pub lost_events: u64,
    /// Share of NVML's bytes that the ledger explains; `None` without a quiet sample.
    pub explained_percent: Option<f64>,
    /// Degradations, as the tracer noted them.
    pub notices: Vec<String>,
    /// Of the live bytes, those held before tracing began: without stack, kind or phase.
    pub pre_attach_bytes: u64,
    /// The phase it died in, where it failed before serving.
    pub failed_in: Option<String>,
}

/// Where in their lives two runs are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// `end`, `peak`, `oom`, a time, or `common`: the end of `phase`.
    pub at: String,
    /// The last phase that both went through, where the moment is its end.
    pub phase: Option<String>,
    /// Why the moment is not the one that a reader expects.
    pub why: Option<String>,
}

/// Where a setting comes from, in the order of reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// An option or word of the command line.
    Argument,
    /// A server's arguments as it printed them, defaults filled in.
    ServerArgument,
    /// An environment variable.
    Environment,
    /// A library's file.
    Library,
    /// Host, kernel, driver, GPUs.
    Host,
    /// How it was traced.
    Tracer,
}

/// A setting that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Setting {
    /// `--mem-fraction-static`, `NCCL_CUMEM_ENABLE`, `libnccl.so`, `driver`.
    pub key: String,
    /// Its value in BASE; `None` where it is not set. An option without a value has an empty one.
    pub base: Option<String>,
    /// Its value in OTHER.
    pub other: Option<String>,
    /// Where it comes from.
    pub source: Source,
    /// True for what differs between any two runs: ports, seeds, run ids, temporary paths.
    pub noise: bool,
}

/// A rank or another process, in either run or both.
#[derive(Clone, Debug, Serialize)]
pub struct RankChange {
    /// Label that it is matched by: `TP3`; without pid for what is no rank: `python3 train.py`, `tokenizer`.
    pub rank: String,
    /// True for a rank, false for another process.
    pub is_rank: bool,
    /// Process id in BASE; `None` where BASE has no such process.
    pub base_pid: Option<u32>,
    /// Process id in OTHER.
    pub other_pid: Option<u32>,
    /// Its bytes on all GPUs.
    #[serde(flatten)]
    pub bytes: Change,
    /// The same by phase, in the order of a server's life; equal ones are there too.
    pub phases: Vec<PhaseChange>,
    /// Memory of others that it has mapped (IPC, imported handles), apart from every sum.
    pub imported: Change,
    /// Pinned host memory, apart from every sum.
    pub host: Change,
}

/// A phase's bytes in both runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PhaseChange {
    /// Name, with its sub-phase.
    pub phase: String,
    /// Its bytes.
    #[serde(flatten)]
    pub bytes: Change,
}

/// A cell of the axes asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CellChange {
    /// Label on each axis.
    #[serde(flatten)]
    pub labels: BTreeMap<&'static str, String>,
    /// Its bytes.
    #[serde(flatten)]
    pub bytes: Change,
}

/// A call stack's bytes in both runs. Stacks are equal when their frames name the same functions in the same files, whatever
/// the lines and addresses; where there are Python frames, these alone count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct StackChange {
    /// `appeared`, `vanished`, `grew` or `shrank`.
    pub change: &'static str,
    /// Phase.
    pub phase: String,
    /// Whose code asked.
    pub owner: String,
    /// What the memory is for.
    pub kind: String,
    /// Outermost probed API call.
    pub api: String,
    /// Bytes of all ranks.
    #[serde(flatten)]
    pub bytes: Change,
    /// Live allocations in BASE.
    pub base_count: u64,
    /// Live allocations in OTHER.
    pub other_count: u64,
    /// Ranks and other processes in which its bytes changed.
    pub ranks: Vec<String>,
    /// Frames that say who asked, innermost first, as OTHER has them (BASE, where OTHER has none): the Python ones, or the
    /// native ones where there are none.
    pub frames: Vec<String>,
}

impl Change {
    /// Of two sums. Sums saturate, and so do differences: a damaged trace may claim more bytes than there can be.
    #[must_use]
    pub fn new(base_bytes: u64, other_bytes: u64) -> Self {
        let delta = i128::from(other_bytes) - i128::from(base_bytes);
        let delta_bytes = i64::try_from(delta).unwrap_or(if delta < 0 { i64::MIN } else { i64::MAX });
        Self { base_bytes, other_bytes, delta_bytes }
    }

    /// True when both runs hold nothing of it.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.base_bytes == 0 && self.other_bytes == 0
    }
}

impl std::ops::Add for Change {
    type Output = Self;

    fn add(self, more: Self) -> Self {
        Self::new(self.base_bytes.saturating_add(more.base_bytes), self.other_bytes.saturating_add(more.other_bytes))
    }
}

impl std::iter::Sum for Change {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, change| sum + change)
    }
}

impl Setting {
    /// True when this is the setting `name`, however it is written: `--mem-fraction-static` and `mem_fraction_static` are.
    #[must_use]
    pub fn is(&self, name: &str) -> bool {
        canonical(&self.key) == canonical(name)
    }
}

/// A setting's name without the marks of where it was written.
#[must_use]
pub fn canonical(name: &str) -> String {
    name.trim_start_matches('-').replace('-', "_")
}

/// The sum under the names of the schema.
mod total {
    use serde::Serializer;
    use serde::ser::SerializeMap;

    use super::Change;

    pub(super) fn serialize<S: Serializer>(bytes: &Change, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("total_base_bytes", &bytes.base_bytes)?;
        map.serialize_entry("total_other_bytes", &bytes.other_bytes)?;
        map.serialize_entry("total_delta_bytes", &bytes.delta_bytes)?;
        map.end()
    }
}
