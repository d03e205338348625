//! Traced processes: titles, and the driver files they hold open.

use std::{collections::HashMap, fs, path::PathBuf};

use crate::{
    attach::image,
    trace::record::{Op, Process, Record, Rm, Step},
};

/// What is remembered of a process.
#[derive(Debug, Default)]
struct Known {
    title: String,
    /// Driver files that carried requests: descriptor → (identity, what `/proc/PID/fd/N` pointed to).
    files: HashMap<u32, (u64, PathBuf)>,
}

/// All traced processes.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: HashMap<u32, Known>,
}

impl Processes {
    /// True when `pid` is traced and lives.
    #[must_use]
    pub(super) fn contains(&self, pid: u32) -> bool {
        self.known.contains_key(&pid)
    }

    /// Number of live traced processes.
    #[must_use]
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// True when none is traced.
    #[must_use]
    pub(super) fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// A process appeared: forked, or already there.
    pub(super) fn add(&mut self, pid: u32) {
        self.known.entry(pid).or_default();
    }

    /// A process executed a new image: its title is the new command line, and files may have closed.
    pub(super) fn exec(&mut self, pid: u32, t: u64) -> Vec<Record> {
        let known = self.known.entry(pid).or_default();
        known.title = image::title(pid).unwrap_or_default();
        known.closed(pid, t)
    }

    /// A process is gone.
    pub(super) fn remove(&mut self, pid: u32) {
        self.known.remove(&pid);
    }

    /// A driver request went through descriptor `fd`, whose open file has identity `file`.
    pub(super) fn uses(&mut self, pid: u32, fd: u32, file: u64) {
        if fd == u32::MAX || file == 0 {
            return;
        }
        let files = &mut self.known.entry(pid).or_default().files;
        if files.get(&fd).is_none_or(|(known, _)| *known != file)
            && let Ok(target) = fs::read_link(format!("/proc/{pid}/fd/{fd}"))
        {
            files.insert(fd, (file, target));
        }
    }

    /// Looks at every process again: changed titles, and driver files closed since (libc's `ioctl` shows no close).
    pub(super) fn poll(&mut self, t: u64) -> Vec<Record> {
        let mut records = Vec::new();
        for (&pid, known) in &mut self.known {
            if let Some(title) = image::title(pid)
                && title != known.title
            {
                known.title.clone_from(&title);
                records.push(Record::Process(Process { t, pid, step: Step::Title { title } }));
            }
            records.extend(known.closed(pid, t));
        }
        records
    }
}

impl Known {
    /// Records for the driver files that the process no longer has open.
    fn closed(&mut self, pid: u32, t: u64) -> Vec<Record> {
        let mut records = Vec::new();
        self.files.retain(|fd, (file, target)| {
            // A process that is exiting closes everything: its exit says so, with what it held.
            let closed = match fs::read_link(format!("/proc/{pid}/fd/{fd}")) {
                Ok(now) => now != *target,
                Err(e) => e.kind() == std::io::ErrorKind::NotFound && alive(pid),
            };
            if closed {
                records.push(Record::Rm(Rm { t, pid, tid: pid, op: Op::Close { file: *file }, ..Rm::default() }));
            }
            !closed
        });
        records
    }
}

/// True unless the process is a zombie or gone.
fn alive(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}
