//! Leaks: stacks whose memory only grows while the server serves.

use std::collections::BTreeMap;

use super::{Facts, Pair, Suspect};
use crate::ledger::Allocation;
use crate::lifecycle::{Axis, root};
use crate::report::bytes::human;
use crate::report::frames;

/// Growth below this is warming up.
const SMALL: u64 = 64 << 20;
/// Parts that the time of serving is cut into: each must add something.
const PARTS: u64 = 4;
/// Times that these begin and end at.
const TIMES: usize = PARTS as usize + 1;

/// Allocations of one process from one stack.
type Group = (usize, Option<u32>);

pub(super) fn of_one(facts: &Facts<'_, '_>) -> Vec<Suspect> {
    let mut grown: BTreeMap<Option<String>, (u64, Vec<String>, Vec<String>)> = BTreeMap::new();
    for ((process, stack), bytes) in growths(facts) {
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

/// Bytes that the memory of each process from each stack grew by, where it grew in each part of the time of serving.
fn growths(facts: &Facts<'_, '_>) -> BTreeMap<Group, u64> {
    let (numbers, group_of) = groups(facts);
    let rows = || {
        let classes = facts.book().allocations.iter().zip(facts.axes.classes());
        classes.filter_map(|(row, class)| Some((row, group_of[*class as usize]?)))
    };
    let mut begins = vec![u64::MAX; numbers.len()];
    rows().for_each(|(row, group)| begins[group] = begins[group].min(row.born));
    let mut ends = vec![0; numbers.len()];
    for (row, group) in facts.axes.firsts().zip(&group_of) {
        if let Some(group) = *group {
            ends[group] = ends[group].max(facts.moments.of(row.process, row.gpu));
        }
    }
    let times: Vec<_> = begins.into_iter().zip(ends).map(|(begin, end)| between(begin, end)).collect();
    let mut held = vec![[0_u64; TIMES]; numbers.len()];
    for (row, group) in rows() {
        for (held, t) in held[group].iter_mut().zip(times[group].iter().flatten()) {
            *held = held.saturating_add(if row.live_at(*t) { row.bytes } else { 0 });
        }
    }
    let grown = |(group, number): (Group, usize)| {
        let held = &held[number];
        let bytes = held[TIMES - 1].saturating_sub(held[0]);
        let grows = held.windows(2).all(|pair| pair[1] > pair[0]);
        (grows && bytes >= SMALL).then_some((group, bytes))
    };
    numbers.into_iter().filter_map(grown).collect()
}

/// Numbers of the groups that have memory of the serving phase, and the one of each class of rows that are alike.
fn groups(facts: &Facts<'_, '_>) -> (BTreeMap<Group, usize>, Vec<Option<usize>>) {
    let axes = facts.axes;
    let is_serving = |row: &Allocation| root(&axes.label(Axis::Phase, axes.cell(Axis::Phase, row))) == "serving";
    let mut numbers: BTreeMap<Group, usize> = BTreeMap::new();
    let group = |row: &Allocation| {
        let next = numbers.len();
        is_serving(row).then(|| *numbers.entry((row.process, row.stack)).or_insert(next))
    };
    let group_of = axes.firsts().map(group).collect();
    (numbers, group_of)
}

/// Times that part a time of serving.
fn between(begin: u64, end: u64) -> Option<[u64; TIMES]> {
    let span = end.checked_sub(begin).filter(|span| *span >= PARTS)?;
    let time = |part: usize| begin + (u128::from(span) * part as u128 / u128::from(PARTS)) as u64;
    Some(std::array::from_fn(time))
}

/// Those of OTHER that BASE has not.
pub(super) fn of_two(pair: &Pair<'_, '_, '_>) -> Vec<Suspect> {
    let of_base = of_one(pair.base);
    let known = |suspect: &Suspect| of_base.iter().any(|base| base.evidence.first() == suspect.evidence.first());
    of_one(pair.other).into_iter().filter(|suspect| !known(suspect)).collect()
}
