//! Bytes: who owns which, live at any time.
//!
//! A [`Book`] is computed from a trace's records. Its one table, [`Book::allocations`], has a row for each stretch of
//! time in which a process owned a piece of physical memory on a GPU; every figure of every report is a sum over it.
//!
//! Bytes come from one layer alone: the resource manager's objects of class 0x40, which is what NVML adds up for a
//! process (`objects`, `memory`); or, where ioctls could not be read, the driver-API calls (`fallback`). All else labels
//! them: what they are for (`kind`), which GPU is meant (`gpus`), what NVML said (`samples`).

mod allocator;
mod api;
mod changes;
mod clients;
mod failure;
mod fallback;
mod family;
mod finish;
mod gpus;
mod kind;
mod live;
mod mappings;
mod memory;
mod merge;
pub mod model;
mod objects;
mod plausible;
mod processes;
pub mod query;
mod read;
mod requests;
mod rows;
mod samples;
mod stacks;
mod strangers;
pub mod torch;
mod witness;

use std::collections::HashSet;
use std::mem;

pub use changes::{Change, Changes};
pub use family::Family;
pub use live::{Card, Past};
pub use model::{
    Allocation, Book, Capture, Communicator, Death, Failure, GpuRef, Host, Kind, LogLine, Owner, ProcessInfo, Reading,
    Sample, Stranger,
};
pub use query::{At, Peak, Timeline, Totals};

use crate::probe::Effect;
use crate::trace::record::{Call, Header, Log, Nvml, Op, Record, Rm, Source};
use rows::{Event, Rows};

/// Builds a [`Book`] from records in the order of the trace.
#[derive(Clone, Default)]
pub struct Ledger {
    book: Book,
    processes: processes::Processes,
    objects: objects::Objects,
    fallback: fallback::Fallback,
    rows: Rows,
    gpus: gpus::Gpus,
    failures: failure::Failures,
    channels: kind::Channels,
    requests: requests::Requests,
    unknown_frees: samples::UnknownFrees,
    witness: witness::Witness,
    allocators: allocator::Allocators,
    mappings: mappings::Mappings,
    nvml: Vec<Nvml>,
    notices: HashSet<String>,
    blocks: plausible::Budget,
    past: Past,
}

impl Ledger {
    /// An empty ledger.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next record.
    pub fn push(&mut self, mut record: Record) {
        self.take(&mut record);
    }

    /// The same of a record that stays where it is; what is kept of it is taken out.
    pub(super) fn take(&mut self, record: &mut Record) {
        if !self.check(record) {
            return;
        }
        match record {
            Record::Header(header) => self.header(mem::take(header)),
            Record::Library(library) => self.book.libraries.push(mem::take(library)),
            Record::Process(step) => {
                self.seen(step.t);
                if let Some(process) = self.processes.step(step) {
                    self.exit(process, false);
                }
            }
            Record::Frame(frame) => self.frame(mem::take(frame)),
            Record::Stack(stack) => self.stack(mem::take(stack)),
            Record::Rm(rm) => self.rm(rm),
            Record::Call(call) => self.call(call),
            Record::Block(block) => {
                self.seen(block.t);
                let process = self.processes.acting(block.pid, block.t, block.t);
                self.allocators.block(block, process, &mut self.mappings, &mut self.rows);
            }
            Record::Log(log) => self.log(mem::take(log)),
            Record::Nvml(nvml) => {
                self.seen(nvml.t);
                let traced = nvml.processes.iter().filter_map(|p| self.processes.at(p.pid, nvml.begin));
                traced.for_each(|process| self.gpus.seen(process, &nvml.uuid));
                self.nvml.push(mem::take(nvml));
            }
            Record::Loss(loss) => {
                self.seen(loss.t);
                self.requests.lost(loss, self.book.header.ledger);
                self.lost(mem::take(&mut loss.why), loss.count);
            }
            Record::Notice(notice) => {
                self.seen(notice.t);
                self.notice(mem::take(&mut notice.text));
            }
            Record::Footer(footer) => {
                self.seen(footer.t);
                self.book.outcome = Some(footer.outcome.clone());
            }
        }
    }

    fn seen(&mut self, t: u64) {
        self.book.end = self.book.end.max(t);
    }

    fn lost(&mut self, why: String, count: u64) {
        let sum = self.book.losses.entry(why).or_default();
        // So that sums over reasons cannot overflow either.
        *sum = sum.saturating_add(count).min(plausible::EVENTS);
    }

    fn notice(&mut self, text: String) {
        if self.notices.insert(text.clone()) {
            self.book.notices.push(text);
        }
    }

    fn header(&mut self, header: Header) {
        self.seen(header.t);
        self.gpus.list(&header.gpus);
        self.book.header = header;
    }

    /// The time of an event, for the ledger: what comes after a process's exit is the driver taking back what the
    /// process held when it began to die.
    fn event_time(&self, process: usize, t: u64) -> (u64, Death) {
        match self.processes.list[process].died {
            Some(died) => (t.max(died.saturating_add(1)), Death::Reclaimed),
            None => (t, Death::Freed),
        }
    }

    fn exit(&mut self, process: usize, all: bool) {
        let (t, death) = self.event_time(process, 0);
        let event = Event { t, process, tid: 0, calls: &[], outer: 0, stack: None, death };
        self.objects.exit(all, &event, &mut self.rows);
        self.fallback.exit(&event, &mut self.rows);
    }

    fn rm(&mut self, rm: &Rm) {
        self.seen(rm.t);
        if self.book.header.ledger == Source::DriverApi {
            return;
        }
        if let Op::Unknown { cmd, why } = &rm.op {
            self.lost("undecoded_ioctl".to_owned(), 1);
            self.notice(format!("driver requests {cmd:#x} were not decoded: {why}; memory they made is missing"));
            return;
        }
        let process = self.processes.acting(rm.pid, rm.start, rm.t);
        self.requests.add(process, rm);
        let shown = self.requests.shown(rm, &self.book);
        let calls = shown.as_ref().unwrap_or(&rm.calls);
        if rm.status != 0 {
            if let Op::Alloc(alloc) = &rm.op
                && alloc.class == objects::CLASS_MEMORY_LOCAL_USER
            {
                let place = self.objects.place(alloc.client, alloc.parent);
                self.failures.request(rm, calls, alloc, process, place);
            }
            return;
        }
        let (t, death) = self.event_time(process, rm.t);
        let event = Event { t, process, tid: rm.tid, calls, outer: rm.outer, stack: rm.stack, death };
        self.apply(&rm.op, &event);
    }

    fn apply(&mut self, op: &Op, event: &Event<'_>) {
        let Self { objects, rows, mappings, .. } = self;
        match *op {
            Op::Alloc(ref alloc) => {
                objects.alloc(alloc, event, rows);
                if event.calls.is_empty() && kind::is_channel(alloc.class) {
                    self.channels.entry((event.process, event.tid)).or_default().push(event.t);
                }
            }
            Op::Free { client, object } => {
                let pauses = event.death == Death::Freed && api::pauses(event.calls);
                let death = if pauses { Death::Paused } else { event.death };
                if !objects.free(client, object, &Event { death, ..*event }, rows) {
                    self.unknown_frees.entry(event.process).or_default().push(event.t);
                }
            }
            Op::Dup { client, parent, object, source_client, source_object } => {
                objects.dup((client, object), parent, (source_client, source_object), event, rows);
            }
            Op::Export { client, object, file, index } => objects.export((client, object), file, index, event, rows),
            Op::Import { client, parent, object, file, index } => {
                objects.import((client, object), parent, file, index, event, rows);
            }
            Op::Close { file } => {
                objects.close(file, &Event { death: Death::Reclaimed, ..*event }, rows);
                // What went through it before tracing began is gone too.
                self.unknown_frees.entry(event.process).or_default().push(event.t);
            }
            Op::RegisterVaspace { ref uuid, client, vaspace } => {
                self.gpus.registered(objects.place(client, vaspace), client, uuid.clone());
            }
            Op::GpuId { gpu_id, instance } => self.gpus.id(instance, gpu_id),
            // Addresses label; they own nothing.
            Op::Map { base, length, client, object, .. } => {
                if let Some(row) = objects.row(client, object) {
                    mappings.map(event.process, base, length, row, api::resumes(event.calls), rows);
                }
            }
            Op::Unmap { base } => mappings.unmap(event.process, base, api::pauses(event.calls), rows),
            Op::Unknown { .. } => {}
        }
    }

    fn log(&mut self, log: Log) {
        self.seen(log.t);
        let Log { t, pid, fd, text } = log;
        let process = self.processes.at(pid, t).unwrap_or_else(|| self.processes.acting(pid, t, t));
        self.book.logs.push(LogLine { t, process, fd, text });
    }

    fn call(&mut self, call: &Call) {
        self.seen(call.t);
        let began = call.start.min(call.t);
        let process = self.processes.acting(call.pid, began, began);
        self.failures.call(call, process);
        self.witness.call(call, process, &mut self.book);
        let thread = (process, call.tid);
        match (api::effect(&call.api), call.result) {
            (Some(Effect::Capture), 0) => _ = self.rows.capturing.insert(thread),
            (Some(Effect::CaptureEnd), 0) => _ = self.rows.capturing.remove(&thread),
            (Some(Effect::TensorFailure), _) => self.allocators.failed(call, process),
            (Some(Effect::Context), _) => self.requests.busy(process, call.start, call.t),
            (Some(Effect::Limit), _) => {
                if let Some(&limit) = call.more.get("limit") {
                    self.rows.limited(process, call.tid, call.outer, call.start, limit);
                }
            }
            _ => {}
        }
        if self.book.header.ledger == Source::DriverApi {
            let (t, _) = self.event_time(process, call.t);
            let calls = if call.inside.is_empty() {
                vec![call.api.clone()]
            } else {
                vec![call.inside.clone(), call.api.clone()]
            };
            let (tid, outer, stack, death) = (call.tid, call.outer, call.stack, fallback::DEATH);
            let event = Event { t, process, tid, calls: &calls, outer, stack, death };
            self.fallback.call(call, &event, &mut self.rows);
        }
        if call.depth == 0 {
            self.rows.returned(process, call.tid, call.outer, call.stack);
        }
    }
}

#[cfg(test)]
mod tests;
