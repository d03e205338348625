//! Process life: fork, exec, exit.

use aya_ebpf::{helpers::bpf_probe_read_kernel, macros::raw_tracepoint, programs::RawTracePointContext};
use tracer_ebpf::{
    CONFIG_WATCH_ALL, EXE_PROBED, EXE_SEEN, FLAG_HELD, FLAG_UNTRACKED, FileKey, KIND_EXEC, KIND_EXIT, KIND_FORK, Loss,
    Process,
};

use crate::{
    hold::hold,
    maps::{
        EVENTS, EXES, FOLLOWED, HELD, TAILS, THREADS, TRACKED, config, header, identify, ids, kernel_word, lose,
        tracked,
    },
    python::PYTHONS,
    rm,
};

/// A `u32` field of a kernel structure.
///
/// # Safety
/// None beyond the helper's: a bad address gives 0.
#[inline(always)]
unsafe fn field(base: u64, offset: u32) -> u32 {
    // SAFETY: the helper fails rather than faults.
    unsafe { bpf_probe_read_kernel((base + offset as u64) as *const u32) }.unwrap_or(0)
}

/// `void (struct task_struct *parent, struct task_struct *child)`, include/trace/events/sched.h.
#[raw_tracepoint(tracepoint = "sched_process_fork")]
pub fn process_fork(ctx: RawTracePointContext) -> i32 {
    fork(&ctx);
    0
}

#[inline(always)]
fn fork(ctx: &RawTracePointContext) -> Option<()> {
    let (tgid, tid) = ids();
    if !tracked(tgid) {
        return None;
    }
    let config = config()?;
    let child: u64 = ctx.arg(1);
    // SAFETY: reads of kernel memory through a helper.
    let (child_pid, child_tgid) = unsafe { (field(child, config.task_pid), field(child, config.task_tgid)) };
    // A new thread shares its group's id: nothing to follow.
    if child_pid != child_tgid || child_tgid == tgid {
        return None;
    }
    if TRACKED.insert(child_tgid, 1, 0).is_err() {
        lose(Loss::MapFull);
    }
    // The child's interpreter is where the parent's is.
    if let Some(python) = PYTHONS.get_ptr(tgid) {
        // SAFETY: a map value, which the helper copies.
        let _ = PYTHONS.insert(child_tgid, unsafe { &*python }, 0);
    }
    send(KIND_FORK, 0, tgid, tid, Details { other: child_tgid, ..Details::default() });
    Some(())
}

/// `void (struct task_struct *task, pid_t old_pid, struct linux_binprm *bprm)`.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
pub fn process_exec(ctx: RawTracePointContext) -> i32 {
    let (tgid, tid) = ids();
    let old_pid: u64 = ctx.arg(1);
    // Calls in progress are gone with the old image; a thread that was not the leader takes the leader's id.
    let _ = THREADS.remove(tid);
    let _ = THREADS.remove(old_pid as u32);
    let _ = TAILS.remove(tgid);
    let _ = PYTHONS.remove(tgid);
    exec(&ctx, tgid, tid);
    0
}

#[inline(always)]
fn exec(ctx: &RawTracePointContext, tgid: u32, tid: u32) -> Option<()> {
    let config = config()?;
    let ours = tracked(tgid);
    if !ours && config.flags & CONFIG_WATCH_ALL == 0 {
        return None;
    }
    let bprm: u64 = ctx.arg(2);
    let exe = identify(kernel_word(bprm, config.bprm_file)?, config)?;
    // SAFETY: a copy of a map value.
    let known = EXES.get_ptr(exe).map_or(0, |known| unsafe { *known });
    if !ours {
        // It may load libcuda later, which its dynamic linker tells: let that be probed, once an executable. Processes
        // that nobody traces are not held for it.
        if known == 0 && EXES.insert(exe, EXE_SEEN, 0).is_ok() {
            send(KIND_EXEC, FLAG_UNTRACKED, tgid, tid, Details { exe, ..Details::default() });
        }
        return None;
    }
    // Room first: nobody is held without user space being told.
    let Some(mut entry) = EVENTS.reserve::<Process>(0) else {
        lose(Loss::RingFullProcess);
        return None;
    };
    // An executable never seen may bring its own dynamic linker (a container's): hold it until that is probed. The
    // signal is delivered before the first instruction of the new image. The same for one whose writes are not probed yet.
    let held = (known != EXE_PROBED || FOLLOWED.get_ptr(tgid).is_none()) && hold(tgid);
    let flags = if held { FLAG_HELD } else { 0 };
    entry.write(Process { header: header(KIND_EXEC, flags, tgid, tid), other: 0, value: 0, exe });
    entry.submit(0);
    Some(())
}

/// `void (struct task_struct *task)`; `signal->live` was already lowered for this thread (kernel/exit.c, `do_exit`).
#[raw_tracepoint(tracepoint = "sched_process_exit")]
pub fn process_exit(ctx: RawTracePointContext) -> i32 {
    let (tgid, tid) = ids();
    if tid == tgid {
        let _ = HELD.remove(tgid);
    }
    if tracked(tgid) {
        rm::thread_exits(tgid, tid);
        let _ = THREADS.remove(tid);
        exit(&ctx, tgid, tid);
    }
    0
}

#[inline(always)]
fn exit(ctx: &RawTracePointContext, tgid: u32, tid: u32) -> Option<()> {
    let config = config()?;
    let task: u64 = ctx.arg(0);
    let signal_at = (task + config.task_signal as u64) as *const u64;
    // SAFETY: reads of kernel memory through helpers.
    let (signal, code) = unsafe { (bpf_probe_read_kernel(signal_at).ok()?, field(task, config.task_exit_code)) };
    // SAFETY: as above.
    if unsafe { field(signal, config.signal_live) } == 0 {
        let _ = TRACKED.remove(tgid);
        let _ = PYTHONS.remove(tgid);
        if FOLLOWED.remove(tgid).is_err() {
            lose(Loss::Unfollowed);
        }
        send(KIND_EXIT, 0, tgid, tid, Details { value: code, ..Details::default() });
    }
    Some(())
}

#[derive(Clone, Copy, Default)]
struct Details {
    other: u32,
    value: u32,
    exe: FileKey,
}

#[inline(always)]
fn send(kind: u32, flags: u32, tgid: u32, tid: u32, details: Details) {
    let Some(mut entry) = EVENTS.reserve::<Process>(0) else {
        lose(Loss::RingFullProcess);
        return;
    };
    let Details { other, value, exe } = details;
    entry.write(Process { header: header(kind, flags, tgid, tid), other, value, exe });
    entry.submit(0);
}
