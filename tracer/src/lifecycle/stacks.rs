//! What the rules say about each stack: worked out once a stack, whatever the number of allocations from it.

use std::collections::HashSet;

use super::rules::{Rules, Says};
use crate::ledger::Book;
use crate::trace::record::{Frame, FrameKind};

/// Libraries that belong to the call rather than to its caller.
const CUDA: [&str; 3] = ["libcuda.so", "libcudart.so", "libnvidia-"];

/// What a stack tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct StackFacts {
    /// It has Python frames.
    pub(super) has_python: bool,
    /// Rules for the phase, innermost frame first; those behind one without a condition are left out.
    pub(super) phase: Box<[u16]>,
    /// The same, of rules that count only where nothing else decides.
    pub(super) fallback: Box<[u16]>,
    /// Rule for the role.
    pub(super) role: Option<u16>,
    /// Rules for the owner whose frames are there, in order of the rules.
    pub(super) owner: Box<[u16]>,
}

/// Facts of all stacks of a book, by number.
#[derive(Debug)]
pub(super) struct Stacks {
    facts: Vec<StackFacts>,
    /// Of a row without a stack.
    none: StackFacts,
}

impl Stacks {
    pub(super) fn new(book: &Book, rules: &Rules) -> Self {
        let frames: Vec<Box<[u16]>> = book.frames.iter().map(|frame| rules.of_frame(frame).into()).collect();
        let facts = book.stacks.iter().map(|stack| facts(book, rules, stack, &frames)).collect();
        Self { facts, none: facts_of_none(rules) }
    }

    /// Facts of a stack; those of none where the trace does not hold it.
    pub(super) fn of(&self, stack: Option<u32>) -> &StackFacts {
        stack.and_then(|stack| self.facts.get(stack as usize)).unwrap_or(&self.none)
    }
}

/// Owners that ask for no frame.
fn facts_of_none(rules: &Rules) -> StackFacts {
    let without_frames = |rule: &&u16| rules.rule(**rule).is_window();
    StackFacts { owner: rules.by_owner.iter().filter(without_frames).copied().collect(), ..StackFacts::default() }
}

fn facts(book: &Book, rules: &Rules, stack: &[u32], matched: &[Box<[u16]>]) -> StackFacts {
    let mut found = Found::default();
    let mut caller = None;
    for &number in stack.iter().rev() {
        let Some(frame) = book.frames.get(number as usize) else { continue };
        let of_frame = &matched[number as usize];
        if frame.kind == FrameKind::Native {
            caller = caller.or(Some(frame).filter(|frame| is_caller(frame)));
            found.native.extend(of_frame.iter().copied());
        } else {
            found.has_python |= frame.kind == FrameKind::Python;
            found.python.extend(of_frame.iter().copied());
        }
        for &rule in of_frame {
            found.take(rules, rule);
        }
    }
    let holds = |number: &&u16| {
        let rule = rules.rule(**number);
        let python = rule.python.is_empty() || found.python.contains(*number);
        // A pattern of a module alone asks for the caller, one of a function for any frame.
        let native = rule.native.is_empty()
            || found.native.contains(*number)
            || caller.is_some_and(|caller| {
                rule.native.iter().any(|pattern| pattern.is_any_function() && pattern.is_native(caller))
            });
        python && native
    };
    StackFacts {
        has_python: found.has_python,
        phase: found.phase.into(),
        fallback: found.fallback.into(),
        role: found.role,
        owner: rules.by_owner.iter().filter(holds).copied().collect(),
    }
}

/// What has been found from the innermost frame outwards.
#[derive(Default)]
struct Found {
    has_python: bool,
    python: HashSet<u16>,
    native: HashSet<u16>,
    phase: Vec<u16>,
    fallback: Vec<u16>,
    /// A rule without a condition was met: nothing further out counts.
    is_settled: (bool, bool),
    role: Option<u16>,
}

impl Found {
    fn take(&mut self, rules: &Rules, number: u16) {
        let rule = rules.rule(number);
        match rule.says {
            Says::Role(_) => self.role = self.role.or(Some(number)),
            Says::Owner(_) => {}
            Says::Phase(_) => {
                let (list, is_settled) = match rule.fallback {
                    false => (&mut self.phase, &mut self.is_settled.0),
                    true => (&mut self.fallback, &mut self.is_settled.1),
                };
                if !*is_settled && !list.contains(&number) {
                    list.push(number);
                    *is_settled = rule.during.is_empty();
                }
            }
        }
    }
}

/// True for a frame that may be the caller's: native code outside CUDA itself.
fn is_caller(frame: &Frame) -> bool {
    let name = frame.module.rsplit('/').next().unwrap_or_default();
    !name.is_empty() && !CUDA.iter().any(|cuda| name.starts_with(cuda))
}
