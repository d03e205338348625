//! A tracing session: kernel events in, trace records out.

mod end;
mod place;

use std::{collections::HashMap, io, os::fd::AsFd as _, rc::Rc, time::Duration};

use aya::maps::{MapData, RingBuf};
use tracer_ebpf as wire;

use super::{
    clock::monotonic_ns,
    ioctl::{self, Abi},
    losses::Losses,
    nvml::Sampler,
    processes::Processes,
    wire::Event,
};
pub use end::Summary;

use crate::{
    attach::{
        guard::Guard,
        image,
        kernel::{self, Kernel},
        place::Placer,
    },
    probe,
    stack::{Interner, Stacks},
    trace::{
        self, Writer,
        record::{Call, Notice, Op, Process, Record, Rm, Step},
    },
};

/// Events handled before signals, timers and the child are looked at again: a fast producer must not starve them.
const BATCH: usize = 4096;

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
    /// Which processes to trace beside those that are, as they load libcuda.
    matcher: Option<Matcher>,
    guard: Rc<Guard>,
    /// After `kernel`, so that it is dropped after it.
    _stand_down: StandDown,
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
    /// Makes a session of its parts, and starts its guard.
    ///
    /// # Errors
    /// The ring buffer was taken already, or there is no process for the guard.
    pub fn new(parts: Parts) -> Result<Self, Error> {
        let Parts { mut kernel, placer, writer, nvml, abi, matcher } = parts;
        let guard = Rc::new(Guard::start(kernel.held().map()).map_err(Error::Guard)?);
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
            _stand_down: StandDown(Rc::clone(&guard)),
            guard,
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

    /// Who continues held processes if we cannot, and knows the signals of our process group.
    #[must_use]
    pub fn guard(&self) -> Rc<Guard> {
        Rc::clone(&self.guard)
    }

    /// Notes something for the top of every report.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn notice(&mut self, text: impl Into<String>) -> Result<(), Error> {
        Ok(self.writer.record(&Record::Notice(Notice { t: monotonic_ns(), text: text.into() }))?)
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
                if let Some(stack) = self.stacks.native(header.tgid, &regs, bytes, &mut self.interner) {
                    for record in self.interner.drain() {
                        self.writer.record(&record)?;
                    }
                    self.pending.insert(header.tid, stack);
                }
            }
            Event::Call(call) => self.call(&call)?,
            Event::Ioctl(ioctl) => self.ioctl(&ioctl)?,
            Event::Fork(fork) => {
                let pid = fork.other;
                self.processes.add(pid);
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

    fn take_stack(&mut self, header: &wire::Header) -> Option<u32> {
        (header.flags & wire::FLAG_STACK != 0).then(|| self.pending.remove(&header.tid)).flatten()
    }

    fn call(&mut self, call: &wire::Call) -> Result<(), Error> {
        let stack = self.take_stack(&call.header);
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
        let stack = self.take_stack(&ioctl.header);
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
        if !self.processes.contains(pid) {
            // Nobody's yet: it may become ours when it loads libcuda.
            self.place_linker(pid)?;
            return Ok(self.kernel.know_executable(exec.exe)?);
        }
        self.place(pid, exec.header.flags & wire::FLAG_HELD == 0)?;
        self.kernel.know_executable(exec.exe)?;
        // Descriptors that close at exec are closed by now: the driver has taken back what went with them.
        for record in self.processes.exec(pid, exec.header.time_ns) {
            self.writer.record(&record)?;
        }
        let image = image::image(pid).unwrap_or_default();
        self.resume(&exec.header);
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
}

/// Tells the guard, when the probes are gone.
struct StandDown(Rc<Guard>);

impl Drop for StandDown {
    fn drop(&mut self) {
        self.0.stand_down();
    }
}

fn symbol(id: u32) -> String {
    probe::by_id(id).map_or_else(|| format!("probe {id}"), |p| p.symbol.to_owned())
}
