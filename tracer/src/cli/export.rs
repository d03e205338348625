//! `vramtrace export`.

use std::io::{self, IsTerminal};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use flate2::{Compression, write::GzEncoder};
use tracer::lifecycle::{Axes, Axis};
use tracer::report::export::{Choice, Error, FORMATS, Format, Job, Sink};
use tracer::report::query::Moments;
use tracer::report::text::plain::plain;
use tracer::report::{At, bytes, folded};

use super::reading::{Reading, distinct};
use super::{open, output};

const EXAMPLES: &str = "\
EXAMPLES:
  vramtrace export server.vrt --format speedscope
  vramtrace export server.vrt --format pprof --at oom -o oom.pb.gz
  vramtrace export server.vrt --format perfetto -o server.json.gz
  vramtrace export server.vrt --format torch-snapshot
  vramtrace export server.vrt --format folded --value peak | sort -k2 -n -t' '
  for trace in *.vrt; do vramtrace export $trace --format parquet; done

The last line says where the file is and what opens it.";

/// Write a trace's memory in another tool's format
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Trace to read
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Format to write
    #[arg(long, value_name = "FORMAT", value_parser = formats())]
    format: &'static Format,

    /// File to write, compressed if its name ends in .gz; - for standard output [default: FILE's name with the format's
    /// extension; standard output for folded]
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,

    /// What stacks count for: live (at a moment), peak (live at each process's peak), or allocated (ever) [default: live]
    #[arg(long, value_name = "live|peak|allocated")]
    value: Option<folded::Value>,

    /// Moment that live is of: end (for a process that exited: just before), peak, oom, or a time since tracing began
    /// [default: end]
    #[arg(long, value_name = "end|peak|oom|TIME")]
    at: Option<At>,

    /// Axes whose labels stand before the frames, outermost first, like rank,phase [default: rank]
    #[arg(long, value_name = "AXIS,…", value_delimiter = ',')]
    by: Vec<Axis>,

    /// Replace OUT if it exists
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    reading: Reading,
}

/// Takes the formats' names; help and completions list them.
fn formats() -> impl TypedValueParser<Value = &'static Format> {
    let names = FORMATS.iter().map(|format| PossibleValue::new(format.name).help(format.about));
    PossibleValuesParser::new(names).try_map(|name| Format::named(&name).ok_or("no such format"))
}

/// Writes the export and says where it is and what opens it.
pub(super) fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    let format = args.format;
    check_choices(args)?;
    let output = args.output.clone().unwrap_or_else(|| default_output(&args.file, format));
    let to_stdout = output == Path::new("-");
    if to_stdout && !format.lines && io::stdout().is_terminal() {
        bail!("{} is not for a terminal: name a file with -o, or send standard output to one", format.name);
    }
    ensure!(to_stdout || !is_same(&output, &args.file), "{} is the trace itself: name another file", output.display());
    let rules = args.reading.rules()?;
    let book = open::book(&args.file)?;
    let axes = Axes::with_rules(&book, &rules);
    let (value, at) = (args.value.unwrap_or_default(), args.at.unwrap_or_default());
    let trace = || args.file.display().to_string();
    // Before a file is made, or an old one replaced.
    Moments::new(&axes, at).with_context(trace)?;
    let by = if args.by.is_empty() { folded::ROOTS.to_vec() } else { distinct(&args.by) };
    let job = Job { axes: &axes, trace: &args.file, value, at, by: &by };
    if to_stdout {
        format.write(&job, &mut io::stdout()).with_context(trace)?;
        return Ok(ExitCode::SUCCESS);
    }
    let gzip = output.extension().is_some_and(|end| end == "gz") && !format.extension.ends_with("gz");
    let size = output::stream(&output, args.force, |to| {
        if gzip { compressed(format, &job, to) } else { format.write(&job, to) }.with_context(trace)
    })?;
    let (shown, size) = (plain(&output.display().to_string()), bytes::human(size));
    let opens = format.opens.replace("FILE", &shown);
    say!("vramtrace: wrote {shown} ({size}), {}. Open it: {opens}", format.about);
    Ok(ExitCode::SUCCESS)
}

fn compressed(format: &Format, job: &Job<'_>, to: &mut Sink<'_>) -> Result<(), Error> {
    let mut gzip = GzEncoder::new(to, Compression::default());
    format.write(job, &mut gzip)?;
    Ok(gzip.finish().map(drop)?)
}

/// An option that would do nothing was meant to do something.
fn check_choices(args: &Args) -> anyhow::Result<()> {
    let given = [
        (Choice::Value, args.value.is_some(), "--value"),
        (Choice::At, args.at.is_some(), "--at"),
        (Choice::By, !args.by.is_empty(), "--by"),
    ];
    for (choice, is_given, option) in given {
        if is_given && !args.format.choices.contains(&choice) {
            let others = FORMATS.iter().filter(|format| format.choices.contains(&choice)).map(|format| format.name);
            let (name, others) = (args.format.name, others.collect::<Vec<_>>().join(", "));
            bail!("{option} means nothing for {name}: leave it out ({option} is for {others})");
        }
    }
    Ok(())
}

/// `server.speedscope.json` of `traces/server.vrt`, in the current directory.
fn default_output(trace: &Path, format: &Format) -> PathBuf {
    if format.lines {
        return "-".into();
    }
    let mut name = trace.file_stem().unwrap_or_default().to_owned();
    name.push(".");
    name.push(format.extension);
    name.into()
}

fn is_same(one: &Path, other: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    id(one).is_some_and(|one| Some(one) == id(other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_named_after_the_trace() {
        let name = |format: &str| default_output(Path::new("/traces/server.vrt"), Format::named(format).unwrap());
        assert_eq!(name("speedscope"), Path::new("server.speedscope.json"));
        assert_eq!(name("pprof"), Path::new("server.pb.gz"));
        assert_eq!(name("folded"), Path::new("-"));
    }
}
