//! A `PyTorch` memory snapshot (`torch.cuda.memory._dump_snapshot`), for <https://pytorch.org/memory_viz>.
//!
//! Read by `torch/utils/viz/MemoryViz.js` and `torch/cuda/_memory_viz.py` (`PyTorch` 2.x): `segments` with `blocks`, the
//! state at the end, and for each device `device_traces`, the events that led there. All GPU memory is shown: segments of
//! `PyTorch`'s caching allocator with its blocks, where the trace has these, at their addresses; any other memory as a
//! segment that one block fills, at an address that is made up, so that none overlap. The category that colours blocks is
//! the phase.

use std::collections::HashMap;
use std::io;

use super::super::frames::{self, Step};
use super::super::query::Moments;
use super::{Error, Job, Sink};
use crate::ledger::{Allocation, Book};
use crate::lifecycle::{Axes, Axis, NO_STACK, UNATTRIBUTED};
use blocks::{Blocks, PLAIN, Placed};
use pickle::{Memo, Pickle};

mod blocks;
mod pickle;
mod segments;
mod trace;

/// Made-up addresses are multiples of the driver's page, 2 MiB.
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
        addresses: Vec::new(),
        blocks: blocks::place(book),
        pickle: Pickle::begin(to)?,
        stacks: HashMap::new(),
        frames: HashMap::new(),
        categories: HashMap::new(),
    };
    snapshot.addresses = addresses(&book.allocations, &snapshot.blocks);
    snapshot.write(book)?;
    Ok(snapshot.pickle.end()?)
}

/// An address for each row. No two that are live at once overlap.
fn addresses(rows: &[Allocation], blocks: &Blocks) -> Vec<u64> {
    let mut next = PLAIN;
    let place = |(number, row): (usize, &Allocation)| {
        blocks.segments.get(&number).copied().unwrap_or_else(|| {
            let address = next;
            next = next.saturating_add(row.bytes.max(1)).checked_next_multiple_of(ALIGNMENT).unwrap_or(u64::MAX);
            address
        })
    };
    rows.iter().enumerate().map(place).collect()
}

/// Device number of each of the book's GPUs: NVML's index where all have one, else the order of the book.
fn devices(book: &Book) -> Vec<usize> {
    let by_index: Option<Vec<usize>> =
        book.gpus.iter().map(|gpu| gpu.index.filter(|index| *index < DEVICES).map(|index| index as usize)).collect();
    by_index.unwrap_or_else(|| (0..book.gpus.len()).collect())
}

/// What a list of frames is of: process, stack, and for memory its call and kind.
type StackKey = (usize, Option<u32>, Option<(u32, u32)>);

struct Snapshot<'a, 'w, 's> {
    axes: &'a Axes<'a>,
    moments: Moments,
    /// Address of each row of the ledger.
    addresses: Vec<u64>,
    blocks: Blocks,
    pickle: Pickle<'w, Sink<'s>>,
    /// Lists of frames that were written.
    stacks: HashMap<StackKey, Memo>,
    /// Frames that were written.
    frames: HashMap<(String, String, u32), Memo>,
    /// Phases that were written.
    categories: HashMap<String, Memo>,
}

impl<'a> Snapshot<'a, '_, '_> {
    fn write(&mut self, book: &'a Book) -> io::Result<()> {
        let devices = devices(book);
        self.pickle.dict()?;
        self.pickle.key("segments")?;
        self.segments(book, &devices)?;
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

    /// The key `category` with the phase of a row.
    fn category(&mut self, row: &Allocation) -> io::Result<()> {
        let phase = self.axes.label(Axis::Phase, self.axes.cell(Axis::Phase, row));
        self.phase(&phase)
    }

    fn phase(&mut self, phase: &str) -> io::Result<()> {
        self.pickle.key("category")?;
        if phase == UNATTRIBUTED {
            return self.pickle.key(NO_CATEGORY);
        }
        if let Some(memo) = self.categories.get(phase) {
            return self.pickle.get(*memo);
        }
        self.pickle.text(phase)?;
        let memo = self.pickle.memo()?;
        self.categories.insert(phase.to_owned(), memo);
        Ok(())
    }

    /// The key `frames` with the stack of a row.
    fn stack(&mut self, row: &'a Allocation) -> io::Result<()> {
        self.pickle.key("frames")?;
        let key = (row.process, row.stack, Some((self.axes.cell(Axis::Api, row), row.kind as u32)));
        let book = self.axes.book();
        self.once(key, || frames::way(book, row))
    }

    /// The same of a block.
    fn block_stack(&mut self, placed: Placed) -> io::Result<()> {
        self.pickle.key("frames")?;
        let book = self.axes.book();
        let stack = book.torch.blocks[placed.block].stack;
        self.once((placed.process, stack, None), || match stack.map(|stack| frames::boxes(book, stack)) {
            Some(boxes) if !boxes.is_empty() => boxes,
            _ => vec![Step { name: NO_STACK.into(), frame: None }],
        })
    }

    fn once<'s>(&mut self, key: StackKey, steps: impl FnOnce() -> Vec<Step<'s>>) -> io::Result<()> {
        if let Some(memo) = self.stacks.get(&key) {
            return self.pickle.get(*memo);
        }
        self.steps(&steps(), key.0)?;
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

/// The allocator's settings as the environment gave them.
fn settings(book: &Book) -> &str {
    let mut variables = book.processes.iter().flat_map(|process| &process.env);
    variables.find_map(|variable| variable.strip_prefix("PYTORCH_CUDA_ALLOC_CONF=")).unwrap_or_default()
}
