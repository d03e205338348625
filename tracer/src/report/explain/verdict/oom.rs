//! The call that the run died of, and what had taken the memory that was to stay free.

use std::collections::BTreeMap;

use super::words::list;
use super::{Facts, Pair, Suspect, Weight};
use crate::ledger::Failure;
use crate::lifecycle::{Axis, PHASES, UNATTRIBUTED, root};
use crate::report::bytes::human;
use crate::report::explain::figure::fraction;
use crate::report::{failures, frames, trust};

/// Frames kept as evidence.
const FRAMES: usize = 8;

/// The last failure for want of memory that a process did not get over.
pub(super) fn of_one(facts: &Facts<'_, '_>) -> Vec<Suspect> {
    fatal(facts).map(|failure| suspect(facts, failure)).into_iter().collect()
}

/// That of OTHER, where BASE has none in that phase.
pub(super) fn of_two(pair: &Pair<'_, '_, '_>) -> Vec<Suspect> {
    let phase = |facts: &Facts<'_, '_>| fatal(facts).map(|failure| root(facts.axes.failure_phase(failure)).to_owned());
    let of_base = phase(pair.base);
    let new = of_one(pair.other).into_iter().filter(|_| of_base.is_none() || of_base != phase(pair.other));
    new.map(|suspect| Suspect {
        text: format!("{}: {}", pair.other.name, suspect.text),
        weight: Weight::Failure,
        ..suspect
    })
    .collect()
}

fn fatal<'f>(facts: &'f Facts<'_, '_>) -> Option<&'f Failure> {
    trust::fatal_failure(facts.book())
}

/// Bytes short at the fatal failure.
pub(super) fn missing(facts: &Facts<'_, '_>) -> Option<u64> {
    let failure = fatal(facts)?;
    let asked = failure.refused.or(failure.requested)?;
    Some(asked.saturating_sub(failures::free(facts.book(), failure).map_or(0, |free| free.bytes)))
}

fn suspect(facts: &Facts<'_, '_>, failure: &Failure) -> Suspect {
    let (axes, book) = (facts.axes, facts.book());
    let phase = axes.failure_phase(failure);
    let asked = failure.requested.map_or(String::new(), |bytes| format!(" of {}", human(bytes)));
    let gpu = failure.gpu.map_or(String::new(), |gpu| format!(" on {}", axes.gpu(gpu)));
    let free = failures::free(book, failure).map_or(String::new(), |free| {
        format!(" with {}{} free", if free.is_bound { "at most " } else { "" }, human(free.bytes))
    });
    let frames = failure.stack.map(|stack| frames::innermost_useful(book, stack, FRAMES)).unwrap_or_default();
    // A line of Python says more than the allocator that it ended up in.
    let asked_by = frames.iter().find(|frame| frame.contains(".py")).or(frames.first());
    let by = asked_by.map_or(String::new(), |frame| format!(", asked by {frame}"));
    let rank = axes.rank(failure.process).to_owned();
    let during = if phase == UNATTRIBUTED { String::new() } else { format!(" in {phase}") };
    let spent = reserve_spent(facts, failure).unwrap_or_else(|| largest(facts, failure));
    let text = format!("{rank} ran out of memory{during}: {}{asked}{gpu}{free}{by}{spent}", failure.api);
    Suspect {
        kind: "out_of_memory",
        weight: Weight::Cause,
        bytes: failure.requested.and_then(|bytes| i64::try_from(bytes).ok()),
        ranks: vec![rank],
        text,
        evidence: frames,
        ..Suspect::default()
    }
}

/// What went of the memory that the KV pool left: after the pool a server lives on P × (1 − f).
fn reserve_spent(facts: &Facts<'_, '_>, failure: &Failure) -> Option<String> {
    let budget = facts.budgets.iter().find(|budget| budget.rank == facts.axes.rank(failure.process));
    let budget = budget.filter(|budget| budget.fits == Some(true))?;
    let (reserve, f) = budget.reserve_bytes.zip(budget.mem_fraction_static)?;
    let place = |phase: &str| PHASES.iter().position(|known| *known == root(phase));
    let pool = place("kv_cache");
    let mut taken: BTreeMap<usize, u64> = BTreeMap::new();
    let rows = facts.book().allocations.iter();
    for row in rows.filter(|row| row.process == failure.process && row.live_at(failure.t)) {
        let phase = facts.axes.cell(Axis::Phase, row);
        if let Some(phase) = place(&facts.axes.label(Axis::Phase, phase)).filter(|phase| Some(*phase) > pool) {
            *taken.entry(phase).or_default() += row.bytes;
        }
    }
    let parts: Vec<String> =
        taken.into_iter().map(|(phase, bytes)| format!("{} {}", PHASES[phase], human(bytes))).collect();
    let spent = if parts.is_empty() {
        "of which nothing was taken yet".to_owned()
    } else {
        format!("of which {} was taken", list(&parts))
    };
    Some(format!(
        "; --mem-fraction-static {} leaves {} beside weights and KV pool, {spent}; a lower fraction, or less of these, makes room",
        fraction(f),
        human(reserve)
    ))
}

/// The phases that held most on the GPU then.
fn largest(facts: &Facts<'_, '_>, failure: &Failure) -> String {
    let Some(gpu) = failure.gpu else { return String::new() };
    let mut held: BTreeMap<u32, u64> = BTreeMap::new();
    for row in facts.book().allocations.iter().filter(|row| row.gpu == gpu && row.live_at(failure.t)) {
        let sum = held.entry(facts.axes.cell(Axis::Phase, row)).or_default();
        *sum = sum.saturating_add(row.bytes);
    }
    let mut held: Vec<(u32, u64)> = held.into_iter().filter(|(_, bytes)| *bytes > 0).collect();
    held.sort_by_key(|(phase, bytes)| (std::cmp::Reverse(*bytes), *phase));
    let part = |(phase, bytes): &(u32, u64)| format!("{} {}", facts.axes.label(Axis::Phase, *phase), human(*bytes));
    let parts: Vec<String> = held.iter().take(2).map(part).collect();
    if parts.is_empty() { String::new() } else { format!("; most there is of {}", list(&parts)) }
}
