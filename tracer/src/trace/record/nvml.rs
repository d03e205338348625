//! Samples of NVML.

use serde::{Deserialize, Serialize};

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
