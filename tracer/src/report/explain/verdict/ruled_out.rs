//! What a reader would suspect and the data excludes.

use std::collections::BTreeMap;

use super::topics::{self, Topic};
use super::words::{list, setting};
use super::{Facts, Pair, RuledOut, Suspect, Weight, budget};
use crate::report::bytes::human;

/// What is free differs by no more than this between runs that are alike.
const ALIKE: u64 = 64 << 20;
/// A cause accounts for more than this part of what is to be explained.
const PART: u64 = 10;

/// Of one run that failed.
pub(super) fn of_one(facts: &Facts<'_, '_>, suspects: &[Suspect]) -> Vec<RuledOut> {
    let Some(first) = suspects.first().filter(|first| is_of_memory(first)) else { return Vec::new() };
    let mut ruled_out = Vec::new();
    let size = first.bytes.map_or(0, i64::unsigned_abs);
    ruled_out.extend(allreduce_of_one(facts).filter(|(most, _)| *most < size / PART).map(|(_, ruled_out)| ruled_out));
    ruled_out.extend(no_strangers(facts, suspects));
    ruled_out
}

/// A failure for want of memory: of another kind nobody suspects memory.
fn is_of_memory(suspect: &Suspect) -> bool {
    suspect.weight <= Weight::Failure && suspect.kind != "killed"
}

fn allreduce_of_one(facts: &Facts<'_, '_>) -> Option<(u64, RuledOut)> {
    let mut by_rank: BTreeMap<usize, u64> = BTreeMap::new();
    for held in facts.held.iter().filter(|held| held.root() == "custom_allreduce" || held.owner == "custom_allreduce") {
        *by_rank.entry(held.process).or_default() += held.bytes;
    }
    let most = by_rank.values().max().copied()?;
    let text = format!("custom all-reduce holds {} a rank, and what it maps of other ranks takes 0 B", human(most));
    Some((most, RuledOut { kind: "custom_allreduce", text }))
}

/// Said only where NVML was asked.
fn no_strangers(facts: &Facts<'_, '_>, suspects: &[Suspect]) -> Option<RuledOut> {
    let is_suspect = suspects.iter().any(|suspect| suspect.kind == "foreign_process");
    let text = "other processes: by NVML none that is not traced held memory on these GPUs".to_owned();
    let is_known = !facts.book().samples.is_empty() && facts.book().strangers.is_empty();
    (is_known && !is_suspect).then_some(RuledOut { kind: "foreign_process", text })
}

/// Of two runs.
pub(super) fn of_two(pair: &Pair<'_, '_, '_>, suspects: &[Suspect]) -> Vec<RuledOut> {
    let Some(first) = suspects.first() else { return Vec::new() };
    let failed = is_of_memory(first);
    let mut ruled_out = Vec::new();
    ruled_out.extend(allreduce(pair, suspects, failed));
    if failed {
        let same = budget::same_available(pair, ALIKE);
        ruled_out.extend(same.map(|text| RuledOut { kind: "free_memory", text }));
        ruled_out.extend(no_strangers(pair.other, suspects));
    }
    ruled_out.extend(without_effect(pair, suspects));
    ruled_out
}

/// Custom all-reduce was switched or changed, and is little beside what is to be explained.
fn allreduce(pair: &Pair<'_, '_, '_>, suspects: &[Suspect], failed: bool) -> Option<RuledOut> {
    let topic = Topic::named("custom_allreduce")?;
    let bytes = topics::sums(pair).into_iter().nth(topic.place())?;
    let is_changed = !topic.changed(&pair.diff.configuration).is_empty() || bytes.delta() != 0;
    let first = suspects.first().filter(|first| first.kind != topic.kind)?;
    let size = first.bytes.map_or(0, i64::unsigned_abs);
    if !is_changed || !failed || bytes.delta().unsigned_abs() > size / PART {
        return None;
    }
    let verb = if bytes.delta() < 0 { "gives back" } else { "adds" };
    let amount = bytes.by_rank().trim_start_matches(['+', '-']).to_owned();
    let mapped = topics::mapped(pair).map_or(String::new(), |mapped| format!(" ({mapped} of other ranks mapped)"));
    let text = format!("custom all-reduce {verb} {amount} and 0 B for imports{mapped}");
    Some(RuledOut { kind: topic.kind, text })
}

/// Settings that differ where the memory that they decide about does not.
fn without_effect(pair: &Pair<'_, '_, '_>, suspects: &[Suspect]) -> Option<RuledOut> {
    let sums = topics::sums(pair);
    let mut idle: Vec<String> = Vec::new();
    for topic in topics::all().filter(|topic| topic.kind != "custom_allreduce" && topic.kind != "kv_cache") {
        let is_suspect = suspects.iter().any(|suspect| suspect.kind == topic.kind);
        if !is_suspect && sums[topic.place()].delta() == 0 {
            idle.extend(topic.changed(&pair.diff.configuration).into_iter().map(setting));
        }
    }
    idle.dedup();
    idle.truncate(4);
    (!idle.is_empty()).then(|| {
        let verb = if idle.len() == 1 { "changes" } else { "change" };
        RuledOut { kind: "configuration", text: format!("{} {verb} no bytes of what they decide about", list(&idle)) }
    })
}
