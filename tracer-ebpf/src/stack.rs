//! User registers and a slice of user stack, for unwinding in user space.

use aya_ebpf::helpers::{bpf_get_current_task_btf, generated::bpf_probe_read_user};
use tracer_ebpf::{CONFIG_STACKS, DEPTH, FLAG_RETURNED, FLAG_STACK, KIND_STACK, Loss, Patched, STACK_BYTES, Stack};

use crate::{
    maps::{EVENTS, THREADS, config, header, kernel_word, lose, no_room_for_stacks},
    python,
};

/// Where a thread is in user space.
#[derive(Clone, Copy)]
pub struct Registers {
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    /// `ip` stands after a call (or the `syscall` instruction) that has just returned.
    pub returned: bool,
}

/// A stack with room for `N` bytes of it.
#[repr(C)]
struct Sample<const N: usize> {
    stack: Stack,
    bytes: [u8; N],
}

const PAGE: u64 = 4096;
/// Room for most stacks: the ring is not filled with what is not there.
const SHALLOW: usize = 8 * 1024;
/// Most bytes copied at once: a bound that the verifier sees.
const MOST: u64 = STACK_BYTES as u64 - 8;

/// Sends the stack from `registers.sp` up, and the Python frames if there are any. The next record of this thread refers
/// to them by the flags this gives: `FLAG_STACK`, `FLAG_PYTHON`.
#[inline(always)]
pub fn send(tgid: u32, tid: u32, registers: Registers) -> u32 {
    // Python first: behind the other's branches the verifier would go through it once for each.
    let python = python::send(tgid, tid);
    let native = config().is_some_and(|c| c.flags & CONFIG_STACKS != 0) && sample(tgid, tid, &registers) != 0;
    python | if native { FLAG_STACK } else { 0 }
}

/// Sends the native part; gives 1, or 0 when it cannot be had. A function of its own: what it has on the stack must not lie
/// below the walk of Python frames, for before Linux 6.13 all frames of a program share 512 bytes.
#[inline(never)]
fn sample(tgid: u32, tid: u32, registers: &Registers) -> u32 {
    if no_room_for_stacks() {
        lose(Loss::RingFullStack);
        return 0;
    }
    let len = extent(registers.sp);
    if len <= SHALLOW as u64 - 8 {
        copied::<SHALLOW>(tgid, tid, registers, len)
    } else {
        copied::<STACK_BYTES>(tgid, tid, registers, len)
    }
}

/// Bytes from `sp` to where the stack ends, at most [`MOST`]. Reading past the end costs a page fault, more than all the
/// rest of a copy. What is above the main thread's first frame are its arguments and environment; C libraries put another
/// thread's control block, which its thread pointer points to, above its first frame. No stack goes across either; which
/// thread it is need not be known, as the other's end is far off.
#[inline(never)]
fn extent(sp: u64) -> u64 {
    // SAFETY: no arguments.
    let task = unsafe { bpf_get_current_task_btf() } as u64;
    let Some(config) = config() else { return MOST };
    let thread = kernel_word(task, config.task_fsbase).unwrap_or(0);
    let mm = kernel_word(task, config.task_mm).unwrap_or(0);
    let first = kernel_word(mm, config.mm_start_stack).unwrap_or(0);
    // An end at or below `sp` is none: the difference is huge.
    let below = |end: u64| end.wrapping_sub(sp).wrapping_sub(1);
    below(thread).min(below(first)).min(MOST - 1) + 1
}

/// Sends the native part. The whole sample is reserved at once: a per-CPU buffer is not safe here, since these programs
/// can be preempted.
#[inline(always)]
fn copied<const N: usize>(tgid: u32, tid: u32, registers: &Registers, len: u64) -> u32 {
    let Some(mut entry) = EVENTS.reserve::<Sample<N>>(0) else {
        lose(Loss::RingFullStack);
        return 0;
    };
    let sample = entry.as_mut_ptr();
    let mut patched = [Patched { sp: 0, address: 0 }; DEPTH];
    let mut patched_len = 0;
    // SAFETY: only this thread touches its entry, and it cannot be removed while the thread runs here.
    if let Some(thread) = THREADS.get_ptr(tid).and_then(|thread| unsafe { thread.as_ref() }) {
        patched_len = thread.depth.min(DEPTH as u32);
        for (i, slot) in patched.iter_mut().enumerate() {
            if i < patched_len as usize {
                *slot = Patched { sp: thread.calls[i].sp, address: thread.calls[i].address };
            }
        }
    }
    // SAFETY: `sample` points to a reserved record of that size; the copies below stay in its `bytes`.
    unsafe {
        let to = (&raw mut (*sample).bytes).cast();
        let mut len = len as u32 & (N as u32 - 1);
        if bpf_probe_read_user(to, len, registers.sp as *const _) != 0 {
            len = copy_pages::<N>(to.cast(), registers.sp);
        }
        if len == 0 {
            entry.discard(0);
            lose(Loss::UnreadableStack);
            return 0;
        }
        (&raw mut (*sample).stack).write(Stack {
            header: header(KIND_STACK, if registers.returned { FLAG_RETURNED } else { 0 }, tgid, tid),
            ip: registers.ip,
            sp: registers.sp,
            bp: registers.bp,
            len,
            patched_len,
            patched,
        });
    }
    entry.submit(0);
    1
}

/// Copies page by page a stack that ends somewhere else (a coroutine's): its end then does not fail the whole read. Gives
/// the bytes copied.
///
/// # Safety
/// `to` must have room for `N` bytes.
#[inline(always)]
unsafe fn copy_pages<const N: usize>(to: *mut u8, sp: u64) -> u32 {
    let first = PAGE - (sp & (PAGE - 1));
    // SAFETY: the first piece is at most one page.
    if unsafe { bpf_probe_read_user(to.cast(), first as u32 & 0x1fff, sp as *const _) } != 0 {
        return 0;
    }
    let mut len = first & 0x1fff;
    for _ in 1..N as u64 / PAGE {
        if len > (N as u64 - PAGE) {
            break;
        }
        // SAFETY: `len` + one page is within `N`.
        if unsafe { bpf_probe_read_user(to.add(len as usize).cast(), PAGE as u32, (sp + len) as *const _) } != 0 {
            break;
        }
        len += PAGE;
    }
    len as u32
}
