//! Probes on what processes write, in traced processes alone.
//!
//! Everybody calls `write`, and often: a probe in every process that maps libc, as the others are, would have each of them
//! pay. So each traced process gets its own, placed when its fork is reported. What a child writes within the millisecond
//! before that is not seen. (Perf events that a child inherits would have no such gap, but do not work for uprobes: one
//! opened by path makes `fork` fail with `EFAULT`; one that tracefs defines loses its breakpoint in the parent once the
//! kernel has swapped the contexts of parent and child. Both seen on 6.18.)

use std::{
    collections::HashMap,
    fs, io,
    os::fd::OwnedFd,
    path::Path,
    sync::mpsc::{self, Sender},
    thread::{self, JoinHandle},
};

use nix::sys::utsname::uname;

use super::{
    Error, closing,
    programs::Programs,
    sys::{self, Point, Purpose, perf},
};
use crate::attach::host::kernel::Version;

/// The first kernel whose multi-uprobes for one process see all of its threads ("bpf: fix multi-uprobe PID filtering
/// logic").
const MULTI: (u32, u32) = (6, 10);
/// Links that are closed at a time while tracing goes on.
const BATCH: usize = 64;

/// Offsets in a libc's file of the functions that write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Writes {
    /// `write`.
    pub write: Vec<u64>,
    /// `writev`.
    pub writev: Vec<u64>,
}

/// Programs for the two functions, and the links that hold them in place.
pub(super) struct Followers {
    write: OwnedFd,
    writev: OwnedFd,
    multi: bool,
    /// By process.
    links: HashMap<u32, Vec<OwnedFd>>,
    closer: Option<Closer>,
}

impl Followers {
    pub(super) fn new(programs: &Programs, multi: bool) -> Result<Self, Error> {
        let release = uname().ok().and_then(|system| Some(system.release().to_str()?.to_owned()));
        let Version { major, minor } = Version::parse(&release.unwrap_or_default());
        let multi = multi && (major, minor) >= MULTI;
        let [sleepable, plain] = match multi {
            true => [Purpose::SleepableUprobeMulti, Purpose::UprobeMulti],
            false => [Purpose::SleepableUprobe, Purpose::Uprobe],
        };
        let load = |name| programs.load(name, sleepable).or_else(|_| programs.load(name, plain));
        let (write, writev) = (load("libc_write")?, load("libc_writev")?);
        Ok(Self { write, writev, multi, links: HashMap::new(), closer: None })
    }

    /// Places probes on both functions in one process.
    pub(super) fn follow(&mut self, tgid: u32, libc: &Path, writes: &Writes) -> io::Result<()> {
        for (program, offsets) in [(&self.write, &writes.write), (&self.writev, &writes.writev)] {
            let links =
                if self.multi { multi(program, libc, offsets, tgid) } else { each(program, libc, offsets, tgid) };
            match links {
                Ok(links) => self.links.entry(tgid).or_default().extend(links),
                // It has ended.
                Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// A process has ended. Its links are closed beside us: the kernel takes its time for it.
    pub(super) fn exited(&mut self, tgid: u32) {
        let Some(links) = self.links.remove(&tgid) else { return };
        let closer = self.closer.get_or_insert_with(Closer::start);
        links.into_iter().for_each(|link| closer.close(link));
    }

    pub(super) fn detach(&mut self) {
        closing::close(self.links.drain().flat_map(|(_, links)| links).collect());
        // Waits for what it has begun.
        self.closer = None;
    }
}

/// One link for all offsets.
fn multi(program: &OwnedFd, path: &Path, offsets: &[u64], tgid: u32) -> io::Result<Vec<OwnedFd>> {
    if offsets.is_empty() {
        return Ok(Vec::new());
    }
    let points: Vec<Point> = offsets.iter().map(|&offset| Point { offset, cookie: u64::from(tgid) }).collect();
    Ok(vec![sys::attach_uprobes(program, path, &points, false, Some(tgid))?])
}

/// A perf event and a link for each offset.
fn each(program: &OwnedFd, path: &Path, offsets: &[u64], tgid: u32) -> io::Result<Vec<OwnedFd>> {
    const DEVICE: &str = "/sys/bus/event_source/devices/uprobe/type";
    let number = fs::read_to_string(DEVICE)?.trim().parse().map_err(io::Error::other)?;
    let one = |&offset| perf::uprobe(program, number, path, Point { offset, cookie: u64::from(tgid) }, tgid);
    offsets.iter().map(one).collect()
}

/// Closes links in a thread of its own.
struct Closer {
    links: Option<Sender<OwnedFd>>,
    thread: Option<JoinHandle<()>>,
}

impl Closer {
    fn start() -> Self {
        let (links, inbox) = mpsc::channel();
        let run = move || {
            while let Ok(first) = inbox.recv() {
                closing::close(std::iter::once(first).chain(inbox.try_iter().take(BATCH - 1)).collect());
            }
        };
        // Without a thread the other end of the channel is gone, and each link is closed where it is sent.
        Self { links: Some(links), thread: thread::Builder::new().spawn(run).ok() }
    }

    fn close(&self, link: OwnedFd) {
        if let Some(links) = &self.links {
            // What is not taken is dropped here.
            let _ = links.send(link);
        }
    }
}

impl Drop for Closer {
    fn drop(&mut self) {
        self.links = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
