//! Leaks: stacks whose memory only grows while the server serves.

use std::collections::BTreeMap;

use super::{Facts, Pair, Suspect};
use crate::ledger::Allocation;
use crate::lifecycle::{Axis, root};
use crate::map::Map;
use crate::report::bytes::human;
use crate::report::frames;

/// Growth below this is warming up.
const SMALL: u64 = 64 << 20;
/// Parts that the time of serving is cut into: each must add something.
const PARTS: u64 = 4;

/// Allocations of one process from one stack.
type Group = (usize, Option<u32>);

pub(super) fn of_one(facts: &Facts<'_, '_>) -> Vec<Suspect> {
    let mut grown: BTreeMap<Option<String>, (u64, Vec<String>, Vec<String>)> = BTreeMap::new();
    for ((process, stack), rows) in groups(facts) {
        let Some(bytes) = growth(facts, process, &rows) else { continue };
        let frames = stack.map(|stack| frames::innermost_useful(facts.book(), stack, 3)).unwrap_or_default();
        let (sum, ranks, evidence) = grown.entry(frames.first().cloned()).or_default();
        *sum = sum.saturating_add(bytes);
        ranks.push(facts.axes.rank(process).to_owned());
        *evidence = frames;
    }
    let suspect = |(frame, (bytes, ranks, evidence)): (Option<String>, (u64, Vec<String>, Vec<String>))| Suspect {
        kind: "serving_growth",
        bytes: i64::try_from(bytes).ok(),
        text: format!(
            "Memory from {} grew all the time while serving, by {} in {}, and was not freed",
            frame.unwrap_or_else(|| "a call without a stack".to_owned()),
            human(bytes),
            super::words::ranks(&ranks)
        ),
        ranks,
        evidence,
        ..Suspect::default()
    };
    grown.into_iter().map(suspect).collect()
}

/// Memory of the serving phase by process and stack.
fn groups<'f>(facts: &'f Facts<'_, '_>) -> BTreeMap<Group, Vec<&'f Allocation>> {
    let mut groups: Map<Group, Vec<&Allocation>> = Map::default();
    // By cell: there are few.
    let mut serving: Map<u32, bool> = Map::default();
    for row in &facts.book().allocations {
        let phase = facts.axes.cell(Axis::Phase, row);
        if *serving.entry(phase).or_insert_with(|| root(&facts.axes.label(Axis::Phase, phase)) == "serving") {
            groups.entry((row.process, row.stack)).or_default().push(row);
        }
    }
    groups.into_iter().collect()
}

/// Bytes that the rows grew by, if they grew in each part of the time of serving.
fn growth(facts: &Facts<'_, '_>, process: usize, rows: &[&Allocation]) -> Option<u64> {
    let begin = rows.iter().map(|row| row.born).min()?;
    let end = rows.iter().map(|row| facts.moments.of(process, row.gpu)).max()?;
    let span = end.checked_sub(begin).filter(|span| *span >= PARTS)?;
    let live = |t: u64| rows.iter().filter(|row| row.live_at(t)).fold(0_u64, |sum, row| sum.saturating_add(row.bytes));
    let held: Vec<u64> = (0..=PARTS)
        .map(|part| live(begin + (u128::from(span) * u128::from(part) / u128::from(PARTS)) as u64))
        .collect();
    let grows = held.windows(2).all(|pair| pair[1] > pair[0]);
    let bytes = held[PARTS as usize].saturating_sub(held[0]);
    (grows && bytes >= SMALL).then_some(bytes)
}

/// Those of OTHER that BASE has not.
pub(super) fn of_two(pair: &Pair<'_, '_, '_>) -> Vec<Suspect> {
    let of_base = of_one(pair.base);
    let known = |suspect: &Suspect| of_base.iter().any(|base| base.evidence.first() == suspect.evidence.first());
    of_one(pair.other).into_iter().filter(|suspect| !known(suspect)).collect()
}
