//! The events that led to the state.

use std::io;

use super::super::super::frames;
use super::super::changes::{self, Change};
use super::blocks::Placed;
use super::{NO_CATEGORY, Snapshot};
use crate::ledger::{Book, Failure, Kind};

/// A free is two events: the viewer takes a block that only the second was seen of for one that a stream still uses.
const FREED: [&str; 2] = ["free_requested", "free_completed"];

impl<'a> Snapshot<'a, '_, '_> {
    /// The events of a device, up to the moment looked at: the viewer goes backward from `segments`.
    pub(super) fn trace(&mut self, book: &'a Book, gpu: Option<usize>) -> io::Result<()> {
        let mut list = self.pickle.list()?;
        let Some(gpu) = gpu else { return self.pickle.end_list(list) };
        let mut failures = book.failures.iter().filter(|f| f.out_of_memory && f.gpu == Some(gpu)).peekable();
        let mut memory = changes::changes(&book.allocations, |row| row.gpu == gpu && row.bytes > 0).peekable();
        let mut blocks = block_changes(&self.blocks.placed, gpu).into_iter().peekable();
        // A block is taken back before its memory goes, and handed out after that came.
        while let Some(t) = earliest(memory.peek().map(|c| c.t), blocks.peek().map(|(t, ..)| *t)) {
            while let Some(failure) = failures.next_if(|failure| failure.t < t) {
                self.failure(book, failure, gpu, &mut list)?;
            }
            let is_now =
                |&(at, born, _): &(u64, bool, usize)| at == t && (!born || memory.peek().is_none_or(|c| c.t > t));
            if let Some((_, born, placed)) = blocks.next_if(is_now) {
                self.block(book, self.blocks.placed[placed], t, born, &mut list)?;
            } else if let Some(change) = memory.next() {
                self.memory(book, change, &mut list)?;
            }
        }
        for failure in failures {
            self.failure(book, failure, gpu, &mut list)?;
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

    /// Memory came or went: a segment of the allocator, or a segment with its one block.
    fn memory(&mut self, book: &'a Book, change: Change, list: &mut super::pickle::List) -> io::Result<()> {
        let row = &book.allocations[change.row];
        if change.t > self.moments.of(row.process, row.gpu) {
            return Ok(());
        }
        let is_segment = self.blocks.segments.contains_key(&change.row);
        let actions: &[&'static str] = match (is_segment, row.kind == Kind::Vmm, change.born) {
            (true, true, true) => &["segment_map"],
            (true, true, false) => &["segment_unmap"],
            (true, false, true) => &["segment_alloc"],
            (true, false, false) => &["segment_free"],
            (false, _, true) => &["segment_alloc", "alloc"],
            (false, _, false) => &["free_requested", "free_completed", "segment_free"],
        };
        for action in actions {
            self.pickle.item(list)?;
            self.event(action, self.addresses[change.row], row.bytes, time_us(book, change.t))?;
            self.category(row)?;
            self.stack(row)?;
            self.pickle.end_dict()?;
        }
        Ok(())
    }

    /// A block was handed out or taken back.
    fn block(
        &mut self,
        book: &'a Book,
        placed: Placed,
        t: u64,
        born: bool,
        list: &mut super::pickle::List,
    ) -> io::Result<()> {
        if t > self.moments.of(placed.process, placed.gpu) {
            return Ok(());
        }
        let block = &book.torch.blocks[placed.block];
        let phase = self.axes.block_phase(placed.process, block);
        let actions: &[&'static str] = if born { &["alloc"] } else { &FREED };
        for action in actions {
            self.pickle.item(list)?;
            self.event(action, placed.address, block.bytes, time_us(book, t))?;
            self.phase(phase)?;
            self.block_stack(placed)?;
            self.pickle.end_dict()?;
        }
        Ok(())
    }

    fn failure(
        &mut self,
        book: &'a Book,
        failure: &Failure,
        gpu: usize,
        list: &mut super::pickle::List,
    ) -> io::Result<()> {
        if failure.t > self.moments.of(failure.process, gpu) {
            return Ok(());
        }
        self.pickle.item(list)?;
        self.event("oom", 0, failure.requested.unwrap_or(0), time_us(book, failure.t))?;
        self.pickle.field("device_free", failure.free.unwrap_or(0))?;
        let steps = failure.stack.map(|stack| frames::boxes(book, stack)).unwrap_or_default();
        self.pickle.key("frames")?;
        self.steps(&steps, failure.process)?;
        self.pickle.end_dict()
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
}

/// Blocks of a GPU handed out (true) and taken back, in order of time, what is taken back first.
fn block_changes(placed: &[Placed], gpu: usize) -> Vec<(u64, bool, usize)> {
    let of_gpu = || placed.iter().enumerate().filter(|(_, placed)| placed.gpu == gpu);
    let births = of_gpu().map(|(number, placed)| (placed.born, true, number));
    let deaths = of_gpu().filter(|(_, placed)| placed.died < u64::MAX).map(|(number, p)| (p.died, false, number));
    let mut changes: Vec<_> = births.chain(deaths).collect();
    changes.sort_unstable();
    changes
}

fn earliest(one: Option<u64>, other: Option<u64>) -> Option<u64> {
    one.into_iter().chain(other).min()
}

/// Microseconds since the Unix epoch.
fn time_us(book: &Book, t: u64) -> u64 {
    book.header.unix_ns.saturating_add(t.saturating_sub(book.header.t)) / 1000
}
