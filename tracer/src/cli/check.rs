//! `vramtrace check`.

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context as _;
use tracer::attach::check::{Check, Status, Target, Typed};
use tracer::attach::host::{Host, Root};

use super::output;

const EXAMPLES: &str = "\
EXAMPLES:
  vramtrace check
  sudo vramtrace check --pid 4711
  vramtrace check -- python3 -m sglang.launch_server --model-path MODEL";

/// Say what this host, kernel, driver and target allow, and how to fix what they do not
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Also check what can be traced in this process
    #[arg(long, value_name = "PID", conflicts_with = "command", value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) pid: Option<u32>,

    /// Also check what can be traced in this command; it is not run
    #[arg(last = true, value_name = "COMMAND")]
    pub(super) command: Vec<OsString>,
}

/// Prints what is there and what is missing. Exit code 1 when tracing does not work.
pub(super) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let root = Root::default();
    let host = Host::read(&root).context("cannot tell what this host allows")?;
    let target = match (args.pid, args.command.into_iter().next()) {
        (Some(pid), _) => Some(Target::of_pid(&root, pid)?),
        (None, Some(program)) => Some(Target::of_command(&program)?),
        (None, None) => None,
    };
    let check = Check::new(&host, target.as_ref(), &Typed::here());
    output::to_stdout(format!("{check}\n").as_bytes())?;
    Ok(if check.worst() == Status::Missing { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
