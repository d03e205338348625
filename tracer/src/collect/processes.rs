//! Traced processes: titles, and the driver files they hold open.

use std::{
    collections::{HashMap, HashSet},
    fs, io,
    os::unix::ffi::OsStrExt as _,
    path::PathBuf,
};

use crate::{
    attach::image,
    trace::record::{Op, Process, Record, Rm, Step},
};

/// What is remembered of a process.
#[derive(Debug, Default)]
struct Known {
    title: String,
    files: Files,
}

/// Descriptors of driver files: identity of the open file, and what `/proc/PID/fd/N` pointed to.
type Files = HashMap<u32, (u64, PathBuf)>;

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
        self.known.entry(pid).or_default();
    }

    /// A process that ran before tracing began: it may have driver files open.
    pub(super) fn attached(&mut self, pid: u32) {
        let known = self.known.entry(pid).or_default();
        known.title = image::title(pid).unwrap_or_default();
        for entry in fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
            let fd = entry.file_name().to_str().and_then(|fd| fd.parse().ok());
            let Some((fd, target)) = fd.zip(fs::read_link(entry.path()).ok()) else { continue };
            if target.file_name().is_some_and(|name| name.as_bytes().starts_with(b"nvidia")) {
                self.unidentified += 1;
                known.files.entry(fd).or_insert((self.unidentified, target));
            }
        }
    }

    /// A process forked: the child has its parent's descriptors.
    pub(super) fn fork(&mut self, parent: u32, child: u32) {
        let files = self.known.get(&parent).map(|known| known.files.clone()).unwrap_or_default();
        self.known.entry(child).or_default().files = files;
    }

    /// A process executed a new image: its title is the new command line, and files may have closed.
    pub(super) fn exec(&mut self, pid: u32, t: u64) -> Vec<Record> {
        self.known.entry(pid).or_default().title = image::title(pid).unwrap_or_default();
        self.look(&[pid], t, |_| true)
    }

    /// A process is gone, and its files with it where nobody else has them.
    pub(super) fn exit(&mut self, pid: u32, t: u64) -> Vec<Record> {
        let files = self.known.remove(&pid).unwrap_or_default().files;
        let gone: HashSet<u64> = files.into_values().map(|(file, _)| file).collect();
        let holds = |known: &Known| known.files.values().any(|(file, _)| gone.contains(file));
        let others: Vec<u32> = self.known.iter().filter(|(_, known)| holds(known)).map(|(&pid, _)| pid).collect();
        let mut records = self.look(&others, t, |file| gone.contains(&file));
        let closed: HashSet<u64> = records.iter().filter_map(closed_file).collect();
        let gone = gone.into_iter().filter(|file| !closed.contains(file)).collect();
        records.extend(self.closed(gone, pid, t));
        records
    }

    /// A driver request went through descriptor `fd`, whose open file has identity `file`.
    pub(super) fn uses(&mut self, pid: u32, fd: u32, file: u64, t: u64) -> Vec<Record> {
        if fd == u32::MAX || file == 0 {
            return Vec::new();
        }
        let files = &mut self.known.entry(pid).or_default().files;
        if files.get(&fd).is_some_and(|(known, _)| *known == file) {
            return Vec::new();
        }
        // The descriptor was closed, and its number used again; or now we know which file it is.
        let old = files.remove(&fd).map(|(old, _)| old).filter(|&old| old > self.unidentified);
        if let Ok(target) = fs::read_link(format!("/proc/{pid}/fd/{fd}")) {
            files.insert(fd, (file, target));
        }
        self.closed(old.into_iter().collect(), pid, t)
    }

    /// Looks at every process again: changed titles, driver files closed since, and processes that ended unnoticed (the
    /// record of it was lost).
    pub(super) fn poll(&mut self, t: u64) -> Vec<Record> {
        let mut records = Vec::new();
        let pids: Vec<u32> = self.known.keys().copied().collect();
        for (&pid, known) in &mut self.known {
            if let Some(title) = image::title(pid)
                && title != known.title
            {
                known.title.clone_from(&title);
                records.push(Record::Process(Process { t, pid, step: Step::Title { title } }));
            }
        }
        records.extend(self.look(&pids, t, |_| true));
        for pid in pids.into_iter().filter(|pid| matches!(fs::exists(format!("/proc/{pid}")), Ok(false))) {
            records.push(Record::Process(Process { t, pid, step: Step::Exit { code: None, signal: None } }));
            records.extend(self.exit(pid, t));
        }
        records
    }

    /// Looks at the descriptors of `pids` whose files are asked for; gives a record for each file that nobody has open
    /// any more.
    fn look(&mut self, pids: &[u32], t: u64, wanted: impl Fn(u64) -> bool) -> Vec<Record> {
        let mut records = Vec::new();
        for &pid in pids {
            let Some(known) = self.known.get_mut(&pid) else { continue };
            let mut gone = Vec::new();
            known.files.retain(|&fd, (file, target)| {
                let is_open = !wanted(*file) || is_open(pid, fd, target);
                if !is_open {
                    gone.push(*file);
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
        files.retain(|file| !self.known.values().any(|known| known.files.values().any(|(held, _)| held == file)));
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
fn is_open(pid: u32, fd: u32, target: &PathBuf) -> bool {
    match fs::read_link(format!("/proc/{pid}/fd/{fd}")) {
        Ok(now) => now == *target,
        Err(e) => e.kind() != io::ErrorKind::NotFound || !alive(pid),
    }
}

/// True unless the process is a zombie or gone.
fn alive(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}
