//! A process of its own that looks up names: symbols and line tables are parsed where a file that was made to break its
//! reader breaks little.
//!
//! Files of a target may be cut short while they are mapped (SIGBUS), nest without end (stack overflow), unfold to any size,
//! or keep their reader busy. So they are read by a child that has no rights but to read what it is handed, a bounded
//! memory, and [`PATIENCE`] for an answer. Should it die or not answer, the file it was asked about has no names, and
//! another child takes its place. After [`FAILURES`] of them there is none any more.

mod answer;
mod child;

use std::{
    collections::HashSet,
    io::{self, IoSlice},
    os::fd::{AsFd as _, AsRawFd as _, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::{
        signal::{Signal, kill},
        socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, socketpair},
        wait::waitpid,
    },
    unistd::{ForkResult, Pid, fork},
};

pub(super) use self::answer::Named;
use super::symbols::Source;

/// Takes any bytes for the answer of a child.
#[cfg(any(test, fuzzing))]
pub(super) fn foreign(bytes: &[u8]) {
    std::hint::black_box(answer::decode(bytes));
}

/// Longest wait for one answer: the first from a file of a gigabyte takes seconds where the machine is busy.
const PATIENCE: Duration = Duration::from_secs(20);
/// Children that may fail; a file that breaks one is not asked about again.
const FAILURES: u32 = 8;

/// A question: which file (number), address in its own terms, whether line tables may be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Question {
    file: u32,
    lines: bool,
    address: u64,
}

impl Question {
    const SIZE: usize = 13;

    fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..4].copy_from_slice(&self.file.to_ne_bytes());
        bytes[4] = self.lines.into();
        bytes[5..].copy_from_slice(&self.address.to_ne_bytes());
        bytes
    }

    fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let [a, b, c, d, lines, address @ ..] = bytes;
        Self { file: u32::from_ne_bytes([a, b, c, d]), lines: lines != 0, address: u64::from_ne_bytes(address) }
    }
}

/// Asks a child for names.
#[derive(Debug)]
pub(super) struct Names {
    child: Option<Child>,
    failures: u32,
    patience: Duration,
    /// Files that broke a child.
    broken: HashSet<u32>,
    notices: Vec<String>,
}

impl Default for Names {
    fn default() -> Self {
        Self::with_patience(PATIENCE)
    }
}

impl Names {
    fn with_patience(patience: Duration) -> Self {
        Self { child: None, failures: 0, patience, broken: HashSet::new(), notices: Vec::new() }
    }

    /// Functions at an address of file number `file`, outermost first; none when it has no symbol there. `path` is what
    /// notices call the file.
    pub(super) fn find(&mut self, file: u32, path: &str, source: Source<'_>, address: u64) -> Vec<Named> {
        if self.broken.contains(&file) {
            return Vec::new();
        }
        self.start();
        let Some(child) = &mut self.child else { return Vec::new() };
        let question = Question { file, lines: source.lines, address };
        match child.ask(question, source, self.patience) {
            Ok(found) => found,
            Err(error) => {
                self.child = None;
                self.broken.insert(file);
                self.failures += 1;
                let others = if self.failures == FAILURES { ", nor have others from now on" } else { "" };
                let notice =
                    format!("{path}: its symbols cannot be read ({error}): its functions have no names{others}");
                self.notices.push(notice);
                Vec::new()
            }
        }
    }

    /// Forgets all files. Their numbers are not given again.
    pub(super) fn clear(&mut self) {
        self.child = None;
        self.broken.clear();
    }

    /// What there is to say at the top of reports.
    pub(super) fn notices(&mut self) -> Vec<String> {
        std::mem::take(&mut self.notices)
    }

    fn start(&mut self) {
        if self.child.is_some() || self.failures == FAILURES {
            return;
        }
        match Child::start() {
            Ok(child) => self.child = Some(child),
            Err(error) => {
                self.failures = FAILURES;
                self.notices.push(format!("no process to read symbols: {error}: native functions have no names"));
            }
        }
    }
}

/// A running child.
#[derive(Debug)]
struct Child {
    pid: Pid,
    socket: OwnedFd,
    /// Files that it has.
    has: HashSet<u32>,
}

impl Child {
    fn start() -> io::Result<Self> {
        // Whole messages, and the end of either side is seen by the other.
        let (socket, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        // SAFETY: the child uses what is its own alone, memory and one descriptor, and never returns from `child::run`. The C
        // library keeps its allocator usable in a child of a process with threads.
        match unsafe { fork() }? {
            ForkResult::Child => child::run(&theirs),
            ForkResult::Parent { child } => Ok(Self { pid: child, socket, has: HashSet::new() }),
        }
    }

    fn ask(&mut self, question: Question, source: Source<'_>, patience: Duration) -> io::Result<Vec<Named>> {
        let bytes = question.to_bytes();
        let fds = [source.file.as_raw_fd()];
        let with_file = [ControlMessage::ScmRights(&fds)];
        let with = if self.has.insert(question.file) { &with_file[..] } else { &[] };
        sendmsg::<()>(self.socket.as_raw_fd(), &[IoSlice::new(&bytes)], with, MsgFlags::MSG_NOSIGNAL, None)?;
        self.wait(patience)?;
        let mut answer = vec![0; answer::LARGEST];
        let read = recv(self.socket.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT)?;
        if read == 0 {
            return Err(io::Error::other("its reader ended"));
        }
        Ok(answer::decode(&answer[..read]))
    }

    fn wait(&self, patience: Duration) -> io::Result<()> {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match poll(&mut fds, PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)) {
                Ok(0) => return Err(io::Error::other(format!("no answer in {} s", patience.as_secs()))),
                Ok(_) => return Ok(()),
                Err(Errno::EINTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        _ = kill(self.pid, Signal::SIGKILL);
        _ = waitpid(self.pid, None);
    }
}

#[cfg(test)]
mod tests;
