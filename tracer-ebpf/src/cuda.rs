//! Entry and return of probed API functions. One program each, told apart by the probe's cookie.

use aya_ebpf::{
    EbpfContext,
    bindings::pt_regs,
    helpers::{
        bpf_get_attach_cookie, bpf_get_current_task_btf, bpf_ktime_get_ns, bpf_probe_read_user,
        generated::bpf_probe_read_user as read_user,
    },
    macros::{uprobe, uretprobe},
    programs::{ProbeContext, RetProbeContext},
};
use tracer_ebpf::{
    ARGS, AT_ENTRY, AT_RETURN, BASE_STACK, Call, DEPTH, Frame, KIND_CALL, Loss, READS, SPEC_QUIET, SPEC_STACK,
    SPEC_STACK_ON_FAILURE, Spec,
};

use crate::{
    maps::{
        Active, EMPTY, EVENTS, SPECS, THREADS, Thread, config, header, ids, kernel_word, lose, no_room_for_labels,
        tracked,
    },
    read::{below, forget},
    regs, stack,
};

#[uprobe]
pub fn api_enter(ctx: ProbeContext) -> u32 {
    let (tgid, tid) = ids();
    if tracked(tgid) {
        enter(&ctx, tgid, tid);
    }
    0
}

#[inline(always)]
fn enter(ctx: &ProbeContext, tgid: u32, tid: u32) -> Option<()> {
    // SAFETY: the context of a uprobe; the cookie was set when the probe was attached.
    let cookie = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) };
    let (library, probe) = ((cookie >> 32) as u32, cookie as u32);
    let spec = SPECS.get(probe)?;
    // SAFETY: the kernel's register frame, valid for the program's run.
    let regs = unsafe { &*ctx.regs };
    let [ip, sp, bp] = regs::places(regs);
    let thread = thread(tid)?;
    drop_stale(thread, sp, probe);
    let depth = thread.depth as usize;
    if depth >= DEPTH {
        lose(Loss::TooDeep);
        return None;
    }
    // A tail call enters with the caller's return address, already replaced by a return probe's trampoline.
    let above = &thread.calls[depth.wrapping_sub(1) & (DEPTH - 1)];
    let address = if depth > 0 && above.sp == sp { above.address } else { regs::return_address(regs) };
    let call = &mut thread.calls[depth & (DEPTH - 1)];
    // SAFETY: no arguments.
    call.frame = Frame { probe, library, enter_ns: unsafe { bpf_ktime_get_ns() } };
    call.sp = sp;
    call.address = address;
    let [a, b, c, d, e, f] = regs::arguments(regs);
    call.args = [a, b, c, d, e, f, sp, 0];
    call.values = [0; READS];
    call.unreadable = 0;
    call.flags = 0;
    read_values(call, spec, AT_ENTRY);
    thread.depth = depth as u32 + 1;
    if spec.flags & SPEC_STACK != 0 && depth == 0 {
        thread.calls[0].flags = stack::send(tgid, tid, stack::Registers { ip, sp, bp, returned: false });
    }
    Some(())
}

#[uretprobe]
pub fn api_return(ctx: RetProbeContext) -> u32 {
    let (tgid, tid) = ids();
    if tracked(tgid) {
        leave(&ctx, tgid, tid);
    }
    0
}

#[inline(always)]
fn leave(ctx: &RetProbeContext, tgid: u32, tid: u32) -> Option<()> {
    // SAFETY: as in `enter`.
    let cookie = unsafe { bpf_get_attach_cookie(ctx.as_ptr()) };
    let probe = cookie as u32;
    let spec = SPECS.get(probe)?;
    // SAFETY: as in `enter`.
    let regs = unsafe { &*ctx.regs };
    let thread = THREADS.get_ptr_mut(tid);
    // SAFETY: only this thread touches its entry, and it cannot be removed while the thread runs here.
    let Some(thread) = thread.and_then(|t| unsafe { t.as_mut() }) else {
        lose(Loss::UnknownReturn);
        return None;
    };
    let [ip, sp, bp] = regs::places(regs);
    let depth = forget(pop(thread, sp, probe)) as usize;
    if depth >= DEPTH {
        return None;
    }
    let call = &mut thread.calls[below(depth as u64, DEPTH as u64) as usize];
    let failed = regs::result(regs) as u32 != 0;
    read_values(call, spec, AT_RETURN);
    let mut flags = call.flags;
    if failed && flags == 0 && spec.flags & SPEC_STACK_ON_FAILURE != 0 {
        flags = stack::send(tgid, tid, stack::Registers { ip, sp, bp, returned: true });
    }
    if failed || spec.flags & SPEC_QUIET == 0 {
        send(thread, depth, regs, flags);
    }
    Some(())
}

/// Takes the frame this return belongs to off the thread's stack; gives its index, [`DEPTH`] for none. A function of its own,
/// so that the verifier forgets how many frames it took off.
#[inline(never)]
fn pop(thread: &mut Thread, sp: u64, probe: u32) -> u64 {
    // At a return the stack pointer is above what the return took off.
    let entry_sp = sp.wrapping_sub(regs::POPPED);
    for _ in 0..DEPTH {
        let depth = thread.depth as usize;
        if depth == 0 || depth > DEPTH {
            break;
        }
        let top = &thread.calls[(depth - 1) & (DEPTH - 1)];
        if top.sp > entry_sp {
            break;
        }
        thread.depth = depth as u32 - 1;
        if top.sp == entry_sp && top.frame.probe == probe {
            return depth as u64 - 1;
        }
        lose(Loss::MissedReturn);
    }
    lose(Loss::UnknownReturn);
    DEPTH as u64
}

/// Drops frames that a longjmp or an exception left behind: an enclosing call's stack pointer is above ours, and its
/// return address is the kernel's; of a call that was left so were all inside it.
#[inline(always)]
fn drop_stale(thread: &mut Thread, sp: u64, probe: u32) {
    let depth = thread.depth.min(DEPTH as u32);
    let mut enclosing = 0;
    for frame in &thread.calls {
        // Equal stack pointers are a tail call into another probed function (libcuda's exports are such thunks).
        let above = frame.sp > sp || (frame.sp == sp && frame.frame.probe != probe);
        if enclosing == depth || !above || !in_place(frame.sp) {
            break;
        }
        enclosing += 1;
    }
    for _ in enclosing..depth {
        lose(Loss::MissedReturn);
    }
    thread.depth = enclosing;
}

/// False when the return address of a probed call is not the kernel's any more: the call was left another way.
#[inline(always)]
fn in_place(sp: u64) -> bool {
    // SAFETY: a helper that fails rather than faults.
    let address = unsafe { bpf_probe_read_user(sp as *const u64) };
    // Where returns take nothing off the stack, it is in a register.
    regs::POPPED == 0 || trampoline().is_none_or(|trampoline| address == Ok(trampoline))
}

/// What the kernel puts in place of return addresses (`uprobe_get_trampoline_vaddr` in kernel/events/uprobes.c).
#[inline(always)]
fn trampoline() -> Option<u64> {
    let config = config()?;
    if config.xol_vaddr == 0 {
        return None;
    }
    // SAFETY: no arguments.
    let task = unsafe { bpf_get_current_task_btf() } as u64;
    let area = kernel_word(kernel_word(task, config.task_mm)?, config.mm_xol)?;
    kernel_word(area, config.xol_vaddr)
}

#[inline(always)]
fn read_values(call: &mut Active, spec: &Spec, when: u8) {
    for (i, read) in spec.reads.iter().enumerate() {
        if read.when != when {
            continue;
        }
        let base = if read.base == BASE_STACK { ARGS } else { read.base as usize & (ARGS + 1) };
        let address = call.args[base].wrapping_add(read.offset as u64);
        let len = (read.len as u32).min(8);
        let mut value = 0u64;
        // SAFETY: at most 8 bytes into an 8-byte local; the helper fails rather than faults.
        if unsafe { read_user((&raw mut value).cast(), len, address as *const _) } == 0 {
            call.values[i] = value;
        } else {
            call.unreadable |= 1 << i;
        }
    }
}

/// Sends a call that has returned. A function of its own: see [`stack`].
#[inline(never)]
fn send(thread: &Thread, depth: usize, regs: &pt_regs, flags: u32) -> u32 {
    let (tgid, tid) = ids();
    if no_room_for_labels() {
        lose(Loss::RingFullCall);
        return 0;
    }
    let Some(mut entry) = EVENTS.reserve::<Call>(0) else {
        lose(Loss::RingFullCall);
        return 0;
    };
    // Where the compiler does not see it, lest it leave the masks out.
    let index = |depth: usize| below(depth as u64, DEPTH as u64) as usize;
    let call = &thread.calls[index(depth)];
    let parent =
        if depth > 0 { thread.calls[index(depth - 1)].frame } else { Frame { probe: 0, library: 0, enter_ns: 0 } };
    let mut args = [0; ARGS];
    args.copy_from_slice(&call.args[..ARGS]);
    entry.write(Call {
        header: header(KIND_CALL, flags, tgid, tid),
        frame: call.frame,
        parent,
        outer_ns: thread.calls[0].frame.enter_ns,
        ret: regs::result(regs),
        args,
        values: call.values,
        depth: depth as u32,
        unreadable: call.unreadable,
    });
    entry.submit(0);
    1
}

/// This thread's entry, made on first use.
#[inline(always)]
fn thread(tid: u32) -> Option<&'static mut Thread> {
    if THREADS.get_ptr(tid).is_none() {
        let empty = EMPTY.get(0)?;
        if THREADS.insert(tid, empty, 0).is_err() {
            lose(Loss::MapFull);
            return None;
        }
    }
    config()?;
    // SAFETY: only this thread touches its entry, and it cannot be removed while the thread runs here.
    unsafe { THREADS.get_ptr_mut(tid)?.as_mut() }
}
