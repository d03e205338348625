//! Lines that processes wrote.

use serde::{Deserialize, Serialize};

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
