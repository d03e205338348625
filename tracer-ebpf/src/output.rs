//! What traced processes write to their standard output and error.

use bytemuck::{Pod, Zeroable};

use crate::Header;

/// A piece of what a tracked process writes to descriptor 1 or 2: [`Output`], then its bytes.
pub const KIND_OUTPUT: u32 = 11;

/// Bytes that one record carries at most. `server_args=` of `SGLang`, the longest line that matters, is about 10 kB.
pub const OUTPUT_BYTES: usize = 16 * 1024;
/// Records sent of one buffer at most.
pub const OUTPUT_PIECES: usize = 4;

/// A piece of a write, reported as the write begins. `len` bytes follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub struct Output {
    /// Kind [`KIND_OUTPUT`].
    pub header: Header,
    /// File descriptor: 1 or 2.
    pub fd: u32,
    /// Bytes that follow; 0 where they could not be read.
    pub len: u32,
    /// Bytes of the write after these that are not sent.
    pub left_out: u64,
}
