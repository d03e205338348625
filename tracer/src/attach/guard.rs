//! Small processes that outlive us by a moment, so that nobody stays stopped when we are killed.
//!
//! The kernel side stops processes while their probes are placed. However we end, the probes go with us; a process that is
//! stopped just then would stay so. The guard shares the map that names them, and continues them once we are gone, or
//! when we take too long: stopped ourselves (Ctrl-Z), or waiting for a disk.
//!
//! Beside it stands a member of our process group that blocks every signal. What is pending for it tells a signal that the
//! whole group got (Ctrl-C, `kill -- -PGID`) from one that we got alone. And while it is there, with the guard as its
//! parent outside, our death does not orphan the group: the kernel would send SIGHUP to it for having a stopped process
//! (`kill_orphaned_pgrp` in kernel/exit.c).

use std::{
    cell::RefCell,
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd, RawFd},
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::signal::Signal,
    sys::wait::{WaitPidFlag, WaitStatus, waitpid},
    unistd::{ForkResult, Pid, fork, getpid, getppid, pipe2, setpgid},
};

use super::{
    kernel::{
        resume,
        sys::{next_key, value},
    },
    signals::Blocked,
    spawn::pidfd_open,
};
use crate::collect::clock::monotonic_ns;

/// Longest time that a process is held, nanoseconds. Its probes are late then, and the trace says so.
pub(super) const LONGEST_HOLD_NS: u64 = 5_000_000_000;
/// Milliseconds between looks at the map while we run.
const ROUND: u16 = 1000;
/// Milliseconds between looks at the map while we end: taking perf probes away can take seconds.
const INTERVAL: u16 = 10;
/// Entries of the map.
const MOST: u32 = 65536;

/// The guard, and the member of our process group. They end by themselves, after us.
#[derive(Debug)]
pub struct Guard(RefCell<Pair>);

#[derive(Debug)]
struct Pair {
    guard: Pid,
    member: Pid,
    /// A byte says that nobody is held any more. The guard waits for its end, which is ours.
    orders: File,
}

impl Guard {
    /// Starts a guard of `held`, a map whose keys are the thread group ids of stopped processes.
    ///
    /// # Errors
    /// No process or descriptor to be had.
    pub fn start(held: BorrowedFd<'_>) -> io::Result<Self> {
        Pair::start(held).map(RefCell::new).map(Self)
    }

    /// Starts another guard where somebody has killed this one.
    pub fn renew(&self, held: BorrowedFd<'_>) {
        let guard = self.0.borrow().guard;
        let has_ended = !matches!(waitpid(guard, Some(WaitPidFlag::WNOHANG)), Ok(WaitStatus::StillAlive));
        // Without one for now: the next look tries again.
        if has_ended && let Ok(pair) = Pair::start(held) {
            self.0.replace(pair);
        }
    }

    /// True when a signal that we got was sent to our whole process group. The group's newest process gets it first
    /// (`attach_pid` in kernel/pid.c), so it is pending there by the time that we see it.
    #[must_use]
    pub fn got(&self, signal: Signal) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.borrow().member)).unwrap_or_default();
        let pending = status.lines().find_map(|line| line.strip_prefix("ShdPnd:"));
        let pending = pending.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
        pending.is_some_and(|bits| bits >> (signal as i32 - 1) & 1 == 1)
    }

    /// Says that all probes are gone: nobody is held, and nobody will be.
    pub fn stand_down(&self) {
        // Should it not hear this, it keeps a map a little longer.
        let _ = (&self.0.borrow().orders).write_all(&[1]);
    }
}

impl Pair {
    fn start(held: BorrowedFd<'_>) -> io::Result<Self> {
        let (inbox, orders) = pipe2(OFlag::O_CLOEXEC)?;
        let (reports, outbox) = pipe2(OFlag::O_CLOEXEC)?;
        let us = pidfd_open(getpid())?;
        let blocked = Blocked::all()?;
        // SAFETY: the child makes system calls only, on its own stack, and never returns from `Watch::run`.
        let forked = unsafe { fork() };
        if matches!(forked, Ok(ForkResult::Child)) {
            Watch { inbox, us, held: held.as_raw_fd(), outbox }.run();
        }
        drop(blocked);
        let ForkResult::Parent { child: guard } = forked? else { return Err(io::Error::other("two children")) };
        drop(outbox);
        let mut member = [0; 4];
        File::from(reports)
            .read_exact(&mut member)
            .map_err(|_| io::Error::other("the guard (a process of ours) ended as it began"))?;
        Ok(Self { guard, member: Pid::from_raw(i32::from_ne_bytes(member)), orders: orders.into() })
    }
}

/// The guard's side: between a fork of a program with threads and its end, so system calls only.
struct Watch {
    inbox: OwnedFd,
    us: OwnedFd,
    held: RawFd,
    outbox: OwnedFd,
}

impl Watch {
    fn run(&self) -> ! {
        name();
        let guard = getpid();
        // SAFETY: as in `Guard::start`.
        match unsafe { fork() } {
            Ok(ForkResult::Child) => stand(guard),
            Ok(ForkResult::Parent { child }) => {
                let _ = nix::unistd::write(&self.outbox, &child.as_raw().to_ne_bytes());
            }
            // We will read nothing, and say so.
            Err(_) => end(),
        }
        // Outside of the group, but of its session.
        let _ = setpgid(Pid::from_raw(0), Pid::from_raw(0));
        close_others([self.inbox.as_raw_fd(), self.us.as_raw_fd(), self.held]);
        self.wait_for_the_end();
        // Our probes are gone when all our descriptors are, and those before a process counts as ended (do_exit in
        // kernel/exit.c). Until then more may be stopped.
        let mut gone = [PollFd::new(self.us.as_fd(), PollFlags::POLLIN)];
        while !matches!(poll(&mut gone, PollTimeout::from(INTERVAL)), Ok(1..)) {
            self.release(0);
        }
        self.release(0);
        end()
    }

    /// Returns when the other end of our pipe is closed.
    fn wait_for_the_end(&self) {
        let mut inbox = [PollFd::new(self.inbox.as_fd(), PollFlags::POLLIN)];
        let mut timeout = PollTimeout::from(ROUND);
        let mut byte = [0];
        loop {
            match poll(&mut inbox, timeout) {
                Ok(0) => self.release(LONGEST_HOLD_NS),
                Ok(_) => match nix::unistd::read(&self.inbox, &mut byte) {
                    Ok(0) => return,
                    // The map is of no use any more.
                    Ok(_) => {
                        close_range(self.held.cast_unsigned(), self.held.cast_unsigned());
                        timeout = PollTimeout::NONE;
                    }
                    Err(Errno::EINTR) => {}
                    Err(_) => end(),
                },
                Err(Errno::EINTR) => {}
                Err(_) => end(),
            }
        }
    }

    /// Continues every process that has been held for at least `nanoseconds`. Entries stay: one that is there may be about
    /// to be stopped.
    fn release(&self, nanoseconds: u64) {
        let (mut last, mut tgid, mut since) = (None, 0, 0);
        for _ in 0..MOST {
            if next_key(self.held, last.as_ref(), &mut tgid).is_err() {
                return;
            }
            let long =
                value(self.held, &tgid, &mut since).is_ok() && monotonic_ns().saturating_sub(since) >= nanoseconds;
            if long {
                resume(self.held, tgid);
            }
            last = Some(tgid);
        }
    }
}

/// The member's side: it is there until the guard ends.
fn stand(guard: Pid) -> ! {
    // SAFETY: plain integers. Set before looking whether the guard is there still: it may have been quick.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    if getppid() != guard {
        end();
    }
    close_range(0, u32::MAX);
    loop {
        // Every signal is blocked: this ends with SIGKILL alone.
        nix::unistd::pause();
    }
}

fn name() {
    // SAFETY: the name is a string that outlives the call.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"vramtrace-guard".as_ptr()) };
}

fn end() -> ! {
    // SAFETY: ends the process without running what belongs to its parent.
    unsafe { libc::_exit(0) }
}

/// Closes all descriptors but these: links among them would keep probes in place, pipes would not end.
fn close_others(mut keep: [RawFd; 3]) {
    keep.sort_unstable();
    let mut first = 0_u32;
    for fd in keep.map(RawFd::cast_unsigned) {
        if fd > first {
            close_range(first, fd - 1);
        }
        first = fd + 1;
    }
    close_range(first, u32::MAX);
}

pub(crate) fn close_range(first: u32, last: u32) {
    // SAFETY: nothing in the processes that call this uses the descriptors it inherited. glibc has no wrapper before 2.34.
    unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) };
}
