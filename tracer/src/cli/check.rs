//! `vramtrace check`.

use std::ffi::OsString;
use std::process::ExitCode;

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

/// Prints what is there and what is missing.
pub(super) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let _ = (args.pid, args.command);
    anyhow::bail!("not built yet")
}
