//! What is live at one moment.

use std::collections::{BTreeMap, HashMap};

use super::Status;
use crate::ledger::{Book, Card, GpuRef, Ledger, Past, ProcessInfo};
use crate::lifecycle::{Axes, Axis, NO_STACK, Rules, UNATTRIBUTED};
use crate::report::frames;
use crate::report::text::plain::plain;
use crate::trace::record::Loss;

/// Memory of all traced processes at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When tracing began, `CLOCK_MONOTONIC` nanoseconds.
    pub begun: u64,
    /// Name of the machine.
    pub host: String,
    /// Driver version.
    pub driver: Option<String>,
    /// What the session says.
    pub status: Status,
    /// GPUs of the machine, and those that the ledger knows otherwise.
    pub gpus: Vec<Gpu>,
    /// What processes hold on GPUs, in the order of reports.
    pub rows: Vec<Row>,
    /// Losses by reason.
    pub losses: BTreeMap<String, u64>,
    /// Degradations.
    pub notices: Vec<String>,
    /// Frames and stacks.
    book: Book,
}

/// A GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gpu {
    /// `GPU 0`, or what else is known of it.
    pub label: String,
    /// UUID; empty if never learnt.
    pub uuid: String,
    /// Product name; empty where NVML does not list it.
    pub name: String,
    /// Bytes of memory, by NVML.
    pub total: Option<u64>,
    /// Used and free bytes, by NVML's last sample.
    pub memory: Option<(u64, u64)>,
    /// Bytes of traced processes.
    pub traced: u64,
}

/// How a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs.
    Runs,
    /// It exited with this code, if that is known.
    Exited(Option<i32>),
    /// A signal killed it.
    Killed(i32),
}

/// What one process holds on one GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Number of the process: the same in every snapshot.
    pub process: usize,
    /// Process id.
    pub pid: u32,
    /// Rank, or the process itself where none is known.
    pub rank: String,
    /// Index into [`Snapshot::gpus`].
    pub gpu: usize,
    /// How the process is.
    pub state: State,
    /// Phase that it is in.
    pub phase: String,
    /// Live bytes.
    pub live: u64,
    /// Most bytes at once.
    pub peak: u64,
    /// Failed calls for want of memory, and others.
    pub failures: (u64, u64),
    /// Live bytes divided, biggest first.
    pub cells: Vec<Cell>,
}

/// Live bytes of one phase, kind and owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Phase.
    pub phase: String,
    /// Kind of memory.
    pub kind: String,
    /// Whose code asked for it.
    pub owner: String,
    /// Bytes, allocations.
    pub live: u64,
    /// Allocations.
    pub count: u64,
    /// Divided by stack, biggest first.
    pub parts: Vec<Part>,
}

/// What one stack holds of a [`Cell`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Number of the stack, for [`Snapshot::frames`].
    pub stack: Option<u32>,
    /// Bytes.
    pub live: u64,
    /// Allocations.
    pub count: u64,
}

impl Snapshot {
    /// Of a ledger, whose books this closes.
    #[must_use]
    pub fn new(ledger: Ledger, status: Status, rules: &Rules) -> Self {
        let (cards, past) = (ledger.cards(), ledger.past().clone());
        Self { status, ..Self::of_book(ledger.finish(), &cards, &past, rules) }
    }

    /// Of closed books, what NVML said last, and what was folded; by a session that says nothing more.
    #[must_use]
    pub fn of_book(book: Book, cards: &[Card], past: &Past, rules: &Rules) -> Self {
        let axes = Axes::with_rules(&book, rules);
        let (mut gpus, numbers) = gpus(&book, cards);
        let rows = Rows { axes: &axes, past, gpus: &numbers }.all();
        for row in &rows {
            gpus[row.gpu].traced += row.live;
        }
        let losses = book.losses.clone();
        let (notices, begun) = (book.notices.clone(), book.header.t);
        let status = Status { t: book.end, ..Status::default() };
        let (host, driver) = (plain(&book.header.host), book.header.driver.as_deref().map(plain));
        // What stays is for `frames`.
        let book = Book { frames: book.frames, stacks: book.stacks, ..Book::default() };
        Self { begun, host, driver, status, gpus, rows, losses, notices, book }
    }

    /// Lost events that could carry bytes.
    #[must_use]
    pub fn lost_events(&self) -> u64 {
        let is_event = |why: &str| Loss { why: why.to_owned(), ..Loss::default() }.is_event();
        self.losses.iter().filter(|(why, _)| is_event(why)).map(|(_, count)| count).sum()
    }

    /// Frames of a stack, innermost first, all of them.
    #[must_use]
    pub fn frames(&self, stack: Option<u32>) -> Vec<String> {
        let Some(stack) = stack else { return vec![NO_STACK.to_owned()] };
        frames::of_stack(&self.book, stack).rev().map(|frame| plain(&frames::describe(frame))).collect()
    }

    /// The frame that says best who asked.
    #[must_use]
    pub fn asked(&self, stack: Option<u32>) -> String {
        let of_stack = |stack| frames::innermost_useful(&self.book, stack, 1).pop().map(|frame| plain(&frame));
        stack.and_then(of_stack).unwrap_or_else(|| NO_STACK.to_owned())
    }
}

/// All GPUs, those of the machine first, and where each of the book's stands among them.
fn gpus(book: &Book, cards: &[Card]) -> (Vec<Gpu>, Vec<usize>) {
    let of_card = |card: &Card| Gpu {
        label: format!("GPU {}", card.gpu.index),
        uuid: card.gpu.uuid.clone(),
        name: plain(&card.gpu.name),
        total: Some(card.gpu.total_bytes),
        memory: card.memory,
        traced: 0,
    };
    let mut gpus: Vec<Gpu> = cards.iter().map(of_card).collect();
    let mut number = |known: &GpuRef| {
        let listed = gpus.iter().position(|gpu| !known.uuid.is_empty() && gpu.uuid == known.uuid);
        listed.unwrap_or_else(|| {
            let label = plain(&crate::lifecycle::gpu_label(known));
            gpus.push(Gpu { label, uuid: known.uuid.clone(), ..Gpu::default() });
            gpus.len() - 1
        })
    };
    let numbers = book.gpus.iter().map(&mut number).collect();
    (gpus, numbers)
}

/// Makes rows.
struct Rows<'a> {
    axes: &'a Axes<'a>,
    past: &'a Past,
    /// Number among all GPUs of each of the book's.
    gpus: &'a [usize],
}

/// Phase, kind and owner as numbers.
type CellKey = (u32, u32, u32);
/// Bytes and allocations by stack.
type Parts = HashMap<Option<u32>, (u64, u64)>;

impl Rows<'_> {
    fn all(&self) -> Vec<Row> {
        let book = self.axes.book();
        let mut places: BTreeMap<(u32, usize), (usize, BTreeMap<CellKey, Parts>)> = BTreeMap::new();
        let place = |process: usize, gpu: usize| (self.axes.place(process), gpu);
        for row in &book.allocations {
            let (_, cells) = places.entry(place(row.process, row.gpu)).or_insert((row.process, BTreeMap::new()));
            if row.died.is_none() {
                let cell = |axis| self.axes.cell(axis, row);
                let parts = cells.entry((cell(Axis::Phase), cell(Axis::Kind), cell(Axis::Owner))).or_default();
                let (bytes, count) = parts.entry(row.stack).or_default();
                *bytes = bytes.saturating_add(row.bytes);
                *count += 1;
            }
        }
        // A process whose first call failed has no memory.
        let failures = self.failures();
        for &(process, gpu) in failures.keys().filter(|(_, gpu)| *gpu < book.gpus.len()) {
            places.entry(place(process, gpu)).or_insert((process, BTreeMap::new()));
        }
        let mut peaks = book.peaks();
        let mut last = self.last_phases();
        let row = |((_, gpu), (process, cells)): ((u32, usize), (usize, BTreeMap<CellKey, Parts>))| {
            let info = &book.processes[process];
            let cells = self.cells(cells);
            let peak = peaks.remove(&(process, gpu)).unwrap_or_default().bytes;
            Row {
                process,
                pid: info.pid,
                rank: plain(self.axes.rank(process)),
                gpu: self.gpus[gpu],
                state: state(info),
                phase: self.phase(process, info, last.remove(&process)),
                live: cells.iter().map(|cell| cell.live).sum(),
                peak: peak.max(self.past.peak(process, &book.gpus[gpu])),
                failures: failures.get(&(process, gpu)).copied().unwrap_or_default(),
                cells,
            }
        };
        places.into_iter().map(row).collect()
    }

    fn cells(&self, cells: BTreeMap<CellKey, Parts>) -> Vec<Cell> {
        let label = |axis, cell| plain(&self.axes.label(axis, cell));
        let cell = |((phase, kind, owner), parts): (CellKey, Parts)| {
            let part = |(stack, (live, count))| Part { stack, live, count };
            let mut parts: Vec<Part> = parts.into_iter().map(part).collect();
            parts.sort_by_key(|part| (std::cmp::Reverse(part.live), part.stack));
            Cell {
                phase: label(Axis::Phase, phase),
                kind: label(Axis::Kind, kind),
                owner: label(Axis::Owner, owner),
                live: parts.iter().map(|part| part.live).sum(),
                count: parts.iter().map(|part| part.count).sum(),
                parts,
            }
        };
        let mut cells: Vec<Cell> = cells.into_iter().map(cell).collect();
        cells.sort_by_key(|cell| std::cmp::Reverse(cell.live));
        cells
    }

    /// Phase of the newest memory of each process.
    fn last_phases(&self) -> HashMap<usize, u32> {
        self.axes.book().allocations.iter().map(|row| (row.process, self.axes.cell(Axis::Phase, row))).collect()
    }

    /// Phase of a process now: what its lines say or, where they say nothing, what its newest memory is of.
    fn phase(&self, process: usize, info: &ProcessInfo, last: Option<u32>) -> String {
        let now = info.died.unwrap_or(self.axes.book().end);
        let told = self.axes.phase_at(process, now, None);
        let of_memory = || last.map_or(UNATTRIBUTED, |phase| self.axes.phase_name(phase));
        plain(if told == UNATTRIBUTED { of_memory() } else { told })
    }

    /// Failures by process and GPU, for want of memory and others. Those on no known GPU stand with the process's first.
    fn failures(&self) -> HashMap<(usize, usize), (u64, u64)> {
        let book = self.axes.book();
        let mut first: HashMap<usize, usize> = HashMap::new();
        for row in &book.allocations {
            first.entry(row.process).and_modify(|gpu| *gpu = row.gpu.min(*gpu)).or_insert(row.gpu);
        }
        let mut sums: HashMap<(usize, usize), (u64, u64)> = HashMap::new();
        let mut add = |process: usize, gpu: Option<usize>, is_oom: bool, count: u64| {
            let gpu = gpu.or_else(|| first.get(&process).copied()).unwrap_or(0);
            let (oom, other) = sums.entry((process, gpu)).or_default();
            *(if is_oom { oom } else { other }) += count;
        };
        for failure in &book.failures {
            add(failure.process, failure.gpu, failure.out_of_memory, 1);
        }
        for (process, gpu, is_oom, count) in self.past.failures() {
            let gpu = gpu.and_then(|gpu| book.gpus.iter().position(|known| *known == gpu));
            add(process, gpu, is_oom, count);
        }
        sums
    }
}

fn state(process: &ProcessInfo) -> State {
    match (process.died, process.exit_signal) {
        (None, _) => State::Runs,
        (Some(_), Some(signal)) => State::Killed(signal),
        (Some(_), None) => State::Exited(process.exit_code),
    }
}
