//! Where `PyTorch`'s blocks lie: in which rows of the ledger, and at which address of a picture of the whole GPU.

use std::collections::{BTreeMap, HashMap};

use crate::ledger::{Book, Kind};

/// Addresses of processes that share a GPU are told apart by what stands above the 47 bits that a process's own have.
const PROCESS_SHIFT: u32 = 48;
/// Most such processes on a GPU: more would not fit below [`PLAIN`].
const PROCESSES: u64 = 16;
/// First address of memory that is no segment of `PyTorch`'s. Viewers' numbers are doubles: exact up to 2^53.
pub(super) const PLAIN: u64 = 1 << 52;
/// Rows looked at to find the one that an address lies in: only such as ended before stand in between.
const LOOKED_AT: usize = 256;

/// A block that lies in known segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// Index into the book's blocks.
    pub(super) block: usize,
    /// Index into the book's processes.
    pub(super) process: usize,
    /// Index into the book's GPUs.
    pub(super) gpu: usize,
    /// Address in the picture.
    pub(super) address: u64,
    /// When it was handed out.
    pub(super) born: u64,
    /// When it was taken back, or its memory went; `u64::MAX` while it lives.
    pub(super) died: u64,
}

/// Segments and blocks of all allocators.
#[derive(Debug, Default)]
pub(super) struct Blocks {
    /// Address in the picture of each row that is a segment.
    pub(super) segments: HashMap<usize, u64>,
    /// Blocks in order of birth. One that lies in memory from before tracing, or in none that was seen, is left out.
    pub(super) placed: Vec<Placed>,
}

/// Places the blocks of a book.
pub(super) fn place(book: &Book) -> Blocks {
    let mut blocks = Blocks::default();
    let mut on_gpu: HashMap<usize, u64> = HashMap::new();
    let mut offsets = vec![None; book.torch.devices.len()];
    // What each allocator's process has mapped: address, then rows that were there at one time or another.
    let mut rows: Vec<BTreeMap<u64, Vec<usize>>> = vec![BTreeMap::new(); book.torch.devices.len()];
    for (number, device) in book.torch.devices.iter().enumerate() {
        let Some(gpu) = device.gpu else { continue };
        let nth = on_gpu.entry(gpu).and_modify(|nth| *nth += 1).or_insert(0);
        if *nth >= PROCESSES {
            continue;
        }
        offsets[number] = Some((*nth << PROCESS_SHIFT, gpu));
        for segment in &device.segments {
            let row = segment.row as usize;
            let fits =
                |row: &crate::ledger::Allocation| row.process == device.process && row.gpu == gpu && row.bytes > 0;
            if segment.address < 1 << (PROCESS_SHIFT - 1) && book.allocations.get(row).is_some_and(fits) {
                rows[number].entry(segment.address).or_default().push(row);
                blocks.segments.insert(row, (*nth << PROCESS_SHIFT) + segment.address);
            }
        }
    }
    for (number, block) in book.torch.blocks.iter().enumerate() {
        let device = block.device as usize;
        let Some((offset, gpu)) = offsets.get(device).copied().flatten() else { continue };
        let Some(end) = block.address.checked_add(block.bytes) else { continue };
        let Some(goes) = memory_goes(book, &rows[device], block.address..end, block.born) else { continue };
        let died = block.died.unwrap_or(u64::MAX).min(goes);
        if block.bytes > 0 && died > block.born {
            let process = book.torch.devices[device].process;
            let address = offset + block.address;
            blocks.placed.push(Placed { block: number, process, gpu, address, born: block.born, died });
        }
    }
    blocks
}

/// When the first of the rows goes that cover `range` at `t`; `None` where they do not cover it. Only memory that was mapped
/// piece by piece may cover it together.
fn memory_goes(book: &Book, rows: &BTreeMap<u64, Vec<usize>>, range: std::ops::Range<u64>, t: u64) -> Option<u64> {
    let (mut at, mut goes) = (range.start, u64::MAX);
    while at < range.end {
        let near = rows.range(..=at).rev().flat_map(|(base, rows)| rows.iter().map(move |row| (base, row)));
        let holds = |(base, row): &(&u64, &usize)| {
            let row = &book.allocations[**row];
            base.saturating_add(row.bytes) > at && row.live_at(t)
        };
        let (base, row) = near.take(LOOKED_AT).find(holds)?;
        let row = &book.allocations[*row];
        at = base.saturating_add(row.bytes);
        goes = goes.min(row.died.map_or(u64::MAX, |(died, _)| died));
        if at < range.end && row.kind != Kind::Vmm {
            return None;
        }
    }
    Some(goes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::torch::{Block, Segment, TorchDevice};
    use crate::report::testbook::TestBook;

    #[test]
    fn blocks_lie_in_segments_and_go_with_them() {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(1, "a"), t.gpu(0));
        let rows = [10, 20, 30].map(|at| t.at(at).allocate_kind(process, gpu, 100, Kind::Vmm));
        t.at(90).free(rows[1]);
        let segments = rows.map(|row| Segment { row: row as u32, address: row as u64 * 100, in_graph_pool: false });
        let device = TorchDevice { process, gpu: Some(gpu), segments: segments.to_vec(), ..TorchDevice::default() };
        t.book.torch.devices.push(device);
        let block = |born, died, address, bytes| {
            let (device, tid, stack, in_graph_pool) = (0, 1, None, false);
            Block { born, died, bytes, address, device, tid, stack, in_graph_pool }
        };
        t.book.torch.blocks = vec![
            block(40, None, 50, 100),     // in two pieces, of which one goes
            block(41, Some(60), 0, 50),   // taken back before
            block(42, None, 290, 50),     // reaches out of what is known
            block(15, Some(18), 100, 10), // before its memory came
            block(43, Some(43), 200, 10), // never there
        ];
        let placed = place(&t.book);
        let found: Vec<_> = placed.placed.iter().map(|p| (p.block, p.address, p.born, p.died)).collect();
        assert_eq!(found, [(0, 50, 40, 90), (1, 0, 41, 60)]);
        assert_eq!(placed.segments.len(), 3);
    }
}
