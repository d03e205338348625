//! `vramtrace flamegraph`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use tracer::lifecycle::{Axes, Axis, Rules};
use tracer::report::diff::{self, Run, When};
use tracer::report::folded::Value;
use tracer::report::{At, flamegraph};

use super::reading::{Reading, distinct, names};
use super::{open, output};

const EXAMPLES: &str = "\
EXAMPLES:
  vramtrace flamegraph server.vrt -o server.svg
  vramtrace flamegraph server.vrt --value peak -o peak.svg
  vramtrace flamegraph server.vrt --at oom -o oom.svg
  vramtrace flamegraph server.vrt --by phase,rank -o phases.svg
  vramtrace flamegraph on.vrt --vs off.vrt -o diff.svg";

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

    /// Trace to compare with: red is what FILE holds more than BASE, blue what it holds less
    #[arg(long, value_name = "BASE")]
    vs: Option<PathBuf>,

    /// Moment for --value live: end (for a process that exited: just before), peak, oom, or a time since tracing began;
    /// with --vs also what `vramtrace diff --at` takes [default: end; with --vs that of `vramtrace diff`]
    #[arg(long, value_name = "end|peak|oom|TIME")]
    at: Option<When>,

    /// Axes whose labels stand before the frames, outermost first, like rank,phase
    #[arg(long, value_name = "AXIS,…", value_delimiter = ',', default_value = "rank")]
    by: Vec<Axis>,

    /// Replace the SVG if it exists
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    reading: Reading,
}

/// The trace of `axes` against another.
fn against(args: &Args, base: &Path, axes: &Axes<'_>, by: &[Axis], rules: &Rules) -> anyhow::Result<Vec<u8>> {
    let book = open::book(base)?;
    let base_axes = Axes::with_rules(&book, rules);
    let [base, other] = names([base, &args.file]);
    let (base, other) = (Run { name: &base, axes: &base_axes }, Run { name: &other, axes });
    Ok(diff::flame::render(&base, &other, by, args.value, args.at.unwrap_or_default())?)
}

/// Writes the SVG and says where it is.
pub(super) fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let rules = args.reading.rules()?;
    let book = open::book(&args.file)?;
    let axes = Axes::with_rules(&book, &rules);
    let by = distinct(&args.by);
    let svg = match (&args.vs, args.at.unwrap_or(When::At(At::End))) {
        (Some(base), _) => against(args, base, &axes, &by, &rules)?,
        (None, When::At(at)) => flamegraph::render(&axes, &by, &args.file, args.value, at)
            .with_context(|| args.file.display().to_string())?,
        (None, _) => bail!("the moments of two runs are asked for, but there is one: add --vs BASE"),
    };
    if args.output == Path::new("-") {
        output::to_stdout(&svg)?;
    } else {
        output::to_file(&args.output, &svg, args.force)?;
        println!("{}: flame graph, opens in a web browser", args.output.display());
    }
    Ok(ExitCode::SUCCESS)
}
