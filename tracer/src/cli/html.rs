//! `vramtrace html`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tracer::lifecycle::Axes;
use tracer::report::At;
use tracer::report::html::{self, Shown};

use super::reading::Reading;
use super::{open, output};

const EXAMPLES: &str = "\
EXAMPLES:
  vramtrace html server.vrt -o server.html
  vramtrace html on.vrt --vs off.vrt -o on.html
  vramtrace html server.vrt --at oom -o oom.html";

/// Write a trace's report as one web page that needs no network
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Trace to read
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Page to write; - for standard output
    #[arg(short, long, value_name = "FILE")]
    output: PathBuf,

    /// Trace to compare with: the run that was well, or came first
    #[arg(long, value_name = "BASE")]
    vs: Option<PathBuf>,

    /// Moment to look at: end (for a process that exited: just before), peak, oom, or a time since tracing began
    #[arg(long, value_name = "end|peak|oom|TIME", default_value = "end")]
    at: At,

    /// Replace the page if it exists
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    reading: Reading,
}

/// Writes the page and says where it is.
pub(super) fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let rules = args.reading.rules()?;
    let book = open::book(&args.file)?;
    let axes = Axes::with_rules(&book, &rules);
    let base = match &args.vs {
        Some(path) => Some((open::book(path)?, file_name(path))),
        None => None,
    };
    let base_axes = base.as_ref().map(|(book, _)| Axes::with_rules(book, &rules));
    let base = base_axes.as_ref().zip(base.as_ref()).map(|(axes, (_, name))| Shown { axes, name });
    let page = html::render(Shown { axes: &axes, name: &file_name(&args.file) }, base, args.at)?;
    if args.output == Path::new("-") {
        output::to_stdout(page.as_bytes())?;
    } else {
        output::to_file(&args.output, page.as_bytes(), args.force)?;
        println!("{}: report, opens in a web browser", args.output.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// The last part of a path: a page may be passed on, and says nothing about its maker's folders.
fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
