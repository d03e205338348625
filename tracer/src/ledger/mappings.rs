//! What processes have mapped, and where: in which memory a block of an allocator lies, and which memory takes the place of
//! what was paused.

use std::collections::BTreeMap;

use super::rows::{Numbers, RowId, Rows, Table};
use crate::map::Map;

/// Memory mapped at an address.
#[derive(Clone)]
struct Mapped {
    bytes: u64,
    row: RowId,
}

/// Memory that was paused.
#[derive(Clone)]
struct Paused {
    /// What it is resumed as, too.
    piece: u32,
    /// The `PyTorch` allocator that it is a segment of, by number.
    device: Option<u32>,
}

/// Mappings while the trace is read.
#[derive(Clone, Default)]
pub(super) struct Mappings {
    /// What each process has mapped, by address.
    mapped: Map<usize, BTreeMap<u64, Mapped>>,
    /// What is paused, by process and address.
    paused: Map<(usize, u64), Paused>,
}

impl Mappings {
    /// Memory was mapped in a process. `resumes`: by a call that resumes what is paused at the address.
    pub(super) fn map(&mut self, process: usize, base: u64, bytes: u64, row: RowId, resumes: bool, rows: &mut Rows) {
        if let Some(paused) = self.paused.remove(&(process, base)).filter(|_| resumes) {
            let row = rows.get(row);
            row.is_resumed(paused.piece);
            paused.device.into_iter().for_each(|device| row.is_segment_of(device, base));
        }
        self.mapped.entry(process).or_default().insert(base, Mapped { bytes, row });
    }

    /// It is mapped no more. `pauses`: by a call that keeps the address, to map memory there again.
    pub(super) fn unmap(&mut self, process: usize, base: u64, pauses: bool, rows: &mut Rows) {
        let Some(gone) = self.mapped.get_mut(&process).and_then(|mapped| mapped.remove(&base)) else { return };
        if pauses {
            let device = rows.get(gone.row).segment().map(|(device, _)| device);
            self.paused.insert((process, base), Paused { piece: rows.paused(gone.row), device });
        }
    }

    /// Video memory mapped where a block lies, with its address. A block of an expandable segment may lie in several pieces.
    pub(super) fn below(&self, process: usize, address: u64, bytes: u64) -> Vec<(u64, RowId)> {
        let Some(mapped) = self.mapped.get(&process) else { return Vec::new() };
        let end = address.saturating_add(bytes.max(1));
        let holds = |(base, mapped): &(&u64, &Mapped)| base.saturating_add(mapped.bytes) > address;
        let pieces = mapped.range(..end).rev().take_while(holds).map(|(base, mapped)| (*base, mapped.row));
        pieces.filter(|(_, row)| row.table == Table::Gpu).collect()
    }

    /// Rows have new numbers.
    pub(super) fn renumber(&mut self, numbers: &Numbers) {
        let renumber = |row: &mut RowId| numbers.of(*row).map(|new| *row = new).is_some();
        for mapped in self.mapped.values_mut() {
            mapped.retain(|_, mapped| renumber(&mut mapped.row));
        }
    }
}
