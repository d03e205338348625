//! A tracing session: kernel events in, trace records out.

mod end;
mod handle;
mod output;
mod place;
mod stacks;

use std::{collections::HashSet, io, os::fd::AsFd, rc::Rc, time::Duration};

use super::{
    clock::monotonic_ns, identity::Identities, ioctl::Abi, lines::Lines, losses::Losses, nvml::Sampler,
    pending::Pending, processes::Processes, sink::Sink,
};
use aya::maps::{MapData, RingBuf};
pub use end::Summary;

use crate::{
    attach::{
        follow::Follower,
        guard::Guard,
        kernel::{self, Kernel},
        place::Placer,
    },
    ledger::Ledger,
    lifecycle::Rules,
    stack::{Interner, Stacks},
    trace::{
        self,
        record::{Notice, Record},
    },
};

/// Why a session failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel side could not be set up.
    #[error(transparent)]
    Kernel(#[from] kernel::Error),
    /// The trace could not be written. What was written before can be read.
    #[error(transparent)]
    Trace(#[from] trace::Error),
    /// No process for the guard.
    #[error("cannot start a process: {0}")]
    Guard(io::Error),
    /// Polling failed.
    #[error("cannot wait for events: {0}")]
    Poll(#[from] io::Error),
}

/// Decides which processes are traced beside those forked by traced ones.
pub type Matcher = Box<dyn Fn(u32) -> bool>;

/// A running session.
pub struct Session {
    kernel: Kernel,
    /// `None` only while records are taken from it.
    events: Option<RingBuf<MapData>>,
    placer: Placer,
    writer: Sink,
    interner: Interner,
    stacks: Stacks,
    processes: Processes,
    identities: Identities,
    nvml: Option<Sampler>,
    losses: Losses,
    abi: Abi,
    /// Stacks that records to come refer to.
    pending: Pending,
    follower: Follower,
    lines: Lines,
    /// Which lines are kept.
    rules: Rules,
    /// A line said that the server serves.
    serving: bool,
    /// Which processes to trace beside those that are, as they load libcuda.
    matcher: Option<Matcher>,
    guard: Rc<Guard>,
    /// After `kernel`, so that it is dropped after it.
    _stand_down: StandDown,
    /// All that the kernel sent has been looked at since the last tick.
    caught_up: bool,
    /// Last time an object that owns memory came or went.
    changed: Option<u64>,
    /// Files that carry objects between processes, open as far as is known.
    transfers: HashSet<u64>,
    count: u64,
    malformed: u64,
    placed: usize,
}

/// Parts a session is made of.
pub struct Parts {
    /// Loaded kernel side.
    pub kernel: Kernel,
    /// Probe placement.
    pub placer: Placer,
    /// Where records go, the header written.
    pub writer: Sink,
    /// NVML, if there is one.
    pub nvml: Option<Sampler>,
    /// Driver ABI.
    pub abi: Abi,
    /// Which processes to trace as they load libcuda.
    pub matcher: Option<Matcher>,
    /// Which log lines to keep, and which one tells that the server serves.
    pub rules: Rules,
}

impl Session {
    /// Makes a session of its parts, and starts its guard.
    ///
    /// # Errors
    /// The ring buffer was taken already, or there is no process for the guard.
    pub fn new(parts: Parts) -> Result<Self, Error> {
        let Parts { mut kernel, placer, writer, nvml, abi, matcher, rules } = parts;
        let guard = Rc::new(Guard::start(kernel.held().map()).map_err(Error::Guard)?);
        Ok(Self {
            events: Some(kernel.events()?),
            kernel,
            placer,
            writer,
            interner: Interner::new(),
            stacks: Stacks::new(),
            processes: Processes::default(),
            identities: Identities::default(),
            nvml,
            losses: Losses::default(),
            abi,
            pending: Pending::default(),
            follower: Follower::default(),
            lines: Lines::default(),
            rules,
            serving: false,
            matcher,
            _stand_down: StandDown(Rc::clone(&guard)),
            guard,
            caught_up: false,
            changed: None,
            transfers: HashSet::new(),
            count: 0,
            malformed: 0,
            placed: 0,
        })
    }

    /// Events seen so far.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Events lost so far.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.losses.events()
    }

    /// Live traced processes.
    #[must_use]
    pub fn live(&self) -> usize {
        self.processes.len()
    }

    /// Probes placed so far.
    #[must_use]
    pub const fn placed(&self) -> usize {
        self.placed
    }

    /// Who continues held processes if we cannot, and knows the signals of our process group.
    #[must_use]
    pub fn guard(&self) -> Rc<Guard> {
        Rc::clone(&self.guard)
    }

    /// The ledger so far, where the session keeps one.
    #[must_use]
    pub const fn ledger(&self) -> Option<&Ledger> {
        self.writer.ledger()
    }

    /// Notes something for the top of every report.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn notice(&mut self, text: impl Into<String>) -> Result<(), Error> {
        Ok(self.writer.record(&Record::Notice(Notice { t: monotonic_ns(), text: text.into() }))?)
    }

    /// Waits for events, at most `limit`, and for `others` too. Gives what became readable of `others`.
    ///
    /// # Errors
    /// `poll(2)` failed.
    pub fn wait(&self, others: &[std::os::fd::BorrowedFd<'_>], limit: Duration) -> Result<Vec<bool>, Error> {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let ring = self.events.as_ref().map(AsFd::as_fd);
        let all = others.iter().chain(&ring);
        let mut fds: Vec<_> = all.map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, limit) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(Error::Poll(e.into())),
        }
        Ok(fds[..others.len()].iter().map(|fd| fd.revents().is_some_and(|e| !e.is_empty())).collect())
    }
}

/// Tells the guard, when the probes are gone.
struct StandDown(Rc<Guard>);

impl Drop for StandDown {
    fn drop(&mut self) {
        self.0.stand_down();
    }
}
