//! The first line of a file, and the libraries probed.

use serde::{Deserialize, Serialize};

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
