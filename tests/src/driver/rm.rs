//! The resource manager: clients, their objects, and the memory behind them. No I/O here.

use std::collections::{BTreeMap, HashMap};

use super::abi::{Status, class};
use super::memory::{Accounts, Handle, Memory};
use super::sharing::Export;
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
    /// The program's own text for what the thread allocates.
    pub label: String,
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
pub(super) struct Object {
    pub(super) parent: u32,
    pub(super) gpu: Option<usize>,
    pub(super) memory: Option<u64>,
    pub(super) shared: bool,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) pid: u32,
    pub(super) file: u64,
    pub(super) objects: BTreeMap<u32, Object>,
}

/// The driver's internal client, which holds a duplicate of every object behind a file descriptor.
pub(super) const EXPORTS: u32 = 0xc1d0_0000;
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
    pub(super) clients: BTreeMap<u32, Client>,
    pub(super) memories: HashMap<u64, Memory>,
    pub(super) exports: HashMap<u64, Export>,
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
            self.log(
                caller.pid,
                caller.tid,
                What::Failed { requested: new.size, status: status.0, gpu: gpu.and_then(|g| u32::try_from(g).ok()) },
            );
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
        let memory = Memory::new(gpu, host, (new.size, bytes), caller, handle);
        let pid = self.clients[&new.client].pid;
        let live = self.accounts.add(&memory, pid);
        let piece = memory.piece(id, handle, 0, live);
        self.memories.insert(id, memory);
        self.log(pid, caller.tid, What::Alloc(piece));
        Ok((id, bytes))
    }

    pub(super) fn choose(&mut self, client: u32, wanted: u32) -> Result<u32, Status> {
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

    pub(super) fn insert(&mut self, handle: Handle, object: Object) {
        if let Some(client) = self.clients.get_mut(&handle.0) {
            client.objects.insert(handle.1, object);
        }
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
    let now =
        nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC).unwrap_or(nix::sys::time::TimeSpec::new(0, 0));
    u64::try_from(now.tv_sec()).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec()).unwrap_or(0)
}
