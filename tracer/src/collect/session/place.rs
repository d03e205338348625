//! Which processes are traced, and their probes.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::Path};

use tracer_ebpf as wire;

use super::{Error, Session};
use crate::{
    attach::{find, image, kernel::Stop, place::Placed},
    collect::clock::monotonic_ns,
    trace::record::{Process, Record, Step},
};

impl Session {
    /// Traces a child that waits before its exec.
    ///
    /// # Errors
    /// The trace or a map cannot be written.
    pub fn adopt(&mut self, pid: u32) -> Result<(), Error> {
        self.kernel.track(pid)?;
        self.processes.add(pid);
        self.follow(pid)
    }

    /// Places probes in what this process maps itself; it is not traced for that.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn place_in_ourselves(&mut self) -> Result<(), Error> {
        let placed = self.placer.process(&mut self.kernel, std::process::id());
        self.record_placed(placed)
    }

    /// Places probes in what `pid` maps. They are late if the process was not held all the while.
    fn place(&mut self, pid: u32, stop: Option<Stop>) -> Result<(), Error> {
        let mut placed = self.placer.process(&mut self.kernel, pid);
        let late = !placed.libraries.is_empty() && !stop.is_some_and(|stop| self.kernel.held().lasts(stop));
        placed.libraries.iter_mut().for_each(|library| library.late = late);
        self.record_placed(placed)
    }

    /// Places probes in a process that executed a program.
    pub(super) fn place_at_exec(&mut self, exec: &wire::Process) -> Result<(), Error> {
        let (pid, stop) = (exec.header.tgid, Stop::of(&exec.header));
        if stop.is_none() && self.kernel.knows_executable(exec.exe) {
            // It may be anywhere by now. Its dynamic linker is probed: it tells of each library, and holds it for a new one.
            let placed = self.placer.runtime(&mut self.kernel, pid);
            return self.record_placed(placed);
        }
        self.place(pid, stop)
    }

    /// Traces a process that already runs.
    ///
    /// # Errors
    /// The trace or a map cannot be written.
    pub fn attach(&mut self, pid: u32) -> Result<(), Error> {
        self.attach_held(pid, None)
    }

    fn attach_held(&mut self, pid: u32, stop: Option<Stop>) -> Result<(), Error> {
        let ended = self.processes.replaced(pid, monotonic_ns());
        self.write(ended)?;
        if self.processes.contains(pid) {
            return Ok(());
        }
        // Track first: what the process does while probes go in is seen as soon as each is in place.
        self.adopt(pid)?;
        self.place(pid, stop)?;
        self.look_for_python(pid)?;
        let Ok(image) = image::image(pid) else {
            self.processes.exit(pid, monotonic_ns());
            return Ok(());
        };
        self.processes.attached(pid);
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
        self.placer.library(&mut self.kernel, library, &mut placed);
        self.record_placed(placed)
    }

    /// Places a probe in the dynamic linker of `pid`, so that it is noticed when it loads libcuda.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn place_linker(&mut self, pid: u32) -> Result<(), Error> {
        let mut placed = Placed::default();
        self.placer.linker(&mut self.kernel, pid, &mut placed);
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

    /// A process loaded a library nobody looked at yet. It is held until its probes are in.
    pub(super) fn library(&mut self, library: &wire::LibraryLoaded) -> Result<(), Error> {
        let pid = library.object.header.tgid;
        let result = self.look_at(pid, library);
        // Whatever went wrong, the process must go on.
        self.resume(&library.object.header);
        result
    }

    /// A traced process mapped an object.
    pub(super) fn object(&mut self, object: &wire::Object, path: &[u8]) -> Result<(), Error> {
        let pid = object.header.tgid;
        self.stacks.object(pid, object, path);
        // A libc that is known holds nobody, and may be another than that of the process that started this one.
        if find::is_libc(Path::new(OsStr::from_bytes(path))) { self.follow(pid) } else { Ok(()) }
    }

    fn look_at(&mut self, pid: u32, library: &wire::LibraryLoaded) -> Result<(), Error> {
        let stop = Stop::of(&library.object.header);
        // Before what it tells now: the process that had its number has ended, and the record of that was lost.
        let ended = self.processes.replaced(pid, library.object.header.time_ns);
        self.write(ended)?;
        if !self.processes.contains(pid) {
            match &self.matcher {
                Some(matches) if matches(pid) => return self.attach_held(pid, stop),
                Some(_) => return Ok(()),
                // The record of its fork was lost.
                None => self.adopt(pid)?,
            }
        }
        self.place(pid, stop)?;
        self.stacks.refresh(pid);
        if library.object.drivers != 0 {
            self.look_for_python(pid)?;
        }
        if library.object.key.hash > wire::UNKNOWABLE {
            self.kernel.know_library(library.object.key)?;
        }
        Ok(())
    }

    /// Lets a held process go on.
    pub(super) fn resume(&mut self, header: &wire::Header) {
        if let Some(stop) = Stop::of(header) {
            self.kernel.held().release(stop);
        }
    }
}
