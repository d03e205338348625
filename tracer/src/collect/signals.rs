//! Signals that the tracer gets, and what of them the traced command should know.

use std::{
    io,
    os::fd::{AsFd, BorrowedFd},
    rc::Rc,
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask},
        signalfd::{SfdFlags, SignalFd},
    },
    unistd::{Pid, getpgid, getpgrp},
};

use crate::attach::guard::Guard;

/// Signals that ask a program to end.
const ENDING: [Signal; 4] = [Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM, Signal::SIGHUP];
/// Signals that mean what a program makes of them.
const PASSED: [Signal; 2] = [Signal::SIGUSR1, Signal::SIGUSR2];

/// Signals, delivered through a descriptor from now on.
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks the signals that ask for our end; a child must unblock them. Make this before any thread is started.
    ///
    /// # Errors
    /// The kernel refuses a signal descriptor.
    pub fn catch() -> io::Result<Self> {
        Self::of(&ENDING)
    }

    /// The same for a tracer that stands in front of a command: those for the command too.
    ///
    /// # Errors
    /// As [`Signals::catch`].
    pub fn catch_for_command() -> io::Result<Self> {
        Self::of(&[&ENDING[..], &PASSED[..]].concat())
    }

    fn of(signals: &[Signal]) -> io::Result<Self> {
        let set: SigSet = signals.iter().copied().collect();
        // A trace that outgrows the limit on file sizes (setrlimit(2)) is an error of write(2) then, not our death.
        let mut blocked = set;
        blocked.add(Signal::SIGXFSZ);
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&blocked), None)?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?))
    }

    /// The next signal that came.
    #[must_use]
    pub fn next(&self) -> Option<Signal> {
        let info = self.0.read_signal().ok().flatten()?;
        Signal::try_from(info.ssi_signo.cast_signed()).ok()
    }

    /// True for the signals that ask for an end.
    #[must_use]
    pub fn asks_for_the_end(signal: Signal) -> bool {
        ENDING.contains(&signal)
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The traced command.
pub struct Target<'a> {
    /// Process id.
    pub pid: u32,
    /// Readable once it has ended.
    pub pidfd: BorrowedFd<'a>,
    /// Knows the signals of our process group.
    pub guard: Rc<Guard>,
}

impl Target<'_> {
    /// Passes a signal on, unless the command got it with the rest of our process group.
    pub fn pass(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid.cast_signed());
        let in_our_group = getpgid(Some(pid)) == Ok(getpgrp());
        if !(in_our_group && self.guard.got(signal)) {
            // It may have ended just now.
            let _ = kill(pid, signal);
        }
    }

    /// Waits, tracing nothing, until the command has ended or a second signal asks for the end: gives that. `interrupted`:
    /// one has come already.
    ///
    /// # Errors
    /// `poll(2)` failed.
    pub fn wait(&self, signals: &Signals, mut interrupted: bool) -> io::Result<Option<Signal>> {
        let mut fds = [PollFd::new(self.pidfd, PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        loop {
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(nix::errno::Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
            if fds[0].any() == Some(true) {
                return Ok(None);
            }
            while let Some(signal) = signals.next() {
                self.pass(signal);
                if Signals::asks_for_the_end(signal) && std::mem::replace(&mut interrupted, true) {
                    return Ok(Some(signal));
                }
            }
        }
    }
}
