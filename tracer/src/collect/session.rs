//! A tracing session: kernel events in, trace records out.

use std::{io, os::fd::AsFd as _, time::Duration};

use aya::maps::{MapData, RingBuf};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tracer_ebpf as wire;

use super::{
    clock::monotonic_ns,
    ioctl::{self, Abi},
    losses::Losses,
    nvml::Sampler,
    pending::Pending,
    processes::Processes,
    wire::Event,
};
use crate::{
    attach::{
        find, image,
        kernel::{self, Kernel},
        place::{Placed, Placer},
    },
    probe,
    stack::{Interner, Look, Stacks},
    trace::{
        self, Writer,
        record::{Call, Footer, Notice, Op, Outcome, Process, Record, Rm, Step},
    },
};

/// Events handled before signals, timers and the child are looked at again: a fast producer must not starve them.
const BATCH: usize = 4096;
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
    /// Stacks that records to come refer to.
    pending: Pending,
    /// Processes held for probes to be placed, continued when done.
    matcher: Option<Matcher>,
    /// Last time an object that owns memory came or went.
    changed: Option<u64>,
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
            pending: Pending::default(),
            matcher,
            changed: None,
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
        self.look_for_python(pid)?;
        let Ok(image) = image::image(pid) else {
            self.processes.remove(pid);
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

    /// Handles what the kernel sent, up to a batch. True when more is waiting.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn drain(&mut self) -> Result<bool, Error> {
        for _ in 0..BATCH {
            // The item borrows the ring: copy what outlives it.
            let Some(item) = self.events.next() else { return Ok(false) };
            let bytes = item.to_vec();
            drop(item);
            match Event::read(&bytes) {
                Some(event) => self.handle(event)?,
                None => self.malformed += 1,
            }
        }
        Ok(true)
    }

    fn handle(&mut self, event: Event<'_>) -> Result<(), Error> {
        self.count += 1;
        match event {
            Event::Stack(regs, bytes) => {
                let header = regs.header;
                if let Some(stack) = self.stacks.native(header.tgid, &regs, bytes) {
                    self.pending.native(header.tid, stack);
                }
                if let Some(look) = self.stacks.look_for_python_again(header.tgid) {
                    self.tell(header.tgid, look)?;
                }
            }
            Event::Python(frames) => self.pending.python(frames),
            Event::Code(code) => {
                if let Some(walk) = self.stacks.code(&code) {
                    self.tell(code.header.tgid, Look { walk, notice: None })?;
                }
            }
            Event::Call(call) => self.call(&call)?,
            Event::Ioctl(ioctl) => self.ioctl(&ioctl)?,
            Event::Fork(fork) => {
                let pid = fork.other;
                self.processes.add(pid);
                self.stacks.fork(fork.header.tgid, pid);
                let step = Step::Forked { parent: fork.header.tgid };
                self.writer.record(&Record::Process(Process { t: fork.header.time_ns, pid, step }))?;
            }
            Event::Exec(exec) => self.exec(&exec)?,
            Event::Exit(exit) => self.exit(&exit)?,
            Event::Library(library) => self.library(&library)?,
            Event::Release(release) => {
                let wire::Header { time_ns: t, tgid: pid, tid, .. } = release.header;
                let op = Op::Close { file: release.file };
                self.writer.record(&Record::Rm(Rm { t, pid, tid, op, ..Rm::default() }))?;
            }
        }
        Ok(())
    }

    /// Number of the stack that a record refers to.
    fn take_stack(&mut self, header: &wire::Header) -> Result<Option<u32>, Error> {
        let (native, python) = self.pending.take(header);
        let stack = self.stacks.number(header.tgid, native, python.as_deref(), &mut self.interner);
        for record in self.interner.drain() {
            self.writer.record(&record)?;
        }
        Ok(stack)
    }

    /// Tells the kernel side how to walk a process's Python frames.
    fn tell(&mut self, pid: u32, look: Look) -> Result<(), Error> {
        self.kernel.walk_python(pid, look.walk)?;
        look.notice.map_or(Ok(()), |text| self.notice(text))
    }

    fn look_for_python(&mut self, pid: u32) -> Result<(), Error> {
        let look = self.stacks.look_for_python(pid);
        self.tell(pid, look)
    }

    fn call(&mut self, call: &wire::Call) -> Result<(), Error> {
        let stack = self.take_stack(&call.header)?;
        let Some(row) = probe::by_id(call.frame.probe) else {
            self.malformed += 1;
            return Ok(());
        };
        let values = row.decode(call);
        let inside = if call.depth > 0 { symbol(call.parent.probe) } else { String::new() };
        Ok(self.writer.record(&Record::Call(Call {
            t: call.header.time_ns,
            start: call.frame.enter_ns,
            pid: call.header.tgid,
            tid: call.header.tid,
            api: row.symbol.to_owned(),
            result: row.result(call),
            depth: call.depth,
            inside,
            outer: call.outer_ns,
            library: call.frame.library,
            address: values.address,
            size: values.size,
            handle: values.handle,
            device: values.device,
            free: values.free,
            total: values.total,
            more: values.more,
            unreadable: values.unreadable,
            stack,
        }))?)
    }

    fn ioctl(&mut self, ioctl: &wire::Ioctl) -> Result<(), Error> {
        let stack = self.take_stack(&ioctl.header)?;
        let wire::Header { time_ns: t, tgid: pid, tid, .. } = ioctl.header;
        let Some(decoded) = ioctl::decode(ioctl, self.abi) else { return Ok(()) };
        self.processes.uses(pid, ioctl.fd, ioctl.file);
        let frames = &ioctl.calls[..(ioctl.depth as usize).min(wire::DEPTH)];
        let calls: Vec<String> = frames.iter().map(|f| symbol(f.probe)).collect();
        let outer = frames.first().map_or(0, |f| f.enter_ns);
        for op in decoded.ops {
            if matches!(op, Op::Alloc(_) | Op::Free { .. } | Op::Dup { .. } | Op::Import { .. }) {
                self.changed = Some(t);
            }
            self.writer.record(&Record::Rm(Rm {
                t,
                start: ioctl.enter_ns,
                unfinished: ioctl.unfinished != 0,
                pid,
                tid,
                status: decoded.status,
                calls: calls.clone(),
                outer,
                stack,
                op,
            }))?;
        }
        Ok(())
    }

    fn exec(&mut self, exec: &wire::Process) -> Result<(), Error> {
        let pid = exec.header.tgid;
        self.stacks.forget(pid);
        self.place(pid, exec.header.flags & wire::FLAG_HELD == 0)?;
        self.kernel.know_executable(exec.exe)?;
        // Descriptors that close at exec are closed by now: the driver has taken back what went with them.
        for record in self.processes.exec(pid, exec.header.time_ns) {
            self.writer.record(&record)?;
        }
        let image = image::image(pid).unwrap_or_default();
        resume(&exec.header);
        let step = Step::Exec(image);
        Ok(self.writer.record(&Record::Process(Process { t: exec.header.time_ns, pid, step }))?)
    }

    fn exit(&mut self, exit: &wire::Process) -> Result<(), Error> {
        let pid = exit.header.tgid;
        self.processes.remove(pid);
        self.stacks.forget(pid);
        self.changed = Some(exit.header.time_ns);
        // wait(2) status: signal in the low 7 bits, else the exit code above them.
        let signal = (exit.value & 0x7f) as i32;
        let (code, signal) =
            if signal == 0 { (Some((exit.value >> 8) as i32 & 0xff), None) } else { (None, Some(signal)) };
        let step = Step::Exit { code, signal };
        Ok(self.writer.record(&Record::Process(Process { t: exit.header.time_ns, pid, step }))?)
    }

    /// A process loaded a library nobody looked at yet. It is held until its probes are in.
    fn library(&mut self, library: &wire::LibraryLoaded) -> Result<(), Error> {
        let pid = library.header.tgid;
        let held = library.header.flags & wire::FLAG_HELD != 0;
        let result = self.look_at(pid, held, library.drivers != 0, library.key);
        // Whatever went wrong, the process must go on.
        resume(&library.header);
        result
    }

    fn look_at(&mut self, pid: u32, held: bool, drivers: bool, key: wire::NameKey) -> Result<(), Error> {
        if !self.processes.contains(pid) {
            if self.matcher.as_ref().is_some_and(|matches| matches(pid)) {
                return self.attach(pid);
            }
            return Ok(());
        }
        self.place(pid, !held)?;
        self.stacks.refresh(pid);
        if drivers {
            self.look_for_python(pid)?;
        }
        if key.hash != 0 {
            self.kernel.know_library(key)?;
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

    /// Once a second: titles, closed files, losses, an NVML sample.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn tick(&mut self) -> Result<(), Error> {
        let t = monotonic_ns();
        for record in self.processes.poll(t) {
            if matches!(record, Record::Rm(_)) {
                self.changed = Some(t);
            }
            self.writer.record(&record)?;
        }
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

fn symbol(id: u32) -> String {
    probe::by_id(id).map_or_else(|| format!("probe {id}"), |p| p.symbol.to_owned())
}

/// Lets a held process go on. A stop that was not delivered yet is cancelled by it (signal(7)).
fn resume(header: &wire::Header) {
    if header.flags & wire::FLAG_HELD != 0 {
        // Gone already: nothing to continue.
        let _ = kill(Pid::from_raw(header.tgid.cast_signed()), Signal::SIGCONT);
    }
}
