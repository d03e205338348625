//! Exports: a trace's memory in the formats of other tools.
//!
//! A format is a file of this folder and a row of [`FORMATS`]; the command line, its help, its shell completions and the
//! tests go by the table. Formats write as they go: the book is the only thing of the trace's size that is held.

use std::collections::HashMap;
use std::io::{self, Write};
use std::path::Path;

use super::folded::{self, Value};
use super::query::{self, At, Moments};
use crate::ledger::Allocation;
use crate::lifecycle::{Axes, Axis};
use crate::trace;

mod calls;
mod changes;
mod firefox;
mod parquet;
mod perfetto;
mod pprof;
mod spans;
mod speedscope;
mod torch;

/// What an export is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    /// The book with its axes.
    pub axes: &'a Axes<'a>,
    /// The file the book was read from. Formats that show API calls read it once more, for a book does not keep them.
    pub trace: &'a Path,
    /// What stacks count for.
    pub value: Value,
    /// Moment to look at.
    pub at: At,
    /// Axes whose labels stand before the frames.
    pub by: &'a [Axis],
}

/// Where an export goes.
pub type Sink<'w> = dyn Write + Send + 'w;

/// An option of the command that has a meaning for some formats alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// [`Job::value`].
    Value,
    /// [`Job::at`].
    At,
    /// [`Job::by`].
    By,
}

/// An output format.
#[derive(Debug)]
pub struct Format {
    /// Name on the command line.
    pub name: &'static str,
    /// How a file's name ends, without the leading dot.
    pub extension: &'static str,
    /// What it holds.
    pub about: &'static str,
    /// What opens it.
    pub opens: &'static str,
    /// True when it is lines of text that other commands read from a pipe.
    pub lines: bool,
    /// Options that have a meaning for it.
    pub choices: &'static [Choice],
    write: fn(&Job<'_>, &mut Sink<'_>) -> Result<(), Error>,
}

/// All formats.
pub const FORMATS: [Format; 7] = [
    Format {
        name: "folded",
        extension: "folded",
        about: "a line `frame;frame;… bytes` for each stack",
        opens: "https://speedscope.app, inferno-flamegraph or flamegraph.pl",
        lines: true,
        choices: &[Choice::Value, Choice::At, Choice::By],
        write: write_folded,
    },
    Format {
        name: "speedscope",
        extension: "speedscope.json",
        about: "stacks by bytes, a profile for each process",
        opens: "https://speedscope.app (drop FILE there; it stays in the browser) or `speedscope FILE`",
        lines: false,
        choices: &[Choice::Value, Choice::At, Choice::By],
        write: speedscope::write,
    },
    Format {
        name: "pprof",
        extension: "pb.gz",
        about: "bytes and counts, live and ever allocated, by stack, with rank, phase, owner, kind, gpu as tags",
        opens: "`go tool pprof -http : FILE`",
        lines: false,
        choices: &[Choice::At],
        write: pprof::write,
    },
    Format {
        name: "firefox",
        extension: "firefox.json",
        about: "allocations with stacks, memory counters, phases and API calls over time",
        opens: "https://profiler.firefox.com (drop FILE there; it stays in the browser) or `samply load FILE`",
        lines: false,
        choices: &[],
        write: firefox::write,
    },
    Format {
        name: "perfetto",
        extension: "perfetto.json",
        about: "live bytes by phase as counters, API calls and phases as slices (Chrome trace events)",
        opens: "https://ui.perfetto.dev (drop FILE there; it stays in the browser) or chrome://tracing",
        lines: false,
        choices: &[],
        write: perfetto::write,
    },
    Format {
        name: "torch-snapshot",
        extension: "pickle",
        about: "a PyTorch memory snapshot of all GPU memory, PyTorch's or not",
        opens: "https://pytorch.org/memory_viz (drop FILE there; it stays in the browser)",
        lines: false,
        choices: &[Choice::At],
        write: torch::write,
    },
    Format {
        name: "parquet",
        extension: "parquet",
        about: "a table with a row for each event",
        opens: "DuckDB, Polars, pandas or Spark, as: duckdb -c \"SELECT phase, sum(bytes) FROM 'FILE' WHERE event = \
                'alloc' GROUP BY ALL\"",
        lines: false,
        choices: &[],
        write: parquet::write,
    },
];

/// Why an export could not be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The trace has no such moment.
    #[error(transparent)]
    Query(#[from] query::Error),
    /// The trace could not be read once more.
    #[error(transparent)]
    Trace(#[from] trace::Error),
    /// It was read from a pipe.
    #[error("{0} is no regular file, and this format reads a trace twice: save it to a file first")]
    Pipe(String),
    /// The file could not be written.
    #[error("cannot write")]
    Io(#[from] io::Error),
}

impl From<serde_json::Error> for Error {
    fn from(error: serde_json::Error) -> Self {
        Self::Io(error.into())
    }
}

impl Format {
    /// The format of that name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        FORMATS.iter().find(|format| format.name == name)
    }

    /// Writes a trace in this format.
    ///
    /// # Errors
    ///
    /// When the trace has no such moment as asked for (nothing is written then), cannot be read once more, or the file
    /// cannot be written.
    pub fn write(&self, job: &Job<'_>, to: &mut Sink<'_>) -> Result<(), Error> {
        (self.write)(job, to)?;
        Ok(to.flush()?)
    }
}

fn write_folded(job: &Job<'_>, to: &mut Sink<'_>) -> Result<(), Error> {
    let stacks = folded::collapse(job.axes, job.by, job.value, job.at)?;
    Ok(to.write_all(folded::render(&stacks).as_bytes())?)
}

impl Job<'_> {
    /// The moments that `value` and `at` mean; `Value::Peak` is live bytes at the peak.
    fn moments(&self) -> Result<Moments, query::Error> {
        Moments::new(self.axes, if self.value == Value::Peak { At::Peak } else { self.at })
    }
}

/// A row of each cell, to read names off.
fn first_rows<'a>(axes: &Axes<'a>, by: &[Axis]) -> HashMap<Vec<u32>, &'a Allocation> {
    let mut first = HashMap::new();
    let mut key = Vec::with_capacity(by.len());
    for row in &axes.book().allocations {
        key.clear();
        key.extend(by.iter().map(|axis| axes.cell(*axis, row)));
        if !first.contains_key(&key) {
            first.insert(key.clone(), row);
        }
    }
    first
}

/// Name of a process: its rank, and what else is known of it.
fn process_name(axes: &Axes<'_>, process: usize) -> String {
    let (rank, label) = (axes.rank(process), axes.label(Axis::Process, process as u32));
    if rank == label { rank.to_owned() } else { format!("{rank} · {label}") }
}

/// True when the memory went with its process: not freed, but taken back by the driver. `ends` is each process's last moment:
/// what another left to it after that, as it died, it never held at the end.
fn went_with_process(ends: &[u64], row: &Allocation) -> bool {
    ends.get(row.process).is_some_and(|end| row.born <= *end && row.died.is_some_and(|(died, _)| died > *end))
}
