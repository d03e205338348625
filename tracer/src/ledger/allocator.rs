//! Follows `PyTorch`'s caching allocators through a trace.

use super::mappings::Mappings;
use super::rows::{Place, Rows};
use super::torch::{Block, Figures, OutOfMemory, Segment, Torch, TorchDevice};
use crate::map::Map;
use crate::trace::record::{self, Call};

/// Allocators while the trace is read.
#[derive(Clone, Default)]
pub(super) struct Allocators {
    torch: Torch,
    devices: Map<(usize, u32), usize>,
    states: Vec<State>,
    /// Blocks handed out, by device and address.
    live: Map<(usize, u64), usize>,
}

/// What is known of a device beside its table.
#[derive(Clone, Default)]
struct State {
    /// Bytes of the blocks in `live`.
    bytes: u64,
    /// Where its memory is, once a block told.
    place: Option<Place>,
}

impl Allocators {
    /// Forgets where allocators gave up before `t`.
    pub(super) fn fold(&mut self, t: u64) {
        self.torch.failures.retain(|failure| failure.t >= t);
    }

    /// A block was handed out or taken back.
    pub(super) fn block(&mut self, block: &record::Block, process: usize, mappings: &mut Mappings, rows: &mut Rows) {
        let number = self.device(process, block.device);
        let bytes = block.bytes.unsigned_abs();
        let mut expected = self.torch.devices[number].figures.last().map(|figures| figures.before);
        let mut fits = true;
        if block.bytes >= 0 {
            // One that is there already: its end was lost.
            fits = self.end(number, block.address, block.t).is_none();
            self.begin(number, process, block, mappings, rows);
        } else {
            match self.end(number, block.address, block.t) {
                Some(known) => fits = known == bytes,
                // It was there before tracing began.
                None => expected = expected.map(|before| before.wrapping_sub(bytes as i64)),
            }
        }
        let device = &mut self.torch.devices[number];
        let before = block.allocated.wrapping_sub(self.states[number].bytes) as i64;
        device.events += 1;
        device.mismatches += u64::from(!fits || expected.is_some_and(|expected| expected != before));
        let figures = Figures { t: block.t, before, reserved: block.reserved };
        if device.figures.last().is_none_or(|last| (last.before, last.reserved) != (before, block.reserved)) {
            device.figures.push(figures);
        }
    }

    /// The allocator gave up.
    pub(super) fn failed(&mut self, call: &Call, process: usize) {
        let value = |name: &str| call.more.get(name).copied().unwrap_or(0);
        self.torch.failures.push(OutOfMemory {
            t: call.t,
            process,
            ordinal: call.device.and_then(|device| u32::try_from(device).ok()).unwrap_or(0),
            requested: call.size.unwrap_or(0),
            allocated: value("allocated"),
            reserved: value("reserved"),
            stack: call.stack,
        });
    }

    fn device(&mut self, process: usize, ordinal: u32) -> usize {
        *self.devices.entry((process, ordinal)).or_insert_with(|| {
            self.torch.devices.push(TorchDevice { process, ordinal, ..TorchDevice::default() });
            self.states.push(State::default());
            self.torch.devices.len() - 1
        })
    }

    fn begin(
        &mut self,
        number: usize,
        process: usize,
        block: &record::Block,
        mappings: &mut Mappings,
        rows: &mut Rows,
    ) {
        let bytes = block.bytes.unsigned_abs();
        self.live.insert((number, block.address), self.torch.blocks.len());
        let state = &mut self.states[number];
        state.bytes = state.bytes.wrapping_add(bytes);
        let range = block.address..block.address.saturating_add(bytes.max(1));
        let held = mappings.hold(process, range, number as u32, rows);
        state.place = state.place.or(held.place);
        self.torch.blocks.push(Block {
            born: block.t,
            died: None,
            bytes,
            address: block.address,
            device: number as u32,
            tid: block.tid,
            stack: block.stack,
            in_graph_pool: held.in_graph_pool,
        });
    }

    /// Ends the block at an address; gives its bytes.
    fn end(&mut self, number: usize, address: u64, t: u64) -> Option<u64> {
        let block = self.live.remove(&(number, address))?;
        let block = &mut self.torch.blocks[block];
        block.died = Some(t);
        let state = &mut self.states[number];
        state.bytes = state.bytes.wrapping_sub(block.bytes);
        Some(block.bytes)
    }

    /// The tables. `segments` has the rows of [`Book::allocations`](super::Book) that are segments: the device that each is
    /// one of, its address, and whether a stream was being captured as it was made.
    pub(super) fn finish(
        self,
        segments: impl IntoIterator<Item = (u32, u32, u64, bool)>,
        gpu: impl Fn(Option<Place>, usize) -> Option<usize>,
    ) -> Torch {
        let Self { mut torch, states, .. } = self;
        for (device, state) in torch.devices.iter_mut().zip(states) {
            device.gpu = gpu(state.place, device.process);
        }
        for (row, device, address, in_graph_pool) in segments {
            if let Some(device) = torch.devices.get_mut(device as usize) {
                device.segments.push(Segment { row, address, in_graph_pool });
            }
        }
        // In order of birth, as the rows are.
        torch.devices.iter_mut().for_each(|device| device.segments.sort_by_key(|segment| segment.row));
        torch
    }
}

#[cfg(test)]
mod tests;
