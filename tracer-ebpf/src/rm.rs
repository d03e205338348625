//! Driver ioctls, read when they return: by then the driver has written handles, sizes and status back.

use aya_ebpf::{
    bindings::pt_regs,
    helpers::{bpf_get_current_task_btf, bpf_ktime_get_ns, bpf_task_pt_regs},
    macros::{fentry, fexit, raw_tracepoint, uprobe, uretprobe},
    programs::{FEntryContext, FExitContext, ProbeContext, RawTracePointContext, RetProbeContext},
};
use tracer_ebpf::{Control, DEPTH, Frame, Header, IOCTL_PARAMS, Ioctl, KIND_IOCTL, KIND_RELEASE, Loss};

use crate::{
    maps::{
        CONTROLS, EVENTS, FILES, PENDING, Pending, THREADS, Thread, config, header, ids, inode_number, kernel_word,
        lose, tracked,
    },
    read::forget,
    regs::{self, SAVED},
    request::{
        NV_IOCTL_MAGIC, RM_ALLOC, RM_ALLOC_MEMORY, RM_CONTROL, RM_DUP_OBJECT, RM_FREE, RM_VID_HEAP_CONTROL,
        UVM_UNMAP_EXTERNAL, XFER_CMD, copy_arg, copy_params, is_uvm, makes_memory, user, wanted,
    },
    stack::{self, Registers},
    transfers,
};

/// One request, unwrapped.
#[derive(Clone, Copy)]
#[repr(C)]
struct Request {
    cmd: u32,
    fd: u32,
    arg: u64,
    ret: i64,
    file: u64,
    enter_ns: u64,
    unfinished: u32,
}

/// `long (*unlocked_ioctl)(struct file *, unsigned int, unsigned long)`: nvidia.ko's `nvidia_unlocked_ioctl`,
/// nvidia-uvm.ko's `uvm_unlocked_ioctl_entry`, or a FUSE file's `fuse_file_ioctl`.
#[fexit(function = "fuse_file_ioctl")]
pub fn driver_ioctl(ctx: FExitContext) -> i32 {
    let (tgid, tid) = ids();
    if tracked(tgid) {
        let (file, cmd, arg, ret) = (ctx.arg(0), ctx.arg::<u64>(1) as u32, ctx.arg(2), ctx.arg(3));
        request(tgid, tid, Request { cmd, fd: u32::MAX, arg, ret, file, enter_ns: 0, unfinished: 0 }, None);
    }
    0
}

/// `int ioctl(int fd, unsigned long request, ...)` of the target's libc: how libcuda calls the driver.
#[uprobe]
pub fn libc_ioctl(ctx: ProbeContext) -> u32 {
    let (tgid, tid) = ids();
    // SAFETY: the kernel's register frame, valid for the program's run.
    let regs = unsafe { &*ctx.regs };
    let [fd, cmd, arg, ..] = regs::arguments(regs);
    let cmd = cmd as u32;
    if tracked(tgid) && wanted(cmd) {
        transfers::check();
        // SAFETY: no arguments.
        let enter_ns = unsafe { bpf_ktime_get_ns() };
        let pending = Pending { cmd, fd: fd as u32, arg, enter_ns };
        if PENDING.insert(tid, pending, 0).is_err() {
            lose(Loss::MapFull);
        }
    }
    0
}

/// Return of [`libc_ioctl`].
#[uretprobe]
pub fn libc_ioctl_return(ctx: RetProbeContext) -> u32 {
    let (tgid, tid) = ids();
    if let Some(pending) = take_pending(tid) {
        // SAFETY: as in `libc_ioctl`.
        let regs = unsafe { &*ctx.regs };
        let registers = returned(regs);
        let ret = regs::result(regs) as i32 as i64;
        request(tgid, tid, pending.request(ret), Some(registers));
    }
    0
}

/// A thread exits: if that is inside a request, the return probe will not fire. The driver has done its work by then and
/// written it back, and since Linux 6.17 the memory can still be read here.
#[inline(always)]
pub fn thread_exits(tgid: u32, tid: u32) {
    if let Some(pending) = take_pending(tid) {
        request(tgid, tid, Request { unfinished: 1, ..pending.request(0) }, None);
    }
}

#[inline(always)]
fn take_pending(tid: u32) -> Option<Pending> {
    // SAFETY: a copy of the value, made before the entry is removed by this same thread.
    let pending = PENDING.get_ptr(tid).map(|p| unsafe { *p })?;
    let _ = PENDING.remove(tid);
    Some(pending)
}

impl Pending {
    #[inline(always)]
    fn request(self, ret: i64) -> Request {
        let Self { cmd, fd, arg, enter_ns } = self;
        Request { cmd, fd, arg, ret, file: file_of(fd), enter_ns, unfinished: 0 }
    }
}

/// `void (struct pt_regs *regs, long ret)`: where neither the driver nor libc can be probed. Every system call of every
/// process pays for this one.
#[raw_tracepoint(tracepoint = "sys_exit")]
pub fn syscall_ioctl(ctx: RawTracePointContext) -> i32 {
    let (tgid, tid) = ids();
    if tracked(tgid) {
        let _ = system_call(ctx.arg(0), ctx.arg(1), tgid, tid);
    }
    0
}

#[inline(always)]
fn system_call(regs: u64, ret: i64, tgid: u32, tid: u32) -> Option<()> {
    let [fd, cmd, arg] = SAVED.arguments;
    let cmd = kernel_word(regs, cmd)? as u32;
    if kernel_word(regs, SAVED.number)? as u32 != regs::SYS_IOCTL || !wanted(cmd) {
        return None;
    }
    transfers::check();
    let (fd, arg) = (kernel_word(regs, fd)? as u32, kernel_word(regs, arg)?);
    let registers = saved(regs)?;
    let found = Request { cmd, fd, arg, ret, file: file_of(fd), enter_ns: 0, unfinished: 0 };
    request(tgid, tid, found, Some(registers))
}

/// `int (*release)(struct inode *, struct file *)`: the last reference to a driver file is gone.
#[fentry(function = "fuse_release")]
pub fn driver_release(ctx: FEntryContext) -> i32 {
    release(ctx.arg(1));
    0
}

#[inline(always)]
fn release(file: u64) {
    if FILES.get_ptr(file).is_none() {
        return;
    }
    let _ = FILES.remove(file);
    let (tgid, tid) = ids();
    transfers::release(header(KIND_RELEASE, 0, tgid, tid), file);
}

#[inline(always)]
fn request(tgid: u32, tid: u32, mut request: Request, registers: Option<Registers>) -> Option<()> {
    if !wanted(request.cmd) {
        return None;
    }
    if request.cmd & 0xffff == (NV_IOCTL_MAGIC << 8 | XFER_CMD) {
        // nv_ioctl_xfer_t: cmd@0, size@4, ptr@8.
        let [cmd, size] = user::<[u32; 2]>(request.arg)?;
        request.cmd = (3 << 30) | ((size & 0x3fff) << 16) | (NV_IOCTL_MAGIC << 8) | (cmd & 0xff);
        request.arg = user(request.arg + 8)?;
    }
    // However it came to this, the rest is the same.
    request.cmd = forget(request.cmd as u64) as u32;
    (request.arg, request.file) = (forget(request.arg), forget(request.file));
    let mut flags = 0;
    if makes_memory(request.cmd, request.arg)
        && let Some(registers) = registers.or_else(user_registers)
    {
        flags = stack::send(tgid, tid, registers);
    }
    let header = header(KIND_IOCTL, flags, tgid, tid);
    deliver(&header, &request);
    Some(())
}

struct Lengths {
    arg: u32,
    params_at: u64,
    params: u32,
    special: Control,
}

/// How much to copy of a request, and what to look for in it; `None` for one that does not matter.
#[inline(always)]
fn lengths(request: &Request) -> Option<Lengths> {
    let size = (request.cmd >> 16) & 0x3fff;
    let mut special = Control { fd: Control::NO_FD, tail: 0 };
    // (bytes of the argument, where it points to parameters, bytes of those)
    let (arg, params_at, params) = if is_uvm(request.cmd) {
        (if request.cmd == UVM_UNMAP_EXTERNAL { 40 } else { 32 }, 0, 0)
    } else {
        match request.cmd & 0xff {
            RM_ALLOC => (size, 16, IOCTL_PARAMS as u32),
            RM_CONTROL => {
                let control = user::<u32>(request.arg + 8)?;
                // SAFETY: a map value that is never removed.
                special = unsafe { *CONTROLS.get_ptr(control)? };
                (size, 16, user::<u32>(request.arg + 24)?)
            }
            RM_VID_HEAP_CONTROL | RM_FREE | RM_DUP_OBJECT | RM_ALLOC_MEMORY => (size, 0, 0),
            _ => return None,
        }
    };
    Some(Lengths { arg, params_at, params, special })
}

/// Sends a request, and notes the files that it shows. A function of its own: see [`stack`].
#[inline(never)]
fn deliver(header: &Header, request: &Request) -> u32 {
    let sent = || -> Option<()> {
        let lengths = lengths(request)?;
        let thread = THREADS.get_ptr(header.tid);
        // SAFETY: only this thread touches its entry, and it cannot be removed while the thread runs here.
        let thread = thread.and_then(|t| unsafe { t.as_ref() });
        let other_file = send(header, request, lengths, thread)?;
        let (file, tgid) = (request.file, header.tgid);
        if file != 0 && FILES.get_ptr(file).is_none() && FILES.insert(file, tgid, 0).is_err() {
            lose(Loss::MapFull);
        }
        if other_file != 0 {
            transfers::watch(other_file, tgid);
        }
        Some(())
    };
    u32::from(sent().is_some())
}

/// Sends the request; gives the file that its parameters name, 0 for none.
#[inline(always)]
fn send(header: &Header, request: &Request, lengths: Lengths, thread: Option<&Thread>) -> Option<u64> {
    let Some(mut entry) = EVENTS.reserve::<Ioctl>(0) else {
        lose(Loss::RingFull);
        return None;
    };
    let mut other_file = 0;
    let out = entry.as_mut_ptr();
    // SAFETY: `out` is a reserved record; every field is written before it is submitted.
    let readable = unsafe {
        (*out).header = *header;
        (*out).cmd = request.cmd;
        (*out).fd = request.fd;
        (*out).ret = request.ret;
        (*out).file = request.file;
        (*out).unfinished = request.unfinished;
        (*out).enter_ns = request.enter_ns;
        (*out).depth = 0;
        if let Some(thread) = thread {
            (*out).depth = thread.depth.min(DEPTH as u32);
            for i in 0..DEPTH {
                (*out).calls[i] = thread.calls[i].frame;
            }
        } else {
            (*out).calls = [Frame { probe: 0, library: 0, enter_ns: 0 }; DEPTH];
        }
        let arg = copy_arg((&raw mut (*out).arg).cast(), request.cmd, request.arg, lengths.arg);
        (*out).arg_len = arg.unwrap_or(0);
        (*out).params_len = 0;
        if arg.is_some() && lengths.params_at != 0 {
            let params = user::<u64>(request.arg + lengths.params_at).unwrap_or(0);
            (*out).params_len = copy_params((&raw mut (*out).params).cast(), params, lengths.params);
            if lengths.special.fd != Control::NO_FD
                && let Some(fd) = user::<u32>(params + lengths.special.fd as u64)
            {
                other_file = file_of(fd);
            }
            if lengths.special.tail != 0
                && let Some(tail) = user::<[u8; 4]>(params + lengths.special.tail as u64)
            {
                for (i, byte) in tail.into_iter().enumerate() {
                    (*out).params[IOCTL_PARAMS - 4 + i] = byte;
                }
                (*out).params_len = IOCTL_PARAMS as u32;
            }
        }
        (*out).other_file = other_file;
        (*out).inode = inode_number(request.file).unwrap_or(0);
        arg.is_some()
    };
    if !readable {
        lose(Loss::UnreadableIoctl);
        entry.discard(0);
        return None;
    }
    entry.submit(0);
    Some(other_file)
}

/// User registers at the system call.
#[inline(always)]
fn user_registers() -> Option<Registers> {
    // SAFETY: no arguments but the current task.
    saved(unsafe { bpf_task_pt_regs(bpf_get_current_task_btf()) } as u64)
}

/// The same, of a thread whose registers the kernel keeps at `regs`.
#[inline(always)]
fn saved(regs: u64) -> Option<Registers> {
    let [ip, sp, bp] = [kernel_word(regs, SAVED.ip)?, kernel_word(regs, SAVED.sp)?, kernel_word(regs, SAVED.bp)?];
    Some(Registers { ip, sp, bp, returned: true })
}

/// Where a call has just returned to.
#[inline(always)]
fn returned(regs: &pt_regs) -> Registers {
    let [ip, sp, bp] = regs::places(regs);
    Registers { ip, sp, bp, returned: true }
}

/// The current process's open file behind `fd`; 0 when there is none.
#[inline(always)]
fn file_of(fd: u32) -> u64 {
    let find = || -> Option<u64> {
        let config = config()?;
        // SAFETY: no arguments.
        let task = unsafe { bpf_get_current_task_btf() } as u64;
        let files = kernel_word(task, config.task_files)?;
        let table = kernel_word(kernel_word(files, config.files_fdt)?, config.fdtable_fd)?;
        kernel_word(table, (fd & 0xf_ffff) * 8)
    };
    find().unwrap_or(0)
}
