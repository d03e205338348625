//! `vramtrace run`.

use std::ffi::OsString;
use std::process::ExitCode;

use super::options::Tracing;

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
pub(super) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let _ = (args.tracing.output_path("run", 0), args.as_root, args.command);
    anyhow::bail!("not built yet")
}
