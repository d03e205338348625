//! The Firefox Profiler's processed profile format, by the crate of its authors.
//!
//! Each traced process is a process. Its first thread, named by rank, has the allocations: what is freed is a sample of
//! negative weight with the same address, so that the profiler's "Retained memory" is what was live at the end of the range
//! that is looked at. What the driver took back at a process's exit is not freed there, as in a report `--at end`; the
//! memory tracks do go down. Threads that made API calls have these as markers, the first thread has phases and failures.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CounterHandle, CpuDelta, Frame, FrameFlags, FrameInfo, MarkerFieldFlags,
    MarkerFieldFormat, MarkerTiming, ProcessHandle, Profile, ReferenceTimestamp, SamplingInterval, StackHandle,
    StaticSchemaMarker, StaticSchemaMarkerField, StringHandle, ThreadHandle, Timestamp,
};

use super::super::frames::{self, Step};
use super::{Error, Job, Sink, calls, changes, spans};
use crate::ledger::{Allocation, Book};
use crate::lifecycle::{Axes, Axis};
use crate::report::ends::ends;
use crate::trace::record::{self, Call, FrameKind};

/// Writes the profile.
pub(super) fn write(job: &Job<'_>, to: &mut Sink<'_>) -> Result<(), Error> {
    let mut builder = Builder::new(job);
    builder.memory();
    builder.phases();
    builder.failures();
    calls::each(job, |call, process| {
        builder.call(call, process);
        Ok(())
    })?;
    builder.samples();
    Ok(serde_json::to_writer(to, &builder.profile)?)
}

/// A marker with a text and bytes.
struct Note {
    name: StringHandle,
    category: CategoryHandle,
    text: StringHandle,
    bytes: f64,
}

impl StaticSchemaMarker for Note {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "GpuMemory";
    const CHART_LABEL: Option<&'static str> = Some("{marker.name} {marker.data.text}");
    const TABLE_LABEL: Option<&'static str> = Some("{marker.name} {marker.data.text}");
    const TOOLTIP_LABEL: Option<&'static str> = Some("{marker.name} {marker.data.text}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        StaticSchemaMarkerField {
            key: "text",
            label: "Details",
            format: MarkerFieldFormat::String,
            flags: MarkerFieldFlags::SEARCHABLE,
        },
        StaticSchemaMarkerField {
            key: "bytes",
            label: "Bytes",
            format: MarkerFieldFormat::Bytes,
            flags: MarkerFieldFlags::empty(),
        },
    ];

    fn name(&self, _: &mut Profile) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Profile) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        self.text
    }

    fn number_field_value(&self, _: u32) -> f64 {
        self.bytes
    }
}

/// Categories: colours of stacks and rows of the marker chart.
struct Categories {
    native: CategoryHandle,
    python: CategoryHandle,
    memory: CategoryHandle,
    phase: CategoryHandle,
    api: CategoryHandle,
    failure: CategoryHandle,
}

struct Builder<'a> {
    profile: Profile,
    axes: &'a Axes<'a>,
    book: &'a Book,
    categories: Categories,
    /// Processes that have something to show, with their first threads.
    processes: BTreeMap<usize, (ProcessHandle, ThreadHandle)>,
    /// Other threads that made calls.
    threads: HashMap<(usize, u32), ThreadHandle>,
    counters: BTreeMap<(usize, usize), CounterHandle>,
    /// Stacks of memory, by process, stack, call and kind.
    stacks: HashMap<(usize, Option<u32>, u32, u32), Option<StackHandle>>,
    /// Stacks of calls.
    callers: HashMap<(ThreadHandle, u32), Option<StackHandle>>,
}

impl<'a> Builder<'a> {
    fn new(job: &Job<'a>) -> Self {
        let (axes, book) = (job.axes, job.axes.book());
        let start = ReferenceTimestamp::from_duration_since_unix_epoch(Duration::from_nanos(book.header.unix_ns));
        let file = job.trace.file_name().unwrap_or_default().to_string_lossy();
        let mut profile = Profile::new(&file, start, SamplingInterval::from_millis(1));
        profile.set_os_name(&format!("Linux {}", book.header.kernel));
        profile.set_symbolicated(true);
        let categories = Categories {
            native: profile.add_category("Native", CategoryColor::Blue),
            python: profile.add_category("Python", CategoryColor::Yellow),
            memory: profile.add_category("GPU memory", CategoryColor::Green),
            phase: profile.add_category("Phases", CategoryColor::Purple),
            api: profile.add_category("API calls", CategoryColor::LightBlue),
            failure: profile.add_category("Failures", CategoryColor::Red),
        };
        Self {
            profile,
            axes,
            book,
            categories,
            processes: BTreeMap::new(),
            threads: HashMap::new(),
            counters: BTreeMap::new(),
            stacks: HashMap::new(),
            callers: HashMap::new(),
        }
    }

    /// A process with its first thread, made when it is first asked for.
    fn process(&mut self, number: usize) -> (ProcessHandle, ThreadHandle) {
        if let Some(known) = self.processes.get(&number) {
            return *known;
        }
        let process = &self.book.processes[number];
        let (name, born) = (super::process_name(self.axes, number), self.time(process.born));
        let handle = self.profile.add_process(&name, process.pid, born);
        let thread = self.profile.add_thread(handle, process.pid, born, true);
        self.profile.set_thread_name(thread, &name);
        self.profile.set_thread_show_markers_in_timeline(thread, true);
        if let Some(died) = process.died.map(|died| self.time(died)) {
            self.profile.set_process_end_time(handle, died);
            self.profile.set_thread_end_time(thread, died);
        }
        self.processes.insert(number, (handle, thread));
        (handle, thread)
    }

    fn first_thread(&mut self, process: usize) -> ThreadHandle {
        self.process(process).1
    }

    fn time(&self, t: u64) -> Timestamp {
        Timestamp::from_nanos_since_reference(t.saturating_sub(self.book.header.t))
    }

    /// Allocations, frees and the memory tracks.
    fn memory(&mut self) {
        let (book, ends) = (self.book, ends(self.book));
        for change in changes::changes(&book.allocations, |_| true) {
            let row = &book.allocations[change.row];
            let (t, thread) = (self.time(change.t), self.first_thread(row.process));
            let bytes = i64::try_from(row.bytes).unwrap_or(i64::MAX);
            let counter = self.counter(row.process, row.gpu);
            let delta = if change.born { bytes as f64 } else { -(bytes as f64) };
            self.profile.add_counter_sample(counter, t, delta, 1);
            if change.born || !super::went_with_process(&ends, row) {
                let stack = self.stack(row);
                // Addresses need only tell pieces apart; 0 is none.
                let (address, weight) = (change.row as u64 + 1, if change.born { bytes } else { -bytes });
                self.profile.add_allocation_sample(thread, t, stack, address, weight);
            }
        }
    }

    fn counter(&mut self, process: usize, gpu: usize) -> CounterHandle {
        let (handle, axes) = (self.process(process).0, self.axes);
        let profile = &mut self.profile;
        *self.counters.entry((process, gpu)).or_insert_with(|| {
            let name = axes.gpu(gpu);
            profile.add_counter(handle, &name, "Memory", &format!("Live bytes of this process on {name}"))
        })
    }

    /// The profiler shows a thread that has samples: one at either end, without time on a CPU.
    fn samples(&mut self) {
        for (number, (_, thread)) in &self.processes {
            let process = &self.book.processes[*number];
            for t in [process.born, process.died.unwrap_or(self.book.end)] {
                self.profile.add_sample(*thread, self.time(t), None, CpuDelta::ZERO, 0);
            }
        }
    }

    fn stack(&mut self, row: &'a Allocation) -> Option<StackHandle> {
        let key = (row.process, row.stack, self.axes.cell(Axis::Api, row), row.kind as u32);
        if let Some(stack) = self.stacks.get(&key) {
            return *stack;
        }
        let thread = self.first_thread(row.process);
        let stack = self.intern(thread, frames::way(self.book, row));
        self.stacks.insert(key, stack);
        stack
    }

    /// Stack of a call, on the thread that made it.
    fn caller(&mut self, thread: ThreadHandle, stack: u32) -> Option<StackHandle> {
        if let Some(known) = self.callers.get(&(thread, stack)) {
            return *known;
        }
        let interned = self.intern(thread, frames::boxes(self.book, stack));
        self.callers.insert((thread, stack), interned);
        interned
    }

    fn intern(&mut self, thread: ThreadHandle, steps: Vec<Step<'_>>) -> Option<StackHandle> {
        let mut infos = Vec::with_capacity(steps.len());
        for step in steps {
            let (name, category) = match step.frame {
                Some(frame) if frames::nameless_module(frame).is_none() => {
                    (frames::describe(frame), self.category(frame))
                }
                Some(frame) => (step.name.into_owned(), self.category(frame)),
                None => (step.name.into_owned(), self.categories.memory),
            };
            let frame = Frame::Label(self.profile.intern_string(&name));
            infos.push(FrameInfo { frame, category_pair: category.into(), flags: FrameFlags::empty() });
        }
        self.profile.intern_stack_frames(thread, infos.into_iter())
    }

    fn category(&self, frame: &record::Frame) -> CategoryHandle {
        if frame.kind == FrameKind::Python { self.categories.python } else { self.categories.native }
    }

    fn phases(&mut self) {
        for span in spans::spans(self.axes) {
            let name = self.profile.intern_string(&self.axes.label(Axis::Phase, span.phase));
            let text = self.profile.intern_string("");
            let note = Note { name, category: self.categories.phase, text, bytes: span.bytes as f64 };
            let timing = MarkerTiming::Interval(self.time(span.start), self.time(span.end));
            let thread = self.first_thread(span.process);
            self.profile.add_marker(thread, timing, note);
        }
    }

    fn failures(&mut self) {
        for failure in &self.book.failures {
            let why = if failure.out_of_memory { "out of memory" } else { "failed" };
            let name = self.profile.intern_string(&format!("{}: {why}", failure.api));
            let text = self.profile.intern_string(self.axes.failure_phase(failure));
            let bytes = failure.requested.unwrap_or(0) as f64;
            let note = Note { name, category: self.categories.failure, text, bytes };
            let timing = MarkerTiming::Instant(self.time(failure.t));
            let thread = self.first_thread(failure.process);
            self.profile.add_marker(thread, timing, note);
        }
    }

    fn call(&mut self, call: &Call, process: usize) {
        let thread = self.thread(process, call.tid);
        let name = self.profile.intern_string(&call.api);
        let text = if call.result == 0 { String::new() } else { format!("returned {}", call.result) };
        let text = self.profile.intern_string(&text);
        let bytes = call.size.or(call.free).unwrap_or(0) as f64;
        let note = Note { name, category: self.categories.api, text, bytes };
        let timing = MarkerTiming::Interval(self.time(call.start), self.time(call.t));
        let marker = self.profile.add_marker(thread, timing, note);
        let stack = call.stack.and_then(|stack| self.caller(thread, stack));
        self.profile.set_marker_stack(thread, marker, stack);
    }

    /// The thread that made a call; the process's first thread for its main one.
    fn thread(&mut self, process: usize, tid: u32) -> ThreadHandle {
        let (handle, first) = self.process(process);
        let info = &self.book.processes[process];
        if tid == info.pid {
            return first;
        }
        let born = self.time(info.born);
        let profile = &mut self.profile;
        *self.threads.entry((process, tid)).or_insert_with(|| {
            let thread = profile.add_thread(handle, tid, born, false);
            profile.set_thread_name(thread, &format!("thread {tid}"));
            profile.set_thread_show_markers_in_timeline(thread, true);
            thread
        })
    }
}
