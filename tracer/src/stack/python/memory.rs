//! Reading another process's memory. Whatever is found there is input, not truth.

use nix::{
    sys::uio::{RemoteIoVec, process_vm_readv},
    unistd::Pid,
};

/// A process whose memory is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Memory {
    pub(super) pid: u32,
}

impl Memory {
    /// Fills `buffer` from `address`; `None` when not all of it can be read.
    pub(super) fn read(self, address: u64, buffer: &mut [u8]) -> Option<()> {
        let remote = RemoteIoVec { base: usize::try_from(address).ok()?, len: buffer.len() };
        let len = buffer.len();
        let pid = Pid::from_raw(i32::try_from(self.pid).ok()?);
        let read = process_vm_readv(pid, &mut [std::io::IoSliceMut::new(buffer)], &[remote]).ok()?;
        (read == len).then_some(())
    }

    /// `len` bytes from `address`.
    pub(super) fn bytes(self, address: u64, len: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; len];
        self.read(address, &mut bytes)?;
        Some(bytes)
    }

    /// A word of 8 bytes.
    pub(super) fn u64(self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    /// A word of 4 bytes.
    pub(super) fn u32(self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }
}
