//! Physical memory: who pays for it, and who pays next.

use std::collections::BTreeMap;

use super::rm::Caller;
use crate::truth::Piece;

/// A handle: client, object.
pub type Handle = (u32, u32);

/// A piece of physical memory and the handles that keep it.
///
/// The driver links an object and its duplicates in a ring: a duplicate is put right after its source
/// (`memCopyConstruct_IMPL`, `mem.c`), and an owner that is freed hands over to the next in the ring
/// (`memDestructCommon_IMPL`). So of two duplicates of one object the younger one inherits.
#[derive(Debug)]
pub struct Memory {
    /// GPU index.
    pub gpu: usize,
    /// Pinned host memory.
    pub host: bool,
    /// Bytes charged.
    pub bytes: u64,
    /// Bytes asked for.
    pub requested: u64,
    /// What for.
    pub kind: String,
    /// The program's own text for it.
    pub label: String,
    ring: Vec<Handle>,
    owner: Handle,
}

impl Memory {
    /// New memory, `(requested, charged)` bytes, with one handle, its owner.
    #[must_use]
    pub fn new(gpu: usize, host: bool, bytes: (u64, u64), caller: &Caller, handle: Handle) -> Self {
        let (requested, bytes) = bytes;
        let (kind, label) = (caller.kind.clone(), caller.label.clone());
        Self { gpu, host, bytes, requested, kind, label, ring: vec![handle], owner: handle }
    }

    /// Handle whose process pays.
    #[must_use]
    pub fn owner(&self) -> Handle {
        self.owner
    }

    /// Adds a duplicate of `source`.
    pub fn duplicate(&mut self, source: Handle, new: Handle) {
        let at = self.ring.iter().position(|&h| h == source).map_or(self.ring.len(), |i| i + 1);
        self.ring.insert(at, new);
    }

    /// Drops a handle. True when it was the last one.
    pub fn drop_handle(&mut self, handle: Handle) -> bool {
        let Some(at) = self.ring.iter().position(|&h| h == handle) else { return false };
        self.ring.remove(at);
        if self.owner == handle && !self.ring.is_empty() {
            self.owner = self.ring[at % self.ring.len()];
        }
        self.ring.is_empty()
    }

    /// This memory as a truth log piece.
    #[must_use]
    pub fn piece(&self, id: u64, handle: Handle, peer: u32, live: u64) -> Piece {
        Piece {
            gpu: u32::try_from(self.gpu).unwrap_or(u32::MAX),
            host: self.host,
            bytes: self.bytes,
            requested: self.requested,
            client: handle.0,
            object: handle.1,
            memory: id,
            kind: self.kind.clone(),
            label: self.label.clone(),
            peer,
            live,
        }
    }
}

/// Bytes of each process, per GPU and on the host.
#[derive(Debug, Default)]
pub struct Accounts(BTreeMap<(usize, bool, u32), u64>);

impl Accounts {
    /// Adds to a process's bill; the new figure.
    pub fn add(&mut self, memory: &Memory, pid: u32) -> u64 {
        let live = self.0.entry((memory.gpu, memory.host, pid)).or_default();
        *live += memory.bytes;
        *live
    }

    /// Takes from a process's bill; the new figure.
    ///
    /// # Panics
    /// When the process did not pay for it: the driver's books would be wrong.
    pub fn take(&mut self, memory: &Memory, pid: u32) -> u64 {
        let live = self.0.entry((memory.gpu, memory.host, pid)).or_default();
        *live = live.checked_sub(memory.bytes).expect("a process gives back what it never paid for");
        *live
    }

    /// GPU bytes of one process.
    #[must_use]
    pub fn live(&self, gpu: usize, pid: u32) -> u64 {
        self.0.get(&(gpu, false, pid)).copied().unwrap_or(0)
    }

    /// GPU bytes of every process that has any, the driver's own (pid 0) among them.
    pub fn of_gpu(&self, gpu: usize) -> impl Iterator<Item = (u32, u64)> {
        self.0
            .range((gpu, false, 0)..=(gpu, false, u32::MAX))
            .map(|(&(_, _, pid), &b)| (pid, b))
            .filter(|&(_, b)| b > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_youngest_duplicate_of_the_owner_inherits() {
        let mut memory = Memory::new(0, false, (1, 1), &Caller::default(), (1, 1));
        memory.duplicate((1, 1), (2, 1));
        memory.duplicate((1, 1), (3, 1));
        memory.duplicate((2, 1), (4, 1));
        assert!(!memory.drop_handle((1, 1)));
        assert_eq!(memory.owner(), (3, 1));
        assert!(!memory.drop_handle((2, 1)));
        assert_eq!(memory.owner(), (3, 1));
        assert!(!memory.drop_handle((3, 1)));
        assert_eq!(memory.owner(), (4, 1));
        assert!(memory.drop_handle((4, 1)));
    }
}
