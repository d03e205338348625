//! `vramtrace diff`.

use std::path::PathBuf;
use std::process::ExitCode;

use tracer::lifecycle::{Axes, Axis};
use tracer::report::diff::{Diff, Question, Run, When, json, text};

use super::open;
use super::output::{self, Format};
use super::reading::{Reading, distinct, names};

const EXAMPLES: &str = "\
EXAMPLES:
  vramtrace diff off.vrt on.vrt
  vramtrace diff off.vrt on.vrt --at weights
  vramtrace diff monday.vrt friday.vrt --by rank,owner
  vramtrace diff off.vrt on.vrt --format json | jq '.ranks[] | [.rank, .delta_bytes]'";

/// Compare two runs: their configuration, signed bytes by rank and phase, stacks
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Trace to compare with: the run that was well, or came first
    #[arg(value_name = "BASE")]
    base: PathBuf,

    /// Trace to compare
    #[arg(value_name = "OTHER")]
    other: PathBuf,

    /// Divide the difference by these, outermost first: phase, rank, kind, owner, role, device, stack, process, api
    /// [default: rank,phase where phases are known, else rank,kind]
    #[arg(long, value_name = "AXIS,…", value_delimiter = ',')]
    by: Vec<Axis>,

    /// Moment to compare at: end, peak, oom, a time since tracing began, common (the end of the last phase that both
    /// went through), or the end of a phase by its name, like weights
    /// [default: end; common where a run failed before it served]
    #[arg(long, value_name = "MOMENT")]
    at: Option<When>,

    /// Output format
    #[arg(long, value_name = "text|json", default_value = "text", hide_possible_values = true)]
    format: Format,

    #[command(flatten)]
    reading: Reading,
}

/// Prints the comparison.
pub(super) fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let rules = args.reading.rules()?;
    let books = open::books([&args.base, &args.other])?;
    let names = names([&args.base, &args.other]);
    let axes = open::both(books.each_ref(), |book| open::kept(Axes::with_rules(book, &rules)));
    let [base, other] = [0, 1].map(|n| Run { name: &names[n], axes: &axes[n] });
    let question = Question { by: distinct(&args.by), when: args.at.unwrap_or_default() };
    let diff = Diff::new(&base, &other, &question)?;
    let text = match args.format {
        Format::Text => text::render(&diff, output::style()),
        Format::Json => json::render(&diff),
    };
    output::to_stdout(text.as_bytes())?;
    Ok(ExitCode::SUCCESS)
}
