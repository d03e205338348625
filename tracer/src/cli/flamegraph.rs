//! `vramtrace flamegraph`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use tracer::lifecycle::{Axes, Axis};
use tracer::report::folded::Value;
use tracer::report::{At, flamegraph};

use super::reading::{Reading, distinct};
use super::{open, output};

const EXAMPLES: &str = "\
EXAMPLES:
  vramtrace flamegraph server.vrt -o server.svg
  vramtrace flamegraph server.vrt --value peak -o peak.svg
  vramtrace flamegraph server.vrt --at oom -o oom.svg
  vramtrace flamegraph server.vrt --by phase,rank -o phases.svg";

/// Draw a trace's memory as a flame graph (SVG), widths in bytes
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Trace to read
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// SVG to write; - for standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// What widths show: live (at a moment), peak (live at each process's peak), or allocated (ever)
    #[arg(long, value_name = "live|peak|allocated", default_value = "live")]
    value: Value,

    /// Moment for --value live: end (for a process that exited: just before), peak, oom, or a time since tracing began
    #[arg(long, value_name = "end|peak|oom|TIME", default_value = "end")]
    at: At,

    /// Axes whose labels stand before the frames, outermost first, like rank,phase
    #[arg(long, value_name = "AXIS,…", value_delimiter = ',', default_value = "rank")]
    by: Vec<Axis>,

    /// Replace the SVG if it exists
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    reading: Reading,
}

/// Writes the SVG and says where it is.
pub(super) fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let rules = args.reading.rules()?;
    let book = open::book(&args.file)?;
    let axes = Axes::with_rules(&book, &rules);
    let svg = flamegraph::render(&axes, &distinct(&args.by), &args.file, args.value, args.at)
        .with_context(|| args.file.display().to_string())?;
    if args.output == Path::new("-") {
        output::to_stdout(&svg)?;
    } else {
        output::to_file(&args.output, &svg, args.force)?;
        println!("{}: flame graph, opens in a web browser", args.output.display());
    }
    Ok(ExitCode::SUCCESS)
}
