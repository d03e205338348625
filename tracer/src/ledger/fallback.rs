//! The ledger from driver-API calls, where ioctls cannot be read: what the program asked for.
//!
//! Contexts, code, local memory and rounding are not seen, so its figures lie below NVML's; the samples show by how much.

use std::collections::{BTreeMap, HashMap};

use super::Death;
use super::rows::{Event, Numbers, Place, RowId, Rows, Table};
use crate::probe::{self, Effect, Lib};
use crate::trace::record::Call;

/// What a row is found by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    Address(u64),
    Handle(u64),
}

impl Key {
    fn of(call: &Call) -> Option<Self> {
        call.address.map(Self::Address).or(call.handle.map(Self::Handle))
    }
}

/// A `cuMemCreate` handle: physical memory stays while it is held or mapped.
#[derive(Clone)]
struct Vmm {
    row: RowId,
    references: u64,
}

/// One process's memory by what its calls named.
#[derive(Clone, Default)]
struct Process {
    rows: HashMap<Key, RowId>,
    vmm: HashMap<u64, Vmm>,
    /// Mapped handles by address.
    maps: BTreeMap<u64, u64>,
    contexts: u64,
}

/// The fallback ledger.
#[derive(Clone, Default)]
pub(super) struct Fallback {
    processes: HashMap<usize, Process>,
    /// Allocations whose size could not be read.
    pub(super) unsized_calls: u64,
}

impl Fallback {
    /// A successful call. Nested calls come innermost first, so the outer form of one already seen changes nothing.
    pub(super) fn call(&mut self, call: &Call, event: &Event<'_>, rows: &mut Rows) {
        let Some(probe) = probe::by_symbol(&call.api).filter(|_| call.result == 0) else { return };
        let process = self.processes.entry(event.process).or_default();
        match probe.effect {
            Effect::ContextEnd => process.leave(probe.symbol, event, rows),
            // The runtime's call the driver's.
            Effect::Context if probe.library == Lib::Cuda => process.contexts += 1,
            Effect::Import if probe.library == Lib::Cuda => {
                rows.born(Table::Imports, event.process, 0, Place::Process, event);
            }
            Effect::Retain | Effect::Release => process.hold(call, probe.effect == Effect::Retain, event, rows),
            Effect::Map | Effect::Unmap => process.map(call, probe.effect == Effect::Map, event, rows),
            Effect::Free | Effect::Subfree | Effect::HostFree => process.free(call, event, rows),
            Effect::Physical | Effect::Create | Effect::Suballocate | Effect::Host => {
                self.unsized_calls += u64::from(!process.alloc(call, probe.effect, event, rows));
            }
            _ => {}
        }
    }

    /// Rows have new numbers. What is held here lives: its row is there.
    pub(super) fn renumber(&mut self, numbers: &Numbers) {
        for process in self.processes.values_mut() {
            process.rows.retain(|_, row| {
                numbers.of(*row).is_some_and(|new| {
                    *row = new;
                    true
                })
            });
            process.vmm.retain(|_, vmm| {
                numbers.of(vmm.row).is_some_and(|new| {
                    vmm.row = new;
                    true
                })
            });
        }
    }

    /// A process exited.
    pub(super) fn exit(&mut self, event: &Event<'_>, rows: &mut Rows) {
        if let Some(mut process) = self.processes.remove(&event.process) {
            process.clear(event, rows);
        }
    }
}

impl Process {
    /// A context was reset, or one reference to it given up.
    fn leave(&mut self, symbol: &str, event: &Event<'_>, rows: &mut Rows) {
        let is_reset = symbol.contains("Reset") || symbol == "cudaThreadExit";
        self.contexts = if is_reset { 0 } else { self.contexts.saturating_sub(1) };
        if self.contexts == 0 {
            self.clear(event, rows);
        }
    }

    /// False when the size is not known.
    fn alloc(&mut self, call: &Call, effect: Effect, event: &Event<'_>, rows: &mut Rows) -> bool {
        let (Some(key), Some(bytes)) = (Key::of(call), call.size) else { return false };
        if self.rows.contains_key(&key) {
            return true;
        }
        let table = if effect == Effect::Host { Table::Host } else { Table::Gpu };
        let row = rows.born(table, event.process, bytes, Place::Process, event);
        match (effect, key) {
            (Effect::Create, Key::Handle(handle)) => {
                self.vmm.insert(handle, Vmm { row, references: 1 });
            }
            _ => {
                self.rows.insert(key, row);
            }
        }
        true
    }

    fn free(&mut self, call: &Call, event: &Event<'_>, rows: &mut Rows) {
        if let Some(row) = Key::of(call).and_then(|key| self.rows.remove(&key)) {
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
