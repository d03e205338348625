//! The ledger from driver-API calls, where ioctls cannot be read: what the program asked for.
//!
//! Contexts, code, local memory and rounding are not seen, so its figures lie below NVML's; the samples show by how much.

use std::collections::{BTreeMap, HashMap};

use super::rows::{Event, Place, RowId, Rows, Table};
use super::{Death, Kind, api};
use crate::trace::record::Call;

/// How a call gives memory back: beginning of its name, and what names the memory.
const FREES: &[(&str, Named)] = &[
    ("cuArrayDestroy", Named::Handle),
    ("cuMemFree", Named::Address),
    ("cuMipmappedArrayDestroy", Named::Handle),
    ("cudaFree", Named::Address),
    ("cudaFreeArray", Named::Handle),
    ("cudaFreeMipmappedArray", Named::Handle),
];

/// Calls after which the process has one context fewer.
const RELEASES: &[&str] = &["cuCtxDestroy", "cuDevicePrimaryCtxRelease"];
/// Calls after which it has none on a device.
const RESETS: &[&str] = &["cuDevicePrimaryCtxReset", "cudaDeviceReset"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Address,
    Handle,
}

/// What a row is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Address(u64),
    Handle(u64),
}

/// A `cuMemCreate` handle: physical memory stays while it is held or mapped.
struct Vmm {
    row: RowId,
    references: u64,
}

/// One process's memory by what its calls named.
#[derive(Default)]
struct Process {
    rows: HashMap<Key, RowId>,
    vmm: HashMap<u64, Vmm>,
    /// Mapped handles by address.
    maps: BTreeMap<u64, u64>,
    contexts: u64,
}

/// The fallback ledger.
#[derive(Default)]
pub(super) struct Fallback {
    processes: HashMap<usize, Process>,
    /// Allocations whose size could not be read.
    pub(super) unsized_calls: u64,
}

impl Fallback {
    /// A successful call. Nested calls come innermost first, so the outer form of one already seen changes nothing.
    pub(super) fn call(&mut self, call: &Call, event: &Event<'_>, rows: &mut Rows) {
        if call.result != 0 {
            return;
        }
        let name = call.api.as_str();
        let starts = |beginning: &&str| name.starts_with(*beginning);
        let process = self.processes.entry(event.process).or_default();
        if RESETS.iter().any(starts) {
            process.contexts = 0;
            process.clear(event, rows);
        } else if RELEASES.iter().any(starts) {
            process.contexts = process.contexts.saturating_sub(1);
            if process.contexts == 0 {
                process.clear(event, rows);
            }
        } else if api::makes_context(name) {
            process.contexts += 1;
        } else if name.starts_with("cuMemRelease") || name.starts_with("cuMemRetainAllocationHandle") {
            process.hold(call, name.starts_with("cuMemRetain"), event, rows);
        } else if name.starts_with("cuMemMap") || name.starts_with("cuMemUnmap") {
            process.map(call, name.starts_with("cuMemMap"), event, rows);
        } else if name.starts_with("cuIpcOpenMemHandle") || name.starts_with("cuMemImportFromShareableHandle") {
            rows.born(Table::Imports, event.process, 0, Place::Process, event);
        } else if let Some((_, named)) = FREES.iter().rfind(|(beginning, _)| name.starts_with(beginning)) {
            process.free(call, *named, event, rows);
        } else if let Some(kind) = owning(name) {
            self.unsized_calls += u64::from(!process.alloc(call, kind, event, rows));
        }
    }

    /// A process exited.
    pub(super) fn exit(&mut self, event: &Event<'_>, rows: &mut Rows) {
        if let Some(mut process) = self.processes.remove(&event.process) {
            process.clear(event, rows);
        }
    }
}

/// What a call allocates, if it allocates physical memory at once.
fn owning(name: &str) -> Option<Kind> {
    if name.contains("Managed") || name.starts_with("cuMemPool") || name.starts_with("cudaMemPool") {
        return None;
    }
    let kind = api::find(name).filter(|api| api.allocates)?.kind?;
    matches!(kind, Kind::CudaMalloc | Kind::Vmm | Kind::Pool | Kind::Host).then_some(kind)
}

impl Process {
    /// False when the size is not known.
    fn alloc(&mut self, call: &Call, kind: Kind, event: &Event<'_>, rows: &mut Rows) -> bool {
        let key = match (call.address, call.handle) {
            (Some(address), _) => Key::Address(address),
            (None, Some(handle)) => Key::Handle(handle),
            (None, None) => return false,
        };
        let Some(bytes) = call.size else { return false };
        if self.rows.contains_key(&key) {
            return true;
        }
        let table = if kind == Kind::Host { Table::Host } else { Table::Gpu };
        let row = rows.born(table, event.process, bytes, Place::Process, event);
        match (kind, key) {
            (Kind::Vmm, Key::Handle(handle)) => {
                self.vmm.insert(handle, Vmm { row, references: 1 });
            }
            _ => {
                self.rows.insert(key, row);
            }
        }
        true
    }

    fn free(&mut self, call: &Call, named: Named, event: &Event<'_>, rows: &mut Rows) {
        let key = match named {
            Named::Address => call.address.map(Key::Address),
            Named::Handle => call.handle.map(Key::Handle),
        };
        if let Some(row) = key.and_then(|key| self.rows.remove(&key)) {
            rows.died(row, event.t, event.death);
        }
    }

    fn hold(&mut self, call: &Call, more: bool, event: &Event<'_>, rows: &mut Rows) {
        if let Some(handle) = call.handle {
            self.count(handle, more, event, rows);
        }
    }

    fn map(&mut self, call: &Call, more: bool, event: &Event<'_>, rows: &mut Rows) {
        let Some(address) = call.address else { return };
        if more {
            let Some(handle) = call.handle.filter(|handle| self.vmm.contains_key(handle)) else { return };
            self.maps.insert(address, handle);
            self.count(handle, true, event, rows);
        } else {
            let end = address.saturating_add(call.size.unwrap_or(1));
            let gone: Vec<u64> = self.maps.range(address..end).map(|(&at, _)| at).collect();
            for at in gone {
                if let Some(handle) = self.maps.remove(&at) {
                    self.count(handle, false, event, rows);
                }
            }
        }
    }

    fn count(&mut self, handle: u64, more: bool, event: &Event<'_>, rows: &mut Rows) {
        let Some(vmm) = self.vmm.get_mut(&handle) else { return };
        if more {
            vmm.references += 1;
        } else if vmm.references > 1 {
            vmm.references -= 1;
        } else if let Some(vmm) = self.vmm.remove(&handle) {
            rows.died(vmm.row, event.t, event.death);
        }
    }

    fn clear(&mut self, event: &Event<'_>, rows: &mut Rows) {
        let gone = self.rows.drain().map(|(_, row)| row).chain(self.vmm.drain().map(|(_, vmm)| vmm.row));
        for row in gone {
            rows.died(row, event.t, event.death);
        }
        self.maps.clear();
    }
}

/// How memory goes with a call.
pub(super) const DEATH: Death = Death::Freed;
