//! `vramtrace top`.

mod draw;
mod keys;
mod levels;
mod screen;
mod state;
#[cfg(test)]
mod tests;

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::mpsc::sync_channel;

use anyhow::{Context as _, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tracer::attach::user::Invoker;
use tracer::collect::{
    drive::{self, Until},
    session::Session,
    signals::Signals,
};
use tracer::live::Feed;

use super::{
    options::{Switch, TensorsChoice, Tracing},
    tracing,
    which::Which,
};

const EXAMPLES: &str = "\
EXAMPLES:
  sudo vramtrace top
  sudo vramtrace top --match 'sglang|vllm'
  sudo vramtrace top --pid 4711 -o server.vrt                 also writes a trace

KEYS:
  Enter, Esc   into a rank, a cell, a stack; and out    s, r   sort by the next column; reversed
  arrows j k   move                                     /      filter: what holds this text
  ?            help                                     q      quit: tracing ends, the server goes on

What a process held before tracing began is shown as pre_attach. Colours follow NO_COLOR.";

/// Watch GPU memory live, by rank and phase
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    which: Which,

    /// Also write a trace file
    #[arg(short, long, value_name = "FILE", value_parser = super::options::trace_path)]
    output: Option<PathBuf>,

    /// Overwrite FILE if it exists
    #[arg(long, requires = "output")]
    force: bool,

    /// Rules of your own, before the built-in ones (docs/rules.md); may be given again
    #[arg(long = "rules", value_name = "FILE")]
    rules: Vec<PathBuf>,

    /// Record the native call stack of each allocation
    #[arg(long, value_name = "on|off", default_value = "on", hide_possible_values = true)]
    native_stacks: Switch,

    /// Also probe this library (a CUDA library in a place of its own); may be given again
    #[arg(long = "lib", value_name = "PATH")]
    libraries: Vec<PathBuf>,
}

impl Args {
    fn tracing(&self) -> Tracing {
        Tracing {
            output: self.output.clone(),
            force: self.force,
            until: super::options::Until::Exit,
            rules: self.rules.clone(),
            native_stacks: self.native_stacks,
            // Blocks own no bytes: only a trace has a use for them.
            tensors: if self.output.is_some() { TensorsChoice::Auto } else { TensorsChoice::Off },
            libraries: self.libraries.clone(),
            verbose: 0,
        }
    }
}

/// Shows until somebody quits.
pub(super) fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    ensure!(
        std::io::stdin().is_terminal() && std::io::stdout().is_terminal(),
        "top needs a terminal for input and output; for scripts there is attach, with --metrics or a trace"
    );
    args.which.check()?;
    let options = args.tracing();
    let rules = tracing::rules(&options)?;
    let signals = Signals::catch()?;
    let mut setup = tracing::setup(&options, args.output.clone(), Invoker::from_sudo()?)?;
    (setup.matcher, setup.live) = (args.which.later(), true);
    say!("vramtrace: placing probes …");
    let mut session = setup.start()?;
    tracing::place_libraries(&mut session, &options)?;
    args.which.attach(&mut session)?;

    // One snapshot waits at most: more would only show the past.
    let (send, receive) = sync_channel(1);
    let mut feed = Feed::start(rules, move |snapshot| _ = send.send(snapshot)).context("no thread for snapshots")?;
    let screen = screen::Screen::start(receive, args.which.pattern.as_ref().map(ToString::to_string))?;
    let until = Until { target: None, limit: None, serving: false, last_process: false };
    // The screen ends tracing as Ctrl-C does elsewhere.
    let end = drive::drive(&mut session, &until, &signals, |session: &Session| feed.update(session));
    // The probes go first, whatever becomes of the terminal.
    let summary = end.and_then(|end| drive::finish(session, end, None));
    let shown = screen.stop();
    let summary = summary?;
    shown?;
    match &args.output {
        Some(path) => tracing::last_line(path, summary),
        // The terminal may be gone.
        None => _ = writeln!(std::io::stderr(), "vramtrace: tracing has ended and all probes are gone"),
    }
    Ok(ExitCode::SUCCESS)
}

/// Asks ourselves for the end.
fn ask_for_the_end() {
    // The signal is blocked in every thread and read by the session.
    _ = kill(Pid::this(), Signal::SIGINT);
}
