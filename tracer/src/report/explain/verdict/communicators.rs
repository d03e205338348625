//! NCCL communicators made once the server ran: their memory was in no budget.

use std::collections::BTreeMap;

use super::words::ranks;
use super::{Facts, Suspect};
use crate::report::bytes::human;
use crate::report::summary::since_start;
use crate::report::{clock, frames};

pub(super) fn of_one(facts: &Facts<'_, '_>) -> Vec<Suspect> {
    let mut by_rank: BTreeMap<String, u64> = BTreeMap::new();
    let mut phases: Vec<&str> = Vec::new();
    for held in facts.held.iter().filter(|held| held.is_late_nccl()) {
        *by_rank.entry(facts.axes.rank(held.process).to_owned()).or_default() += held.bytes;
        if !phases.contains(&held.root()) {
            phases.push(held.root());
        }
    }
    let total: u64 = by_rank.values().sum();
    let Some(most) = by_rank.values().max().filter(|_| total > 0) else { return Vec::new() };
    let names: Vec<String> = by_rank.keys().cloned().collect();
    let (evidence, by) = made(facts);
    let each = if names.len() > 1 {
        format!("{} a rank in {}", human(*most), ranks(&names))
    } else {
        format!("{} in {}", human(*most), names[0])
    };
    vec![Suspect {
        kind: "late_communicator",
        bytes: i64::try_from(total).ok(),
        ranks: names,
        text: format!(
            "An NCCL communicator made in {}, after the KV pool was sized, takes {each}{by}",
            phases.join(" and ")
        ),
        evidence,
        ..Suspect::default()
    }]
}

/// Communicators made in these phases, and who asked for the first of their memory.
fn made(facts: &Facts<'_, '_>) -> (Vec<String>, String) {
    let book = facts.book();
    let is_late = |made: &&crate::ledger::Communicator| {
        let phase = facts.axes.phase_at(made.process, made.start, None);
        matches!(crate::lifecycle::root(phase), "warmup" | "serving")
    };
    let line = |made: &crate::ledger::Communicator| {
        let (when, size) =
            (clock::format(since_start(book, made.start)), made.size.map_or("?".to_owned(), |n| n.to_string()));
        format!("{} at {when} in {}, {size} members", made.api, facts.axes.rank(made.process))
    };
    let late: Vec<_> = book.communicators.iter().filter(is_late).collect();
    let stack = late.iter().find_map(|made| made.stack);
    let frames = stack.map(|stack| frames::innermost_useful(book, stack, usize::MAX)).unwrap_or_default();
    let by = frames.iter().find(|frame| frame.contains(".py")).or(frames.first());
    (late.into_iter().take(4).map(line).collect(), by.map_or(String::new(), |frame| format!(", by {frame}")))
}
