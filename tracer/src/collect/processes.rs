//! Traced processes: titles, and the driver files they hold open.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    os::unix::ffi::OsStrExt as _,
};

use super::{clock::monotonic_ns, descriptor::Descriptor};
use crate::{
    attach::{find, image},
    trace::record::{Op, Process, Record, Rm, Step},
};

/// What is remembered of a process.
#[derive(Debug, Default)]
struct Known {
    /// What tells the process from others that have its number before or after it ([`find::started`]).
    started: Option<u64>,
    /// Since when it is known, nanoseconds of the monotonic clock.
    since: u64,
    title: String,
    /// Driver files that carried requests, by descriptor.
    files: HashMap<u32, Open>,
    /// There was no such process, or another, when last looked.
    missing: bool,
}

impl Known {
    /// A process that nothing is known of but its number.
    fn new(pid: u32) -> Self {
        Self { started: find::started(pid), since: monotonic_ns(), ..Self::default() }
    }

    /// True when its number is another process's now.
    fn is_replaced(&self, pid: u32) -> bool {
        self.started.zip(find::started(pid)).is_some_and(|(before, now)| before != now)
    }

    /// Looks at the title; a record when it changed.
    fn new_title(&mut self, pid: u32, t: u64) -> Option<Record> {
        let title = image::title(pid).filter(|title| *title != self.title)?;
        self.title.clone_from(&title);
        Some(Record::Process(Process { t, pid, step: Step::Title { title } }))
    }
}

/// A descriptor of an open driver file.
#[derive(Clone, Debug)]
struct Open {
    /// Identity of the open file. The kernel gives the same to one that is opened when another was closed, more often than not.
    file: u64,
    /// Its inode number; 0 where that is not known. By the request that went through it: when the tracer comes to look, the number
    /// of the descriptor may already be another file's.
    inode: u64,
    /// An exec closes it, as far as is known.
    closes_at_exec: bool,
}

/// All traced processes.
///
/// The hook on libc's `ioctl` sees no close, so closed files are found by looking, at exits, at execs and once a second: the
/// driver takes back what went through a file when the last descriptor of it is closed, in whichever process. Files that
/// carry objects from one process to another are the kernel side's to watch.
#[derive(Debug, Default)]
pub(super) struct Processes {
    known: HashMap<u32, Known>,
    /// Open files that were there before tracing began, so far: a number of ours stands for each, as a request through it
    /// has yet to tell its identity. The kernel's are addresses, and much larger.
    unidentified: u64,
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

    /// A process appeared that nothing is known of.
    pub(super) fn add(&mut self, pid: u32) {
        self.known.entry(pid).or_insert_with(|| Known::new(pid));
    }

    /// A process that ran before tracing began: it may have driver files open.
    pub(super) fn attached(&mut self, pid: u32) {
        let known = self.known.entry(pid).or_insert_with(|| Known::new(pid));
        known.title = image::title(pid).unwrap_or_default();
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let fd = entry.file_name().to_str().and_then(|fd| fd.parse().ok());
            let Some((fd, target)) = fd.zip(fs::read_link(entry.path()).ok()) else { continue };
            if target.file_name().is_some_and(|name| name.as_bytes().starts_with(b"nvidia")) {
                self.unidentified += 1;
                let seen = Descriptor::read(pid, fd).ok();
                known.files.entry(fd).or_insert(Open {
                    file: self.unidentified,
                    inode: seen.map_or(0, |seen| seen.inode),
                    closes_at_exec: seen.is_some_and(|seen| seen.closes_at_exec),
                });
            }
        }
    }

    /// A process forked at time `t`: the child has its parent's descriptors. Records where its number was still another's,
    /// whose end was lost.
    pub(super) fn fork(&mut self, parent: u32, child: u32, t: u64) -> Vec<Record> {
        // One that is known since later is this very child: it was attached to before this was read.
        let is_old = self.known.get(&child).is_some_and(|known| known.since < t);
        let records = if is_old { self.ended_unseen(child, t) } else { Vec::new() };
        let files = self.known.get(&parent).map(|known| known.files.clone()).unwrap_or_default();
        self.known.entry(child).or_insert_with(|| Known::new(child)).files = files;
        records
    }

    /// Records for the end of a process whose number is another's now, if that is so. All that it had to tell must have been
    /// read.
    pub(super) fn replaced(&mut self, pid: u32, t: u64) -> Vec<Record> {
        let is_replaced = self.known.get(&pid).is_some_and(|known| known.is_replaced(pid));
        if is_replaced { self.ended_unseen(pid, t) } else { Vec::new() }
    }

    /// A process ended, and the record of that was lost: nobody knows how.
    fn ended_unseen(&mut self, pid: u32, t: u64) -> Vec<Record> {
        let exit = Step::Exit { code: None, signal: None };
        let mut records = vec![Record::Process(Process { t, pid, step: exit })];
        records.extend(self.exit(pid, t));
        records
    }

    /// A process executed a new image: its title is the new command line, and files may have closed.
    pub(super) fn exec(&mut self, pid: u32, t: u64) -> Vec<Record> {
        let known = self.known.entry(pid).or_insert_with(|| Known::new(pid));
        known.title = image::title(pid).unwrap_or_default();
        // The new image may have opened others under the same numbers by now.
        let gone = known.files.extract_if(|_, open| open.closes_at_exec).map(|(_, open)| open.file).collect();
        let mut records = self.closed(gone, pid, t);
        records.extend(self.look(&[pid], t, |_| true));
        records
    }

    /// A process is gone, and its files with it where nobody else has them.
    pub(super) fn exit(&mut self, pid: u32, t: u64) -> Vec<Record> {
        let files = self.known.remove(&pid).unwrap_or_default().files;
        let gone: HashSet<u64> = files.into_values().map(|open| open.file).collect();
        let holds = |known: &Known| known.files.values().any(|open| gone.contains(&open.file));
        let others: Vec<u32> = self.known.iter().filter(|(_, known)| holds(known)).map(|(&pid, _)| pid).collect();
        let mut records = self.look(&others, t, |file| gone.contains(&file));
        let closed: HashSet<u64> = records.iter().filter_map(closed_file).collect();
        let gone = gone.into_iter().filter(|file| !closed.contains(file)).collect();
        records.extend(self.closed(gone, pid, t));
        records
    }

    /// A driver request went through descriptor `fd`, whose open file has identity `file` and this inode number (0: not known).
    pub(super) fn uses(&mut self, pid: u32, fd: u32, (file, inode): (u64, u64), t: u64) -> Vec<Record> {
        if fd == u32::MAX || file == 0 {
            return Vec::new();
        }
        let files = &mut self.known.entry(pid).or_insert_with(|| Known::new(pid)).files;
        if files.get(&fd).is_some_and(|known| known.file == file) {
            return Vec::new();
        }
        let seen = Descriptor::read(pid, fd).ok().filter(|seen| seen.may_be(inode));
        let open = Open { file, inode, closes_at_exec: seen.is_some_and(|seen| seen.closes_at_exec) };
        // The descriptor was closed, and its number used again; or now we know which file it is.
        let old = files.insert(fd, open).map(|old| old.file).filter(|&old| old > self.unidentified);
        let mut records = self.closed(old.into_iter().collect(), pid, t);
        // Servers name their processes before these use a GPU, and one may be gone before the next look.
        records.extend(self.known.get_mut(&pid).and_then(|known| known.new_title(pid, t)));
        records
    }

    /// Looks at every process again: changed titles, driver files closed since, and processes that ended unnoticed (the
    /// record of it was lost). All that they had to tell must have been read.
    pub(super) fn poll(&mut self, t: u64) -> Vec<Record> {
        let mut records = Vec::new();
        let pids: Vec<u32> = self.known.keys().copied().collect();
        let mut lost = Vec::new();
        for (&pid, known) in &mut self.known {
            // The first time its exit may only not have been read yet.
            let is_missing = find::has_ended(pid) || known.is_replaced(pid);
            if std::mem::replace(&mut known.missing, is_missing) && is_missing {
                lost.push(pid);
            }
            records.extend(known.new_title(pid, t));
        }
        records.extend(self.look(&pids, t, |_| true));
        records.extend(lost.into_iter().flat_map(|pid| self.ended_unseen(pid, t)).collect::<Vec<_>>());
        records
    }

    /// Looks at the descriptors of `pids` whose files are asked for; gives a record for each file that nobody has open
    /// any more.
    fn look(&mut self, pids: &[u32], t: u64, wanted: impl Fn(u64) -> bool) -> Vec<Record> {
        let mut records = Vec::new();
        for &pid in pids {
            let Some(known) = self.known.get_mut(&pid) else { continue };
            let mut gone = Vec::new();
            known.files.retain(|&fd, open| {
                let is_open = !wanted(open.file) || is_open(pid, fd, open);
                if !is_open {
                    gone.push(open.file);
                }
                is_open
            });
            records.extend(self.closed(gone, pid, t));
        }
        records
    }

    /// Records for those of `files`, of which `pid` has closed a descriptor, that nobody is known to have open.
    fn closed(&mut self, mut files: Vec<u64>, pid: u32, t: u64) -> Vec<Record> {
        files.sort_unstable();
        files.dedup();
        files.retain(|&file| !self.known.values().any(|known| known.files.values().any(|open| open.file == file)));
        let close = |file| Record::Rm(Rm { t, pid, tid: pid, op: Op::Close { file }, ..Rm::default() });
        files.into_iter().map(close).collect()
    }
}

fn closed_file(record: &Record) -> Option<u64> {
    match record {
        Record::Rm(Rm { op: Op::Close { file }, .. }) => Some(*file),
        _ => None,
    }
}

/// True while a descriptor is what it was. One of a process that is about to end counts as open: its exit closes it.
fn is_open(pid: u32, fd: u32, open: &mut Open) -> bool {
    match Descriptor::read(pid, fd) {
        Ok(now) if now.may_be(open.inode) => {
            open.closes_at_exec = now.closes_at_exec;
            true
        }
        Ok(_) => false,
        Err(e) => e.kind() != io::ErrorKind::NotFound || !alive(pid),
    }
}

/// True unless the process is a zombie or gone.
fn alive(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

#[cfg(test)]
mod tests;
