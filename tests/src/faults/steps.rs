//! A process that is stepped from system call to system call, so that it can be killed at each of them.

use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command};

use anyhow::{Context, Result, bail};
use nix::sys::ptrace::{self, Options};
use nix::sys::signal::Signal;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

/// Its main thread is traced, by the thread that started it; its other threads and its children are not.
pub(super) struct Stepped {
    pid: Pid,
    /// Kept for its pipes.
    _child: Child,
    ended: bool,
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
        Ok(Self { pid, _child: child, ended: false })
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
                // Its own affair.
                WaitStatus::Stopped(_, own) => signal = Some(own),
                WaitStatus::Exited(..) | WaitStatus::Signaled(..) => self.ended = true,
                _ => {}
            }
        }
        Ok(seen)
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
