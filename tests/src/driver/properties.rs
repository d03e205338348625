//! The resource manager under random requests: no byte is lost, counted twice or left behind.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::abi::class;
use super::rm::{Caller, Gpu, NewObject, Rm};
use crate::truth::{Event, What};

const GPU_BYTES: u64 = 64 << 20;
const PIDS: u32 = 3;

#[derive(Clone, Debug)]
enum Request {
    Alloc { pid: u32, mib: u64, host: bool },
    Dup { pid: u32, source: usize },
    Export { object: usize, file: u64, slot: u32 },
    Import { pid: u32, file: u64, slot: u32 },
    Free { object: usize },
    Close { file: u64 },
}

fn request() -> impl Strategy<Value = Request> {
    let pid = || 0..PIDS;
    // Files below PIDS are the processes' own, the rest hold exports.
    let export_file = || 100..103_u64;
    prop_oneof![
        4 => (pid(), 1..20_u64, any::<bool>()).prop_map(|(pid, mib, host)| Request::Alloc { pid, mib, host }),
        3 => (pid(), any::<usize>()).prop_map(|(pid, source)| Request::Dup { pid, source }),
        2 => (any::<usize>(), export_file(), 0..2_u32).prop_map(|(object, file, slot)| Request::Export { object, file, slot }),
        2 => (pid(), export_file(), 0..2_u32).prop_map(|(pid, file, slot)| Request::Import { pid, file, slot }),
        3 => any::<usize>().prop_map(|object| Request::Free { object }),
        1 => prop_oneof![u64::from(PIDS - 1)..u64::from(PIDS), export_file()].prop_map(|file| Request::Close { file }),
    ]
}

/// A driver with one GPU and, per process, a client (on file `pid`) and its device object.
struct World {
    rm: Rm,
    clients: Vec<u32>,
    objects: Vec<(u32, u32)>,
}

const DEVICE: u32 = 1;

fn caller(pid: u32) -> Caller {
    Caller { pid: pid + 1, tid: pid + 1, file: u64::from(pid), kind: "vmm".into(), ..Caller::default() }
}

impl World {
    fn new() -> Self {
        let mut rm = Rm::new(vec![Gpu { bytes: GPU_BYTES, instance: 5 }]);
        let clients = (0..PIDS)
            .map(|pid| {
                let (client, _) = rm.alloc(&caller(pid), &NewObject::default()).expect("a client");
                let device = NewObject {
                    client,
                    parent: client,
                    object: DEVICE,
                    class: class::DEVICE,
                    device: 5,
                    ..NewObject::default()
                };
                rm.alloc(&caller(pid), &device).expect("a device");
                client
            })
            .collect();
        Self { rm, clients, objects: vec![] }
    }

    /// Requests may fail (gone clients, no memory): then they must change nothing, which the sums show.
    fn apply(&mut self, request: &Request) {
        self.rm.begin();
        let client = |pid: u32| self.clients[pid as usize];
        let pick = |n: usize| (!self.objects.is_empty()).then(|| self.objects[n % self.objects.len()]);
        let new = |pid| NewObject { client: client(pid), parent: DEVICE, ..NewObject::default() };
        match *request {
            Request::Alloc { pid, mib, host } => {
                let class = if host { class::MEMORY_SYSTEM } else { class::MEMORY_LOCAL_USER };
                if let Ok((object, _)) = self.rm.alloc(&caller(pid), &NewObject { class, size: mib << 20, ..new(pid) })
                {
                    self.objects.push((client(pid), object));
                }
            }
            Request::Dup { pid, source } => {
                let Some(source) = pick(source) else { return };
                let new = new(pid);
                _ = self.rm.share(source);
                if let Ok(object) = self.rm.dup(&caller(pid), source, &new) {
                    self.objects.push((new.client, object));
                }
            }
            Request::Export { object, file, slot } => {
                let Some((client, object)) = pick(object) else { return };
                _ = self.rm.export(&caller(0), (client, object), file, slot);
            }
            Request::Import { pid, file, slot } => {
                let new = new(pid);
                if let Ok(object) = self.rm.import(&caller(pid), file, slot, &new) {
                    self.objects.push((new.client, object));
                }
            }
            Request::Free { object } => {
                let Some((client, object)) = pick(object) else { return };
                _ = self.rm.free(&caller(0), client, object);
            }
            Request::Close { file } => self.rm.close(file),
        }
    }

    fn close_all(&mut self) {
        self.rm.begin();
        for file in (0..u64::from(PIDS)).chain(100..103) {
            self.rm.close(file);
        }
    }
}

/// Owner and bytes of each memory, by the events alone.
fn replay(events: &[Event]) -> BTreeMap<u64, (u32, bool, u64)> {
    let mut owners = BTreeMap::new();
    for event in events {
        match &event.what {
            What::Alloc(p) | What::Gained(p) => {
                assert!(owners.insert(p.memory, (event.pid, p.host, p.bytes)).is_none(), "two owners: {event:?}");
            }
            What::Free(p) | What::Reclaim(p) | What::Lost(p) => {
                assert_eq!(owners.remove(&p.memory).map(|(pid, ..)| pid), Some(event.pid), "{event:?}");
            }
            _ => {}
        }
    }
    owners
}

proptest! {
    #[test]
    fn the_books_balance(requests in proptest::collection::vec(request(), 1..80)) {
        let mut world = World::new();
        let mut events = Vec::new();
        for request in &requests {
            world.apply(request);
            events.extend(world.rm.take_events());
            let owners = replay(&events);
            for pid in 0..=PIDS {
                let sum: u64 = owners.values().filter(|&&(p, host, _)| p == pid && !host).map(|&(.., b)| b).sum();
                prop_assert_eq!(sum, world.rm.accounts.live(0, pid));
            }
            let used: u64 = owners.values().filter(|&&(_, host, _)| !host).map(|&(.., b)| b).sum();
            prop_assert!(used <= GPU_BYTES);
            prop_assert_eq!(world.rm.free_bytes(0), GPU_BYTES - used);
        }
        world.close_all();
        events.extend(world.rm.take_events());
        prop_assert!(replay(&events).is_empty());
        prop_assert_eq!(world.rm.free_bytes(0), GPU_BYTES);
    }
}
