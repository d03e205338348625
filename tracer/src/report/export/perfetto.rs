//! Chrome trace events, which `ui.perfetto.dev` and `chrome://tracing` read
//! (<https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU>).
//!
//! Each traced process is a process; its threads show API calls, one more thread the phases; counters show live bytes on
//! each GPU, whole and by phase, and NVML's figure. Times are microseconds since tracing began, with three decimals.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use serde::Serialize;
use serde_json::{Value, json};

use super::super::frames;
use super::{Error, Job, Sink, calls, changes, spans};
use crate::ledger::Book;
use crate::lifecycle::{Axes, Axis};
use crate::report::ends::ends;
use crate::trace::record::Call;

/// Above every thread id: Linux has 2^22 at most (`PID_MAX_LIMIT`, `include/linux/threads.h`).
const PHASES_TID: u32 = 1 << 23;
/// What tells lives of a pid that came back.
const LIFE: u32 = 1 << 24;
/// Frames of a stack that a slice shows.
const SHOWN_FRAMES: usize = 12;

#[derive(Serialize)]
struct Event<'a> {
    ph: &'static str,
    name: &'a str,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    tid: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    /// Scope of an instant: `p`, the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    s: Option<&'static str>,
    args: Value,
}

const EVENT: Event<'static> =
    Event { ph: "M", name: "", pid: 0, tid: None, ts: None, dur: None, cat: None, s: None, args: Value::Null };

/// Writes the trace.
pub(super) fn write(job: &Job<'_>, to: &mut Sink<'_>) -> Result<(), Error> {
    let (axes, book) = (job.axes, job.axes.book());
    let about = json!({
        "tool": concat!("vramtrace ", env!("CARGO_PKG_VERSION")),
        "host": book.header.host,
        "driver": book.header.driver,
        "command": book.header.command,
        "start_unix_ns": book.header.unix_ns.to_string(),
        "lost_events": book.losses.values().sum::<u64>(),
    });
    write!(to, "{{\"displayTimeUnit\":\"ns\",\"otherData\":{about},\"traceEvents\":[")?;
    let named = vec![false; book.processes.len()];
    let stacks = HashMap::new();
    let mut trace = Trace { to, axes, book, pids: pids(book), any: false, named, ends: ends(book), stacks };
    trace.phases()?;
    trace.counters()?;
    trace.failures()?;
    calls::each(job, |call, process| trace.call(call, process))?;
    Ok(to.write_all(b"\n]}\n")?)
}

/// A number for each process, all different: its pid, where that did not come back.
fn pids(book: &Book) -> Vec<u32> {
    let mut lives: HashMap<u32, u32> = HashMap::new();
    let number = |pid: u32| {
        let life = lives.entry(pid).and_modify(|life| *life = life.wrapping_add(LIFE)).or_insert(0);
        pid.wrapping_add(*life)
    };
    book.processes.iter().map(|process| process.pid).map(number).collect()
}

/// What a counter counts: a process, a GPU, and a phase or all.
type Track = (usize, usize, Option<u32>);

struct Trace<'a, 'w, 's> {
    to: &'w mut Sink<'s>,
    axes: &'a Axes<'a>,
    book: &'a Book,
    pids: Vec<u32>,
    any: bool,
    /// Processes that were named.
    named: Vec<bool>,
    /// Last moment of each process in reports.
    ends: Vec<u64>,
    /// Stacks as a slice shows them.
    stacks: HashMap<u32, String>,
}

impl Trace<'_, '_, '_> {
    fn event(&mut self, event: &Event<'_>) -> Result<(), Error> {
        self.to.write_all(if std::mem::replace(&mut self.any, true) { b",\n" } else { b"\n" })?;
        Ok(serde_json::to_writer(&mut *self.to, event)?)
    }

    /// Microseconds since tracing began.
    fn time(&self, t: u64) -> f64 {
        t.saturating_sub(self.book.header.t) as f64 / 1000.0
    }

    /// Number of a process, which is named when it is first asked for.
    fn process(&mut self, number: usize) -> Result<u32, Error> {
        let pid = self.pids[number];
        if std::mem::replace(&mut self.named[number], true) {
            return Ok(pid);
        }
        let name = super::process_name(self.axes, number);
        self.event(&Event { name: "process_name", pid, args: json!({"name": name}), ..EVENT })?;
        let tid = Some(PHASES_TID);
        self.event(&Event { name: "thread_name", pid, tid, args: json!({"name": "phases"}), ..EVENT })?;
        self.event(&Event { name: "thread_sort_index", pid, tid, args: json!({"sort_index": -1}), ..EVENT })?;
        let process = &self.book.processes[number];
        // From here on it may hold what the other left to it: a report looks at it before.
        let end = self.ends[number].saturating_add(1);
        if process.died.is_some_and(|died| end < died) {
            let (ts, args) = (Some(self.time(end)), json!({}));
            self.event(&Event { ph: "i", name: "peer ends", pid, tid, ts, s: Some("p"), args, ..EVENT })?;
        }
        if let Some(died) = process.died {
            let args = json!({"code": process.exit_code, "signal": process.exit_signal});
            let ts = Some(self.time(died));
            self.event(&Event { ph: "i", name: "exit", pid, tid, ts, s: Some("p"), args, ..EVENT })?;
        }
        Ok(pid)
    }

    fn phases(&mut self) -> Result<(), Error> {
        for span in spans::spans(self.axes) {
            let (ts, pid) = (self.time(span.start), self.process(span.process)?);
            let (dur, name) = (self.time(span.end) - ts, self.axes.label(Axis::Phase, span.phase).into_owned());
            let args = json!({"allocated_bytes": span.bytes});
            let event =
                Event { ph: "X", name: &name, pid, tid: Some(PHASES_TID), ts: Some(ts), dur: Some(dur), ..EVENT };
            self.event(&Event { cat: Some("phase"), args, ..event })?;
        }
        Ok(())
    }

    /// Live bytes of each process on each GPU, whole and by phase, and what NVML says.
    fn counters(&mut self) -> Result<(), Error> {
        let gpus: Vec<String> = (0..self.book.gpus.len()).map(|gpu| self.axes.gpu(gpu)).collect();
        let mut live: BTreeMap<Track, (u64, Rc<str>)> = BTreeMap::new();
        for change in changes::changes(&self.book.allocations, |_| true) {
            let row = &self.book.allocations[change.row];
            let (pid, ts) = (self.process(row.process)?, Some(self.time(change.t)));
            for phase in [None, Some(self.axes.cell(Axis::Phase, row))] {
                let (bytes, name) = live.entry((row.process, row.gpu, phase)).or_insert_with(|| {
                    let of = phase.map(|phase| format!(" {}", self.axes.label(Axis::Phase, phase)));
                    (0, format!("{} live{}", gpus[row.gpu], of.unwrap_or_default()).into())
                });
                *bytes = if change.born { bytes.saturating_add(row.bytes) } else { bytes.saturating_sub(row.bytes) };
                let (name, args) = (Rc::clone(name), json!({"bytes": *bytes}));
                self.event(&Event { ph: "C", name: &name, pid, ts, args, ..EVENT })?;
            }
        }
        // What PyTorch's allocator has handed out of what it holds.
        let mut handed_out = vec![0_u64; self.book.torch.devices.len()];
        for (t, born, number) in changes::block_changes(&self.book.torch.blocks) {
            let block = &self.book.torch.blocks[number as usize];
            let Some(device) = self.book.torch.devices.get(block.device as usize) else { continue };
            let bytes = &mut handed_out[block.device as usize];
            *bytes = if born { bytes.saturating_add(block.bytes) } else { bytes.saturating_sub(block.bytes) };
            let args = json!({"bytes": *bytes});
            let name = device.gpu.map_or_else(|| format!("cuda:{}", device.ordinal), |gpu| gpus[gpu].clone());
            let (pid, ts, name) = (self.process(device.process)?, Some(self.time(t)), name + " PyTorch blocks");
            self.event(&Event { ph: "C", name: &name, pid, ts, args, ..EVENT })?;
        }
        for sample in &self.book.samples {
            let name = format!("{} NVML", gpus[sample.gpu]);
            let (pid, ts) = (self.process(sample.process)?, Some(self.time(sample.t)));
            self.event(&Event { ph: "C", name: &name, pid, ts, args: json!({"bytes": sample.nvml}), ..EVENT })?;
        }
        Ok(())
    }

    fn failures(&mut self) -> Result<(), Error> {
        for failure in &self.book.failures {
            let why = if failure.out_of_memory { "out of memory" } else { "failed" };
            let args = json!({
                "result": failure.result,
                "requested_bytes": failure.requested,
                "free_bytes": failure.free,
                "phase": self.axes.failure_phase(failure),
                "stack": failure.stack.map(|stack| self.stack(stack)),
            });
            let (pid, ts) = (self.process(failure.process)?, Some(self.time(failure.t)));
            let name = format!("{}: {why}", failure.api);
            let tid = Some(PHASES_TID);
            self.event(&Event { ph: "i", name: &name, pid, tid, ts, s: Some("p"), args, ..EVENT })?;
        }
        Ok(())
    }

    fn call(&mut self, call: &Call, process: usize) -> Result<(), Error> {
        let mut args = serde_json::Map::new();
        let numbers = [("size", call.size), ("free", call.free), ("total", call.total), ("handle", call.handle)];
        for (name, value) in numbers {
            args.extend(value.map(|value| (name.to_owned(), value.into())));
        }
        args.extend(call.address.map(|address| ("address".to_owned(), format!("{address:#x}").into())));
        if call.result != 0 {
            args.insert("result".to_owned(), call.result.into());
        }
        args.extend(call.more.iter().map(|(name, value)| (name.clone(), (*value).into())));
        if let Some(stack) = call.stack {
            args.insert("stack".to_owned(), self.stack(stack).into());
        }
        let (ts, tid) = (self.time(call.start), Some(call.tid));
        let (ts, dur) = (Some(ts), Some((self.time(call.t) - ts).max(0.0)));
        let (pid, name, args) = (self.process(process)?, &call.api, Value::Object(args));
        self.event(&Event { ph: "X", name, pid, tid, ts, dur, cat: Some("api"), args, ..EVENT })
    }

    /// The innermost frames of a stack that say who called.
    fn stack(&mut self, stack: u32) -> String {
        let shown = || frames::innermost_useful(self.book, stack, SHOWN_FRAMES).join("\n");
        self.stacks.entry(stack).or_insert_with(shown).clone()
    }
}
