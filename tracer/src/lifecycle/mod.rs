//! Meaning: which phase, rank, role and owner a byte belongs to.
//!
//! [`Axes`] is the one place where a row of the ledger becomes a cell of a report. It is computed from the trace when
//! it is read, so a better rule improves old traces.

use std::borrow::Cow;
use std::sync::OnceLock;

use crate::ledger::torch::{Block, OutOfMemory};
use crate::ledger::{Allocation, Book, Changes, Failure, Family, Kind};
use crate::map::Map;

mod alike;
mod attribute;
mod axis;
mod evidence;
mod group;
mod label;
pub mod logs;
mod memory;
mod phase;
mod rank;
mod rules;
mod select;
mod stacks;
mod state;
mod windows;

use alike::Alike;
use attribute::{Attribution, Mark};
pub use axis::Axis;
pub use evidence::{Decided, Evidence};
pub use group::Group;
pub use label::{gpu_label, kind_name, process_label};
pub use memory::{Printed, printed};
pub use phase::{PHASES, order as phase_order, root};
use rank::Ranks;
pub use rank::{Rank, RankEvidence};
pub use rules::{Covers, Range, Role, Rule, Rules, RulesError, Version};
pub use select::{Selection, select, versions_beside};

/// The cell of what no rule explains.
pub const UNATTRIBUTED: &str = "unattributed";
/// The cell of memory that came without a call stack.
pub const NO_STACK: &str = "[no stack]";
/// The cell of memory that came outside every probed API call.
pub const NO_API: &str = "[no API call]";
/// Owner that the ledger gives where it knows none.
const UNKNOWN: &str = "unknown";

/// Names met in the ledger, numbered in order of appearance.
#[derive(Debug, Default)]
struct Names<'b> {
    numbers: Map<&'b str, u32>,
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
    rules: &'b Rules,
    family: Family,
    attribution: Attribution<'b>,
    /// Which of [`Book::allocations`] are alike, and what was decided for them.
    alike: Alike,
    ranks: Ranks,
    /// Label of each of [`Book::processes`].
    processes: Vec<String>,
    /// Owners: those of the rules, then the ledger's own.
    owners: Names<'b>,
    apis: Names<'b>,
    /// Of [`Book::allocations`], worked out when first asked for.
    changes: OnceLock<Changes>,
}

impl<'b> Axes<'b> {
    /// Reads what the axes need from `book`, by the standard rules.
    #[must_use]
    pub fn new(book: &'b Book) -> Self {
        Self::with_rules(book, Rules::standard())
    }

    /// The same by `rules`.
    #[must_use]
    pub fn with_rules(book: &'b Book, rules: &'b Rules) -> Self {
        let family = Family::of(book);
        let attribution = Attribution::new(book, rules, &family);
        let alike = Alike::new(book, &attribution);
        let firsts: Vec<&Allocation> = alike.firsts(&book.allocations).collect();
        let (mut owners, mut apis) = (Names::default(), Names::default());
        rules.owners().iter().for_each(|owner| owners.add(owner));
        for row in firsts.iter().copied().chain(&book.host).chain(&book.imports) {
            if row.owner.0 != UNKNOWN {
                owners.add(&row.owner.0);
            }
            apis.add(outermost_call(row));
        }
        let ranks = Ranks::new(book, rules, &attribution, &firsts);
        Self {
            book,
            rules,
            family,
            attribution,
            alike,
            ranks,
            processes: label::labels(book).into_iter().map(|(_, label)| label).collect(),
            owners,
            apis,
            changes: OnceLock::new(),
        }
    }

    /// The book the axes were made for.
    #[must_use]
    pub fn book(&self) -> &'b Book {
        self.book
    }

    /// Which of the book's processes started which.
    #[must_use]
    pub fn family(&self) -> &Family {
        &self.family
    }

    /// Births and deaths of the book's rows, in order.
    #[must_use]
    pub fn changes(&self) -> &Changes {
        self.changes.get_or_init(|| Changes::of(&self.book.allocations))
    }

    /// The rules by which they were made.
    #[must_use]
    pub fn rules(&self) -> &'b Rules {
        self.rules
    }

    /// Cell of `row` on `axis`.
    #[must_use]
    pub fn cell(&self, axis: Axis, row: &Allocation) -> u32 {
        match axis {
            Axis::Phase => {
                let unattributed = self.rules.phases().len() as u32;
                self.mark(row).phase.map_or(unattributed, |verdict| u32::from(verdict.cell))
            }
            Axis::Rank => self.place(row.process),
            Axis::Role => self.mark(row).role.map_or(self.role(row.process), |verdict| verdict.cell) as u32,
            Axis::Process => row.process as u32,
            Axis::Kind => row.kind as u32,
            Axis::Owner => match self.mark(row).owner {
                Some(verdict) => u32::from(verdict.cell),
                None => self.owners.number(&row.owner.0),
            },
            Axis::Device => row.gpu as u32,
            Axis::Stack => row.stack.map_or(0, |stack| stack.saturating_add(1)),
            Axis::Api => self.apis.number(outermost_call(row)),
        }
    }

    /// Name of a cell that [`Axes::cell`] gave.
    #[must_use]
    pub fn label(&self, axis: Axis, cell: u32) -> Cow<'_, str> {
        match axis {
            Axis::Phase => self.phase(Some(cell)).into(),
            Axis::Role => Role::ALL.iter().find(|role| **role as u32 == cell).map_or(UNATTRIBUTED, |r| r.name()).into(),
            Axis::Rank => {
                self.ranks.order.get(cell as usize).map_or(UNATTRIBUTED, |process| self.rank(*process)).into()
            }
            Axis::Process => self.processes.get(cell as usize).map_or(UNATTRIBUTED, String::as_str).into(),
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
        self.ranks.ranks.get(process).map_or(UNATTRIBUTED, |rank| rank.label.as_str())
    }

    /// Rank of each process, with its evidence.
    #[must_use]
    pub fn ranks(&self) -> &[Rank] {
        &self.ranks.ranks
    }

    /// Where a process stands in the order of reports.
    #[must_use]
    pub fn place(&self, process: usize) -> u32 {
        self.ranks.place.get(process).copied().unwrap_or(u32::MAX)
    }

    /// Role of a process: that of its memory whose stack tells no other.
    #[must_use]
    pub fn role(&self, process: usize) -> Role {
        self.ranks.roles.get(process).copied().unwrap_or(Role::Other)
    }

    /// Processes in the order of reports: ranks first.
    #[must_use]
    pub fn order(&self) -> &[usize] {
        &self.ranks.order
    }

    /// Communicators across processes.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        group::groups(self.book, &self.ranks.ranks)
    }

    /// Phase in which a call failed.
    #[must_use]
    pub fn failure_phase(&self, failure: &Failure) -> &str {
        self.phase(self.attribution.of_failure(failure).map(u32::from))
    }

    /// Phase that a process was in at `t`, by the stack of what it did then and by its log lines.
    #[must_use]
    pub fn phase_at(&self, process: usize, t: u64, stack: Option<u32>) -> &str {
        self.phase(self.attribution.at(process, t, stack).map(u32::from))
    }

    /// Name of a cell of [`Axis::Phase`].
    #[must_use]
    pub fn phase_name(&self, cell: u32) -> &str {
        self.phase(Some(cell))
    }

    /// Phase in which a block of `PyTorch`'s allocator was asked for.
    #[must_use]
    pub fn block_phase(&self, process: usize, block: &Block) -> &str {
        self.phase(self.attribution.of_block(process, block).map(u32::from))
    }

    /// Phase in which that allocator gave up.
    #[must_use]
    pub fn give_up_phase(&self, failure: &OutOfMemory) -> &str {
        self.phase(self.attribution.of_give_up(failure).map(u32::from))
    }

    /// True when a phase is known of some memory beside contexts, which every CUDA program has.
    #[must_use]
    pub fn has_phases(&self) -> bool {
        let is_telling = |phase: &u16| self.rules.phases()[usize::from(*phase)] != "cuda_context";
        let phases = self.alike.classes.iter().filter_map(|class| class.mark.phase);
        phases.map(|verdict| verdict.cell).any(|phase| is_telling(&phase))
    }

    /// What decided how much, on each axis.
    #[must_use]
    pub fn decided(&self) -> Vec<Decided> {
        evidence::decided(self)
    }

    /// Label of a GPU.
    #[must_use]
    pub fn gpu(&self, gpu: usize) -> String {
        label::gpu_name(self.book, gpu)
    }

    fn phase(&self, cell: Option<u32>) -> &str {
        cell.and_then(|cell| self.rules.phases().get(cell as usize)).map_or(UNATTRIBUTED, String::as_str)
    }

    /// What was decided for a row, worked out anew for one of another table.
    fn mark(&self, row: &Allocation) -> Mark {
        match position(&self.book.allocations, row) {
            Some(at) => self.alike.mark(at),
            None => self.attribution.of_row(row),
        }
    }
}

/// Where in `rows` the very row `row` stands.
fn position(rows: &[Allocation], row: &Allocation) -> Option<usize> {
    let offset = std::ptr::from_ref(row).addr().checked_sub(rows.as_ptr().addr())?;
    let at = offset / size_of::<Allocation>();
    rows.get(at).filter(|found| std::ptr::eq(*found, row)).map(|_| at)
}

/// All kinds of memory.
pub const KINDS: [Kind; 12] = [
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

#[cfg(test)]
mod tests;
