//! What tracked processes write to standard output and error, read as libc's `write` and `writev` begin.
//!
//! Only descriptors 1 and 2 are looked at, whatever they are open on; that test comes first, since servers write to sockets
//! and event descriptors far more often. Whether the write succeeds is not waited for: a return probe would double what
//! every write costs, and lines that fail to reach their reader (`EPIPE`, `EAGAIN`) are still what the process said.

use aya_ebpf::{EbpfContext as _, helpers::bpf_get_attach_cookie, macros::uprobe, programs::ProbeContext};
use tracer_ebpf::{KIND_OUTPUT, Loss, OUTPUT_BYTES, OUTPUT_PIECES, Output};

use crate::{
    maps::{EVENTS, header, ids, lose, no_room_for_stacks, tracked},
    read::{self, user},
    regs,
};

/// Buffers looked at of one `writev`: libcs and language runtimes use two or three.
const VECTORS: u64 = 8;

/// A record with room for `N` bytes. The ring gives out constant sizes only: a short line takes a small one.
#[repr(C)]
struct Sized<const N: usize> {
    output: Output,
    bytes: [u8; N],
}

/// `ssize_t write(int fd, const void *buf, size_t count)` of the target's libc.
#[uprobe]
pub fn libc_write(ctx: ProbeContext) -> u32 {
    // SAFETY: the kernel's register frame, valid for the program's run.
    let regs = unsafe { &*ctx.regs };
    let [fd, base, len, ..] = regs::arguments(regs);
    if is_output(fd as u32) && meant(&ctx) {
        buffer(fd as u32, base, len);
    }
    0
}

/// `ssize_t writev(int fd, const struct iovec *iov, int iovcnt)` of the target's libc.
#[uprobe]
pub fn libc_writev(ctx: ProbeContext) -> u32 {
    // SAFETY: as in `libc_write`.
    let regs = unsafe { &*ctx.regs };
    let [fd, vectors, count, ..] = regs::arguments(regs);
    let (fd, count) = (fd as u32, count as u32 as u64);
    if !is_output(fd) || !meant(&ctx) {
        return 0;
    }
    for i in 0..VECTORS {
        if i >= count {
            return 0;
        }
        // struct iovec: iov_base@0, iov_len@8. One that cannot be read is empty.
        let [base, len] = user::<[u64; 2]>(vectors + i * 16);
        buffer(fd, base, len);
    }
    if count > VECTORS {
        lose(Loss::Output);
    }
    0
}

/// The probe's cookie is the process that it is meant for. A child that shares its parent's memory until it executes
/// (vfork) has probes of its own there, which its parent's other threads pass too: what they write is not to come twice.
#[inline(always)]
fn meant(ctx: &ProbeContext) -> bool {
    let tgid = ids().0;
    // SAFETY: the program's own context.
    unsafe { bpf_get_attach_cookie(ctx.as_ptr()) == tgid as u64 && tracked(tgid) }
}

#[inline(always)]
fn is_output(fd: u32) -> bool {
    fd.wrapping_sub(1) < 2
}

/// Sends a buffer in as many pieces as it takes, up to the limit. A function of its own, so that the verifier looks at
/// each call of it apart.
#[inline(never)]
fn buffer(fd: u32, from: u64, len: u64) -> u32 {
    let (mut from, mut left) = (from, len);
    for i in 0..OUTPUT_PIECES {
        if left == 0 {
            break;
        }
        let len = if left > OUTPUT_BYTES as u64 { OUTPUT_BYTES as u64 } else { left };
        left -= len;
        let left_out = if i == OUTPUT_PIECES - 1 { left } else { 0 };
        piece(fd, from, len, left_out);
        from += len;
    }
    0
}

#[inline(never)]
fn piece(fd: u32, from: u64, len: u64, left_out: u64) -> u32 {
    let sent = match len {
        ..=240 => send::<240>(fd, from, len, left_out),
        ..=4080 => send::<4080>(fd, from, len, left_out),
        _ => send::<OUTPUT_BYTES>(fd, from, len, left_out),
    };
    if !sent || left_out > 0 {
        lose(Loss::Output);
    }
    0
}

/// Sends a piece; false when it, or its bytes, cannot be had.
#[inline(always)]
fn send<const N: usize>(fd: u32, from: u64, len: u64, left_out: u64) -> bool {
    let (tgid, tid) = ids();
    if no_room_for_stacks() {
        return false;
    }
    let Some(mut entry) = EVENTS.reserve::<Sized<N>>(0) else { return false };
    let out = entry.as_mut_ptr();
    // Bounded where the compiler does not see it: it would leave out what the verifier of Linux 6.1 wants to see.
    let len = read::below(len, 2 * OUTPUT_BYTES as u64);
    let len = if len > N as u64 { N as u64 } else { len };
    // SAFETY: `out` points to a reserved record with room for `N` bytes; its head is written before it is submitted, and
    // user space reads `len` bytes behind it alone.
    let copied = unsafe {
        let copied = read::copy((&raw mut (*out).bytes).cast(), len, from);
        (&raw mut (*out).output).write(Output {
            header: header(KIND_OUTPUT, 0, tgid, tid),
            fd,
            len: copied,
            left_out: left_out + len - copied as u64,
        });
        copied
    };
    entry.submit(0);
    copied != 0
}
