//! Blocks of `PyTorch`'s caching allocator.

use serde::{Deserialize, Serialize};

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
