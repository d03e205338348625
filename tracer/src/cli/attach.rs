//! `vramtrace attach`.

use std::process::ExitCode;

use anyhow::{bail, ensure};
use regex::Regex;
use tracer::attach::{find, image, user::Invoker};
use tracer::collect::{
    drive::{self, Until},
    session::{Matcher, Session},
    signals::Signals,
};
use tracer::probe::Lib;

use super::{
    options::{self, Tracing},
    tracing,
};

const EXAMPLES: &str = "\
EXAMPLES:
  sudo vramtrace attach --pid 4711 -o server.vrt
  sudo vramtrace attach --match 'sglang|vllm' --until 5m

What a process held before tracing began is shown as one line, pre_attach, by NVML's figure.
Ctrl-C ends tracing; the server goes on.";

/// Trace beside a server: the processes that run now, and those they start later
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) tracing: Tracing,

    /// Trace this process and its descendants
    #[arg(long, value_name = "PID", conflicts_with = "pattern", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) pid: Option<u32>,

    /// Trace processes whose command line or title matches, running now or started later [default: all that use CUDA]
    #[arg(long = "match", value_name = "REGEX")]
    pub(super) pattern: Option<Regex>,
}

/// Traces until the end that was asked for.
pub(super) fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    if let Some(pid) = args.pid {
        match find::process_of(pid) {
            None => bail!("there is no process {pid}: see ps"),
            Some(process) if process != pid => bail!("{pid} is a thread of process {process}: type --pid {process}"),
            Some(_) => ensure!(image::title(pid).is_some(), "process {pid} is a zombie or of the kernel: see ps"),
        }
    }
    tracing::rules(&args.tracing)?;
    let signals = Signals::catch()?;
    let path = args.tracing.output_path("attach", args.pid.unwrap_or_else(std::process::id));
    let mut setup = tracing::setup(&args.tracing, path.clone(), Invoker::from_sudo()?)?;
    setup.matcher = args.pid.is_none().then(|| matcher(args.pattern.clone()));
    let mut session = setup.start()?;
    tracing::place_libraries(&mut session, &args.tracing)?;
    attach_running(&mut session, args)?;
    tracing::warn_blind(&args.tracing, &session);
    eprintln!("vramtrace: tracing {} processes with {} probes; Ctrl-C ends it", session.live(), session.placed());
    let until = Until {
        target: None,
        limit: tracing::limit(&args.tracing),
        serving: args.tracing.until == options::Until::Serving,
        last_process: args.pid.is_some(),
    };
    let progress = tracing::Progress::new(true);
    let end = drive::drive(&mut session, &until, &signals, |session| progress.update(session));
    progress.done();
    let end = end?;
    let summary = drive::finish(session, end, None)?;
    tracing::served(&args.tracing, end, "the server");
    tracing::last_line(&path, summary);
    Ok(ExitCode::SUCCESS)
}

/// Traces what runs already: a process with its descendants, or all that match and map libcuda.
fn attach_running(session: &mut Session, args: &Args) -> anyhow::Result<()> {
    let matches = matcher(args.pattern.clone());
    let Some(root) = args.pid else {
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

/// True for processes whose command line matches; never for ourselves.
fn matcher(pattern: Option<Regex>) -> Matcher {
    let own = std::process::id();
    Box::new(move |pid| {
        pid != own && pattern.as_ref().is_none_or(|p| image::title(pid).is_some_and(|title| p.is_match(&title)))
    })
}
