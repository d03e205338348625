//! The traced command, held before its first instruction until the probes are placed.
//!
//! The child shares our terminal, process group, standard streams and working directory. So Ctrl-C reaches it from
//! the terminal without our doing, and it decides what to make of it: the tracer should then go on reading events until
//! the child has ended. A signal sent to the tracer alone (`kill PID`) does not reach the child: pass it on with
//! [`Held::signal`].

mod child;
mod command;
mod error;
#[cfg(test)]
mod tests;

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Read, Write},
    os::{
        fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
        unix::process::ExitStatusExt,
    },
    process::ExitStatus,
    ptr,
};

use nix::{
    errno::Errno,
    fcntl::OFlag,
    sys::signal::Signal,
    unistd::{ForkResult, Pid, fork, pipe2},
};

pub use self::error::SpawnError;
use self::{child::Child, command::Command, error::Report};
use super::{signals::Blocked, user::Invoker};

/// A child process that waits before its `exec`.
#[derive(Debug)]
pub struct Held {
    pid: Pid,
    pidfd: OwnedFd,
    /// A byte lets the child go; closing it without one, as our death does, ends the child.
    gate: Option<File>,
    reports: File,
    command: Command,
    status: Option<ExitStatus>,
}

impl Held {
    /// Forks a child that will execute `argv` with exactly the environment `env`, as `invoker` if there is one, and
    /// has it wait. The program is looked for in the `PATH` of `env`, with the child's own rights.
    ///
    /// # Errors
    /// No such program, no right to become that user, or no process to be had. Nothing is left running then.
    pub fn spawn(
        argv: &[OsString],
        env: &[(OsString, OsString)],
        invoker: Option<&Invoker>,
    ) -> Result<Self, SpawnError> {
        let command = Command::new(argv, env)?;
        let (argv, env) = (command::pointers(&command.argv), command::pointers(&command.env));
        let (gate_out, gate_in) = pipe2(OFlag::O_CLOEXEC)?;
        let (reports_out, reports_in) = pipe2(OFlag::O_CLOEXEC)?;
        // A signal between fork and the child's reset would run the tracer's handler in the child.
        let blocked = Blocked::all()?;
        // SAFETY: the child only makes system calls, on memory prepared before, and never returns from `Child::run`.
        let forked = unsafe { fork() };
        let pid = match forked {
            Ok(ForkResult::Child) => {
                // The child holds no writing end of the gate, or it would keep itself alive.
                drop(gate_in);
                Child { command: &command, argv: &argv, env: &env, invoker, gate: &gate_out, reports: &reports_in }
                    .run()
            }
            Ok(ForkResult::Parent { child }) => Ok(child),
            Err(errno) => Err(errno),
        };
        drop(blocked);
        let pid = pid?;
        let mut held = Self {
            pid,
            pidfd: pidfd_open(pid)?,
            gate: Some(gate_in.into()),
            reports: reports_out.into(),
            command,
            status: None,
        };
        drop(reports_in);
        match held.report()? {
            Some(report) if report.is_ready() => Ok(held),
            report => Err(held.failure(report, invoker)),
        }
    }

    /// Lets the child execute its program; returns once it has.
    ///
    /// # Errors
    /// The program could not be executed: the child has ended.
    pub fn release(&mut self) -> Result<(), SpawnError> {
        // A signal, Ctrl-C perhaps, may have ended the child while it was held. That nobody reads the gate would tell, but
        // not while another child of ours that is held has a copy of its ends.
        let ended = self.try_wait()?.is_some();
        let let_go = self.gate.take().is_some_and(|mut gate| gate.write_all(&[1]).is_ok());
        if ended || !let_go {
            return Err(self.failure(None, None));
        }
        // The child's end of the pipe closes when it executes.
        match self.report()? {
            None => Ok(()),
            report => Err(self.failure(report, None)),
        }
    }

    /// Process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// Descriptor of the process: readable, for `poll`, once it has ended.
    #[must_use]
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// Sends the child a signal.
    ///
    /// # Errors
    /// It has ended.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        pidfd_send_signal(self.pidfd(), signal)
    }

    /// Waits until the child has ended.
    ///
    /// # Errors
    /// Somebody else has waited for it.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        loop {
            match self.wait_with(0) {
                Ok(Some(status)) => return Ok(status),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// How the child ended; `None` while it runs.
    ///
    /// # Errors
    /// Somebody else has waited for it.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.wait_with(libc::WNOHANG)
    }

    fn wait_with(&mut self, options: i32) -> io::Result<Option<ExitStatus>> {
        if self.status.is_none() {
            let mut status = 0;
            // SAFETY: `status` is a place to write to.
            let pid = Errno::result(unsafe { libc::waitpid(self.pid.as_raw(), &raw mut status, options) })?;
            self.status = (pid != 0).then(|| ExitStatus::from_raw(status));
        }
        Ok(self.status)
    }

    fn report(&mut self) -> io::Result<Option<Report>> {
        let mut bytes = [0; Report::SIZE];
        match self.reports.read_exact(&mut bytes) {
            Ok(()) => Ok(Some(Report::from_bytes(bytes))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn failure(&mut self, report: Option<Report>, invoker: Option<&Invoker>) -> SpawnError {
        self.gate = None;
        let status = self.wait();
        match report {
            Some(report) => report.explain(&self.command, invoker),
            None => SpawnError::Ended(status.map_or(1, exit_code)),
        }
    }
}

impl Drop for Held {
    /// A child that was never released ends with its gate; one that runs is left alone.
    fn drop(&mut self) {
        if self.gate.take().is_some() {
            self.wait().ok();
        }
    }
}

/// Exit code for a shell: the child's own, or 128 + the signal that killed it.
#[must_use]
pub fn exit_code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// Sends a signal to the very process that a descriptor is of.
pub(in crate::attach) fn pidfd_send_signal(process: BorrowedFd<'_>, signal: Signal) -> io::Result<()> {
    let none = ptr::null::<libc::siginfo_t>();
    // SAFETY: a system call on a descriptor that is open; the third argument may be null (pidfd_send_signal(2)).
    let sent = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, process.as_raw_fd(), signal as i32, none, 0) };
    Ok(Errno::result(sent).map(drop)?)
}

/// A descriptor of a process.
pub(in crate::attach) fn pidfd_open(pid: Pid) -> io::Result<OwnedFd> {
    // SAFETY: a system call without pointers.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) })?;
    let fd = i32::try_from(fd).map_err(io::Error::other)?;
    // SAFETY: the descriptor is new, and nobody else's.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
