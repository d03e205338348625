//! The resource manager: clients, their objects, and the memory behind them. No I/O here.

use std::collections::{BTreeMap, HashMap};

use super::abi::{Status, class};
use super::memory::{Accounts, Handle, Memory};
use crate::truth::{Event, What};

/// A simulated GPU.
#[derive(Clone, Debug)]
pub struct Gpu {
    /// Bytes that CUDA can allocate (`cuMemGetInfo` total).
    pub bytes: u64,
    /// Driver's device instance (`NV0080_ALLOC_PARAMETERS.deviceId`).
    pub instance: u32,
}

/// Who makes a request.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// Number of the open file.
    pub file: u64,
    /// What the thread said its allocations are for.
    pub kind: String,
}

/// A request to make an object.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewObject {
    /// Client.
    pub client: u32,
    /// Parent object.
    pub parent: u32,
    /// Handle wanted; 0 lets the driver choose.
    pub object: u32,
    /// Class.
    pub class: u32,
    /// Device instance, for class 0x80.
    pub device: u32,
    /// Bytes, for memory classes.
    pub size: u64,
    /// `NV_MEMORY_ALLOCATION_PARAMS.attr`, for memory classes.
    pub attr: u32,
}

#[derive(Debug)]
struct Object {
    parent: u32,
    gpu: Option<usize>,
    memory: Option<u64>,
    shared: bool,
}

#[derive(Debug)]
struct Client {
    pid: u32,
    file: u64,
    objects: BTreeMap<u32, Object>,
}

/// What an open file holds for others to import.
#[derive(Clone, Debug)]
pub struct Export {
    /// Device instance of the objects.
    pub instance: u32,
    /// The exporter's own note (`NV0000_OS_UNIX_EXPORT_OBJECT_FD_BUFFER_SIZE`, 64 bytes).
    pub metadata: Vec<u8>,
    objects: Vec<u32>,
}

/// How objects go.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Going {
    Freed,
    Closed,
}

/// The driver's internal client, which holds a duplicate of every object behind a file descriptor.
const EXPORTS: u32 = 0xc1d0_0000;
const FIRST_CLIENT: u32 = 0xc1d0_0001;
const FIRST_CHOSEN: u32 = 0xcaf0_0000;
/// `NVOS32_ATTR_LOCATION`: bits 26:25 of `attr`, 0 is video memory.
const LOCATION: u32 = 3 << 25;

/// The resource manager's state.
#[derive(Debug)]
pub struct Rm {
    /// GPUs in NVML's order.
    pub gpus: Vec<Gpu>,
    /// Who holds how much.
    pub accounts: Accounts,
    clients: BTreeMap<u32, Client>,
    memories: HashMap<u64, Memory>,
    exports: HashMap<u64, Export>,
    next_client: u32,
    next_chosen: u32,
    next_memory: u64,
    batch: u64,
    events: Vec<Event>,
}

impl Rm {
    /// A driver that has just been loaded.
    #[must_use]
    pub fn new(gpus: Vec<Gpu>) -> Self {
        let exports = Client { pid: 0, file: 0, objects: BTreeMap::new() };
        Self {
            gpus,
            accounts: Accounts::default(),
            clients: BTreeMap::from([(EXPORTS, exports)]),
            memories: HashMap::new(),
            exports: HashMap::new(),
            next_client: FIRST_CLIENT,
            next_chosen: FIRST_CHOSEN,
            next_memory: 1,
            batch: 0,
            events: Vec::new(),
        }
    }

    /// Begins a request: what follows belongs together in the truth log.
    pub fn begin(&mut self) {
        self.batch += 1;
    }

    /// Truth events since the last call.
    pub fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// Adds a truth event.
    pub fn log(&mut self, pid: u32, tid: u32, what: What) {
        self.events.push(Event { t: monotonic_ns(), batch: self.batch, pid, tid, what });
    }

    /// Bytes of a GPU that nobody holds.
    #[must_use]
    pub fn free_bytes(&self, gpu: usize) -> u64 {
        let used: u64 = self.accounts.of_gpu(gpu).map(|(_, bytes)| bytes).sum();
        self.gpus.get(gpu).map_or(0, |g| g.bytes.saturating_sub(used))
    }

    /// GPU an object belongs to.
    #[must_use]
    pub fn gpu_of(&self, handle: Handle) -> Option<usize> {
        self.clients.get(&handle.0)?.objects.get(&handle.1)?.gpu
    }

    /// Makes an object; its handle and, for memory, the bytes charged.
    ///
    /// # Errors
    /// The driver's status.
    pub fn alloc(&mut self, caller: &Caller, new: &NewObject) -> Result<(u32, u64), Status> {
        let made = if matches!(new.class, class::ROOT | class::ROOT_CLIENT) {
            Ok((self.new_client(caller, new.object), 0))
        } else {
            self.new_object(caller, new)
        };
        if let (Err(status), class::MEMORY_LOCAL_USER) = (made, new.class) {
            let gpu = self.clients.get(&new.client).and_then(|c| self.gpu_below(c, new));
            self.log(caller.pid, caller.tid, What::Failed {
                requested: new.size,
                status: status.0,
                gpu: gpu.and_then(|g| u32::try_from(g).ok()),
            });
        }
        made
    }

    fn new_client(&mut self, caller: &Caller, wanted: u32) -> u32 {
        let handle = if wanted == 0 { self.next_client } else { wanted };
        self.next_client = self.next_client.max(handle + 1);
        self.clients.insert(handle, Client { pid: caller.pid, file: caller.file, objects: BTreeMap::new() });
        handle
    }

    fn new_object(&mut self, caller: &Caller, new: &NewObject) -> Result<(u32, u64), Status> {
        let client = self.clients.get(&new.client).ok_or(Status::INVALID_CLIENT)?;
        if new.parent != new.client && !client.objects.contains_key(&new.parent) {
            return Err(Status::INVALID_PARENT);
        }
        let object = self.choose(new.client, new.object)?;
        let client = &self.clients[&new.client];
        let gpu = self.gpu_below(client, new);
        if new.class == class::DEVICE && gpu.is_none() {
            return Err(Status::INVALID_DEVICE);
        }
        let (memory, bytes) = match new.class {
            class::MEMORY_LOCAL_USER | class::MEMORY_SYSTEM => {
                let (id, bytes) = self.new_memory(caller, new, gpu.ok_or(Status::INVALID_PARENT)?, object)?;
                (Some(id), bytes)
            }
            _ => (None, new.size),
        };
        self.insert((new.client, object), Object { parent: new.parent, gpu, memory, shared: false });
        Ok((object, bytes))
    }

    /// GPU that a new object belongs to: its device's, or the one a new device names.
    fn gpu_below(&self, client: &Client, new: &NewObject) -> Option<usize> {
        if new.class == class::DEVICE {
            self.gpus.iter().position(|g| g.instance == new.device)
        } else {
            client.objects.get(&new.parent).and_then(|parent| parent.gpu)
        }
    }

    fn new_memory(&mut self, caller: &Caller, new: &NewObject, gpu: usize, object: u32) -> Result<(u64, u64), Status> {
        let host = new.class == class::MEMORY_SYSTEM;
        if new.size == 0 || (!host && new.attr & LOCATION != 0) {
            return Err(Status::INVALID_ARGUMENT);
        }
        let bytes = charged(new.size, new.attr, host).ok_or(Status::NO_MEMORY)?;
        if !host && bytes > self.free_bytes(gpu) {
            return Err(Status::NO_MEMORY);
        }
        let id = self.next_memory;
        self.next_memory += 1;
        let handle = (new.client, object);
        let memory = Memory::new(gpu, host, new.size, bytes, caller.kind.clone(), handle);
        let pid = self.clients[&new.client].pid;
        let live = self.accounts.add(&memory, pid);
        let piece = memory.piece(id, handle, 0, live);
        self.memories.insert(id, memory);
        self.log(pid, caller.tid, What::Alloc(piece));
        Ok((id, bytes))
    }

    fn choose(&mut self, client: u32, wanted: u32) -> Result<u32, Status> {
        let objects = &self.clients.get(&client).ok_or(Status::INVALID_CLIENT)?.objects;
        if objects.contains_key(&wanted) || wanted == client {
            return Err(Status::DUPLICATE);
        }
        if wanted != 0 {
            return Ok(wanted);
        }
        self.next_chosen += 1;
        Ok(self.next_chosen)
    }

    fn insert(&mut self, handle: Handle, object: Object) {
        if let Some(client) = self.clients.get_mut(&handle.0) {
            client.objects.insert(handle.1, object);
        }
    }

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

    /// Puts objects behind an open file, which keeps them alive.
    ///
    /// # Errors
    /// The driver's status.
    pub fn export(
        &mut self,
        caller: &Caller,
        client: u32,
        objects: &[u32],
        file: u64,
        metadata: &[u8],
    ) -> Result<(), Status> {
        for &object in objects {
            let gpu = self.gpu_of((client, object)).ok_or(Status::NOT_FOUND)?;
            let new = NewObject { client: EXPORTS, parent: EXPORTS, ..NewObject::default() };
            let held = self.dup(caller, (client, object), &new)?;
            let instance = self.gpus[gpu].instance;
            let fresh = || Export { instance, metadata: metadata.to_vec(), objects: vec![] };
            self.exports.entry(file).or_insert_with(fresh).objects.push(held);
        }
        Ok(())
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
    pub fn import(&mut self, caller: &Caller, file: u64, index: usize, new: &NewObject) -> Result<u32, Status> {
        let held = self.exports.get(&file).ok_or(Status::INVALID_PARAMETER)?;
        let held = *held.objects.get(index).ok_or(Status::NOT_FOUND)?;
        self.dup(caller, (EXPORTS, held), new)
    }

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
        for held in self.exports.remove(&file).map_or(vec![], |export| export.objects) {
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

/// Bytes charged for a request: rounded up to the page size that `attr` names (bits 24:23: 1 is 4 KiB, 2 is 64 KiB, 3 is
/// 2 MiB) or, by default, to 2 MiB from 2 MiB on and to 64 KiB below (`memmgrDeterminePageSize`). `None`: overflow.
fn charged(size: u64, attr: u32, host: bool) -> Option<u64> {
    let page = match (host, (attr >> 23) & 3) {
        (true, _) | (false, 1) => 4 << 10,
        (false, 2) => 64 << 10,
        (false, 0) if size < 2 << 20 => 64 << 10,
        _ => 2 << 20,
    };
    size.checked_next_multiple_of(page)
}

/// `CLOCK_MONOTONIC`, nanoseconds: the clock of the tracer's records.
#[must_use]
pub fn monotonic_ns() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap_or(nix::sys::time::TimeSpec::new(0, 0));
    u64::try_from(now.tv_sec()).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec()).unwrap_or(0)
}
