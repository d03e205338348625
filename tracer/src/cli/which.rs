//! Which processes `attach` and `top` trace.

use std::path::PathBuf;

use anyhow::{bail, ensure};
use regex::Regex;
use tracer::attach::{find, image};
use tracer::collect::session::{Matcher, Session};
use tracer::probe::Lib;

/// Options that say it.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct Which {
    /// Trace this process and its descendants
    #[arg(long, value_name = "PID", conflicts_with = "pattern", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) pid: Option<u32>,

    /// Trace processes whose command line or title matches, and their descendants, running now or started later [default: all that use CUDA]
    #[arg(long = "match", value_name = "REGEX")]
    pub(super) pattern: Option<Regex>,
}

impl Which {
    /// Says at once what is wrong with a process id.
    pub(super) fn check(&self) -> anyhow::Result<()> {
        let Some(pid) = self.pid else { return Ok(()) };
        match find::process_of(pid) {
            None => bail!("there is no process {pid}: see ps"),
            Some(process) if process != pid => bail!("{pid} is a thread of process {process}: type --pid {process}"),
            Some(_) => ensure!(image::title(pid).is_some(), "process {pid} is a zombie or of the kernel: see ps"),
        }
        Ok(())
    }

    /// For those that come later; `None` where one process and its descendants are all.
    pub(super) fn later(&self) -> Option<Matcher> {
        self.pid.is_none().then(|| self.matcher())
    }

    /// Traces what runs already: a process with its descendants, or all that match and map libcuda.
    pub(super) fn attach(&self, session: &mut Session) -> anyhow::Result<()> {
        let matches = self.matcher();
        let Some(root) = self.pid else {
            for pid in find::processes() {
                if matches(pid) && find::mapped_by(pid).libraries.iter().any(|l| l.lib == Lib::Cuda) {
                    session.attach(pid)?;
                }
                // It may load libcuda later, and its children too: containers have dynamic linkers of their own.
                session.place_linker(pid)?;
            }
            return Ok(());
        };
        // Once more for those that were forked meanwhile by ones not traced yet.
        for _ in 0..2 {
            for pid in find::descendants(root) {
                session.attach(pid)?;
            }
        }
        Ok(())
    }

    /// True for processes whose command line or an ancestor's matches: a server's ranks name themselves. Never for this
    /// program, whose command line has the pattern too.
    fn matcher(&self) -> Matcher {
        let (own, pattern) = (executable(std::process::id()), self.pattern.clone());
        Box::new(move |pid| {
            let fits = |pattern: &Regex, pid| image::title(pid).is_some_and(|title| pattern.is_match(&title));
            let is_tracer = |pid| own.is_some() && executable(pid) == own;
            let is_named = |pattern| find::ancestors(pid).into_iter().any(|pid| fits(pattern, pid) && !is_tracer(pid));
            !is_tracer(pid) && pattern.as_ref().is_none_or(is_named)
        })
    }
}

/// The file that a process runs.
fn executable(pid: u32) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/{pid}/exe")).ok()
}
