//! A `bpf(2)` call that a SIGKILL of ours does not cut short.
//!
//! The kernel places a link's breakpoints one by one. For a caller that is about to be killed it stops half-way, and then cannot
//! take out what it has placed (see `closing`). So a child makes the call: it shares memory and descriptors with us, so that what
//! it makes is ours, and if we are gone when it is done, its end closes it.

use std::{ffi::c_void, io};

use aya_obj::generated::{bpf_attr, bpf_cmd};
use nix::{
    errno::Errno,
    sched::CloneFlags,
    sys::wait::{WaitPidFlag, waitpid},
    unistd::{Pid, setpgid},
};

use crate::attach::signals::Blocked;

/// Bytes of the child's stack, a multiple of what any type is aligned to: it makes two system calls.
const STACK: usize = 64 << 10;

struct Call<'a> {
    command: bpf_cmd,
    attr: &'a mut bpf_attr,
    /// What it gave; `None` as long as it was not made. An error of the system allocates nothing.
    result: Option<io::Result<i64>>,
}

/// Makes the call; gives what it gave.
pub(super) fn bpf(command: bpf_cmd, attr: &mut bpf_attr) -> io::Result<i64> {
    let mut call = Call { command, attr, result: None };
    let mut stack = vec![0_u8; STACK];
    let _blocked = Blocked::all();
    let flags = CloneFlags::CLONE_VM | CloneFlags::CLONE_FILES | CloneFlags::CLONE_VFORK;
    // SAFETY: the stack grows down from its end, which is aligned for any type; both it and `call` outlive the child, for which
    // this thread waits (`CLONE_VFORK`). Should we be killed meanwhile, the memory stays as long as the child.
    let pid = unsafe {
        let end = stack.as_mut_ptr().add(STACK).map_addr(|end| end & !15);
        libc::clone(child, end.cast(), flags.bits(), (&raw mut call).cast())
    };
    if pid > 0 {
        while waitpid(Pid::from_raw(pid), Some(WaitPidFlag::__WALL)) == Err(Errno::EINTR) {}
    }
    // No child to be had, or it was killed: better so than not at all.
    call.result.unwrap_or_else(|| super::bpf(command, call.attr))
}

/// System calls only: if we are killed, other threads of ours were stopped wherever they were.
extern "C" fn child(call: *mut c_void) -> i32 {
    // A SIGKILL for our whole group is not for us.
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    // SAFETY: the caller's, which waits.
    let call = unsafe { &mut *call.cast::<Call<'_>>() };
    call.result = Some(super::bpf(call.command, call.attr));
    0
}
