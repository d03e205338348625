//! `vramtrace attach`.

use std::process::ExitCode;

use regex::Regex;

use super::options::Tracing;

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
pub(super) fn execute(args: Args) -> anyhow::Result<ExitCode> {
    let _ = (args.tracing, args.pid, args.pattern);
    anyhow::bail!("not built yet")
}
