//! What decided, kept for each piece of memory and summed for the report.

use std::cmp::Reverse;
use std::collections::HashMap;

use serde::Serialize;

use super::attribute::Mark;
use super::rules::Rule;
use super::{Axes, Axis};
use crate::map::Map;

/// A kind of evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Evidence {
    /// A Python frame of the stack.
    PythonFrame,
    /// A native frame of the stack, or the library of the caller.
    NativeFrame,
    /// An API call around, a communicator being made, or a capture.
    Window,
    /// What the ledger says the memory is for.
    Kind,
    /// A line that the process or an ancestor wrote.
    LogLine,
    /// What is known of the process as a whole: title, lines, command.
    Process,
    /// The ledger itself.
    Ledger,
    /// None: `unattributed`.
    None,
}

impl Evidence {
    /// Kind of evidence that a rule goes by.
    fn of_rule(rule: &Rule) -> Self {
        if !rule.python.is_empty() {
            Self::PythonFrame
        } else if !rule.native.is_empty() {
            Self::NativeFrame
        } else if rule.capture || !rule.calls.is_empty() {
            Self::Window
        } else if !rule.kinds.is_empty() {
            Self::Kind
        } else {
            Self::LogLine
        }
    }
}

/// How much memory one rule put into one cell.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Decided {
    /// `phase`, `role` or `owner`.
    pub axis: &'static str,
    /// Label of the cell.
    pub cell: String,
    /// What decided.
    pub evidence: Evidence,
    /// The rule: its file and name.
    pub rule: Option<String>,
    /// Bytes ever allocated.
    pub allocated_bytes: u64,
    /// Allocations.
    pub count: u64,
}

/// Axes that rules decide.
const AXES: [Axis; 3] = [Axis::Phase, Axis::Role, Axis::Owner];

/// One cell, and what put memory there.
type Key = (Axis, u32, Evidence, Option<u16>);

/// Sums of what decided, biggest first within an axis.
pub(super) fn decided(axes: &Axes<'_>) -> Vec<Decided> {
    // By decision first: few are different.
    let mut decisions: Map<(Mark, [u32; 3]), (u64, u64)> = Map::default();
    for ((class, row), (more_bytes, more)) in axes.alike.classes.iter().zip(axes.firsts()).zip(axes.sums(|_| true)) {
        let cells = AXES.map(|axis| axes.cell(axis, row));
        let (bytes, count) = decisions.entry((class.mark, cells)).or_default();
        *bytes = bytes.saturating_add(more_bytes);
        *count += more;
    }
    let mut sums: HashMap<Key, (u64, u64)> = HashMap::new();
    for ((mark, cells), (more_bytes, more)) in decisions {
        let ledger = if cells[2] == u32::MAX { Evidence::None } else { Evidence::Ledger };
        let rules = [
            (mark.phase.and_then(|verdict| verdict.rule), Evidence::None),
            (mark.role.and_then(|verdict| verdict.rule), Evidence::Process),
            (mark.owner.and_then(|verdict| verdict.rule), ledger),
        ];
        for ((axis, cell), (rule, without)) in AXES.into_iter().zip(cells).zip(rules) {
            let evidence = rule.map_or(without, |rule| Evidence::of_rule(axes.rules.rule(rule)));
            let (bytes, count) = sums.entry((axis, cell, evidence, rule)).or_default();
            *bytes = bytes.saturating_add(more_bytes);
            *count += more;
        }
    }
    let mut sums: Vec<(Key, (u64, u64))> = sums.into_iter().collect();
    sums.sort_by_key(|(key, (bytes, _))| (key.0, Reverse(*bytes), *key));
    let name = |rule| {
        let rule = axes.rules.rule(rule);
        format!("{}/{}", rule.file, rule.name)
    };
    let row = |((axis, cell, evidence, rule), (allocated_bytes, count)): (Key, (u64, u64))| Decided {
        axis: axis.name(),
        cell: axes.label(axis, cell).into_owned(),
        evidence,
        rule: rule.map(name),
        allocated_bytes,
        count,
    };
    sums.into_iter().map(row).collect()
}
