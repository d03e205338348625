//! Kernel events to trace records.

use aya::maps::{MapData, RingBuf};
use tracer_ebpf as wire;

use super::{Error, Session};
use crate::{
    attach::image,
    collect::{ioctl, records, wire::Event},
    trace::record::{Op, Process, Record, Rm, Step},
};

/// Events handled before signals, timers and the child are looked at again: a fast producer must not starve them.
const BATCH: usize = 4096;

impl Session {
    /// Handles what the kernel sent, up to a batch. True when more is waiting.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn drain(&mut self) -> Result<bool, Error> {
        // Taken out meanwhile: records are read where they lie in the ring, which a copy of each stack would cost.
        let Some(mut events) = self.events.take() else { return Ok(false) };
        let more = self.drain_from(&mut events);
        self.events = Some(events);
        more
    }

    fn drain_from(&mut self, events: &mut RingBuf<MapData>) -> Result<bool, Error> {
        for _ in 0..BATCH {
            let Some(item) = events.next() else {
                self.caught_up = true;
                return Ok(false);
            };
            match Event::read(&item) {
                Some(event) => self.handle(event)?,
                None => self.malformed += 1,
            }
        }
        Ok(true)
    }

    fn handle(&mut self, event: Event<'_>) -> Result<(), Error> {
        self.count += 1;
        match event {
            Event::Stack(regs, bytes) => self.stack(&regs, bytes)?,
            Event::Python(frames) => self.pending.python(frames),
            Event::Code(code) => self.code(&code)?,
            Event::Call(call) => self.call(&call)?,
            Event::Ioctl(mut ioctl) => {
                ioctl.file = self.identities.of(ioctl.file);
                ioctl.other_file = self.identities.of(ioctl.other_file);
                self.ioctl(&ioctl)?;
            }
            Event::Fork(fork) => {
                let pid = fork.other;
                // First: it may write at once.
                self.follow_child(fork.header.tgid, pid)?;
                let (t, parent) = (fork.header.time_ns, fork.header.tgid);
                let ended = self.processes.fork(parent, pid, t);
                self.write(ended)?;
                self.stacks.fork(parent, pid);
                self.writer.record(&Record::Process(Process { t, pid, step: Step::Forked { parent } }))?;
            }
            Event::Exec(exec) => self.exec(&exec)?,
            Event::Exit(exit) => self.exit(&exit)?,
            Event::Library(library) => self.library(&library)?,
            Event::Object(object, path) => self.object(&object, path)?,
            Event::Output(output, bytes) => self.output(&output, bytes)?,
            Event::Release(release) => {
                let wire::Header { time_ns: t, tgid: pid, tid, .. } = release.header;
                let file = self.identities.of(release.file);
                self.transfers.remove(&file);
                let op = Op::Close { file };
                self.write(vec![Record::Rm(Rm { t, pid, tid, op, ..Rm::default() })])?;
            }
            Event::Block(block) => self.block(&block)?,
        }
        Ok(())
    }

    fn call(&mut self, call: &wire::Call) -> Result<(), Error> {
        let stack = self.take_stack(&call.header)?;
        let Some(call) = records::call(call, stack) else {
            self.malformed += 1;
            return Ok(());
        };
        Ok(self.writer.record(&Record::Call(call))?)
    }

    fn block(&mut self, block: &wire::Block) -> Result<(), Error> {
        let stack = self.take_stack(&block.header)?;
        Ok(self.writer.record(&Record::Block(records::block(block, stack)))?)
    }

    fn ioctl(&mut self, ioctl: &wire::Ioctl) -> Result<(), Error> {
        let stack = self.take_stack(&ioctl.header)?;
        let wire::Header { time_ns: t, tgid: pid, .. } = ioctl.header;
        let Some(decoded) = ioctl::decode(ioctl, self.abi) else { return Ok(()) };
        // A file found closed was so before this request.
        let closed = self.processes.uses(pid, ioctl.fd, (ioctl.file, ioctl.inode), t);
        self.write(closed)?;
        for rm in records::rm(ioctl, decoded, stack) {
            if matches!(rm.op, Op::Alloc(_) | Op::Free { .. } | Op::Dup { .. } | Op::Import { .. }) {
                self.changed = Some(t);
            }
            if let Op::Export { file, .. } | Op::Import { file, .. } = rm.op {
                self.transfers.insert(file);
            }
            self.writer.record(&Record::Rm(rm))?;
        }
        Ok(())
    }

    /// Writes what was found out about processes and files.
    pub(super) fn write(&mut self, records: Vec<Record>) -> Result<(), Error> {
        for record in records {
            if let Record::Rm(rm) = &record {
                self.changed = Some(rm.t);
            }
            self.writer.record(&record)?;
        }
        Ok(())
    }

    fn exec(&mut self, exec: &wire::Process) -> Result<(), Error> {
        let pid = exec.header.tgid;
        self.stacks.forget(pid);
        if exec.header.flags & wire::FLAG_UNTRACKED != 0 {
            // It may become ours when it loads libcuda.
            self.place_linker(pid)?;
            return Ok(self.kernel.know_executable(exec.exe)?);
        }
        self.place_at_exec(exec)?;
        self.follow(pid)?;
        self.kernel.know_executable(exec.exe)?;
        // Descriptors that close at exec are closed by now: the driver has taken back what went with them.
        let closed = self.processes.exec(pid, exec.header.time_ns);
        self.write(closed)?;
        let image = image::image(pid).unwrap_or_default();
        self.resume(&exec.header);
        let step = Step::Exec(image);
        Ok(self.writer.record(&Record::Process(Process { t: exec.header.time_ns, pid, step }))?)
    }

    fn exit(&mut self, exit: &wire::Process) -> Result<(), Error> {
        let wire::Header { time_ns: t, tgid: pid, .. } = exit.header;
        self.stacks.forget(pid);
        self.follower.exited(pid);
        self.kernel.unfollow(pid);
        let begun = self.lines.of(pid);
        self.keep(begun)?;
        self.changed = Some(t);
        self.writer.record(&Record::Process(records::exit(exit)))?;
        let closed = self.processes.exit(pid, t);
        self.write(closed)
    }
}
