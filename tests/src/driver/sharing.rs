//! Objects that several processes use: duplicates, and objects behind file descriptors.

use std::collections::BTreeMap;

use super::abi::Status;
use super::memory::Handle;
use super::rm::{Caller, EXPORTS, NewObject, Object, Rm};
use crate::truth::What;

/// What an open file holds for others to import.
#[derive(Clone, Debug)]
pub struct Export {
    /// Device instance of the objects.
    pub instance: u32,
    /// The exporter's own note (`NV0000_OS_UNIX_EXPORT_OBJECT_FD_BUFFER_SIZE`, 64 bytes).
    pub metadata: Vec<u8>,
    /// Handles of the driver's internal client, by slot.
    pub(super) objects: BTreeMap<u32, u32>,
}

impl Rm {
    /// Makes a second handle for an object of any client.
    ///
    /// # Errors
    /// The driver's status.
    pub fn dup(&mut self, caller: &Caller, source: Handle, new: &NewObject) -> Result<u32, Status> {
        let from = self.clients.get(&source.0).ok_or(Status::INVALID_CLIENT)?;
        let original = from.objects.get(&source.1).ok_or(Status::NOT_FOUND)?;
        let into = self.clients.get(&new.client).ok_or(Status::INVALID_CLIENT)?;
        // The internal client may take and give everything; processes only what was shared (RM_SHARE).
        if from.pid != into.pid && from.pid != 0 && into.pid != 0 && !original.shared {
            return Err(Status::PERMISSION);
        }
        let (from_pid, into_pid, memory, gpu) = (from.pid, into.pid, original.memory, original.gpu);
        if new.parent != new.client && !into.objects.contains_key(&new.parent) {
            return Err(Status::INVALID_PARENT);
        }
        let object = self.choose(new.client, new.object)?;
        let handle = (new.client, object);
        self.insert(handle, Object { parent: new.parent, gpu, memory, shared: false });
        if let Some((id, memory)) = memory.and_then(|id| self.memories.get_mut(&id).map(|m| (id, m))) {
            memory.duplicate(source, handle);
            let owner = self.clients.get(&memory.owner().0).map_or(from_pid, |c| c.pid);
            let piece = memory.piece(id, handle, owner, self.accounts.live(memory.gpu, into_pid));
            if into_pid != 0 {
                self.log(into_pid, caller.tid, What::Import(piece));
            }
        }
        Ok(object)
    }

    /// Lets other processes duplicate an object.
    ///
    /// # Errors
    /// The driver's status.
    pub fn share(&mut self, handle: Handle) -> Result<(), Status> {
        let client = self.clients.get_mut(&handle.0).ok_or(Status::INVALID_CLIENT)?;
        client.objects.get_mut(&handle.1).ok_or(Status::NOT_FOUND)?.shared = true;
        Ok(())
    }

    /// Puts an object behind an open file, which keeps it alive. What was in that slot before goes.
    ///
    /// # Errors
    /// The driver's status.
    pub fn export(&mut self, caller: &Caller, object: Handle, file: u64, slot: u32) -> Result<(), Status> {
        let gpu = self.gpu_of(object).ok_or(Status::NOT_FOUND)?;
        let new = NewObject { client: EXPORTS, parent: EXPORTS, ..NewObject::default() };
        let held = self.dup(caller, object, &new)?;
        let instance = self.gpus[gpu].instance;
        let fresh = || Export { instance, metadata: vec![], objects: BTreeMap::new() };
        let before = self.exports.entry(file).or_insert_with(fresh).objects.insert(slot, held);
        before.map_or(Ok(()), |before| self.free(caller, EXPORTS, before))
    }

    /// Leaves the exporter's note in an open file that holds objects.
    pub fn annotate(&mut self, file: u64, metadata: &[u8]) {
        if let Some(export) = self.exports.get_mut(&file) {
            export.metadata = metadata.to_vec();
        }
    }

    /// What an open file holds.
    #[must_use]
    pub fn exported(&self, file: u64) -> Option<&Export> {
        self.exports.get(&file)
    }

    /// Makes a handle for an object behind an open file.
    ///
    /// # Errors
    /// The driver's status.
    pub fn import(&mut self, caller: &Caller, file: u64, slot: u32, new: &NewObject) -> Result<u32, Status> {
        let held = self.exports.get(&file).ok_or(Status::INVALID_PARAMETER)?;
        let held = *held.objects.get(&slot).ok_or(Status::NOT_FOUND)?;
        self.dup(caller, (EXPORTS, held), new)
    }
}
