//! The loop of a session: events, signals, timers, the child's end.

use std::{
    os::fd::AsFd as _,
    time::{Duration, Instant},
};

use super::{
    session::{Error, Session, Summary},
    signals::{Signals, Target},
};
use nix::sys::signal::Signal;

use crate::trace::record::Outcome;

/// Longest sleep: bounds how late NVML is asked after a change, and how much a kill -9 can lose.
const SLICE: Duration = Duration::from_millis(50);
/// Events that come faster than this gather for as long: to wake up takes as much time as some of them.
const GATHER: Duration = Duration::from_millis(1);
/// How often what was seen is made readable in the file.
const FLUSH: Duration = Duration::from_millis(200);
const TICK: Duration = Duration::from_secs(1);

/// What ends a session.
pub struct Until<'a> {
    /// The traced command, for `run`.
    pub target: Option<&'a Target<'a>>,
    /// Longest time to trace.
    pub limit: Option<Duration>,
    /// End when a log line says that the server serves.
    pub serving: bool,
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
    /// A log line said that the server serves.
    Serving,
    /// The time is up.
    Limit,
    /// A signal came, and there is no child to wait for.
    Signal(Signal),
    /// A second signal came while the child had not ended for the first.
    Again(Signal),
}

/// Runs a session until something ends it. `progress` is called about five times a second.
///
/// Signals are passed on to the child, if it did not get them itself (Ctrl-C from the terminal). After one that asks for
/// its end the session waits for that, so that it is seen; a second one ends the session at once.
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
    let (mut flushed, mut ticked, mut settled, mut woken) = (begun, begun, begun, begun);
    let mut interrupted = false;
    let mut others = vec![signals.as_fd()];
    others.extend(until.target.map(|target| target.pidfd));
    loop {
        let before = session.count();
        let more = session.drain()?;
        if !more && session.count() > before && woken.elapsed() < GATHER {
            std::thread::sleep(GATHER);
        }
        woken = Instant::now();
        let ready = session.wait(&others, if more { Duration::ZERO } else { SLICE })?;
        while let Some(signal) = ready[0].then(|| signals.next()).flatten() {
            let Some(target) = until.target else { return Ok(End::Signal(signal)) };
            target.pass(signal);
            if !Signals::asks_for_the_end(signal) {
                continue;
            }
            if interrupted {
                return Ok(End::Again(signal));
            }
            interrupted = true;
        }
        if ready.get(1) == Some(&true) {
            return Ok(End::Child);
        }
        if until.last_process && session.live() == 0 {
            return Ok(End::Processes);
        }
        if until.serving && session.serving() {
            return Ok(End::Serving);
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
        End::Serving | End::Limit => "until",
        End::Signal(Signal::SIGINT) | End::Again(Signal::SIGINT) => "interrupted",
        End::Signal(_) | End::Again(_) => "terminated",
    };
    let hurry = matches!(end, End::Again(_));
    session.finish(status.unwrap_or_else(|| Outcome::Running { why: why.to_owned() }), hurry)
}
