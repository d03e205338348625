//! Which GPU is meant: device instances, clients and processes to UUIDs.

use std::collections::{BTreeMap, HashMap};

use super::GpuRef;
use super::rows::Place;
use crate::trace::record::Gpu;

/// Most GPUs told apart, and on which one process is noted: the driver knows 32 (`NV_MAX_DEVICES`, nvlimits.h). Of more, which
/// only a forged trace has, the UUIDs are unknown.
const GPUS: usize = 256;

/// What the trace tells about GPU identity.
#[derive(Clone, Default)]
pub(super) struct Gpus {
    listed: Vec<Gpu>,
    /// Device instance → UUID, from address spaces registered with UVM.
    registered: BTreeMap<u32, String>,
    /// Client → UUID, where the address space's device is unknown.
    clients: HashMap<u32, String>,
    /// Device instance → the driver's GPU id.
    ids: BTreeMap<u32, u32>,
    /// Process → UUIDs on which NVML saw it.
    seen: HashMap<usize, Vec<String>>,
    /// All GPUs referred to.
    order: Vec<GpuRef>,
}

impl Gpus {
    pub(super) fn list(&mut self, gpus: &[Gpu]) {
        self.listed = gpus.iter().take(GPUS).cloned().collect();
    }

    pub(super) fn registered(&mut self, place: Place, client: u32, uuid: String) {
        match place {
            Place::Instance(instance) if self.registered.len() < GPUS => self.registered.insert(instance, uuid),
            Place::Instance(_) => None,
            _ => self.clients.insert(client, uuid),
        };
    }

    pub(super) fn id(&mut self, instance: u32, gpu_id: u32) {
        if self.ids.len() < GPUS {
            self.ids.insert(instance, gpu_id);
        }
    }

    /// NVML saw a process on a GPU.
    pub(super) fn seen(&mut self, process: usize, uuid: &str) {
        let seen = self.seen.entry(process).or_default();
        if seen.len() < GPUS && !seen.iter().any(|known| known == uuid) {
            seen.push(uuid.to_owned());
        }
    }

    fn uuid_of(&self, instance: u32) -> Option<&str> {
        let by_pci = || {
            let id = self.ids.get(&instance)?;
            self.listed.iter().find(|gpu| gpu_id(&gpu.pci) == Some(*id)).map(|gpu| &gpu.uuid)
        };
        self.registered.get(&instance).or_else(by_pci).map(String::as_str)
    }

    /// The GPU of a place, as far as the whole trace tells.
    pub(super) fn resolve(&self, place: Place, process: usize) -> GpuRef {
        let single = match &self.listed[..] {
            [gpu] => Some(gpu.uuid.as_str()),
            _ => None,
        };
        // A server's process has memory on one GPU; where NVML saw it on several, nothing is known.
        let alone = match self.seen.get(&process).map(Vec::as_slice) {
            Some([uuid]) => Some(uuid.as_str()),
            _ => None,
        };
        let (instance, uuid) = match place {
            Place::Instance(instance) => (Some(instance), self.uuid_of(instance)),
            Place::Client(client) => (None, self.clients.get(&client).map(String::as_str).or(alone)),
            Place::Process => (None, alone),
        };
        match uuid.or(single) {
            Some(uuid) => self.by_uuid(uuid, instance),
            None => GpuRef { index: None, uuid: String::new(), instance },
        }
    }

    /// The GPU with that UUID.
    pub(super) fn by_uuid(&self, uuid: &str, instance: Option<u32>) -> GpuRef {
        let index = self.listed.iter().find(|gpu| gpu.uuid == uuid).map(|gpu| gpu.index);
        let known = || self.registered.keys().chain(self.ids.keys()).copied().find(|&i| self.uuid_of(i) == Some(uuid));
        GpuRef { index, uuid: uuid.to_owned(), instance: known().or(instance) }
    }

    /// Fixes the order of the GPUs referred to: by NVML index where known.
    pub(super) fn arrange(&mut self, mut gpus: Vec<GpuRef>) {
        gpus.sort_by(|a, b| rank(a).cmp(&rank(b)));
        gpus.dedup();
        self.order = gpus;
    }

    /// Position of a GPU in the order.
    pub(super) fn position(&self, gpu: &GpuRef) -> Option<usize> {
        self.order.binary_search_by(|other| rank(other).cmp(&rank(gpu))).ok()
    }

    /// The GPU at a position.
    pub(super) fn at(&self, position: usize) -> Option<&GpuRef> {
        self.order.get(position)
    }

    /// The GPUs in their order.
    pub(super) fn into_order(self) -> Vec<GpuRef> {
        self.order
    }
}

fn rank(gpu: &GpuRef) -> (u32, &str, u32) {
    (gpu.index.unwrap_or(u32::MAX), &gpu.uuid, gpu.instance.unwrap_or(u32::MAX))
}

/// The driver's GPU id of a PCI address such as `00000000:0F:00.0`: domain, bus, slot
/// (`gpuGenerate32BitId`, `gpu.c`, 580.142).
fn gpu_id(pci: &str) -> Option<u32> {
    let mut parts = pci.split([':', '.']).map(|part| u32::from_str_radix(part, 16).ok());
    let (domain, bus, slot) = (parts.next()??, parts.next()??, parts.next()??);
    Some((domain & 0xffff) << 16 | (bus & 0xff) << 8 | (slot & 0xff))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: u32, uuid: &str, pci: &str) -> Gpu {
        Gpu { index, uuid: uuid.into(), pci: pci.into(), ..Gpu::default() }
    }

    #[test]
    fn pci_addresses_to_ids() {
        assert_eq!(gpu_id("00000000:0F:00.0"), Some(0xf00));
        assert_eq!(gpu_id("00000001:C1:1f.0"), Some(0x1_c11f));
        assert_eq!(gpu_id("0f"), None);
        assert_eq!(gpu_id(""), None);
    }

    #[test]
    fn every_way_to_a_uuid() {
        let mut gpus = Gpus::default();
        gpus.list(&[gpu(0, "GPU-a", "0:1:0.0"), gpu(1, "GPU-b", "0:2:0.0")]);
        assert_eq!(gpus.resolve(Place::Instance(7), 0), GpuRef { index: None, uuid: String::new(), instance: Some(7) });
        gpus.id(7, 0x200);
        let b = GpuRef { index: Some(1), uuid: "GPU-b".into(), instance: Some(7) };
        assert_eq!(gpus.resolve(Place::Instance(7), 0), b);
        gpus.registered(Place::Instance(3), 9, "GPU-a".into());
        let a = GpuRef { index: Some(0), uuid: "GPU-a".into(), instance: Some(3) };
        assert_eq!(gpus.resolve(Place::Instance(3), 0), a);
        assert_eq!(gpus.resolve(Place::Client(5), 0).uuid, "");
        gpus.seen(0, "GPU-b");
        assert_eq!(gpus.resolve(Place::Client(5), 0), b, "NVML saw the process there alone");
        gpus.seen(0, "GPU-a");
        assert_eq!(gpus.resolve(Place::Process, 0).uuid, "", "on two: not known");
        gpus.registered(Place::Client(5), 5, "GPU-a".into());
        assert_eq!(gpus.resolve(Place::Client(5), 0), a);
    }

    #[test]
    fn the_only_gpu_is_meant() {
        let mut gpus = Gpus::default();
        gpus.list(&[gpu(0, "GPU-a", "")]);
        assert_eq!(gpus.resolve(Place::Process, 0).uuid, "GPU-a");
        assert_eq!(gpus.resolve(Place::Instance(0), 0).uuid, "GPU-a");
    }
}
