//! A PyTorch memory snapshot (`torch.cuda.memory._dump_snapshot`), for <https://pytorch.org/memory_viz>.
//!
//! Read by `torch/utils/viz/MemoryViz.js` and `torch/cuda/_memory_viz.py` (PyTorch 2.x): `segments` with `blocks`, the state
//! at the end, and for each device `device_traces`, the events that led there. All GPU memory is shown, PyTorch's or not:
//! each piece is a segment that one block fills. Addresses are made up, for pieces of different processes share a device;
//! they do not overlap. The category that colours blocks is the phase.

use std::collections::HashMap;
use std::io;

use super::super::frames::{self, Step};
use super::super::query::Moments;
use super::pickle::{Memo, Pickle};
use super::{Error, Job, Sink, changes};
use crate::ledger::{Allocation, Book, Failure};
use crate::lifecycle::{Axes, Axis, UNATTRIBUTED};

/// First address that is made up.
const FIRST_ADDRESS: u64 = 0x7000_0000_0000;
/// Addresses are multiples of the driver's page, 2 MiB.
const ALIGNMENT: u64 = 1 << 21;
/// Most devices that are listed by NVML index; a damaged trace may name any.
const DEVICES: u32 = 1024;
/// Category of blocks without one (`MemoryViz.js` counts on its being there).
const NO_CATEGORY: &str = "unknown";

/// Writes the snapshot.
pub(super) fn write(job: &Job<'_>, to: &mut Sink<'_>) -> Result<(), Error> {
    let moments = job.moments()?;
    let book = job.axes.book();
    let mut snapshot = Snapshot {
        axes: job.axes,
        moments,
        addresses: addresses(&book.allocations),
        pickle: Pickle::begin(to)?,
        stacks: HashMap::new(),
        frames: HashMap::new(),
        categories: HashMap::new(),
    };
    snapshot.write(book)?;
    Ok(snapshot.pickle.end()?)
}

/// An address for each row. No two overlap.
fn addresses(rows: &[Allocation]) -> Vec<u64> {
    let mut next = FIRST_ADDRESS;
    let place = |row: &Allocation| {
        let address = next;
        next = next.saturating_add(row.bytes.max(1)).checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
        address
    };
    rows.iter().map(place).collect()
}

/// Device number of each of the book's GPUs: NVML's index where all have one, else the order of the book.
fn devices(book: &Book) -> Vec<usize> {
    let by_index: Option<Vec<usize>> =
        book.gpus.iter().map(|gpu| gpu.index.filter(|index| *index < DEVICES).map(|index| index as usize)).collect();
    by_index.unwrap_or_else(|| (0..book.gpus.len()).collect())
}

struct Snapshot<'a, 'w, 's> {
    axes: &'a Axes<'a>,
    moments: Moments,
    addresses: Vec<u64>,
    pickle: Pickle<'w, Sink<'s>>,
    /// Lists of frames that were written, by process, stack, call and kind.
    stacks: HashMap<(usize, Option<u32>, u32, u32), Memo>,
    /// Frames that were written.
    frames: HashMap<(String, String, u32), Memo>,
    /// Phases that were written.
    categories: HashMap<u32, Memo>,
}

impl<'a> Snapshot<'a, '_, '_> {
    fn write(&mut self, book: &'a Book) -> io::Result<()> {
        let devices = devices(book);
        self.pickle.dict()?;
        self.pickle.key("segments")?;
        let mut list = self.pickle.list()?;
        for (number, row) in book.allocations.iter().enumerate().filter(|(_, row)| row.bytes > 0) {
            if self.moments.is_live(row) {
                self.pickle.item(&mut list)?;
                self.segment(row, self.addresses[number], devices[row.gpu])?;
            }
        }
        self.pickle.end_list(list)?;

        self.pickle.key("device_traces")?;
        let mut list = self.pickle.list()?;
        for device in 0..devices.iter().max().map_or(0, |last| last + 1) {
            self.pickle.item(&mut list)?;
            self.trace(book, devices.iter().position(|number| *number == device))?;
        }
        self.pickle.end_list(list)?;

        self.pickle.key("allocator_settings")?;
        self.pickle.dict()?;
        self.pickle.key("PYTORCH_CUDA_ALLOC_CONF")?;
        self.pickle.text(settings(book))?;
        self.pickle.end_dict()?;
        self.pickle.end_dict()
    }

    fn segment(&mut self, row: &'a Allocation, address: u64, device: usize) -> io::Result<()> {
        self.pickle.dict()?;
        self.pickle.field("device", device as u64)?;
        self.pickle.field("address", address)?;
        for size in ["total_size", "allocated_size", "active_size", "requested_size"] {
            self.pickle.field(size, row.bytes)?;
        }
        self.pickle.field("stream", 0)?;
        self.pickle.key("segment_type")?;
        self.pickle.key("large")?;
        self.stack(row)?;
        self.pickle.key("blocks")?;
        let mut blocks = self.pickle.list()?;
        self.pickle.item(&mut blocks)?;
        self.pickle.dict()?;
        self.pickle.field("address", address)?;
        self.pickle.field("size", row.bytes)?;
        self.pickle.field("requested_size", row.bytes)?;
        self.pickle.key("state")?;
        self.pickle.key("active_allocated")?;
        self.stack(row)?;
        self.pickle.end_dict()?;
        self.pickle.end_list(blocks)?;
        self.pickle.end_dict()
    }

    /// The events of a device, up to the moment looked at: the viewer goes backward from `segments`.
    fn trace(&mut self, book: &'a Book, gpu: Option<usize>) -> io::Result<()> {
        let mut list = self.pickle.list()?;
        let Some(gpu) = gpu else { return self.pickle.end_list(list) };
        let mut failures = book.failures.iter().filter(|f| f.out_of_memory && f.gpu == Some(gpu)).peekable();
        for change in changes::changes(&book.allocations, |row| row.gpu == gpu && row.bytes > 0) {
            let row = &book.allocations[change.row];
            if change.t > self.moments.of(row.process, row.gpu) {
                continue;
            }
            while let Some(failure) = failures.next_if(|failure| failure.t < change.t) {
                self.pickle.item(&mut list)?;
                self.failure(book, failure)?;
            }
            let actions = if change.born { ["segment_alloc", "alloc"] } else { ["free_completed", "segment_free"] };
            for action in actions {
                self.pickle.item(&mut list)?;
                self.event(action, self.addresses[change.row], row.bytes, time_us(book, change.t))?;
                self.pickle.key("category")?;
                self.category(row)?;
                self.stack(row)?;
                self.pickle.end_dict()?;
            }
        }
        for failure in failures {
            if failure.t <= self.moments.of(failure.process, gpu) {
                self.pickle.item(&mut list)?;
                self.failure(book, failure)?;
            }
        }
        // As PyTorch ends a trace, with the category that the viewer counts on.
        self.pickle.item(&mut list)?;
        self.event("snapshot", 0, 0, time_us(book, book.end))?;
        self.pickle.key("category")?;
        self.pickle.key(NO_CATEGORY)?;
        self.pickle.key("frames")?;
        let frames = self.pickle.list()?;
        self.pickle.end_list(frames)?;
        self.pickle.end_dict()?;
        self.pickle.end_list(list)
    }

    /// Begins an event.
    fn event(&mut self, action: &'static str, address: u64, bytes: u64, time_us: u64) -> io::Result<()> {
        self.pickle.dict()?;
        self.pickle.key("action")?;
        self.pickle.key(action)?;
        self.pickle.field("addr", address)?;
        self.pickle.field("size", bytes)?;
        self.pickle.field("stream", 0)?;
        self.pickle.field("time_us", time_us)
    }

    fn failure(&mut self, book: &'a Book, failure: &Failure) -> io::Result<()> {
        self.event("oom", 0, failure.requested.unwrap_or(0), time_us(book, failure.t))?;
        self.pickle.field("device_free", failure.free.unwrap_or(0))?;
        let steps = failure.stack.map(|stack| frames::boxes(book, stack)).unwrap_or_default();
        self.pickle.key("frames")?;
        self.steps(&steps, failure.process)?;
        self.pickle.end_dict()
    }

    fn category(&mut self, row: &Allocation) -> io::Result<()> {
        let phase = self.axes.cell(Axis::Phase, row);
        let name = self.axes.label(Axis::Phase, phase);
        if name == UNATTRIBUTED {
            return self.pickle.key(NO_CATEGORY);
        }
        if let Some(memo) = self.categories.get(&phase) {
            return self.pickle.get(*memo);
        }
        self.pickle.text(&name)?;
        let memo = self.pickle.memo()?;
        self.categories.insert(phase, memo);
        Ok(())
    }

    /// The key `frames` with the stack of a row.
    fn stack(&mut self, row: &'a Allocation) -> io::Result<()> {
        self.pickle.key("frames")?;
        let key = (row.process, row.stack, self.axes.cell(Axis::Api, row), row.kind as u32);
        if let Some(memo) = self.stacks.get(&key) {
            return self.pickle.get(*memo);
        }
        let steps = frames::way(self.axes.book(), row);
        self.steps(&steps, row.process)?;
        let memo = self.pickle.memo()?;
        self.stacks.insert(key, memo);
        Ok(())
    }

    /// Frames as PyTorch lists them, innermost first; the rank is the outermost.
    fn steps(&mut self, steps: &[Step<'_>], process: usize) -> io::Result<()> {
        let mut list = self.pickle.list()?;
        for step in steps.iter().rev() {
            let place = step.frame.map(|frame| frame.file.as_deref().unwrap_or(&frame.module)).unwrap_or_default();
            let line = step.frame.and_then(|frame| frame.line).unwrap_or(0);
            self.pickle.item(&mut list)?;
            self.frame(&step.name, place, line)?;
        }
        self.pickle.item(&mut list)?;
        self.frame(self.axes.rank(process), "", 0)?;
        self.pickle.end_list(list)
    }

    fn frame(&mut self, name: &str, filename: &str, line: u32) -> io::Result<()> {
        let key = (name.to_owned(), filename.to_owned(), line);
        if let Some(memo) = self.frames.get(&key) {
            return self.pickle.get(*memo);
        }
        self.pickle.dict()?;
        self.pickle.key("name")?;
        self.pickle.text(name)?;
        self.pickle.key("filename")?;
        self.pickle.text(filename)?;
        self.pickle.field("line", u64::from(line))?;
        self.pickle.end_dict()?;
        let memo = self.pickle.memo()?;
        self.frames.insert(key, memo);
        Ok(())
    }
}

/// Microseconds since the Unix epoch.
fn time_us(book: &Book, t: u64) -> u64 {
    book.header.unix_ns.saturating_add(t.saturating_sub(book.header.t)) / 1000
}

/// The allocator's settings as the environment gave them.
fn settings(book: &Book) -> &str {
    let mut variables = book.processes.iter().flat_map(|process| &process.env);
    variables.find_map(|variable| variable.strip_prefix("PYTORCH_CUDA_ALLOC_CONF=")).unwrap_or_default()
}
