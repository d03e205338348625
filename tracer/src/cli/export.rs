//! `vramtrace export`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::ValueEnum;
use tracer::lifecycle::{Axes, Axis};
use tracer::report::At;
use tracer::report::folded::{self, Value};

use super::reading::{Reading, distinct};
use super::{open, output};

const EXAMPLES: &str = "\
EXAMPLES:
  vramtrace export server.vrt --format folded -o server.folded
  vramtrace export server.vrt --format folded --value peak | sort -k2 -n -t' '";

/// Write a trace's memory in another tool's format
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Trace to read
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Format to write: folded (a line `frame;frame;… bytes` for each stack)
    #[arg(long, value_name = "folded", hide_possible_values = true)]
    format: Format,

    /// File to write; - for standard output
    #[arg(short, long, value_name = "OUT", default_value = "-")]
    output: PathBuf,

    /// What is counted: live (at a moment), peak (live at each process's peak), or allocated (ever)
    #[arg(long, value_name = "live|peak|allocated", default_value = "live")]
    value: Value,

    /// Moment for --value live: end (for a process that exited: just before), peak, oom, or a time since tracing began
    #[arg(long, value_name = "end|peak|oom|TIME", default_value = "end")]
    at: At,

    /// Axes whose labels stand before the frames, outermost first, like rank,phase
    #[arg(long, value_name = "AXIS,…", value_delimiter = ',', default_value = "rank")]
    by: Vec<Axis>,

    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    reading: Reading,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    Folded,
}

/// Writes the export; for a file, says where it is.
pub(super) fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let rules = args.reading.rules()?;
    let book = open::book(&args.file)?;
    let Format::Folded = args.format;
    let axes = Axes::with_rules(&book, &rules);
    let stacks = folded::collapse(&axes, &distinct(&args.by), args.value, args.at)
        .with_context(|| args.file.display().to_string())?;
    let text = folded::render(&stacks);
    if args.output == Path::new("-") {
        output::to_stdout(text.as_bytes())?;
    } else {
        output::to_file(&args.output, text.as_bytes(), args.force)?;
        let shown = args.output.display();
        println!(
            "{shown}: folded stacks ({}), open in https://speedscope.app or with inferno-flamegraph",
            stacks.len()
        );
    }
    Ok(ExitCode::SUCCESS)
}
