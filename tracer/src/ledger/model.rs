//! The ledger's tables.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::trace::record::{Frame, Header, Library, Outcome};

/// All that a trace says about bytes.
#[derive(Clone, Debug, Default)]
pub struct Book {
    /// The trace's header.
    pub header: Header,
    /// GPUs that own bytes in this trace, in order of NVML index where known.
    pub gpus: Vec<GpuRef>,
    /// Traced processes by pid (a reused pid gets a second entry: order of appearance).
    pub processes: Vec<ProcessInfo>,
    /// Each piece of physical GPU memory while one process owned it, in order of birth.
    pub allocations: Vec<Allocation>,
    /// Which of `allocations` take the place of memory that was paused (`torch_memory_saver`), by number, and which each of
    /// these first was: what it is for, that tells.
    pub resumed: BTreeMap<u32, u32>,
    /// Pinned host memory, bytes, in the same form; never part of a GPU sum.
    pub host: Vec<Allocation>,
    /// Memory of others that a process mapped (IPC, imported handles): 0 bytes of its own. `bytes` is the size of what
    /// was mapped, where the owner is traced, else 0; never part of a GPU sum.
    pub imports: Vec<Allocation>,
    /// Calls and requests that failed for want of memory or otherwise, in order.
    pub failures: Vec<Failure>,
    /// NVML samples with the ledger's value beside them.
    pub samples: Vec<Sample>,
    /// Processes that are not traced and have memory on one of `gpus`, by NVML.
    pub strangers: Vec<Stranger>,
    /// Stacks: frame numbers, outermost first.
    pub stacks: Vec<Vec<u32>>,
    /// Frames.
    pub frames: Vec<Frame>,
    /// Probed libraries.
    pub libraries: Vec<Library>,
    /// Lines that processes wrote, in order.
    pub logs: Vec<LogLine>,
    /// Free memory as processes read it themselves, in order.
    pub readings: Vec<Reading>,
    /// Initialisations of NCCL communicators, in order of their return.
    pub communicators: Vec<Communicator>,
    /// Captures of streams into graphs, in order of their end.
    pub captures: Vec<Capture>,
    /// `PyTorch`'s caching allocators.
    pub torch: super::torch::Torch,
    /// Losses summed by reason.
    pub losses: BTreeMap<String, u64>,
    /// Degradations, in order, without repeats.
    pub notices: Vec<String>,
    /// How tracing ended; `None` for a file that was cut off.
    pub outcome: Option<Outcome>,
    /// Time of the last record.
    pub end: u64,
    /// Lines of unknown kinds that were skipped.
    pub unknown_records: u64,
    /// Hosts of a book that is of several ([`Book::merge`]); else empty.
    pub hosts: Vec<Host>,
}

/// A host of a book that is of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name, unlike that of any other.
    pub name: String,
    /// Its processes: indices into [`Book::processes`].
    pub processes: std::ops::Range<usize>,
    /// Its GPUs: indices into [`Book::gpus`].
    pub gpus: std::ops::Range<usize>,
}

/// A GPU in the ledger.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuRef {
    /// NVML index, if known.
    pub index: Option<u32>,
    /// UUID; empty if never learnt.
    pub uuid: String,
    /// Driver's device instance, if known.
    pub instance: Option<u32>,
}

/// A traced process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessInfo {
    /// Process id.
    pub pid: u32,
    /// Parent process id, if known.
    pub parent: Option<u32>,
    /// Command line at its last exec.
    pub command: Vec<String>,
    /// Last title seen.
    pub title: String,
    /// When it appeared.
    pub born: u64,
    /// When it began to exit.
    pub died: Option<u64>,
    /// Exit code.
    pub exit_code: Option<i32>,
    /// Signal that killed it.
    pub exit_signal: Option<i32>,
    /// True when it ran before tracing began.
    pub attached: bool,
    /// Environment variables that the trace kept, `NAME=value`; a fork's are its parent's.
    pub env: Vec<String>,
}

/// A line that a process wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// When.
    pub t: u64,
    /// Index into [`Book::processes`].
    pub process: usize,
    /// File descriptor.
    pub fd: u32,
    /// The line.
    pub text: String,
}

/// What a process read of its GPU's memory (`cudaMemGetInfo`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// When the call returned.
    pub t: u64,
    /// Index into [`Book::processes`].
    pub process: usize,
    /// Free bytes.
    pub free: u64,
    /// Total bytes, where it read them.
    pub total: Option<u64>,
    /// Stack number.
    pub stack: Option<u32>,
}

/// A call that makes an NCCL communicator: a window in time, and evidence of the process's rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Communicator {
    /// When it was entered.
    pub start: u64,
    /// When it returned.
    pub end: u64,
    /// Index into [`Book::processes`].
    pub process: usize,
    /// Thread.
    pub tid: u32,
    /// Function.
    pub api: String,
    /// Result (`ncclResult_t`, 0 = success).
    pub result: i64,
    /// First eight bytes of the unique id: the same in all members. `None` where the call takes none.
    pub id: Option<u64>,
    /// Size of the communicator.
    pub size: Option<u32>,
    /// Rank in it.
    pub rank: Option<u32>,
    /// Stack number of the call.
    pub stack: Option<u32>,
}

/// A stretch of time in which a thread captured a stream into a graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capture {
    /// When it had begun.
    pub start: u64,
    /// When it ended; [`u64::MAX`] if it was not seen to.
    pub end: u64,
    /// Index into [`Book::processes`].
    pub process: usize,
    /// Thread.
    pub tid: u32,
}

/// A piece of physical memory while one process owned it.
#[derive(Clone, Debug, PartialEq)]
pub struct Allocation {
    /// Index into [`Book::processes`].
    pub process: usize,
    /// Thread that made it.
    pub tid: u32,
    /// Index into [`Book::gpus`].
    pub gpu: usize,
    /// Bytes, as the driver charged them.
    pub bytes: u64,
    /// When it appeared.
    pub born: u64,
    /// When and how it went; `None` while live.
    pub died: Option<(u64, Death)>,
    /// What it is for.
    pub kind: Kind,
    /// Whose code asked for it.
    pub owner: Owner,
    /// Probed API calls around it, outermost first. Shared: there are few ways to memory, and millions of rows.
    pub calls: Arc<[String]>,
    /// Stack number.
    pub stack: Option<u32>,
    /// Why `kind` is what it is, in a few words.
    pub evidence: &'static str,
}

impl Allocation {
    /// True when it was live at time `t`.
    #[must_use]
    pub fn live_at(&self, t: u64) -> bool {
        self.born <= t && self.died.is_none_or(|(died, _)| t < died)
    }
}

/// How a piece of memory went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// The process freed it.
    Freed,
    /// The process gave it back and kept its addresses, to fill them again (`tms_pause` of `torch_memory_saver`).
    Paused,
    /// The driver took it back when the process exited or closed its driver file.
    Reclaimed,
    /// Another process that had it mapped became its owner, or a file that it was exported to.
    Transferred,
    /// Memory from before tracing began shrank, by NVML's figure.
    Adjusted,
}

/// What memory is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// CUDA context: heaps, pushbuffers, local memory made at context creation.
    Context,
    /// Code and constants.
    Module,
    /// Local memory (register spill, stack) grown at a launch or by a limit.
    LocalMemory,
    /// Channels of streams.
    Channel,
    /// `cudaMalloc`, pitch, arrays.
    CudaMalloc,
    /// `cuMemCreate`.
    Vmm,
    /// Stream-ordered pools (`cudaMallocAsync`).
    Pool,
    /// Executable graphs and their memory nodes.
    GraphExec,
    /// Memory taken over from another process that freed it while mapped here.
    IpcImport,
    /// Pinned host memory.
    Host,
    /// Held before tracing began.
    PreAttach,
    /// No evidence.
    Other,
}

/// Whose code asked for memory. Rules refine it; the ledger knows the driver from the rest.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Owner(pub std::borrow::Cow<'static, str>);

/// A call or request that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    /// When.
    pub t: u64,
    /// Index into [`Book::processes`].
    pub process: usize,
    /// Outermost API call, probed or read off the stack; a few words where neither tells.
    pub api: String,
    /// Result code of `api`; 0 where its return was not seen.
    pub result: i64,
    /// Status (`NV_STATUS`) of the driver request that failed inside; 0 without one.
    pub status: u32,
    /// Bytes that the call asked for or, where that is not known, the request inside.
    pub requested: Option<u64>,
    /// Bytes that the driver refused: a pool asks for more than the call that made it grow.
    pub refused: Option<u64>,
    /// Free bytes on that GPU: NVML's sample nearest in time, or the target's own reading.
    pub free: Option<u64>,
    /// When that was read.
    pub free_at: Option<u64>,
    /// Index into [`Book::gpus`], if known.
    pub gpu: Option<usize>,
    /// Stack number.
    pub stack: Option<u32>,
    /// True when the driver had no memory (as against a bad argument or a lost device).
    pub out_of_memory: bool,
}

/// NVML's figure for one process on one GPU, and the ledger's at that time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Query end.
    pub t: u64,
    /// Index into [`Book::processes`].
    pub process: usize,
    /// Index into [`Book::gpus`].
    pub gpu: usize,
    /// NVML's bytes.
    pub nvml: u64,
    /// Ledger's bytes.
    pub live: u64,
    /// No allocation or free was in flight around the query.
    pub quiet: bool,
}

/// A process that is not traced, on one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stranger {
    /// Index into [`Book::gpus`].
    pub gpu: usize,
    /// Process id, initial PID namespace.
    pub pid: u32,
    /// When NVML first listed it.
    pub first: u64,
    /// When it last did.
    pub last: u64,
    /// Most bytes that it was listed with; `None` where NVML never said.
    pub bytes: Option<u64>,
}
