//! A process that is stepped from system call to system call, so that it can be killed or interrupted at each of them.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use anyhow::{Context, Result, bail};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// A signal that does nothing to a process that runs.
const INTERRUPTION: Signal = Signal::SIGCONT;

/// Its main thread is traced, by the thread that started it; its other threads and its children are not.
pub(super) struct Stepped {
    pid: Pid,
    /// Kept for its pipes.
    _child: Child,
    ended: bool,
    /// Its exit code, once it has ended by itself.
    code: Option<i32>,
}

impl Stepped {
    /// Starts a command; it stands before its first instruction.
    pub(super) fn start(mut command: Command) -> Result<Self> {
        // SAFETY: a system call between fork and exec.
        unsafe { command.pre_exec(|| Ok(ptrace::traceme()?)) };
        let child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        let pid = Pid::from_raw(child.id().cast_signed());
        let WaitStatus::Stopped(..) = wait(pid)? else { bail!("{command:?} does not stop at its exec") };
        ptrace::setoptions(pid, Options::PTRACE_O_TRACESYSGOOD | Options::PTRACE_O_EXITKILL)?;
        Ok(Self { pid, _child: child, ended: false, code: None })
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw().cast_unsigned()
    }

    /// Lets it go on to the `count`th entry or exit of a system call from here. Gives those that there were: fewer when it
    /// ended before.
    pub(super) fn go(&mut self, count: u64) -> Result<u64> {
        let (mut seen, mut signal) = (0, None);
        while seen < count && !self.ended {
            ptrace::syscall(self.pid, signal.take())?;
            match wait(self.pid)? {
                WaitStatus::PtraceSyscall(_) => seen += 1,
                other => signal = self.passes(other),
            }
        }
        Ok(seen)
    }

    /// Lets it go on to its end, with a signal that waits in every `every`th system call, from the `first` on: what can be
    /// interrupted is, and nothing comes of the signal itself. Gives how many that were.
    pub(super) fn go_interrupted(&mut self, every: u64, first: u64) -> Result<u64> {
        let (mut calls, mut count, mut is_inside, mut signal) = (0, 0, false, None);
        while !self.ended {
            ptrace::syscall(self.pid, signal.take())?;
            match wait(self.pid)? {
                WaitStatus::PtraceSyscall(_) => {
                    is_inside = !is_inside;
                    // Given at the entry, it is there before the call is made.
                    if is_inside && calls % every == first {
                        signal = Some(INTERRUPTION);
                        count += 1;
                    }
                    calls += u64::from(is_inside);
                }
                WaitStatus::Stopped(_, INTERRUPTION) => {}
                other => signal = self.passes(other),
            }
        }
        Ok(count)
    }

    /// What is its own affair: a signal that it gets, or its end.
    fn passes(&mut self, status: WaitStatus) -> Option<Signal> {
        match status {
            WaitStatus::Stopped(_, own) => return Some(own),
            WaitStatus::Exited(_, code) => (self.ended, self.code) = (true, Some(code)),
            WaitStatus::Signaled(..) => self.ended = true,
            _ => {}
        }
        None
    }

    /// Its exit code, if it has ended by itself.
    pub(super) fn code(&self) -> Option<i32> {
        self.code
    }

    /// Kills it where it stands. False: it had ended.
    pub(super) fn kill(&mut self) -> Result<bool> {
        if self.ended {
            return Ok(false);
        }
        nix::sys::signal::kill(self.pid, Signal::SIGKILL)?;
        while !matches!(wait(self.pid)?, WaitStatus::Exited(..) | WaitStatus::Signaled(..)) {}
        self.ended = true;
        Ok(true)
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        _ = self.kill();
    }
}

fn wait(pid: Pid) -> Result<WaitStatus> {
    Ok(waitpid(pid, Some(WaitPidFlag::__WALL))?)
}
