//! Apache Parquet: a table with a row for each event, for `DuckDB`, Polars, pandas or Spark across many
//! traces.
//!
//! Rows stand in order of time. `sum(bytes)` over `alloc` rows is the report's `allocated_bytes`; less that over `free`
//! rows it is `live_bytes`: memory that the driver took back when a process ended is an `exit` row, no `free`.

use std::{io, iter::Peekable, slice, vec};

use super::changes::{self, Change};
use super::{Error, Job, Sink, calls};
use crate::ledger::{Book, Failure, Sample};
use crate::lifecycle::{Axes, Axis};
use crate::report::ends::ends;
use crate::trace::record::Call;
use columns::Row;
use names::Names;
use table::Table;

mod columns;
mod names;
mod table;

/// Writes the table.
pub(super) fn write(job: &Job<'_>, to: &mut Sink<'_>) -> Result<(), Error> {
    let (axes, book) = (job.axes, job.axes.book());
    let mut events = Events {
        axes,
        names: Names::new(axes),
        changes: changes::changes(&book.allocations, |_| true).peekable(),
        samples: book.samples.iter().peekable(),
        failures: book.failures.iter().peekable(),
        blocks: changes::block_changes(&book.torch.blocks).into_iter().peekable(),
        ends: ends(book),
        live: vec![0; book.processes.len() * book.gpus.len()],
    };
    let mut table = Table::new(book, to)?;
    calls::each(job, |call, process| {
        while let Some(row) = events.next(call.t) {
            table.push(row)?;
        }
        table.push(events.call(call, process))
    })?;
    while let Some(row) = events.next(u64::MAX) {
        table.push(row)?;
    }
    table.finish()
}

/// What a book has of events, in order of time.
struct Events<'a> {
    axes: &'a Axes<'a>,
    names: Names<'a>,
    changes: Peekable<changes::Changes<'a>>,
    samples: Peekable<slice::Iter<'a, Sample>>,
    failures: Peekable<slice::Iter<'a, Failure>>,
    blocks: Peekable<vec::IntoIter<(u64, bool, u32)>>,
    /// Last moment of each process.
    ends: Vec<u64>,
    /// Live bytes of each process on each GPU.
    live: Vec<u64>,
}

impl Events<'_> {
    /// The next event up to `t`.
    fn next(&mut self, t: u64) -> Option<Row> {
        let change = self.changes.peek().map(|change| change.t);
        let sample = self.samples.peek().map(|sample| sample.t);
        let failure = self.failures.peek().map(|failure| failure.t);
        let block = self.blocks.peek().map(|(block, ..)| *block);
        let first = [change, block, sample, failure].into_iter().flatten().min().filter(|first| *first <= t)?;
        if change == Some(first) {
            self.changes.next().map(|change| self.memory(change))
        } else if block == Some(first) {
            self.blocks.next().map(|(t, born, number)| self.block(t, born, number as usize))
        } else if sample == Some(first) {
            self.samples.next().map(|sample| self.sample(sample))
        } else {
            self.failures.next().map(|failure| self.failure(failure))
        }
    }

    /// A row with what every event has.
    fn row(&mut self, event: &'static str, t: u64, process: usize) -> Row {
        let (axes, book) = (self.axes, self.axes.book());
        let since = int(t.saturating_sub(book.header.t));
        Row {
            time_ns: since,
            unix_ns: int(book.header.unix_ns).saturating_add(since),
            event: self.names.text(event),
            pid: i64::from(book.processes[process].pid),
            rank: self.names.text(axes.rank(process)),
            role: self.names.text(axes.role(process).name()),
            ..Row::default()
        }
    }

    /// Memory came or went.
    fn memory(&mut self, change: Change) -> Row {
        let (axes, book) = (self.axes, self.axes.book());
        let memory = &book.allocations[change.row];
        let event = match change.born {
            true => "alloc",
            false if super::went_with_process(&self.ends, memory) => "exit",
            false => "free",
        };
        let mut row = self.row(event, change.t, memory.process);
        self.names.gpu(&mut row, memory.gpu);
        let mut name = |axis| self.names.cell(axis, axes.cell(axis, memory));
        (row.phase, row.role, row.owner, row.kind) =
            (name(Axis::Phase), name(Axis::Role), name(Axis::Owner), name(Axis::Kind));
        row.api = memory.calls.first().and_then(|api| self.names.text(api));
        let live = &mut self.live[memory.process * book.gpus.len() + memory.gpu];
        // Saturates: a damaged trace may claim more bytes than there can be.
        *live = if change.born { live.saturating_add(memory.bytes) } else { live.saturating_sub(memory.bytes) };
        (row.bytes, row.live_bytes_after) = (Some(int(memory.bytes)), Some(int(*live)));
        row.allocation = Some(change.row as i64);
        if change.born {
            (row.tid, row.stack) = (Some(i64::from(memory.tid)), memory.stack);
        }
        row
    }

    /// `PyTorch`'s allocator handed a block out or took it back.
    fn block(&mut self, t: u64, born: bool, number: usize) -> Row {
        let (axes, torch) = (self.axes, &self.axes.book().torch);
        let block = &torch.blocks[number];
        let device = &torch.devices[block.device as usize];
        let mut row = self.row(if born { "block" } else { "block_free" }, t, device.process);
        if let Some(gpu) = device.gpu {
            self.names.gpu(&mut row, gpu);
        }
        row.phase = self.names.text(axes.block_phase(device.process, block));
        (row.bytes, row.address) = (Some(int(block.bytes)), Some(int(block.address)));
        row.allocation = Some(number as i64);
        if born {
            (row.tid, row.stack) = (Some(i64::from(block.tid)), block.stack);
        }
        row
    }

    /// NVML was asked.
    fn sample(&mut self, sample: &Sample) -> Row {
        let mut row = self.row("sample", sample.t, sample.process);
        self.names.gpu(&mut row, sample.gpu);
        (row.nvml_bytes, row.live_bytes_after) = (Some(int(sample.nvml)), Some(int(sample.live)));
        row
    }

    /// A call or request failed.
    fn failure(&mut self, failure: &Failure) -> Row {
        let mut row = self.row("failure", failure.t, failure.process);
        if let Some(gpu) = failure.gpu {
            self.names.gpu(&mut row, gpu);
        }
        row.phase = self.names.text(self.axes.failure_phase(failure));
        row.api = self.names.text(&failure.api);
        (row.bytes, row.free_bytes) = (failure.requested.map(int), failure.free.map(int));
        (row.result, row.stack) = (Some(failure.result), failure.stack);
        row
    }

    /// An API call returned; one that read free memory is a `reading`.
    fn call(&mut self, call: &Call, process: usize) -> Row {
        let is_reading = call.result == 0 && call.free.is_some();
        let mut row = self.row(if is_reading { "reading" } else { "call" }, call.t, process);
        row.tid = Some(i64::from(call.tid));
        row.phase = self.names.cell(Axis::Phase, calls::phase(self.axes, call, process));
        row.api = self.names.text(&call.api);
        row.duration_ns = Some(int(call.t.saturating_sub(call.start)));
        (row.depth, row.result, row.device) = (Some(i64::from(call.depth)), Some(call.result), call.device);
        (row.bytes, row.free_bytes, row.total_bytes) = (call.size.map(int), call.free.map(int), call.total.map(int));
        (row.address, row.stack) = (call.address.map(int), call.stack);
        row
    }
}

/// Columns are signed, as some readers know no other integers.
fn int(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// What a reader finds out about the trace beside its rows (`parquet_kv_metadata` in `DuckDB`).
fn about(book: &Book) -> Vec<(String, String)> {
    let header = &book.header;
    let json = |text: serde_json::Result<String>| text.unwrap_or_default();
    let facts = [
        ("schema", "vramtrace.events/1".to_owned()),
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("host", header.host.clone()),
        ("kernel", header.kernel.clone()),
        ("driver", header.driver.clone().unwrap_or_default()),
        ("command", header.command.join(" ")),
        ("start_unix_ns", header.unix_ns.to_string()),
        ("outcome", json(serde_json::to_string(&book.outcome))),
        ("losses", json(serde_json::to_string(&book.losses))),
    ];
    facts.map(|(key, value)| (format!("vramtrace.{key}"), value)).to_vec()
}

/// Errors of the writer; of the file below where it says so.
fn failed(error: parquet::errors::ParquetError) -> Error {
    match error {
        parquet::errors::ParquetError::External(inner) => match inner.downcast::<io::Error>() {
            Ok(io) => Error::Io(*io),
            Err(other) => Error::Io(io::Error::other(other)),
        },
        other => Error::Io(io::Error::other(other)),
    }
}
