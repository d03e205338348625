//! Records of a trace: what was seen, nothing concluded.
//!
//! One record a line of JSON, externally tagged by its kind: `{"rm":{…}}`, so that `jq .rm.alloc` works and a reader
//! can skip kinds it does not know. Times (`t`) are nanoseconds of `CLOCK_MONOTONIC` on the traced host; events stand in
//! the order in which the kernel recorded them.

use serde::{Deserialize, Serialize};

/// Major version of the format: a reader refuses a higher one.
pub const MAJOR: u32 = 1;
/// Minor version: grows when record kinds or fields are added.
pub const MINOR: u32 = 2;

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    /// First line of a file.
    Header(Header),
    /// Probes were placed in a library.
    Library(Library),
    /// A step in a process's life.
    Process(Process),
    /// A stack frame, numbered from 0 in order of appearance.
    Frame(Frame),
    /// A call stack, numbered from 0 in order of appearance.
    Stack(Stack),
    /// A driver ioctl concerning resource-manager objects or GPU addresses.
    Rm(Rm),
    /// A probed API call returned.
    Call(Call),
    /// `PyTorch`'s caching allocator handed a block out or took one back. Since 1.2.
    Block(Block),
    /// A tracked process wrote a line that a lifecycle rule or a parser names.
    Log(Log),
    /// NVML's figures at one moment.
    Nvml(Nvml),
    /// Events were lost since the last such record.
    Loss(Loss),
    /// Something is degraded or worth knowing; shown at the top of every report.
    Notice(Notice),
    /// Last line of a complete file.
    Footer(Footer),
}

/// First line of a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// Always `vramtrace`.
    pub format: String,
    /// See [`MAJOR`].
    pub major: u32,
    /// See [`MINOR`].
    pub minor: u32,
    /// Version of the program that wrote the file.
    pub tool: String,
    /// When tracing began.
    pub t: u64,
    /// The same moment, nanoseconds since the Unix epoch.
    pub unix_ns: u64,
    /// Host name.
    pub host: String,
    /// Kernel release (`uname -r`).
    pub kernel: String,
    /// NVIDIA driver version, if one is loaded.
    pub driver: Option<String>,
    /// GPUs that NVML lists.
    pub gpus: Vec<Gpu>,
    /// Traced command line (`run`), empty for `attach`.
    pub command: Vec<String>,
    /// Where the physical bytes come from.
    pub ledger: Source,
    /// Kernel function the driver hook sits on, e.g. `nvidia_unlocked_ioctl`.
    pub hook: String,
    /// How probes are placed: `uprobe_multi` or `perf`.
    pub probes: String,
    /// True when tracing began beside processes that already ran.
    pub attached: bool,
}

/// Where the physical bytes come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// Driver ioctls: what NVML counts.
    #[default]
    Ioctl,
    /// Driver API calls: the fallback where ioctls cannot be read.
    DriverApi,
}

/// One GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gpu {
    /// NVML index.
    pub index: u32,
    /// `GPU-xxxxxxxx-…`.
    pub uuid: String,
    /// Product name.
    pub name: String,
    /// PCI bus id (`00000000:0F:00.0`).
    pub pci: String,
    /// Total memory, bytes.
    pub total_bytes: u64,
}

/// Probes were placed in a library.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Library {
    /// When.
    pub t: u64,
    /// Path as the target sees it.
    pub path: String,
    /// GNU build id, hex.
    pub build_id: Option<String>,
    /// Entry probes placed (each has its return probe, but for `PyTorch`'s blocks).
    pub placed: u32,
    /// Table rows for this library whose symbol it does not have.
    pub missing: Vec<String>,
    /// Symbols that are there but could not be probed, with the reason.
    pub failed: Vec<String>,
    /// True when the library was mapped before its probes could be placed and the process was not held.
    pub late: bool,
}

/// A step in a process's life.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Process {
    /// When.
    pub t: u64,
    /// Process (thread group) id, initial PID namespace.
    pub pid: u32,
    /// What happened.
    #[serde(flatten)]
    pub step: Step,
}

/// What happened to a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Tracing of it began; it ran before.
    Attached(Image),
    /// It was forked.
    Forked {
        /// Parent process id.
        parent: u32,
    },
    /// It executed a new image.
    Exec(Image),
    /// Its title (`/proc/PID/cmdline`) changed without exec.
    Title {
        /// New title.
        title: String,
    },
    /// Its last thread began to exit.
    Exit {
        /// Exit code, when it exited.
        code: Option<i32>,
        /// Signal, when one killed it.
        signal: Option<i32>,
    },
}

/// What a process runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Image {
    /// Arguments. Values that look like secrets are replaced by `***`.
    pub argv: Vec<String>,
    /// Executable's path.
    pub exe: String,
    /// Parent process id.
    pub parent: u32,
    /// Selected environment variables, `NAME=value`; secrets are left out.
    pub env: Vec<String>,
}

/// A stack frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Frame {
    /// Number of this frame.
    pub id: u32,
    /// Function, demangled; empty when unknown.
    pub function: String,
    /// Library or executable path (native), or empty.
    pub module: String,
    /// Offset into `module`'s image (native): shown when `function` is empty.
    pub offset: u64,
    /// Source file, where known.
    pub file: Option<String>,
    /// Source line, where known.
    pub line: Option<u32>,
    /// What kind of frame it is.
    pub kind: FrameKind,
}

/// Kind of a stack frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FrameKind {
    /// Machine code.
    #[default]
    Native,
    /// A Python function.
    Python,
    /// A marker: the unwinder had to stop here (slice too short, no unwind information).
    Cut,
}

/// A call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stack {
    /// Number of this stack.
    pub id: u32,
    /// [`Frame`] numbers, outermost (`main`) first.
    pub frames: Vec<u32>,
}

/// A driver ioctl.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rm {
    /// When it returned.
    pub t: u64,
    /// When it began; 0 where only its end was seen.
    #[serde(skip_serializing_if = "is_zero_u64")]
    pub start: u64,
    /// True when the thread was killed inside it: the driver finished it, the process never saw the result.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unfinished: bool,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Driver's status (`NV_STATUS`, 0 = `NV_OK`); absent when 0. A failed operation has no effect.
    #[serde(skip_serializing_if = "is_zero")]
    pub status: u32,
    /// Probed API calls in progress on the thread, outermost first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<String>,
    /// Entry time of the outermost of `calls`: joins this with its [`Call`].
    #[serde(skip_serializing_if = "is_zero_u64")]
    pub outer: u64,
    /// Call stack number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<u32>,
    /// What was done.
    #[serde(flatten)]
    pub op: Op,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero(n: &u32) -> bool {
    *n == 0
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero_u64(n: &u64) -> bool {
    *n == 0
}

/// A resource-manager or UVM operation. Handles are per client; `(client, object)` is unique on the system.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// An object was made (`NV_ESC_RM_ALLOC`, `NV_ESC_RM_ALLOC_MEMORY`, `NV_ESC_RM_VID_HEAP_CONTROL`).
    Alloc(Alloc),
    /// An object and all below it was freed (`NV_ESC_RM_FREE`, heap control `FREE`).
    Free {
        /// Client handle.
        client: u32,
        /// Object handle; equal to `client` when the whole client goes.
        object: u32,
    },
    /// A second handle was made for an object (`NV_ESC_RM_DUP_OBJECT`).
    Dup {
        /// Client of the new handle.
        client: u32,
        /// Parent of the new handle.
        parent: u32,
        /// New handle.
        object: u32,
        /// Client of the source.
        source_client: u32,
        /// Source handle.
        source_object: u32,
    },
    /// An object was put behind a file descriptor (`NV0000_CTRL_CMD_OS_UNIX_EXPORT_OBJECT_TO_FD` and kin).
    Export {
        /// Client handle.
        client: u32,
        /// Object handle.
        object: u32,
        /// Identity of the open file.
        file: u64,
        /// Slot of the object in the file (the plural form keeps several).
        #[serde(default, skip_serializing_if = "is_zero")]
        index: u32,
    },
    /// A handle was made from a file descriptor (`NV0000_CTRL_CMD_OS_UNIX_IMPORT_OBJECT_FROM_FD` and kin).
    Import {
        /// Client of the new handle.
        client: u32,
        /// Parent of the new handle.
        parent: u32,
        /// New handle.
        object: u32,
        /// Identity of the open file.
        file: u64,
        /// Slot of the object in the file (the plural form keeps several).
        #[serde(default, skip_serializing_if = "is_zero")]
        index: u32,
    },
    /// A client's address space was tied to a GPU (`UVM_REGISTER_GPU_VASPACE`).
    RegisterVaspace {
        /// `GPU-xxxxxxxx-…`.
        uuid: String,
        /// Client handle.
        client: u32,
        /// Address space handle, a child of the device object.
        vaspace: u32,
    },
    /// GPU identity (`NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2`).
    GpuId {
        /// Driver's GPU id (PCI domain, bus, slot).
        gpu_id: u32,
        /// Device instance: the `device_id` of device objects.
        instance: u32,
    },
    /// A range of GPU addresses was mapped to an object (`UVM_MAP_EXTERNAL_ALLOCATION`).
    Map {
        /// First address.
        base: u64,
        /// Bytes.
        length: u64,
        /// Offset into the object.
        offset: u64,
        /// Client handle.
        client: u32,
        /// Object handle.
        object: u32,
    },
    /// A range of GPU addresses was given back (`UVM_FREE`, `UVM_UNMAP_EXTERNAL`).
    Unmap {
        /// First address.
        base: u64,
    },
    /// A driver file was closed: its clients go.
    Close {
        /// Identity of the open file.
        file: u64,
    },
    /// A request that may own bytes but whose layout is unknown: counted, never guessed.
    Unknown {
        /// Request value.
        cmd: u32,
        /// Why it could not be decoded.
        why: String,
    },
}

impl Default for Op {
    fn default() -> Self {
        Self::Close { file: 0 }
    }
}

/// An object was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Alloc {
    /// Client handle (the new client's own, for a client).
    pub client: u32,
    /// Parent handle.
    pub parent: u32,
    /// New handle.
    pub object: u32,
    /// Class number (`cl*.h`): 0x40 owns video memory.
    pub class: u32,
    /// Bytes the driver gave (memory classes; rounded up by the driver).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Bytes asked for, where the hook saw the entry too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested: Option<u64>,
    /// Device instance (class 0x80).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_id: Option<u32>,
    /// `attr` of `NV_MEMORY_ALLOCATION_PARAMS` (memory classes).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attr: Option<u32>,
    /// `flags` of `NV_MEMORY_ALLOCATION_PARAMS` (memory classes).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub flags: Option<u32>,
    /// Identity of the open file the request went through (0: unknown): closing it frees the client.
    pub file: u64,
}

/// A probed API call returned.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Call {
    /// When it returned.
    pub t: u64,
    /// When it was entered.
    pub start: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Function, as in the probe table.
    pub api: String,
    /// Result (`CUresult`, `cudaError_t`, `ncclResult_t`); absent when 0, success.
    #[serde(skip_serializing_if = "is_zero_i64")]
    pub result: i64,
    /// Probed calls that enclose it on the thread.
    #[serde(skip_serializing_if = "is_zero")]
    pub depth: u32,
    /// Function of the call directly around it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub inside: String,
    /// Entry time of the outermost enclosing call (its own when there is none).
    pub outer: u64,
    /// Library number: index of its [`Library`] record.
    pub library: u32,
    /// Device address returned or given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    /// Bytes asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Handle returned or given (VMM handle, pool, graph, array, context).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handle: Option<u64>,
    /// CUDA device ordinal, where the call names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<i64>,
    /// Free bytes read (`cuMemGetInfo`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub free: Option<u64>,
    /// Total bytes read (`cuMemGetInfo`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Further values by the role names of the probe table (`flags`, `offset`, `stream`, `limit`, `rank`, `nranks`, …).
    #[serde(skip_serializing_if = "std::collections::BTreeMap::is_empty")]
    pub more: std::collections::BTreeMap<String, u64>,
    /// True when a value the table names could not be read from the target.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unreadable: bool,
    /// Call stack number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<u32>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature serde asks for")]
fn is_zero_i64(n: &i64) -> bool {
    *n == 0
}

/// `PyTorch`'s caching allocator handed a block out or took one back. Since 1.2.
///
/// A million of these are a usual server's, so there is nothing more: not the library, no native stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Block {
    /// When.
    pub t: u64,
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// CUDA device ordinal in the process.
    pub device: u32,
    /// Address of the block.
    pub address: u64,
    /// Its bytes, as the allocator rounded them; negative when it is taken back.
    pub bytes: i64,
    /// Bytes of all blocks of that device after this, by the allocator's own account.
    pub allocated: u64,
    /// Bytes of all segments of that device after this, by the allocator's own account.
    pub reserved: u64,
    /// Call stack number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stack: Option<u32>,
}

/// A line that a process wrote. Since 1.1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Log {
    /// When the write began.
    pub t: u64,
    /// Process.
    pub pid: u32,
    /// File descriptor: 1 or 2.
    pub fd: u32,
    /// The line without its end; secrets are replaced by `***`.
    pub text: String,
}

/// NVML's figures at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Nvml {
    /// When the query began.
    pub begin: u64,
    /// When it ended.
    pub t: u64,
    /// GPU.
    pub uuid: String,
    /// Used memory of the whole GPU, bytes.
    pub used: u64,
    /// Free memory of the whole GPU, bytes.
    pub free: u64,
    /// Reserved by driver and firmware, bytes.
    pub reserved: u64,
    /// Bytes of each process that holds memory there, traced or not.
    pub processes: Vec<NvmlProcess>,
}

/// One process in an NVML sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvmlProcess {
    /// Process id, initial PID namespace.
    pub pid: u32,
    /// Bytes; `None` where NVML does not say.
    pub bytes: Option<u64>,
}

/// Events were lost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loss {
    /// When it was noticed.
    pub t: u64,
    /// Why: `ring_full`, `missed_return`, `unknown_return`, `too_deep`, `unreadable_ioctl`, `map_full`, `unreadable_stack`,
    /// `malformed`, `unread` (tracing ended in a hurry); the ledger adds `undecoded_ioctl` and `unsized_allocation`.
    pub why: String,
    /// How many.
    pub count: u64,
}

impl Loss {
    /// True when an event that could carry bytes is gone (a missing stack or label loses none).
    #[must_use]
    pub fn is_event(&self) -> bool {
        matches!(
            self.why.as_str(),
            "ring_full" | "unread" | "unreadable_ioctl" | "undecoded_ioctl" | "unsized_allocation"
        )
    }
}

/// Something is degraded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// When.
    pub t: u64,
    /// One sentence: what, why, and what it means for the figures.
    pub text: String,
}

/// Last line of a complete file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Footer {
    /// When tracing ended.
    pub t: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// Events seen.
    pub events: u64,
}

/// How tracing ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The traced command exited.
    Exited {
        /// Its exit code.
        code: i32,
    },
    /// A signal killed it.
    Killed {
        /// Signal number.
        signal: i32,
    },
    /// It still ran when tracing ended.
    Running {
        /// Why tracing ended: `interrupted`, `terminated`, `until`.
        why: String,
    },
}
