//! Which phase, role and owner a piece of memory belongs to, and which rule says so.
//!
//! Precedence for the phase: the innermost frame that a rule fits; else a window (an API call around it, a
//! communicator being made, a capture); else the state that log lines put the process in; else a fallback rule's frame.
//! Where weaker evidence names a sub-phase of what stronger evidence says, the sub-phase counts: a graph instantiated while
//! prefill graphs are captured is `cuda_graph.prefill`.

use std::collections::HashMap;

use super::phase;
use super::rules::{Role, Rules, Says, glob};
use super::stacks::Stacks;
use super::state::States;
use super::windows::Windows;
use crate::ledger::torch::{Block, OutOfMemory};
use crate::ledger::{Allocation, Book, Failure, Family, Kind};
use crate::map::{Map, Set};

/// What was decided on one axis: a cell and the rule behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Verdict<C> {
    pub(super) cell: C,
    pub(super) rule: Option<u16>,
}

/// What was decided for one piece of memory; `None` where nothing decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Mark {
    /// Phase by number.
    pub(super) phase: Option<Verdict<u16>>,
    /// Role, where the stack tells.
    pub(super) role: Option<Verdict<Role>>,
    /// Owner by number.
    pub(super) owner: Option<Verdict<u16>>,
}

/// What is looked at.
struct Case<'a> {
    process: usize,
    tid: Option<u32>,
    t: u64,
    stack: Option<u32>,
    /// Rules whose pattern of calls fits a call around it.
    calls: &'a [u16],
    kind: Option<Kind>,
    /// A block of an allocator: the thread that asked for it is known, a communicator made elsewhere says nothing.
    is_block: bool,
}

/// Applies rules to a book.
#[derive(Debug)]
pub(super) struct Attribution<'b> {
    rules: &'b Rules,
    stacks: Stacks,
    states: States,
    communicators: Windows<usize>,
    /// Rules whose pattern of calls fits each of the book's communicators, and the stack of the call that made it.
    by_communicator: Vec<(Box<[u16]>, Option<u32>)>,
    captures: Windows<(usize, u32)>,
    /// Rules on native frames of threads that run no Python, by process and thread: blocks bring no such frames.
    threads: Map<(usize, u32), u16>,
    /// The same for each call's name.
    by_call: HashMap<&'b str, Box<[u16]>>,
    /// For each rule, the phases during which it counts; `None`: any.
    during: Vec<Option<Box<[bool]>>>,
    /// For each phase, the phases that it is a part of.
    part: Vec<Box<[bool]>>,
}

impl<'b> Attribution<'b> {
    pub(super) fn new(book: &'b Book, rules: &'b Rules, family: &Family) -> Self {
        let fitting = |name: &str| -> Box<[u16]> {
            let fits = |(number, rule): (usize, &super::rules::Rule)| {
                rule.calls.iter().any(|pattern| glob(pattern, name)).then_some(number as u16)
            };
            rules.all().iter().enumerate().filter_map(fits).collect()
        };
        let rows = [&book.allocations, &book.host, &book.imports].into_iter().flatten();
        // Rows share their lists, and most came through the calls that the one before came through.
        let (mut known, mut last) = (Set::default(), std::ptr::null());
        let is_new = |row: &&Allocation| {
            let list = row.calls.as_ptr();
            std::mem::replace(&mut last, list) != list && known.insert(list)
        };
        let calls: Vec<&[String]> = rows.filter(is_new).map(|row| &*row.calls).collect();
        let names = calls.into_iter().flatten().chain(book.failures.iter().map(|failure| &failure.api));
        let mut by_call: HashMap<&str, Box<[u16]>> = HashMap::new();
        for name in names {
            if !by_call.contains_key(name.as_str()) {
                by_call.insert(name, fitting(name));
            }
        }
        let during = |rule: &super::rules::Rule| {
            let fits = |known: &String| rule.during.iter().any(|of| known == of || phase::is_part(known, of));
            (!rule.during.is_empty()).then(|| rules.phases().iter().map(fits).collect())
        };
        let stacks = Stacks::new(book, rules);
        Self {
            rules,
            threads: threads(book, rules, &stacks),
            stacks,
            states: States::new(book, rules, family),
            communicators: Windows::new(book.communicators.iter().map(|c| (c.process, c.start, c.end))),
            by_communicator: book.communicators.iter().map(|c| (fitting(&c.api), c.stack)).collect(),
            captures: Windows::new(book.captures.iter().map(|c| ((c.process, c.tid), c.start, c.end))),
            by_call,
            during: rules.all().iter().map(during).collect(),
            part: rules
                .phases()
                .iter()
                .map(|part| rules.phases().iter().map(|whole| phase::is_part(part, whole)).collect())
                .collect(),
        }
    }

    /// Decides for a row of the ledger.
    pub(super) fn of_row(&self, row: &Allocation) -> Mark {
        self.decide(row, &self.fitting_calls(row))
    }

    /// The same for a row whose calls these rules fit ([`fitting_calls`](Self::fitting_calls)).
    pub(super) fn decide(&self, row: &Allocation, calls: &[u16]) -> Mark {
        let (process, t, stack) = (row.process, row.born, row.stack);
        let case = Case { process, tid: Some(row.tid), t, stack, calls, kind: Some(row.kind), is_block: false };
        Mark { phase: self.phase(&case), role: self.role(self.told_by(&case)), owner: self.owner(&case) }
    }

    /// Phase in which a call failed.
    pub(super) fn of_failure(&self, failure: &Failure) -> Option<u16> {
        let calls = self.fitting([failure.api.as_str()]);
        let Failure { process, t, stack, .. } = *failure;
        let case = Case { process, tid: None, t, stack, calls: &calls, kind: None, is_block: false };
        self.phase(&case).map(|verdict| verdict.cell)
    }

    /// Phase in which `process` asked for a block.
    pub(super) fn of_block(&self, process: usize, block: &Block) -> Option<u16> {
        let Block { tid, born: t, stack, .. } = *block;
        let case = Case { process, tid: Some(tid), t, stack, calls: &[], kind: None, is_block: true };
        self.phase(&case).map(|verdict| verdict.cell)
    }

    /// Phase in which an allocator gave up.
    pub(super) fn of_give_up(&self, failure: &OutOfMemory) -> Option<u16> {
        let OutOfMemory { process, t, stack, .. } = *failure;
        let case = Case { process, tid: None, t, stack, calls: &[], kind: None, is_block: true };
        self.phase(&case).map(|verdict| verdict.cell)
    }

    /// Phase that a process was in at `t`.
    pub(super) fn at(&self, process: usize, t: u64, stack: Option<u32>) -> Option<u16> {
        self.phase(&Case { process, tid: None, t, stack, calls: &[], kind: None, is_block: false })
            .map(|verdict| verdict.cell)
    }

    /// Role that a stack tells.
    pub(super) fn role(&self, stack: Option<u32>) -> Option<Verdict<Role>> {
        let rule = self.stacks.of(stack).role?;
        match self.rules.rule(rule).says {
            Says::Role(role) => Some(Verdict { cell: role, rule: Some(rule) }),
            _ => None,
        }
    }

    /// Rules whose pattern of calls fits a call around a row.
    pub(super) fn fitting_calls(&self, row: &Allocation) -> Vec<u16> {
        self.fitting(row.calls.iter().map(String::as_str))
    }

    /// Rules whose pattern of calls fits one of these.
    fn fitting<'n>(&self, names: impl IntoIterator<Item = &'n str>) -> Vec<u16> {
        let mut fitting = Vec::new();
        for rules in names.into_iter().filter_map(|name| self.by_call.get(name)) {
            fitting.extend_from_slice(rules);
        }
        fitting
    }

    /// The stack whose Python frames speak for a case: its own or, on a thread that runs no Python (NCCL's own), that of the
    /// call that makes a communicator at the time and waits for such threads.
    fn told_by(&self, case: &Case<'_>) -> Option<u32> {
        if case.is_block || self.stacks.of(case.stack).has_python {
            return case.stack;
        }
        let made = self.communicators.at(&case.process, case.t).find_map(|n| self.by_communicator[n].1);
        made.or(case.stack)
    }

    fn phase(&self, case: &Case<'_>) -> Option<Verdict<u16>> {
        let has_python = self.stacks.of(case.stack).has_python;
        let facts = self.stacks.of(self.told_by(case));
        let phase_of = |rule: u16| self.rules.phase_of(rule);
        let state = self.states.at(case.process, case.t);
        let state_phase = state.and_then(phase_of);
        let first = |rules: &[u16], now: Option<u16>| rules.iter().copied().find(|rule| self.counts(*rule, now));

        let frame = first(&facts.phase, state_phase);
        let now = frame.and_then(phase_of).or(state_phase);
        let windows = self.rules.windows.iter().copied();
        let window =
            windows.into_iter().find(|rule| self.counts(*rule, now) && self.is_within(*rule, case, has_python));
        let fallback = || first(&facts.fallback, state_phase).or_else(|| self.thread(case));
        let mut rule = frame.or(window).or(state).or_else(fallback)?;
        for weaker in [window, state].into_iter().flatten() {
            if self.is_part(weaker, rule) {
                rule = weaker;
            }
        }
        Some(Verdict { cell: phase_of(rule)?, rule: Some(rule) })
    }

    /// What a block's thread does, if it runs no Python.
    fn thread(&self, case: &Case<'_>) -> Option<u16> {
        let asks = case.is_block && !self.stacks.of(case.stack).has_python;
        case.tid.filter(|_| asks).and_then(|tid| self.threads.get(&(case.process, tid)).copied())
    }

    fn owner(&self, case: &Case<'_>) -> Option<Verdict<u16>> {
        let facts = self.stacks.of(case.stack);
        let rule = facts.owner.iter().copied().find(|rule| self.is_within(*rule, case, facts.has_python))?;
        match self.rules.rule(rule).says {
            Says::Owner(owner) => Some(Verdict { cell: owner, rule: Some(rule) }),
            _ => None,
        }
    }

    /// True unless the rule is for other phases than `now`.
    fn counts(&self, rule: u16, now: Option<u16>) -> bool {
        let during = self.during[usize::from(rule)].as_ref();
        during.is_none_or(|during| now.is_some_and(|now| during[usize::from(now)]))
    }

    /// True when the phase of one rule is a sub-phase of the other's.
    fn is_part(&self, part: u16, whole: u16) -> bool {
        match (self.rules.phase_of(part), self.rules.phase_of(whole)) {
            (Some(part), Some(whole)) => self.part[usize::from(part)][usize::from(whole)],
            _ => false,
        }
    }

    /// True when all that a rule asks of calls, captures and kinds holds.
    fn is_within(&self, number: u16, case: &Case<'_>, has_python: bool) -> bool {
        let rule = self.rules.rule(number);
        let kind = rule.kinds.is_empty() || case.kind.is_some_and(|kind| rule.kinds.contains(&kind));
        kind && (rule.calls.is_empty() || self.is_around(number, case, has_python))
            && (!rule.capture
                || case.tid.is_some_and(|tid| self.captures.at(&(case.process, tid), case.t).next().is_some()))
    }

    /// True when a call that the rule names is around: on the thread itself, or, for a thread that runs no Python (NCCL's
    /// own), a communicator that is being made elsewhere in the process.
    fn is_around(&self, number: u16, case: &Case<'_>, has_python: bool) -> bool {
        case.calls.contains(&number)
            || (!has_python
                && !case.is_block
                && self.communicators.at(&case.process, case.t).any(|n| self.by_communicator[n].0.contains(&number)))
    }
}

fn threads(book: &Book, rules: &Rules, stacks: &Stacks) -> Map<(usize, u32), u16> {
    let tells = |stack: Option<u32>| {
        let facts = stacks.of(stack);
        let rule = facts.fallback.first().filter(|_| !facts.has_python)?;
        (!rules.rule(*rule).native.is_empty()).then_some(*rule)
    };
    // Few traces have such stacks, and all have many rows.
    if !(0..book.stacks.len() as u32).any(|stack| tells(Some(stack)).is_some()) {
        return Map::default();
    }
    let told = |row: &Allocation| Some(((row.process, row.tid), tells(row.stack)?));
    book.allocations.iter().filter_map(told).collect()
}
