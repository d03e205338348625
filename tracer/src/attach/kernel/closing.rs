//! Taking probes away, in processes that nobody kills.
//!
//! The kernel takes a breakpoint out of a process with `get_user_pages`, which fails for a caller that is about to be killed: of a
//! tracer that gets SIGKILL just then, all breakpoints that are left stay where they are ("failed to unregister, leaking
//! uprobe", `uprobe_unregister_nosync` in kernel/events/uprobes.c; more than a hundred at a time were seen on 6.18). So it is not we
//! who close the last descriptor of a link, but children of ours.

use std::{
    os::fd::{AsRawFd, FromRawFd as _, OwnedFd, RawFd},
    sync::{Mutex, PoisonError},
    thread,
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    sys::wait::waitpid,
    unistd::{ForkResult, Pid, fork, pipe2, setpgid},
};

use crate::attach::signals::Blocked;

/// Children at most: the kernel waits for running probes as it closes each link, some 40 ms.
const CLOSERS: usize = 16;

/// One at a time: a child of one call would hold the pipe of another, whose children would wait for its end.
static TURN: Mutex<()> = Mutex::new(());

/// Closes links of processes that have ended, many at a time, while tracing goes on: no breakpoint is left to take out.
pub(super) fn close_ended(mut links: Vec<OwnedFd>) {
    let each = links.len().div_ceil(CLOSERS).max(1);
    thread::scope(|scope| {
        while !links.is_empty() {
            let some: Vec<OwnedFd> = links.drain(..each.min(links.len())).collect();
            // Where no thread can be had, the links close here and now.
            let _ = thread::Builder::new().spawn_scoped(scope, move || drop(some));
        }
    });
}

/// Closes what holds probes in place, many at a time; returns when all are gone.
pub(super) fn close(links: Vec<OwnedFd>) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok((gate, ready)) = pipe2(OFlag::O_CLOEXEC) else { return drop(links) };
    let fds: Vec<RawFd> = links.iter().map(AsRawFd::as_raw_fd).collect();
    let blocked = Blocked::all();
    let share = fds.len().div_ceil(CLOSERS).max(1);
    let children: Vec<Pid> = fds
        .chunks(share)
        // SAFETY: the child makes system calls only, on memory prepared before, and never returns from `run`.
        .filter_map(|own| match unsafe { fork() } {
            Ok(ForkResult::Child) => run(own, &fds, gate.as_raw_fd(), ready.as_raw_fd()),
            Ok(ForkResult::Parent { child }) => Some(child),
            // Then they close when the others and we have closed them.
            Err(_) => None,
        })
        .collect();
    drop(blocked);
    drop((links, ready));
    for child in children {
        while waitpid(child, None) == Err(Errno::EINTR) {}
    }
}

/// The child's side: closes the links of others, waits until everybody has, and ends, by which its own are closed for good.
fn run(own: &[RawFd], all: &[RawFd], gate: RawFd, ready: RawFd) -> ! {
    // A signal for our whole group may be SIGKILL.
    let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
    for fd in all.iter().filter(|fd| !own.contains(fd)).chain([&ready]) {
        // SAFETY: a descriptor that this process inherited and does not use again.
        drop(unsafe { OwnedFd::from_raw_fd(*fd) });
    }
    let mut byte = 0_u8;
    // SAFETY: a byte to write to; the end of the pipe comes when nobody has its other end any more.
    while unsafe { libc::read(gate, (&raw mut byte).cast(), 1) } == -1 && Errno::last() == Errno::EINTR {}
    // SAFETY: ends the process without running what belongs to its parent.
    unsafe { libc::_exit(0) }
}
