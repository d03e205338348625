//! A tracing session: kernel events in, trace records out.

mod handle;

use std::{
    collections::{HashMap, HashSet},
    io,
    os::fd::AsFd as _,
    time::Duration,
};

use aya::maps::{MapData, RingBuf};

use super::{clock::monotonic_ns, ioctl::Abi, losses::Losses, nvml::Sampler, processes::Processes};
use crate::{
    attach::{
        find, image,
        kernel::{self, Kernel},
        place::{Placed, Placer},
    },
    stack::{Interner, Stacks},
    trace::{
        self, Writer,
        record::{Footer, Notice, Outcome, Process, Record, Step},
    },
};

/// Quiet time after the last change of memory before NVML is asked: what it says is then comparable.
const QUIET_NS: u64 = 30_000_000;

/// Why a session failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel side could not be set up.
    #[error(transparent)]
    Kernel(#[from] kernel::Error),
    /// The trace could not be written. What was written before can be read.
    #[error(transparent)]
    Trace(#[from] trace::Error),
    /// Polling failed.
    #[error("cannot wait for events: {0}")]
    Poll(#[from] io::Error),
}

/// Decides which processes are traced beside those forked by traced ones.
pub type Matcher = Box<dyn Fn(u32) -> bool>;

/// A running session.
pub struct Session {
    kernel: Kernel,
    events: RingBuf<MapData>,
    placer: Placer,
    writer: Writer<std::fs::File>,
    interner: Interner,
    stacks: Stacks,
    processes: Processes,
    nvml: Option<Sampler>,
    losses: Losses,
    abi: Abi,
    /// Stack of a thread that its next record refers to.
    pending: HashMap<u32, u32>,
    /// Processes held for probes to be placed, continued when done.
    matcher: Option<Matcher>,
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
    /// Trace file, with its header written.
    pub writer: Writer<std::fs::File>,
    /// NVML, if there is one.
    pub nvml: Option<Sampler>,
    /// Driver ABI.
    pub abi: Abi,
    /// Which processes to trace as they load libcuda.
    pub matcher: Option<Matcher>,
}

impl Session {
    /// Makes a session of its parts.
    ///
    /// # Errors
    /// The ring buffer was taken already.
    pub fn new(parts: Parts) -> Result<Self, Error> {
        let Parts { mut kernel, placer, writer, nvml, abi, matcher } = parts;
        Ok(Self {
            events: kernel.events()?,
            kernel,
            placer,
            writer,
            interner: Interner::new(),
            stacks: Stacks::new(),
            processes: Processes::default(),
            nvml,
            losses: Losses::default(),
            abi,
            pending: HashMap::new(),
            matcher,
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

    /// Notes something for the top of every report.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn notice(&mut self, text: impl Into<String>) -> Result<(), Error> {
        Ok(self.writer.record(&Record::Notice(Notice { t: monotonic_ns(), text: text.into() }))?)
    }

    /// Traces a child that waits before its exec.
    ///
    /// # Errors
    /// The trace or a map cannot be written.
    pub fn adopt(&mut self, pid: u32) -> Result<(), Error> {
        self.kernel.track(pid)?;
        self.processes.add(pid);
        Ok(())
    }

    /// Places probes in what `pid` maps; the process itself is not traced for that.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn place(&mut self, pid: u32, late: bool) -> Result<(), Error> {
        let placed = self.placer.process(&mut self.kernel, pid, late);
        self.record_placed(placed)
    }

    /// Traces a process that already runs.
    ///
    /// # Errors
    /// The trace or a map cannot be written.
    pub fn attach(&mut self, pid: u32) -> Result<(), Error> {
        if self.processes.contains(pid) {
            return Ok(());
        }
        // Track first: what the process does while probes go in is seen as soon as each is in place.
        self.adopt(pid)?;
        self.place(pid, true)?;
        let Ok(image) = image::image(pid) else {
            self.processes.exit(pid, monotonic_ns());
            return Ok(());
        };
        self.processes.exec(pid, monotonic_ns());
        self.writer.record(&Record::Process(Process { t: monotonic_ns(), pid, step: Step::Attached(image) }))?;
        self.changed = Some(monotonic_ns());
        Ok(())
    }

    /// Places probes in a library that nothing may map yet.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn place_library(&mut self, library: &find::Library) -> Result<(), Error> {
        let mut placed = Placed::default();
        self.placer.library(&mut self.kernel, library, false, &mut placed);
        self.record_placed(placed)
    }

    fn record_placed(&mut self, placed: Placed) -> Result<(), Error> {
        for mut library in placed.libraries {
            library.t = monotonic_ns();
            self.placed += library.placed as usize;
            self.writer.record(&Record::Library(library))?;
        }
        for text in placed.notices {
            self.notice(text)?;
        }
        Ok(())
    }

    /// Waits for events, at most `limit`, and for `others` too. Gives what became readable of `others`.
    ///
    /// # Errors
    /// `poll(2)` failed.
    pub fn wait(&self, others: &[std::os::fd::BorrowedFd<'_>], limit: Duration) -> Result<Vec<bool>, Error> {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let ring = self.events.as_fd();
        let mut fds: Vec<_> =
            std::iter::once(&ring).chain(others).map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::MAX);
        match poll(&mut fds, limit) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(e) => return Err(Error::Poll(e.into())),
        }
        Ok(fds[1..].iter().map(|fd| fd.revents().is_some_and(|e| !e.is_empty())).collect())
    }

    /// Asks NVML when memory has changed and then rested.
    pub fn sample_when_quiet(&mut self) {
        let Some(nvml) = &mut self.nvml else { return };
        if self.changed.is_some_and(|t| monotonic_ns().saturating_sub(t) > QUIET_NS) {
            nvml.request();
            self.changed = None;
        }
    }

    /// Writes an NVML sample that has come.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn receive_sample(&mut self) -> Result<(), Error> {
        let samples = self.nvml.as_mut().and_then(Sampler::receive).unwrap_or_default();
        for sample in samples {
            self.writer.record(&Record::Nvml(sample))?;
        }
        Ok(())
    }

    /// Has the kernel side look at files that carry objects between processes: between driver requests nothing else does.
    pub fn settle(&mut self) {
        if !self.transfers.is_empty() {
            self.kernel.check_transfers();
        }
    }

    /// Once a second: titles, closed files, losses, an NVML sample.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn tick(&mut self) -> Result<(), Error> {
        let t = monotonic_ns();
        let found = self.processes.poll(t);
        self.write(found)?;
        for record in self.losses.update(t, &self.kernel.losses(), self.malformed) {
            self.writer.record(&record)?;
        }
        if let Some(nvml) = &mut self.nvml
            && !self.processes.is_empty()
        {
            nvml.request();
        }
        Ok(())
    }

    /// Makes all that was seen so far readable in the file.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn flush(&mut self) -> Result<(), Error> {
        Ok(self.writer.flush()?)
    }

    /// Ends the session: probes out, the last events in, the footer written.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn finish(mut self, outcome: Outcome) -> Result<Summary, Error> {
        // Bounded: traced processes that go on must not keep us here.
        let until = monotonic_ns() + 1_000_000_000;
        while self.drain()? && monotonic_ns() < until {}
        if let Some(nvml) = &mut self.nvml {
            let waiting = nvml.wait(Duration::from_secs(1));
            nvml.request();
            let last = nvml.wait(Duration::from_secs(2));
            for sample in waiting.into_iter().chain(last).flatten() {
                self.writer.record(&Record::Nvml(sample))?;
            }
        }
        let t = monotonic_ns();
        for record in self.losses.update(t, &self.kernel.losses(), self.malformed) {
            self.writer.record(&record)?;
        }
        let summary = Summary { events: self.count, lost: self.losses.events(), running: self.processes.len() };
        self.writer.record(&Record::Footer(Footer { t, outcome, events: self.count }))?;
        self.writer.finish()?;
        Ok(summary)
    }
}

/// What a finished session has to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Events seen.
    pub events: u64,
    /// Events lost.
    pub lost: u64,
    /// Traced processes that still run.
    pub running: usize,
}
