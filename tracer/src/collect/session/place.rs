//! Which processes are traced, and their probes.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt as _,
    path::Path,
    time::{Duration, Instant},
};

use tracer_ebpf as wire;

use super::{Error, Session};
use crate::{
    attach::{find, image, place::Placed},
    collect::clock::monotonic_ns,
    trace::record::{Process, Record, Step},
};

/// Longest time from a library's mapping to the dynamic linker's word of it, which holds the process.
const MAPPED_TO_TOLD: Duration = Duration::from_millis(20);

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

    /// Places probes in what `pid` maps; the process itself is not traced for that.
    ///
    /// # Errors
    /// The trace cannot be written.
    pub fn place(&mut self, pid: u32) -> Result<(), Error> {
        self.place_in(pid, Duration::ZERO)
    }

    /// The same for a process that has just executed a program. It may be at any point by now; what the dynamic linker has
    /// mapped and not told of yet has run no code, and is told of in a moment.
    pub(super) fn place_at_exec(&mut self, pid: u32) -> Result<(), Error> {
        self.place_in(pid, MAPPED_TO_TOLD)
    }

    /// Libraries are late if `pid` is not held within `patience` of their probes.
    fn place_in(&mut self, pid: u32, patience: Duration) -> Result<(), Error> {
        let mut placed = self.placer.process(&mut self.kernel, pid);
        let late = pid != std::process::id() && !placed.libraries.is_empty() && !self.is_held_within(pid, patience);
        placed.libraries.iter_mut().for_each(|library| library.late = late);
        self.record_placed(placed)
    }

    fn is_held_within(&mut self, pid: u32, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            let is_held = self.kernel.held().contains(pid);
            if is_held || Instant::now() >= until {
                return is_held;
            }
            std::thread::sleep(patience / 20);
        }
    }

    /// Traces a process that already runs, or is held.
    ///
    /// # Errors
    /// The trace or a map cannot be written.
    pub fn attach(&mut self, pid: u32) -> Result<(), Error> {
        let ended = self.processes.replaced(pid, monotonic_ns());
        self.write(ended)?;
        if self.processes.contains(pid) {
            return Ok(());
        }
        // Track first: what the process does while probes go in is seen as soon as each is in place.
        self.adopt(pid)?;
        self.place(pid)?;
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
        // Before what it tells now: the process that had its number has ended, and the record of that was lost.
        let ended = self.processes.replaced(pid, library.object.header.time_ns);
        self.write(ended)?;
        if !self.processes.contains(pid) {
            match &self.matcher {
                Some(matches) if matches(pid) => return self.attach(pid),
                Some(_) => return Ok(()),
                // The record of its fork was lost.
                None => self.adopt(pid)?,
            }
        }
        self.place(pid)?;
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
        if header.flags & wire::FLAG_HELD != 0 {
            self.kernel.held().release(header.tgid);
        }
    }
}
