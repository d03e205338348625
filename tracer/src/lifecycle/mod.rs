//! Meaning: which phase, rank, role and owner a byte belongs to.
//!
//! [`Axes`] is the one place where a row of the ledger becomes a cell of a report. It is computed from the trace when
//! it is read, so a better rule improves old traces.

use std::borrow::Cow;
use std::collections::HashMap;

use crate::ledger::{Allocation, Book, Failure, GpuRef, Kind, ProcessInfo};

mod axis;
mod label;

pub use axis::Axis;
pub use label::{gpu_label, kind_name, process_label};

/// The cell of what no rule explains.
pub const UNATTRIBUTED: &str = "unattributed";
/// The cell of memory that came without a call stack.
pub const NO_STACK: &str = "[no stack]";
/// The cell of memory that came outside every probed API call.
pub const NO_API: &str = "[no API call]";

/// Names met in the ledger, numbered in order of appearance.
#[derive(Debug, Default)]
struct Names<'b> {
    numbers: HashMap<&'b str, u32>,
    names: Vec<&'b str>,
}

impl<'b> Names<'b> {
    fn add(&mut self, name: &'b str) {
        let next = self.names.len() as u32;
        if *self.numbers.entry(name).or_insert(next) == next {
            self.names.push(name);
        }
    }

    fn number(&self, name: &str) -> u32 {
        self.numbers.get(name).copied().unwrap_or(u32::MAX)
    }

    fn name(&self, number: u32) -> &'b str {
        self.names.get(number as usize).copied().unwrap_or(UNATTRIBUTED)
    }
}

/// Maps the ledger's rows to cells. A cell is a number within its axis; [`Axes::label`] gives its name.
#[derive(Debug)]
pub struct Axes<'b> {
    book: &'b Book,
    /// Label of each of [`Book::processes`].
    processes: Vec<String>,
    owners: Names<'b>,
    apis: Names<'b>,
}

impl<'b> Axes<'b> {
    /// Reads what the axes need from `book`.
    #[must_use]
    pub fn new(book: &'b Book) -> Self {
        let (mut owners, mut apis) = (Names::default(), Names::default());
        for row in book.allocations.iter().chain(&book.host).chain(&book.imports) {
            owners.add(&row.owner.0);
            apis.add(outermost_call(row));
        }
        Self { book, processes: process_labels(book), owners, apis }
    }

    /// The book the axes were made for.
    #[must_use]
    pub fn book(&self) -> &'b Book {
        self.book
    }

    /// Cell of `row` on `axis`.
    #[must_use]
    pub fn cell(&self, axis: Axis, row: &Allocation) -> u32 {
        match axis {
            // No rule names a phase or role yet: one cell each.
            Axis::Phase | Axis::Role => 0,
            Axis::Rank | Axis::Process => row.process as u32,
            Axis::Kind => row.kind as u32,
            Axis::Owner => self.owners.number(&row.owner.0),
            Axis::Device => row.gpu as u32,
            Axis::Stack => row.stack.map_or(0, |stack| stack.saturating_add(1)),
            Axis::Api => self.apis.number(outermost_call(row)),
        }
    }

    /// Name of a cell that [`Axes::cell`] gave.
    #[must_use]
    pub fn label(&self, axis: Axis, cell: u32) -> Cow<'_, str> {
        match axis {
            Axis::Phase => UNATTRIBUTED.into(),
            Axis::Role => self.role(cell as usize).into(),
            Axis::Rank | Axis::Process => self.rank(cell as usize).into(),
            Axis::Kind => {
                KINDS.iter().find(|kind| **kind as u32 == cell).map_or(UNATTRIBUTED, |k| kind_name(*k)).into()
            }
            Axis::Owner => self.owners.name(cell).into(),
            Axis::Device => self.gpu(cell as usize).into(),
            Axis::Stack => match Self::stack_of(cell) {
                Some(stack) => format!("stack {stack}").into(),
                None => NO_STACK.into(),
            },
            Axis::Api => self.apis.name(cell).into(),
        }
    }

    /// Stack number behind a cell of [`Axis::Stack`].
    #[must_use]
    pub fn stack_of(cell: u32) -> Option<u32> {
        cell.checked_sub(1)
    }

    /// Rank label of a process.
    #[must_use]
    pub fn rank(&self, process: usize) -> &str {
        self.processes.get(process).map_or(UNATTRIBUTED, String::as_str)
    }

    /// Role of a process.
    #[must_use]
    pub fn role(&self, _process: usize) -> &'static str {
        "other"
    }

    /// Phase in which a call failed.
    #[must_use]
    pub fn failure_phase(&self, _failure: &Failure) -> &'static str {
        UNATTRIBUTED
    }

    /// Label of a GPU.
    #[must_use]
    pub fn gpu(&self, gpu: usize) -> String {
        self.book.gpus.get(gpu).map_or_else(|| gpu_label(&GpuRef::default()), gpu_label)
    }
}

const KINDS: [Kind; 12] = [
    Kind::Context,
    Kind::Module,
    Kind::LocalMemory,
    Kind::Channel,
    Kind::CudaMalloc,
    Kind::Vmm,
    Kind::Pool,
    Kind::GraphExec,
    Kind::IpcImport,
    Kind::Host,
    Kind::PreAttach,
    Kind::Other,
];

fn outermost_call(row: &Allocation) -> &str {
    row.calls.first().map_or(NO_API, String::as_str)
}

/// A label for each process, all different: a pid that came back gets `#2`.
fn process_labels(book: &Book) -> Vec<String> {
    let mut lives: HashMap<u32, u32> = HashMap::new();
    let label = |process: &ProcessInfo| {
        let life = lives.entry(process.pid).and_modify(|n| *n += 1).or_insert(1);
        process_label(process, *life)
    };
    book.processes.iter().map(label).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::testbook::TestBook;

    #[test]
    fn every_kind_has_its_cell() {
        for (n, kind) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, n, "{kind:?}: KINDS must list every kind in order");
        }
    }

    #[test]
    fn a_pid_that_came_back_is_another_process() {
        let mut book = TestBook::new();
        let first = book.process(7, "server");
        let second = book.process(7, "server");
        let axes = Axes::new(&book.book);
        assert_eq!(axes.rank(first), "7 server");
        assert_eq!(axes.rank(second), "7#2 server");
    }

    #[test]
    fn what_no_rule_explains_is_a_cell() {
        let mut book = TestBook::new();
        let process = book.process(7, "server");
        let gpu = book.gpu(0);
        book.allocate(process, gpu, 2 << 20);
        let axes = Axes::new(&book.book);
        let row = &book.book.allocations[0];
        let labels: Vec<_> = Axis::ALL.iter().map(|a| axes.label(*a, axes.cell(*a, row)).into_owned()).collect();
        let expected = [
            "unattributed",
            "7 server",
            "cuda_malloc",
            "torch",
            "other",
            "GPU 0",
            "[no stack]",
            "7 server",
            "cudaMalloc",
        ];
        assert_eq!(labels, expected);
    }
}
