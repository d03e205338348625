//! User registers and a slice of user stack, for unwinding in user space.

use aya_ebpf::helpers::generated::bpf_probe_read_user;
use tracer_ebpf::{CONFIG_STACKS, DEPTH, FLAG_RETURNED, FLAG_STACK, KIND_STACK, Loss, Patched, STACK_BYTES, Stack};

use crate::{
    maps::{EVENTS, THREADS, config, header, lose, no_room_for_stacks},
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

#[repr(C)]
struct Sample {
    stack: Stack,
    bytes: [u8; STACK_BYTES],
}

const PAGE: u64 = 4096;
const PAGES: usize = STACK_BYTES / PAGE as usize;

/// Sends the stack from `registers.sp` up, and the Python frames if there are any. The next record of this thread refers
/// to them by the flags this gives: `FLAG_STACK`, `FLAG_PYTHON`.
#[inline(always)]
pub fn send(tgid: u32, tid: u32, registers: Registers) -> u32 {
    // Python first: behind the other's branches the verifier would go through it once for each.
    let python = python::send(tgid, tid);
    let native = config().is_some_and(|c| c.flags & CONFIG_STACKS != 0) && copied(tgid, tid, registers);
    python | if native { FLAG_STACK } else { 0 }
}

/// Sends the native part. The whole sample is reserved at once: a per-CPU buffer is not safe here, since these programs
/// can be preempted.
#[inline(always)]
fn copied(tgid: u32, tid: u32, registers: Registers) -> bool {
    if no_room_for_stacks() {
        lose(Loss::RingFullStack);
        return false;
    }
    let Some(mut entry) = EVENTS.reserve::<Sample>(0) else {
        lose(Loss::RingFullStack);
        return false;
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
    // SAFETY: `sample` points to a reserved record of that size; the copy below stays in its `bytes`.
    unsafe {
        let len = copy((&raw mut (*sample).bytes).cast(), registers.sp);
        if len == 0 {
            entry.discard(0);
            lose(Loss::UnreadableStack);
            return false;
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
    true
}

/// Copies page by page, so that the stack's end does not fail the whole read. Gives the bytes copied.
///
/// # Safety
/// `to` must have room for [`STACK_BYTES`].
#[inline(always)]
unsafe fn copy(to: *mut u8, sp: u64) -> u32 {
    let first = PAGE - (sp & (PAGE - 1));
    // SAFETY: the first piece is at most one page.
    if unsafe { bpf_probe_read_user(to.cast(), first as u32 & 0x1fff, sp as *const _) } != 0 {
        return 0;
    }
    let mut len = first & 0x1fff;
    for _ in 1..PAGES {
        if len > (STACK_BYTES as u64 - PAGE) {
            break;
        }
        // SAFETY: `len` + one page is within `STACK_BYTES`.
        if unsafe { bpf_probe_read_user(to.add(len as usize).cast(), PAGE as u32, (sp + len) as *const _) } != 0 {
            break;
        }
        len += PAGE;
    }
    len as u32
}
