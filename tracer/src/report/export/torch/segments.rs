//! The state at the moment looked at.

use std::io;

use super::Snapshot;
use super::blocks::Placed;
use crate::ledger::{Allocation, Book, Kind};

/// Memory of `PyTorch`'s allocator that lies together.
struct Stretch<'a> {
    /// Its first piece.
    row: &'a Allocation,
    address: u64,
    end: u64,
}

impl<'a> Snapshot<'a, '_, '_> {
    /// The list of segments.
    pub(super) fn segments(&mut self, book: &'a Book, devices: &[usize]) -> io::Result<()> {
        let mut list = self.pickle.list()?;
        let mut pieces: Vec<(usize, u64, &'a Allocation)> = Vec::new();
        for (number, row) in book.allocations.iter().enumerate().filter(|(_, row)| row.bytes > 0) {
            if !self.moments.is_live(row) {
                continue;
            }
            if let Some(address) = self.blocks.segments.get(&number) {
                pieces.push((row.gpu, *address, row));
                continue;
            }
            self.pickle.item(&mut list)?;
            let address = self.addresses[number];
            self.begin_segment(devices[row.gpu], address, row.bytes, row.bytes, row)?;
            let mut blocks = self.pickle.list()?;
            self.pickle.item(&mut blocks)?;
            self.begin_block(address, row.bytes, "active_allocated")?;
            self.stack(row)?;
            self.pickle.end_dict()?;
            self.pickle.end_list(blocks)?;
            self.pickle.end_dict()?;
        }
        let is_live = |placed: &&Placed| {
            let moment = self.moments.of(placed.process, placed.gpu);
            placed.born <= moment && moment < placed.died
        };
        let mut live: Vec<Placed> = self.blocks.placed.iter().filter(is_live).copied().collect();
        live.sort_by_key(|placed| (placed.gpu, placed.address));
        for stretch in stretches(pieces) {
            self.pickle.item(&mut list)?;
            let first = live.partition_point(|p| (p.gpu, p.address) < (stretch.row.gpu, stretch.address));
            let last = live.partition_point(|p| (p.gpu, p.address) < (stretch.row.gpu, stretch.end));
            self.stretch(book, devices[stretch.row.gpu], &stretch, &live[first..last])?;
        }
        self.pickle.end_list(list)
    }

    /// A segment of the allocator, with its blocks and what is free between them.
    fn stretch(&mut self, book: &Book, device: usize, stretch: &Stretch<'a>, live: &[Placed]) -> io::Result<()> {
        let bytes = |placed: &Placed| book.torch.blocks[placed.block].bytes;
        let allocated = live.iter().map(bytes).sum();
        self.begin_segment(device, stretch.address, stretch.end - stretch.address, allocated, stretch.row)?;
        let mut blocks = self.pickle.list()?;
        let mut at = stretch.address;
        for placed in live {
            self.gap(&mut blocks, &mut at, placed.address)?;
            if placed.address != at {
                continue;
            }
            self.pickle.item(&mut blocks)?;
            self.begin_block(at, bytes(placed), "active_allocated")?;
            self.block_stack(*placed)?;
            self.pickle.end_dict()?;
            at += bytes(placed);
        }
        self.gap(&mut blocks, &mut at, stretch.end)?;
        self.pickle.end_list(blocks)?;
        self.pickle.end_dict()
    }

    /// Free memory up to `end`.
    fn gap(&mut self, blocks: &mut super::pickle::List, at: &mut u64, end: u64) -> io::Result<()> {
        if *at < end {
            self.pickle.item(blocks)?;
            self.begin_block(*at, end - *at, "inactive")?;
            self.pickle.key("frames")?;
            let frames = self.pickle.list()?;
            self.pickle.end_list(frames)?;
            self.pickle.end_dict()?;
            *at = end;
        }
        Ok(())
    }

    /// All of a segment but its blocks, which come next.
    fn begin_segment(
        &mut self,
        device: usize,
        address: u64,
        bytes: u64,
        used: u64,
        row: &'a Allocation,
    ) -> io::Result<()> {
        self.pickle.dict()?;
        self.pickle.field("device", device as u64)?;
        self.pickle.field("address", address)?;
        self.pickle.field("total_size", bytes)?;
        for size in ["allocated_size", "active_size", "requested_size"] {
            self.pickle.field(size, used)?;
        }
        self.pickle.field("stream", 0)?;
        self.pickle.key("segment_type")?;
        self.pickle.key("large")?;
        self.stack(row)?;
        self.pickle.key("blocks")
    }

    /// All of a block but its frames, which come next.
    fn begin_block(&mut self, address: u64, bytes: u64, state: &'static str) -> io::Result<()> {
        self.pickle.dict()?;
        self.pickle.field("address", address)?;
        self.pickle.field("size", bytes)?;
        self.pickle.field("requested_size", bytes)?;
        self.pickle.key("state")?;
        self.pickle.key(state)
    }
}

/// Pieces put together: what was mapped piece by piece is one segment, as `PyTorch` shows it.
fn stretches(mut pieces: Vec<(usize, u64, &Allocation)>) -> Vec<Stretch<'_>> {
    pieces.sort_by_key(|(gpu, address, _)| (*gpu, *address));
    let mut stretches: Vec<Stretch<'_>> = Vec::new();
    for (gpu, address, row) in pieces {
        let end = address.saturating_add(row.bytes);
        let joins = |last: &&mut Stretch<'_>| {
            let both = [last.row, row].iter().all(|row| row.kind == Kind::Vmm);
            both && last.row.gpu == gpu && last.row.process == row.process && last.end == address
        };
        match stretches.last_mut().filter(joins) {
            Some(last) => last.end = end,
            None => stretches.push(Stretch { row, address, end }),
        }
    }
    stretches
}
