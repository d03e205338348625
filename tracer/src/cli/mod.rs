//! The command line: a file a command.

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};

/// Says a line on standard error, as `eprintln!` does. Nobody may be reading there any more, which must end neither tracing nor
/// the command that is traced.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write as _;
        _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

mod attach;
mod check;
mod completions;
mod diff;
mod export;
mod flamegraph;
mod html;
mod open;
mod options;
mod output;
mod reading;
mod report;
mod run;
mod top;
mod tracing;
mod which;

const EXAMPLES: &str = "\
EXAMPLES:
  Trace a server from its first instruction, then see where its memory went:
      sudo vramtrace run -o server.vrt -- python3 -m sglang.launch_server --model-path MODEL
      vramtrace report server.vrt

  It died of CUDA out of memory: what held the GPU at that moment?
      vramtrace report server.vrt --at oom --by rank,kind,stack

  Trace a server that already runs, for a minute:
      sudo vramtrace attach --pid 4711 --until 1m -o server.vrt

  It ran yesterday and dies today: what changed?
      vramtrace diff yesterday.vrt today.vrt

  A picture of all that was live at the peak:
      vramtrace flamegraph server.vrt --value peak -o server.svg

  All of it as one web page:
      vramtrace html server.vrt -o server.html

  For speedscope, pprof, the Firefox Profiler, Perfetto, PyTorch's memory_viz or DuckDB:
      vramtrace export server.vrt --format speedscope

  What stands in the way of tracing on this machine?
      vramtrace check";

/// Shows where every byte of GPU memory went in an unmodified CUDA server
///
/// vramtrace follows the CUDA API and the driver's own requests with eBPF. The server is neither changed nor restarted
/// with other settings, and what a report sums up is what NVML counts, to the byte.
#[derive(Debug, Parser)]
#[command(name = "vramtrace", version, after_help = EXAMPLES, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Run(run::Args),
    Attach(attach::Args),
    Top(top::Args),
    Report(report::Args),
    Diff(diff::Args),
    Flamegraph(flamegraph::Args),
    Html(html::Args),
    Export(export::Args),
    Check(check::Args),
    #[command(hide = true)]
    Completions(completions::Args),
    #[command(hide = true)]
    Man(completions::Man),
}

/// Runs the command line. Exit codes: the target's own for `run`; 2 for bad usage; 1 for a failure of ours.
pub(crate) fn main() -> ExitCode {
    let cli = Cli::try_parse().unwrap_or_else(|mut error| {
        hint_at_command(&mut error);
        error.exit()
    });
    let result = match cli.command {
        Command::Run(args) => run::execute(&args),
        Command::Attach(args) => attach::execute(&args),
        Command::Top(args) => top::execute(&args),
        Command::Report(args) => report::execute(&args),
        Command::Diff(args) => diff::execute(&args),
        Command::Flamegraph(args) => flamegraph::execute(&args),
        Command::Html(args) => html::execute(&args),
        Command::Export(args) => export::execute(&args),
        Command::Check(args) => check::execute(args),
        Command::Completions(args) => completions::execute(&args, Cli::command()),
        Command::Man(args) => completions::manual(&args, Cli::command()),
    };
    result.unwrap_or_else(|error| {
        // Whoever reads our output has enough of it (`vramtrace report … | head`): that is no failure.
        if output::is_broken_pipe(&error) {
            return ExitCode::SUCCESS;
        }
        say!("vramtrace: {}", one_line(&error));
        ExitCode::FAILURE
    })
}

/// `vramtrace run python3 …`: says that the command goes after `--`.
fn hint_at_command(error: &mut clap::Error) {
    let takes_command = matches!(error.get(ContextKind::Usage), Some(ContextValue::StyledStr(usage)) if usage.to_string().contains("-- "));
    let Some(ContextValue::String(argument)) = error.get(ContextKind::InvalidArg) else { return };
    if takes_command && error.kind() == ErrorKind::UnknownArgument && !argument.starts_with('-') {
        let hint = format!("the command to run goes after `--`: -- {argument} …");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![hint.into()]));
    }
}

/// Bytes of an error that are shown: the verifier's log has megabytes, and its end says what is wrong.
const SHOWN: usize = 2000;

/// The error and its causes on one line, safe for a terminal. A cause that the error tells itself is not told again.
fn one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string).filter(|cause| !cause.is_empty()) {
        if !line.ends_with(&cause) {
            line = if line.is_empty() { cause } else { format!("{line}: {cause}") };
        }
    }
    if line.len() > SHOWN {
        let boundary = |at: usize| (at..line.len()).find(|at| line.is_char_boundary(*at)).unwrap_or(line.len());
        line = format!("{} … {}", &line[..boundary(SHOWN / 4)], &line[boundary(line.len() - SHOWN * 3 / 4)..]);
    }
    tracer::report::text::plain::plain(&line.replace('\n', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_examples() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.starts_with("EXAMPLES:\n  "), "{} has no examples", command.get_name());
        }
    }

    #[test]
    fn errors_are_one_line_and_say_everything_once() {
        let io = || std::io::Error::from_raw_os_error(libc::ENOSPC);
        let wrapped = anyhow::Error::from(tracer::trace::Error::Io { path: "x.vrt".to_owned(), source: io() });
        assert_eq!(one_line(&wrapped), "x.vrt: No space left on device (os error 28)");
        assert_eq!(one_line(&anyhow::Error::from(io()).context("a\nb")), "a b: No space left on device (os error 28)");
        let long = anyhow::anyhow!("program x: {}the end", "é".repeat(1_000_000));
        let line = one_line(&long);
        assert!(line.len() < 2 * SHOWN && line.starts_with("program x: é") && line.ends_with("the end"), "{line}");
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
