//! Between fork and exec.

use std::{ffi::CStr, os::fd::OwnedFd};

use nix::{
    errno::Errno,
    sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask},
    unistd::{AccessFlags, access},
};

use super::{
    command::Command,
    error::{Report, Stage},
};
use crate::attach::user::Invoker;

/// The child's side. All of it runs between fork and exec: system calls only, nothing allocated, nothing locked.
pub(super) struct Child<'a> {
    pub(super) command: &'a Command,
    pub(super) argv: &'a [*const libc::c_char],
    pub(super) env: &'a [*const libc::c_char],
    pub(super) invoker: Option<&'a Invoker>,
    pub(super) gate: &'a OwnedFd,
    pub(super) reports: &'a OwnedFd,
}

impl Child<'_> {
    pub(super) fn run(&self) -> ! {
        reset_signals();
        if let Some(Err(errno)) = self.invoker.map(Invoker::drop_privileges) {
            self.fail(Stage::User, 0, errno);
        }
        let at = match self.find() {
            Ok(at) => at,
            Err((at, errno)) => self.fail(Stage::Program, at, errno),
        };
        self.tell(&Report::ready());
        let mut byte = [0];
        loop {
            match nix::unistd::read(self.gate, &mut byte) {
                Ok(1) => break,
                Err(Errno::EINTR) => {}
                // The tracer is gone: nobody would see what the command does.
                Ok(_) | Err(_) => end(),
            }
        }
        self.execute(&self.command.candidates[at]);
        self.fail(Stage::Program, at, Errno::last());
    }

    /// The first candidate that may be executed; else the first that is there, and what is wrong with it.
    fn find(&self) -> Result<usize, (usize, Errno)> {
        let mut worst = (0, Errno::ENOENT);
        for (at, path) in self.command.candidates.iter().enumerate() {
            match access(path.as_c_str(), AccessFlags::X_OK) {
                // A directory may be "executed" as well.
                Ok(()) if !is_directory(path) => return Ok(at),
                Ok(()) | Err(Errno::EACCES) if worst.1 == Errno::ENOENT => worst = (at, Errno::EACCES),
                _ => {}
            }
        }
        Err(worst)
    }

    fn execute(&self, path: &CStr) {
        // SAFETY: both arrays hold pointers to live strings and end in null.
        unsafe { libc::execve(path.as_ptr(), self.argv.as_ptr(), self.env.as_ptr()) };
    }

    fn tell(&self, report: &Report) {
        // A report is shorter than PIPE_BUF: it is written whole or not at all.
        nix::unistd::write(self.reports, &report.to_bytes()).ok();
    }

    fn fail(&self, stage: Stage, at: usize, errno: Errno) -> ! {
        self.tell(&Report::new(stage, at, errno));
        end()
    }
}

fn end() -> ! {
    // SAFETY: ends the process without running what belongs to its parent.
    unsafe { libc::_exit(127) }
}

fn is_directory(path: &CStr) -> bool {
    nix::sys::stat::stat(path).is_ok_and(|stat| stat.st_mode & libc::S_IFMT == libc::S_IFDIR)
}

/// Signals as a program expects to find them: no handlers of ours, none blocked. What we inherited as ignored (nohup)
/// stays ignored, but for SIGPIPE, which the Rust runtime ignores.
fn reset_signals() {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in Signal::iterator() {
        // SAFETY: the default action runs no code of ours. SIGKILL and SIGSTOP refuse, rightly.
        let Ok(old) = (unsafe { sigaction(signal, &default) }) else { continue };
        if matches!(old.handler(), SigHandler::SigIgn) && signal != Signal::SIGPIPE {
            // SAFETY: puts back what was there.
            unsafe { sigaction(signal, &old) }.ok();
        }
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None).ok();
}
