//! How objects go: freed with all below them, or with the file their client came through.

use std::collections::BTreeMap;

use super::abi::Status;
use super::memory::Handle;
use super::rm::{Caller, EXPORTS, Rm};
use crate::truth::What;

/// How objects go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Going {
    Freed,
    Closed,
}

impl Rm {
    /// Frees an object and all below it; the client itself when `object` is its handle.
    ///
    /// # Errors
    /// The driver's status.
    pub fn free(&mut self, caller: &Caller, client: u32, object: u32) -> Result<(), Status> {
        let objects = &self.clients.get(&client).ok_or(Status::INVALID_CLIENT)?.objects;
        if object == client {
            self.free_client(client, caller.tid, Going::Freed);
        } else if objects.contains_key(&object) {
            self.free_tree(client, object, caller.tid, Going::Freed);
        } else {
            return Err(Status::NOT_FOUND);
        }
        Ok(())
    }

    /// An open file is gone: so are its clients and what it kept alive.
    pub fn close(&mut self, file: u64) {
        let clients: Vec<u32> = self.clients.iter().filter(|(_, c)| c.file == file).map(|(&h, _)| h).collect();
        for client in clients.into_iter().filter(|&c| c != EXPORTS) {
            self.free_client(client, 0, Going::Closed);
        }
        for held in self.exports.remove(&file).map_or(BTreeMap::new(), |export| export.objects).into_values() {
            self.free_tree(EXPORTS, held, 0, Going::Closed);
        }
    }

    fn free_client(&mut self, client: u32, tid: u32, going: Going) {
        let objects: Vec<u32> = self.clients.get(&client).map_or(vec![], |c| c.objects.keys().copied().collect());
        for object in objects {
            self.free_one((client, object), tid, going);
        }
        self.clients.remove(&client);
    }

    fn free_tree(&mut self, client: u32, object: u32, tid: u32, going: Going) {
        let below: Vec<u32> = self.clients.get(&client).map_or(vec![], |c| {
            c.objects.iter().filter(|(_, o)| o.parent == object).map(|(&handle, _)| handle).collect()
        });
        for child in below {
            self.free_tree(client, child, tid, going);
        }
        self.free_one((client, object), tid, going);
    }

    fn free_one(&mut self, handle: Handle, tid: u32, going: Going) {
        let Some(client) = self.clients.get_mut(&handle.0) else { return };
        let pid = client.pid;
        let Some(id) = client.objects.remove(&handle.1).and_then(|o| o.memory) else { return };
        let Some(mut memory) = self.memories.remove(&id) else { return };
        let paid = memory.owner() == handle;
        if memory.drop_handle(handle) {
            let live = self.accounts.take(&memory, pid);
            let piece = memory.piece(id, handle, 0, live);
            self.log(pid, tid, if going == Going::Freed { What::Free(piece) } else { What::Reclaim(piece) });
            return;
        }
        let heir = self.clients.get(&memory.owner().0).map_or(0, |c| c.pid);
        if paid && heir != pid {
            let live = self.accounts.take(&memory, pid);
            self.log(pid, tid, What::Lost(memory.piece(id, handle, heir, live)));
            let live = self.accounts.add(&memory, heir);
            self.log(heir, tid, What::Gained(memory.piece(id, memory.owner(), pid, live)));
        }
        self.memories.insert(id, memory);
    }
}
