//! Shared memory: who holds a piece, and who pays for it.
//!
//! Mirrors the resource manager (`mem.c`, 580.142: `memCopyConstruct`, `memDestruct`): the handles of one piece form a
//! ring, a duplicate goes in behind its source, and when the owner goes the next in the ring becomes it. An exported file
//! holds a duplicate of its own in a kernel client (`rmobjexportimport.c`). NVML charges a piece to the process of its
//! owner, and to nobody while a kernel client is it (`_gpuCollectMemInfo`, `gpu_rmapi.c`).
//! UVM's own duplicates are left out: they stand behind their source and go with its mapping.

use std::collections::hash_map::Entry;

use super::rows::{Event, Numbers, Place, RowId, Rows, Table};
use super::{Death, Kind};
use crate::map::Map;

/// Who holds a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// A handle `(client, object)` of a process.
    Handle { key: (u32, u32), process: usize, import: Option<RowId> },
    /// Slot of an exported file.
    File { file: u64, index: u32 },
}

impl Holder {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Handle { key: a, .. }, Self::Handle { key: b, .. }) => a == b,
            _ => self == other,
        }
    }
}

/// A piece of physical memory.
#[derive(Clone)]
struct Piece {
    table: Table,
    bytes: u64,
    place: Place,
    /// The ring, never empty.
    holders: Vec<Holder>,
    /// Index of the owner in `holders`.
    owner: usize,
    /// Row of the process that pays, while one does.
    row: Option<RowId>,
}

/// All pieces alive.
#[derive(Clone, Default)]
pub(super) struct Memory {
    pieces: Map<u64, Piece>,
    next: u64,
}

impl Memory {
    /// A handle made new memory; gives the piece.
    pub(super) fn make(
        &mut self,
        table: Table,
        bytes: u64,
        place: Place,
        holder: Holder,
        event: &Event<'_>,
        rows: &mut Rows,
    ) -> u64 {
        let row = match holder {
            Holder::Handle { process, .. } => Some(rows.born(table, process, bytes, place, event)),
            Holder::File { .. } => None,
        };
        self.next += 1;
        self.pieces.insert(self.next, Piece { table, bytes, place, holders: vec![holder], owner: 0, row });
        self.next
    }

    /// Bytes and GPU of a piece.
    pub(super) fn size(&self, piece: u64) -> Option<(u64, Place)> {
        self.pieces.get(&piece).map(|p| (p.bytes, p.place))
    }

    /// Row of the process that pays for a piece, while one does.
    pub(super) fn row(&self, piece: u64) -> Option<RowId> {
        self.pieces.get(&piece)?.row
    }

    /// True when `process` pays for the piece.
    pub(super) fn is_paid_by(&self, piece: u64, process: usize) -> bool {
        self.pieces
            .get(&piece)
            .is_some_and(|p| matches!(p.holders[p.owner], Holder::Handle { process: payer, .. } if payer == process))
    }

    /// Puts a holder behind `source` in the ring of `piece`.
    pub(super) fn hold(&mut self, piece: u64, source: &Holder, holder: Holder) {
        let Some(piece) = self.pieces.get_mut(&piece) else { return };
        let at = piece.holders.iter().position(|h| h.is(source)).unwrap_or(piece.owner) + 1;
        piece.holders.insert(at, holder);
        if at <= piece.owner {
            piece.owner += 1;
        }
    }

    /// Rows have new numbers.
    pub(super) fn renumber(&mut self, numbers: &Numbers) {
        for piece in self.pieces.values_mut() {
            piece.row = piece.row.and_then(|row| numbers.of(row));
            for holder in &mut piece.holders {
                if let Holder::Handle { import, .. } = holder {
                    *import = import.and_then(|row| numbers.of(row));
                }
            }
        }
    }

    /// Takes a holder away; the last one takes the memory with it.
    pub(super) fn release(&mut self, id: u64, holder: &Holder, event: &Event<'_>, rows: &mut Rows) {
        let Entry::Occupied(mut entry) = self.pieces.entry(id) else { return };
        let piece = entry.get_mut();
        let Some(at) = piece.holders.iter().position(|h| h.is(holder)) else { return };
        let gone = piece.holders.remove(at);
        if let Holder::Handle { import: Some(row), .. } = gone {
            rows.died(row, event.t, event.death);
        }
        if piece.holders.is_empty() {
            if let Some(row) = piece.row {
                rows.died(row, event.t, event.death);
            }
            entry.remove();
        } else if at == piece.owner {
            piece.owner %= piece.holders.len();
            piece.charge(event, rows);
        } else if at < piece.owner {
            piece.owner -= 1;
        }
    }
}

impl Piece {
    /// The owner changed: ends the row of who paid, begins that of who pays now.
    fn charge(&mut self, event: &Event<'_>, rows: &mut Rows) {
        let payer = self.row.map(|row| rows.get(row).allocation.process);
        match self.holders[self.owner] {
            Holder::Handle { process, .. } if payer == Some(process) => {}
            Holder::Handle { process, import, .. } => {
                if let Some(row) = self.row {
                    rows.died(row, event.t, Death::Transferred);
                }
                self.row = Some(self.take_over(process, import, event, rows));
                let owner = self.owner;
                if let Holder::Handle { import, .. } = &mut self.holders[owner] {
                    *import = None;
                }
            }
            // Kept alive, and charged to nobody, until the file is closed or what is in it imported.
            Holder::File { .. } => {
                if let Some(row) = self.row.take() {
                    rows.died(row, event.t, Death::Transferred);
                }
            }
        }
    }

    /// The row of a process that pays for what another made. It tells of the import, not of the free that caused it.
    fn take_over(&self, process: usize, import: Option<RowId>, event: &Event<'_>, rows: &mut Rows) -> RowId {
        let id = rows.born(
            self.table,
            process,
            self.bytes,
            self.place,
            &Event { calls: &[], outer: 0, stack: None, ..*event },
        );
        if let Some(import) = import {
            rows.died(import, event.t, Death::Transferred);
            let from = rows.get(import).allocation.clone();
            let row = &mut rows.get(id).allocation;
            (row.tid, row.calls, row.stack) = (from.tid, from.calls, from.stack);
        }
        if self.table == Table::Gpu {
            let row = &mut rows.get(id).allocation;
            row.kind = Kind::IpcImport;
            row.evidence = "its owner freed it while it was mapped here";
        }
        id
    }
}
