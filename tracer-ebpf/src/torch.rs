//! Blocks of `PyTorch`'s caching allocator: the hottest event of a server's start-up, so one small record, without a
//! return probe and without a native stack.

use aya_ebpf::{macros::uprobe, programs::ProbeContext};
use tracer_ebpf::{Block, KIND_BLOCK, Loss};

use crate::{
    maps::{EVENTS, config, header, ids, lose, no_room_for_labels, tracked},
    python, regs,
};

/// `c10::DeviceType::CUDA` (c10/core/DeviceType.h). Blocks of host memory are reported too.
const CUDA: u64 = 1;

/// `void c10::reportMemoryUsageToProfiler(void* ptr, int64_t alloc_size, size_t total_allocated, size_t total_reserved,
/// c10::Device device)`, called with the allocator's lock held: the ring has a device's blocks in the allocator's order.
#[uprobe]
pub fn torch_block(ctx: ProbeContext) -> u32 {
    // SAFETY: the kernel's register frame, valid for the program's run.
    let regs = unsafe { &*ctx.regs };
    let [address, size, allocated, reserved, device, _] = regs::arguments(regs);
    if device & 0xff != CUDA {
        return 0;
    }
    let (tgid, tid) = ids();
    if tracked(tgid) {
        let bytes = size as i64;
        let from = config().map_or(i64::MAX, |config| config.block_stack_bytes as i64);
        // What is given back needs no stack: the block is known by its address.
        let flags = if bytes > 0 && bytes >= from { python::send(tgid, tid) } else { 0 };
        if no_room_for_labels() {
            lose(Loss::RingFullBlock);
            return 0;
        }
        let Some(mut entry) = EVENTS.reserve::<Block>(0) else {
            lose(Loss::RingFullBlock);
            return 0;
        };
        entry.write(Block {
            header: header(KIND_BLOCK, flags, tgid, tid),
            address,
            bytes,
            allocated,
            reserved,
            device: (device >> 8) as u32 & 0xff,
            pad: 0,
        });
        entry.submit(0);
    }
    0
}
