//! Driver requests: which matter, and copying them from user memory.
//!
//! Layouts: NVIDIA open-gpu-kernel-modules, `nv-ioctl-numbers.h`, `nvos.h`, `uvm_ioctl.h` (535 to 595). Here only what is
//! needed to choose and copy; decoding is user space's.

use aya_ebpf::helpers::{bpf_probe_read_user, generated::bpf_probe_read_user as read_user};
use tracer_ebpf::{IOCTL_ARG, IOCTL_PARAMS};

use crate::maps::config;

pub(crate) const NV_IOCTL_MAGIC: u32 = 0x46;
pub(crate) const RM_ALLOC_MEMORY: u32 = 0x27;
pub(crate) const RM_FREE: u32 = 0x29;
pub(crate) const RM_CONTROL: u32 = 0x2a;
pub(crate) const RM_ALLOC: u32 = 0x2b;
pub(crate) const RM_DUP_OBJECT: u32 = 0x34;
pub(crate) const RM_VID_HEAP_CONTROL: u32 = 0x4a;
pub(crate) const XFER_CMD: u32 = 0xd3;
pub(crate) const UVM_REGISTER_GPU_VASPACE: u32 = 25;
pub(crate) const UVM_MAP_EXTERNAL_ALLOCATION: u32 = 33;
pub(crate) const UVM_FREE: u32 = 34;
pub(crate) const UVM_UNMAP_EXTERNAL: u32 = 66;
pub(crate) const NV01_MEMORY_LOCAL_USER: u32 = 0x40;
/// Head of `UVM_MAP_EXTERNAL_ALLOCATION_PARAMS` that is kept: base, length, offset; then as much of its tail.
pub(crate) const UVM_MAP_PART: u64 = 24;

#[inline(always)]
pub(crate) fn wanted(cmd: u32) -> bool {
    (cmd >> 8) & 0xff == NV_IOCTL_MAGIC || is_uvm(cmd)
}

/// UVM's commands are plain numbers, without size or direction.
#[inline(always)]
pub(crate) fn is_uvm(cmd: u32) -> bool {
    matches!(cmd, UVM_REGISTER_GPU_VASPACE | UVM_MAP_EXTERNAL_ALLOCATION | UVM_FREE | UVM_UNMAP_EXTERNAL)
}

#[inline(always)]
pub(crate) fn user<T>(address: u64) -> Option<T> {
    // SAFETY: the helper fails rather than faults; all uses are plain integers.
    unsafe { bpf_probe_read_user(address as *const T) }.ok()
}

/// Whether a request asks for memory, which makes its stack worth having. A function of its own, so that the verifier
/// does not go through that for every kind of request.
#[inline(never)]
pub(crate) fn makes_memory(cmd: u32, arg: u64) -> bool {
    match cmd & 0xff {
        _ if is_uvm(cmd) => false,
        RM_ALLOC => user::<u32>(arg + 12) == Some(NV01_MEMORY_LOCAL_USER),
        RM_VID_HEAP_CONTROL => matches!(user::<u32>(arg + 8), Some(2 | 6 | 14)),
        _ => false,
    }
}

/// Copies the argument struct; gives the bytes copied.
///
/// # Safety
/// `to` must have room for [`IOCTL_ARG`] bytes.
#[inline(always)]
pub(crate) unsafe fn copy_arg(to: *mut u8, cmd: u32, from: u64, len: u32) -> Option<u32> {
    if cmd == UVM_MAP_EXTERNAL_ALLOCATION {
        let tail = config()?.uvm_map_tail as u64;
        // SAFETY: twice 24 bytes fit; the helper fails rather than faults.
        let failed = unsafe {
            read_user(to.cast(), UVM_MAP_PART as u32, from as *const _)
                | read_user(to.add(UVM_MAP_PART as usize).cast(), UVM_MAP_PART as u32, (from + tail) as *const _)
        };
        return (failed == 0).then_some(2 * UVM_MAP_PART as u32);
    }
    let len = if len > IOCTL_ARG as u32 { IOCTL_ARG as u32 } else { len };
    // SAFETY: `len` is within `IOCTL_ARG`.
    (unsafe { read_user(to.cast(), len, from as *const _) } == 0).then_some(len)
}

/// Copies parameters: as many as asked, less where the page ends. Gives the bytes copied.
///
/// # Safety
/// `to` must have room for [`IOCTL_PARAMS`] bytes.
#[inline(always)]
pub(crate) unsafe fn copy_params(to: *mut u8, from: u64, len: u32) -> u32 {
    if from == 0 {
        return 0;
    }
    let len = if len > IOCTL_PARAMS as u32 { IOCTL_PARAMS as u32 } else { len };
    for len in [len, 120, 56, 8] {
        // SAFETY: every length is within `IOCTL_PARAMS`.
        if unsafe { read_user(to.cast(), len, from as *const _) } == 0 {
            return len;
        }
    }
    0
}
