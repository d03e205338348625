//! Traced processes as the live tests drive them: a server that answers line by line, a tracer in front of it or beside it,
//! and what must be left of the tracer when it is gone.

mod between;
mod books;
mod company;
mod footprint;

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;

pub use between::attached_between;
pub use books::{book, exact, held_at_end, history};
pub use company::{alone, in_company};
pub use footprint::{Footprint, code_is_untouched, comm, goes_on, guard, state};

use crate::sim::{Sim, workspace_binary};

/// Longest wait for anything: these tests are not timed, a hang is what it ends. `VRAMTRACE_PATIENCE`, in seconds, is for
/// machines that are emulated.
#[must_use]
pub fn patience() -> Duration {
    let set = std::env::var("VRAMTRACE_PATIENCE").ok().and_then(|seconds| seconds.parse().ok());
    Duration::from_secs(set.unwrap_or(60))
}

/// The tracer to test: `VRAMTRACE`, or the one built beside the tests.
///
/// # Errors
/// When it was not built.
pub fn vramtrace() -> Result<PathBuf> {
    std::env::var_os("VRAMTRACE").map_or_else(|| workspace_binary("vramtrace"), |path| Ok(path.into()))
}

/// Waits until something is so.
///
/// # Errors
/// When it is not for [`patience`], or the condition fails.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + patience();
    while !condition()? {
        ensure!(Instant::now() < deadline, "waited for nothing: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(())
}

/// A child process that is spoken to in lines, in a process group of its own. Dropping it kills it.
#[derive(Debug)]
pub struct Talk {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<std::process::ChildStdout>,
    stderr: std::process::ChildStderr,
    /// Process to kill when this is dropped: the server, where the child is a tracer in front of it.
    server: Option<Pid>,
}

impl Talk {
    /// Starts a command.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(mut command: Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().with_context(|| format!("cannot run {command:?}"))?;
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().context("no output")?);
        let stderr = child.stderr.take().context("no output")?;
        Ok(Self { child, stdin, stdout, stderr, server: None })
    }

    /// Starts a server of the simulation (through a tracer, where `command` is one) and waits until it answers.
    ///
    /// # Errors
    /// When it does not.
    pub fn server(command: Command) -> Result<Self> {
        let mut talk = Self::start(command)?;
        match talk.answer("ready") {
            Ok(pid) => talk.server = Some(Pid::from_raw(pid)),
            Err(error) => return Err(error.context(talk.errors())),
        }
        Ok(talk)
    }

    /// Process id of the child.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Process id of the server, as it sees itself.
    #[must_use]
    pub fn server_pid(&self) -> u32 {
        self.server.map_or(0, |pid| pid.as_raw().cast_unsigned())
    }

    /// The next line of output: a word and a number. The word must be the one expected; gives the number.
    ///
    /// # Errors
    /// Another word, no line for [`patience`], or the end of output.
    pub fn answer(&mut self, word: &str) -> Result<i32> {
        let deadline = Instant::now() + patience();
        let mut line = String::new();
        while !line.ends_with('\n') {
            if self.stdout.buffer().is_empty() {
                let mut fds = [PollFd::new(self.stdout.get_ref().as_fd(), PollFlags::POLLIN)];
                let left = deadline.saturating_duration_since(Instant::now());
                ensure!(poll(&mut fds, PollTimeout::try_from(left)?)? > 0, "no answer {word:?}");
            }
            ensure!(self.stdout.read_line(&mut line)? > 0, "no answer {word:?} but the end");
        }
        let (said, number) = line.trim_end().split_once(' ').with_context(|| line.clone())?;
        ensure!(said == word, "{line:?} and not {word:?}");
        Ok(number.parse()?)
    }

    /// Sends a line.
    ///
    /// # Errors
    /// Nobody reads it.
    pub fn say(&mut self, line: &str) -> Result<()> {
        let stdin = self.stdin.as_mut().context("its input is closed")?;
        Ok(writeln!(stdin, "{line}").and_then(|()| stdin.flush())?)
    }

    /// Sends a line and gives the number in the answer, which begins with the same word.
    ///
    /// # Errors
    /// As [`Talk::say`] and [`Talk::answer`].
    pub fn ask(&mut self, line: &str) -> Result<i32> {
        self.say(line)?;
        self.answer(line.split(' ').next().unwrap_or_default()).with_context(|| line.to_owned())
    }

    /// Sends a line whose answer must be 0.
    ///
    /// # Errors
    /// Another answer.
    pub fn order(&mut self, line: &str) -> Result<()> {
        let answer = self.ask(line)?;
        ensure!(answer == 0, "{line}: {answer}");
        Ok(())
    }

    /// Lets the server end: it does when its input does.
    pub fn close(&mut self) {
        drop(self.stdin.take());
    }

    /// A signal for the child alone.
    ///
    /// # Errors
    /// It is gone.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(self.as_pid(), signal)?)
    }

    /// A signal for the child's process group, as Ctrl-C in a terminal sends it.
    ///
    /// # Errors
    /// It is gone.
    pub fn signal_group(&self, signal: Signal) -> Result<()> {
        Ok(killpg(self.as_pid(), signal)?)
    }

    fn as_pid(&self) -> Pid {
        Pid::from_raw(self.child.id().cast_signed())
    }

    /// Waits for the child's end.
    ///
    /// # Errors
    /// It does not end.
    pub fn wait(&mut self) -> Result<ExitStatus> {
        let mut status = None;
        wait_until("the end of a child", || {
            status = self.child.try_wait()?;
            Ok(status.is_some())
        })
        .with_context(|| self.errors())?;
        status.context("no status")
    }

    /// The rest of its output and all of its errors, once it has ended.
    ///
    /// # Errors
    /// As [`Talk::wait`].
    pub fn finish(mut self) -> Result<(ExitStatus, String, String)> {
        self.close();
        let status = self.wait()?;
        let errors = self.errors();
        Ok((status, read_what_is_there(self.stdout.get_ref().as_fd().try_clone_to_owned()?), errors))
    }

    /// What it wrote to standard error and nobody read yet. Does not wait.
    pub fn errors(&mut self) -> String {
        self.stderr.as_fd().try_clone_to_owned().map(read_what_is_there).unwrap_or_default()
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        self.close();
        for pid in [Some(self.as_pid()), self.server].into_iter().flatten() {
            // A child that was waited for has given its id back.
            if pid != self.as_pid() || matches!(self.child.try_wait(), Ok(None)) {
                _ = kill(pid, Signal::SIGKILL);
            }
        }
        _ = self.child.wait();
    }
}

/// Reads a pipe as far as it goes, without waiting for whoever else has it open.
fn read_what_is_there(fd: OwnedFd) -> String {
    _ = fcntl(fd.as_fd(), FcntlArg::F_SETFL(OFlag::O_NONBLOCK));
    let mut text = Vec::new();
    _ = std::fs::File::from(fd).read_to_end(&mut text);
    String::from_utf8_lossy(&text).into_owned()
}

/// `vramtrace run` of a server in a simulation, into `file`.
///
/// # Errors
/// When there is no tracer.
pub fn run_command(sim: &Sim, file: &Path, options: &[&str]) -> Result<Command> {
    let mut command = sim.command(&vramtrace()?.to_string_lossy())?;
    command.args(["run", "--as-root", "-o"]).arg(file).args(options).arg("--").arg(sim.program("server"));
    Ok(command)
}

/// `vramtrace attach` in a simulation, into `file`.
///
/// # Errors
/// When there is no tracer.
pub fn attach_command(sim: &Sim, file: &Path, options: &[&str]) -> Result<Command> {
    let mut command = sim.command(&vramtrace()?.to_string_lossy())?;
    command.args(["attach", "-o"]).arg(file).args(options);
    Ok(command)
}

/// `vramtrace attach` into `file`, told when it traces (it says so).
///
/// # Errors
/// When it does not start.
pub fn attach(sim: &Sim, file: &Path, options: &[&str]) -> Result<Talk> {
    let mut tracer = Talk::start(attach_command(sim, file, options)?)?;
    let mut said = String::new();
    wait_until("the tracer's first line", || {
        said.push_str(&tracer.errors());
        let ended = tracer.child.try_wait()?;
        ensure!(ended.is_none(), "it ended, {}: {said}{}", ended.unwrap_or_default(), tracer.errors());
        Ok(said.contains("Ctrl-C ends it"))
    })
    .with_context(|| said.clone())?;
    Ok(tracer)
}
