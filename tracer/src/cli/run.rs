//! `vramtrace run`.

use std::ffi::OsString;
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitCode, ExitStatus};
use std::time::Instant;

use tracer::attach::{
    image,
    spawn::{Held, exit_code},
    user::Invoker,
};
use tracer::collect::{
    drive::{self, End, Until},
    session::{Session, Summary},
    signals::{Signals, Target},
};
use tracer::trace::record::Outcome;

use super::{
    options::{self, Tracing},
    tracing,
};

const EXAMPLES: &str = "\
EXAMPLES:
  sudo vramtrace run -- python3 -m sglang.launch_server --model-path MODEL
  sudo vramtrace run -o train.vrt --until 10m -- torchrun --nproc-per-node 8 train.py

Under sudo the command runs as the user who called sudo, and the trace belongs to that user.
The exit code is the command's own.";

/// Start a command and trace it from its first instruction
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    pub(super) tracing: Tracing,

    /// Run the command as root under sudo too, not as the user who called sudo
    #[arg(long)]
    pub(super) as_root: bool,

    /// Command to run, after `--`
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// Traces the command; gives its exit code.
pub(super) fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    tracing::rules(&args.tracing)?;
    let invoker = Invoker::from_sudo()?;
    let run_as = if args.as_root { None } else { invoker.as_ref() };
    let signals = Signals::catch_for_command()?;
    let environment: Vec<_> = std::env::vars_os().collect();
    let environment = run_as.map_or_else(|| environment.clone(), |user| user.environment(environment.clone()));
    let mut child = Held::spawn(&args.command, &environment, run_as)?;
    let shown = |text: &OsString| text.to_string_lossy().into_owned();
    let name = args.command.first().map(shown).unwrap_or_default();
    let path = args.tracing.output_path(&name, child.pid());
    let mut setup = tracing::setup(&args.tracing, Some(path.clone()), invoker)?;
    setup.command = image::scrub(&args.command.iter().map(shown).collect::<Vec<_>>());
    let mut session = setup.start()?;
    tracing::place_libraries(&mut session, &args.tracing)?;
    session.adopt(child.pid())?;
    tracing::warn_blind(&args.tracing, &session);
    if args.tracing.verbose > 0 {
        say!("vramtrace: {} probes placed; starting {name} as process {}", session.placed(), child.pid());
    }
    child.release()?;
    let pidfd = child.pidfd().try_clone_to_owned()?;
    let target = Target { pid: child.pid(), pidfd: pidfd.as_fd(), guard: session.guard() };
    let serving = args.tracing.until == options::Until::Serving;
    let until = Until { target: Some(&target), limit: tracing::limit(&args.tracing), serving, last_process: false };
    let traced = trace(session, &until, &signals, &mut child);
    let (end, status) = match traced {
        Ok((end, status, summary)) => {
            tracing::served(&args.tracing, end, "the command");
            tracing::last_line(&path, summary);
            (Some(end), status)
        }
        // A full disk, say. What was written before can be read; the command goes on and is waited for.
        Err(error) => {
            say!("vramtrace: {}; the command goes on untraced", super::one_line(&error));
            (None, None)
        }
    };
    let again = match end {
        // Whatever the command does with its own second Ctrl-C, we are not in its way.
        Some(End::Again(signal)) => Some(signal),
        _ if status.is_none() => target.wait(&signals, false)?,
        _ => None,
    };
    if let Some(signal) = again {
        return Ok(ExitCode::from(128 + signal as u8));
    }
    let code = u8::try_from(exit_code(child.wait()?)).unwrap_or(u8::MAX);
    Ok(if end.is_some() { ExitCode::from(code) } else { ExitCode::FAILURE })
}

/// Traces until something ends it, and closes the file. Gives the child's status if it has ended.
fn trace(
    mut session: Session,
    until: &Until<'_>,
    signals: &Signals,
    child: &mut Held,
) -> anyhow::Result<(End, Option<ExitStatus>, Summary)> {
    let begun = Instant::now();
    let mut end = drive::drive(&mut session, until, signals, |_| {})?;
    let status = if end == End::Child { Some(child.wait()?) } else { None };
    // The command's own exit is among the events that wait; what it started may live on.
    while status.is_some() && session.drain()? {}
    if status.is_some() && session.live() > 0 {
        let running = tracing::still_running(session.live());
        say!("vramtrace: the command has ended, {running}: tracing goes on (Ctrl-C ends it)");
        let limit = until.limit.map(|limit| limit.saturating_sub(begun.elapsed()));
        end = drive::drive(
            &mut session,
            &Until { target: None, limit, serving: until.serving, last_process: true },
            signals,
            |_| {},
        )?;
    }
    Ok((end, status, drive::finish(session, end, status.map(outcome))?))
}

fn outcome(status: ExitStatus) -> Outcome {
    match status.signal() {
        Some(signal) => Outcome::Killed { signal },
        None => Outcome::Exited { code: status.code().unwrap_or_default() },
    }
}
