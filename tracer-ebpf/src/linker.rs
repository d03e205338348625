//! Libraries of interest as the dynamic linker loads them: the moment to place probes in one nobody knew.
//!
//! `_dl_debug_state` is the function that debuggers break on (glibc elf/dl-debug.c, musl ldso/dynlink.c): the linker
//! calls it when it has mapped new objects, before it relocates them and before any of their code runs. Of a tracked
//! process each object is told: user space may come to its stacks when the process, and its memory map, is gone.

use aya_ebpf::{
    EbpfContext,
    helpers::{
        bpf_get_attach_cookie, bpf_get_current_task_btf, bpf_probe_read_user, generated::bpf_probe_read_user_str,
    },
    macros::uprobe,
    programs::ProbeContext,
};
use tracer_ebpf::{
    CONFIG_WATCH_ALL, Config, FLAG_HELD, HASH_START, KIND_LIBRARY, KIND_OBJECT, LibraryLoaded, Loss, NAME, NameKey,
    Object, UNKNOWABLE, hash_step,
};

use crate::{
    hold::hold,
    maps::{EVENTS, KNOWN, TAILS, config, header, identify_inode, ids, kernel_word, lose, tracked},
    python::PYTHONS,
    read::{self, forget},
    regs,
};

/// Objects looked at in one go. A process that loads more at once is held, and user space looks at the rest. (The
/// verifier's time, part of every start, goes with it.)
const OBJECTS: u32 = 16;
/// Words of a path that are hashed. A longer one is never taken for known.
const HASHED: usize = 256 / 8;
// struct r_debug (link.h): r_version@0, r_map@8, r_brk@16, r_state@24.
const R_MAP: u64 = 8;
const R_STATE: u64 = 24;
const RT_CONSISTENT: u32 = 0;
// struct link_map (link.h): l_addr@0, l_name@8, l_ld@16, l_next@24, l_prev@32.
const L_NEXT: u64 = 24;
const L_PREV: u64 = 32;

#[inline(always)]
fn user<T>(address: u64) -> Option<T> {
    // SAFETY: the helper fails rather than faults; all uses are plain integers.
    unsafe { bpf_probe_read_user(address as *const T) }.ok()
}

/// `void _dl_debug_state(void)`. The cookie is the distance from the probe to `_r_debug` in the linker's image.
#[uprobe]
pub fn linker_state(ctx: ProbeContext) -> u32 {
    let (tgid, tid) = ids();
    let ours = tracked(tgid);
    if let Some(config) = config()
        && (ours || config.flags & CONFIG_WATCH_ALL != 0)
    {
        // SAFETY: the context of a uprobe; the cookie was set when the probe was attached.
        let distance = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) };
        // SAFETY: the kernel's register frame, valid for the program's run.
        let debug = regs::places(unsafe { &*ctx.regs })[0].wrapping_add(distance);
        walk(forget(debug), config, Who { tgid, tid, ours: forget(ours as u64) });
    }
    0
}

#[derive(Clone, Copy)]
struct Who {
    tgid: u32,
    tid: u32,
    /// 1 if it is traced, else 0.
    ours: u64,
}

/// Looks at the objects that came since the last time, up to the first that user space must look at: it then reads all
/// of the process's mappings.
#[inline(always)]
fn walk(debug: u64, config: &Config, who: Who) -> Option<()> {
    if user::<u32>(debug + R_STATE)? != RT_CONSISTENT {
        return None;
    }
    // SAFETY: a copy of a map value.
    let last = TAILS.get_ptr(who.tgid).map(|p| unsafe { *p }).filter(|last| still_linked(*last));
    let first = match last {
        Some(last) => user::<u64>(last + L_NEXT)?,
        None => user::<u64>(debug + R_MAP)?,
    };
    if first == 0 {
        return None;
    }
    let Some(mut entry) = EVENTS.reserve::<LibraryLoaded>(0) else {
        lose(Loss::RingFull);
        return None;
    };
    // SAFETY: a reserved record, which also serves to hold each name in turn.
    let out = unsafe { &mut *entry.as_mut_ptr() };
    out.object.drivers = 0;
    let view = forget(view(config));
    let first = forget(first);
    let (mut at, mut tail, mut unknown) = (first, first, false);
    for _ in 0..OBJECTS {
        if at == 0 {
            break;
        }
        let hash = forget(interesting(at, out, &who));
        if hash != 0 {
            out.object.key = NameKey { hash, view };
            if forget(who.ours) == 0 || KNOWN.get_ptr(out.object.key).is_none() {
                unknown = true;
                break;
            }
        }
        tail = at;
        at = user::<u64>(at + L_NEXT).unwrap_or(0);
    }
    let _ = TAILS.insert(who.tgid, tail, 0);
    // With its first CUDA library, user space looks for a process's Python interpreter.
    let first = who.ours != 0 && out.object.drivers != 0 && PYTHONS.get_ptr(who.tgid).is_none();
    // More than one round's objects: user space looks at the rest.
    if unknown || first || (at != 0 && who.ours != 0) {
        // Hold the process before it can call into the library; user space continues it once probes are in.
        let held = hold(who.tgid);
        out.object.header = header(KIND_LIBRARY, if held { FLAG_HELD } else { 0 }, who.tgid, who.tid);
        if !unknown {
            out.object.key = NameKey { hash: 0, view };
            out.object.name_len = 0;
        }
        entry.submit(0);
    } else {
        entry.discard(0);
    }
    Some(())
}

/// False for an object that was unloaded since it was last seen: its memory may hold anything.
#[inline(always)]
fn still_linked(object: u64) -> bool {
    user::<u64>(object + L_PREV).and_then(|prev| user::<u64>(prev + L_NEXT)) == Some(object)
}

/// Reads an object into `out`, and tells of it if the process is traced; gives the name's hash if it is of interest, else 0.
/// A function of its own, so that the verifier forgets which way it went through it.
#[inline(never)]
fn interesting(object: u64, out: &mut LibraryLoaded, who: &Who) -> u64 {
    // l_addr, l_name, l_ld. What cannot be read is 0, and so is no name.
    let [bias, name_at, dynamic] = read::user::<[u64; 3]>(object);
    let words: *mut [u64; NAME / 8] = (&raw mut out.name).cast();
    for i in 0..HASHED {
        // SAFETY: within `name`, which is 8-byte aligned. Volatile, lest the compiler make it a loop over bytes.
        unsafe { (&raw mut (*words)[i]).write_volatile(0) };
    }
    // SAFETY: at most `NAME` bytes; the helper fails rather than faults.
    let len = unsafe { bpf_probe_read_user_str(words.cast(), NAME as u32, name_at as *const _) };
    if len <= 8 || len > NAME as i64 {
        return 0;
    }
    out.object.bias = bias;
    out.object.dynamic = dynamic;
    out.object.name_len = len as u32 - 1;
    // SAFETY: the record's name, which was just read.
    let (driver, library) = unsafe { of_interest(words.cast(), len as u64 - 1) };
    out.object.drivers |= driver as u32;
    // By arithmetic from here on: each branch would double what the verifier follows.
    let wanted = driver | (library & who.ours);
    // SAFETY: as above.
    let first = unsafe { (*words)[0] };
    let mut hash = HASH_START;
    for i in 0..HASHED {
        // SAFETY: as above.
        hash = hash_step(hash, unsafe { (*words)[i] });
    }
    let absolute = equal(first & 0xff, [b'/', 0, 0, 0, 0, 0, 0, 0]);
    let whole = ((len - 1 - HASHED as i64 * 8) as u64) >> 63;
    let hash = ((hash & (absolute & whole).wrapping_neg()) | UNKNOWABLE) & wanted.wrapping_neg();
    if forget(who.ours) != 0 {
        tell(out, len as u64 - 1, who);
    }
    hash
}

/// Sends an object, with as much of its path as there is.
#[inline(always)]
fn tell(out: &mut LibraryLoaded, name_len: u64, who: &Who) {
    out.object.header = header(KIND_OBJECT, 0, who.tgid, who.tid);
    // The mask is for the verifier: the path is shorter.
    let bytes = size_of::<Object>() + (name_len as usize & (NAME - 1));
    // SAFETY: at most the reserved record.
    let record = unsafe { core::slice::from_raw_parts((&raw const *out).cast::<u8>(), bytes) };
    // It names native frames: what its loss costs is theirs.
    if EVENTS.output::<[u8]>(record, 0).is_err() {
        lose(Loss::RingFullStack);
    }
}

/// Base names looked at this far from a path's end.
const TAIL: u64 = 40;

/// Whether a path's base name is one of interest, as two numbers: 1 for libcuda and libcudart, of interest also in a
/// process that is not traced yet; 1 for other libraries with rows in the probe table, or a libc. `len` is without the NUL.
///
/// # Safety
/// `name` must have [`NAME`] bytes.
#[inline(always)]
unsafe fn of_interest(name: *const u8, len: u64) -> (u64, u64) {
    // No branch in the loop: the verifier would follow every combination of them.
    let (mut driver, mut library) = (0, 0);
    let mut window = 0u64;
    for i in 0..TAIL {
        let at = len.wrapping_add(i).wrapping_sub(TAIL);
        // SAFETY: within the name. Volatile, one after the other: all at once would not fit on the stack.
        let byte = unsafe { name.add(at as usize & (NAME - 1)).read_volatile() };
        // Nothing stands before the beginning.
        let byte = byte as u64 & !read::negative(at as i64);
        window = (window >> 8) | (byte << 56);
        driver |= equal(window, *b"/libcuda");
        library |= equal(window, *b"/libnccl") | equal(window, *b"/libc10.");
        library |= equal(window, *b"/libc.so") | equal(window, *b"/libc-2.");
    }
    (driver, library)
}

/// 1 if the eight bytes are the same, else 0, by arithmetic alone.
#[inline(always)]
fn equal(window: u64, name: [u8; 8]) -> u64 {
    let mut differ = window ^ u64::from_le_bytes(name);
    // x | -x has its top bit set unless x is 0. In assembly, because the compiler would make a branch of it.
    // SAFETY: arithmetic on registers.
    #[cfg(target_arch = "bpf")]
    unsafe {
        core::arch::asm!(
            "{negative} = {x}",
            "{negative} = -{negative}",
            "{x} |= {negative}",
            "{x} >>= 63",
            x = inout(reg) differ,
            negative = out(reg) _,
        );
    }
    differ ^ 1
}

/// What the current process's paths mean: the same one is another file in another mount namespace or root directory.
#[inline(always)]
fn view(config: &Config) -> u64 {
    // SAFETY: no arguments.
    let task = unsafe { bpf_get_current_task_btf() } as u64;
    let find = || {
        let namespace = kernel_word(kernel_word(task, config.task_nsproxy)?, config.nsproxy_mnt)?;
        let number = kernel_word(namespace, config.mnt_inum)? & 0xffff_ffff;
        let root = kernel_word(kernel_word(task, config.task_fs)?, config.fs_root)?;
        let root = identify_inode(kernel_word(root, config.dentry_inode)?, config)?;
        Some(hash_step(hash_step(hash_step(HASH_START, number), root.device), root.inode))
    };
    find().unwrap_or(0)
}
