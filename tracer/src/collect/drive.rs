//! The loop of a session: events, signals, timers, the child's end.

use std::{
    os::fd::{AsFd as _, BorrowedFd},
    time::{Duration, Instant},
};

use nix::sys::{
    signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask},
    signalfd::{SfdFlags, SignalFd},
};
use nix::unistd::Pid;

use super::session::{Error, Session, Summary};
use crate::trace::record::Outcome;

/// Longest sleep: bounds how late NVML is asked after a change, and how much a kill -9 can lose.
const SLICE: Duration = Duration::from_millis(50);
/// How often what was seen is made readable in the file.
const FLUSH: Duration = Duration::from_millis(200);
const TICK: Duration = Duration::from_secs(1);

/// SIGINT and SIGTERM, delivered through a descriptor from now on. Make it before any thread is started.
pub struct Signals(SignalFd);

impl Signals {
    /// Blocks the signals for this process; a child must unblock them.
    ///
    /// # Errors
    /// The kernel refuses a signal descriptor.
    pub fn catch() -> std::io::Result<Self> {
        let mut set = SigSet::empty();
        set.add(Signal::SIGINT);
        set.add(Signal::SIGTERM);
        set.add(Signal::SIGHUP);
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None)?;
        Ok(Self(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?))
    }

    fn next(&self) -> Option<Signal> {
        let info = self.0.read_signal().ok().flatten()?;
        Signal::try_from(info.ssi_signo.cast_signed()).ok()
    }
}

/// What ends a session.
pub struct Until<'a> {
    /// The traced command's process id and pidfd, for `run`.
    pub child: Option<(u32, BorrowedFd<'a>)>,
    /// Longest time to trace.
    pub limit: Option<Duration>,
    /// End when the last traced process has ended (`attach --pid`).
    pub last_process: bool,
}

/// Why the loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The child exited: its status is to be had.
    Child,
    /// The last traced process exited.
    Processes,
    /// The time is up.
    Limit,
    /// A signal came: a second one, or the first where there is no child to wait for.
    Signal(Signal),
}

/// Runs a session until something ends it. `progress` is called about five times a second.
///
/// A first Ctrl-C reaches the child too, from the terminal; the session then waits for it to end, so that its end is
/// seen. A second one ends the session at once. SIGTERM and SIGHUP are passed on to the child.
///
/// # Errors
/// The trace cannot be written.
pub fn drive(
    session: &mut Session,
    until: &Until<'_>,
    signals: &Signals,
    mut progress: impl FnMut(&Session),
) -> Result<End, Error> {
    let begun = Instant::now();
    let (mut flushed, mut ticked, mut settled) = (begun, begun, begun);
    let mut interrupted = false;
    let mut others = vec![signals.0.as_fd()];
    others.extend(until.child.map(|(_, fd)| fd));
    loop {
        let more = session.drain()?;
        let ready = session.wait(&others, if more { Duration::ZERO } else { SLICE })?;
        while let Some(signal) = ready[0].then(|| signals.next()).flatten() {
            let Some((pid, _)) = until.child else { return Ok(End::Signal(signal)) };
            if interrupted {
                return Ok(End::Signal(signal));
            }
            interrupted = true;
            if signal != Signal::SIGINT {
                // It may have ended just now.
                let _ = kill(Pid::from_raw(pid.cast_signed()), signal);
            }
        }
        if ready.get(1) == Some(&true) {
            return Ok(End::Child);
        }
        if until.last_process && session.live() == 0 {
            return Ok(End::Processes);
        }
        if until.limit.is_some_and(|limit| begun.elapsed() >= limit) {
            return Ok(End::Limit);
        }
        session.sample_when_quiet();
        session.receive_sample()?;
        if settled.elapsed() >= SLICE {
            settled = Instant::now();
            session.settle();
        }
        if ticked.elapsed() >= TICK {
            ticked = Instant::now();
            session.tick()?;
        }
        if flushed.elapsed() >= FLUSH {
            flushed = Instant::now();
            session.flush()?;
            progress(session);
        }
    }
}

/// Ends a session that ended for `end`; `status` is the child's, if it ended.
///
/// # Errors
/// The trace cannot be written.
pub fn finish(session: Session, end: End, status: Option<Outcome>) -> Result<Summary, Error> {
    let why = match end {
        End::Child | End::Processes => "the traced processes ended",
        End::Limit => "until",
        End::Signal(Signal::SIGINT) => "interrupted",
        End::Signal(_) => "terminated",
    };
    session.finish(status.unwrap_or_else(|| Outcome::Running { why: why.to_owned() }))
}
