//! `vramtrace report`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use tracer::ledger::Book;
use tracer::lifecycle::{Axes, Axis, Rules};
use tracer::report::text;
use tracer::report::{At, Query, Summary, json};

use super::open;
use super::output::{self, Format};
use super::reading::{Reading, distinct};

const EXAMPLES: &str = "\
EXAMPLES:
  vramtrace report server.vrt
  vramtrace report server.vrt --at oom --by rank,kind,stack
  vramtrace report server.vrt --at 12.5s --by device,owner
  vramtrace report server.vrt --by phase,owner,role --rules mine.toml
  vramtrace report node0.vrt node1.vrt
  vramtrace report server.vrt --format json | jq '.processes[].devices[] | [.label, .live_bytes]'";

/// Show where the memory of a trace went
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Trace to read; several that were recorded on different hosts at the same time make one report
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,

    /// Report each trace by itself, wherever it was recorded
    #[arg(long)]
    each: bool,

    /// Divide memory by these, outermost first: phase, rank, kind, owner, role, device, stack, process, api
    /// [default: rank,phase where phases are known, else rank,device,kind]
    #[arg(long, value_name = "AXIS,…", value_delimiter = ',')]
    by: Vec<Axis>,

    /// Moment to look at: end (for a process that exited: just before), peak, oom, or a time since tracing began
    #[arg(long, value_name = "end|peak|oom|TIME", default_value = "end")]
    at: At,

    /// Output format
    #[arg(long, value_name = "text|json", default_value = "text", hide_possible_values = true)]
    format: Format,

    #[command(flatten)]
    reading: Reading,
}

/// Prints the report of each file, one after the other; of traces of one server on several hosts, one report.
pub(super) fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let rules = args.reading.rules()?;
    let books = args.files.iter().map(|path| open::book(path)).collect::<anyhow::Result<Vec<_>>>()?;
    if !args.each && Book::are_of_one_run(&books) {
        let names: Vec<_> = args.files.iter().map(|path| path.to_string_lossy()).collect();
        print(args, &open::kept(Book::merge(books)), &names.join(", "), &rules)?;
        return Ok(ExitCode::SUCCESS);
    }
    for (n, (path, book)) in args.files.iter().zip(open::kept(books).iter()).enumerate() {
        if n > 0 && args.format == Format::Text {
            output::to_stdout(b"\n")?;
        }
        print(args, book, &path.to_string_lossy(), &rules)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print(args: &Args, book: &Book, name: &str, rules: &Rules) -> anyhow::Result<()> {
    let by = distinct(&args.by);
    let axes = open::kept(Axes::with_rules(book, rules));
    let query = match by.is_empty() {
        true => Query::suiting(&axes, args.at),
        false => Query { by, at: args.at, ..Query::default() },
    };
    let summary = Summary::of(&axes, &query).with_context(|| name.to_owned())?;
    let text = match args.format {
        Format::Text => text::render(&summary, name, output::style()),
        Format::Json => json::render(&summary),
    };
    output::to_stdout(text.as_bytes())
}
