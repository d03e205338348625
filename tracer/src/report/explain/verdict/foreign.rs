//! Memory of processes that are not traced, on GPUs of those that are.

use std::collections::BTreeMap;

use super::words::{delta, list};
use super::{Facts, Pair, Suspect, Weight};
use crate::ledger::Stranger;
use crate::report::bytes::human;

/// Less than a context: a monitor that looks in.
const SMALL: u64 = 64 << 20;

/// What strangers held on each GPU at once, at most.
fn by_gpu(facts: &Facts<'_, '_>) -> BTreeMap<usize, (u64, Vec<Stranger>)> {
    let used: std::collections::BTreeSet<usize> = facts.axes.firsts().map(|row| row.gpu).collect();
    let mut gpus: BTreeMap<usize, (u64, Vec<Stranger>)> = BTreeMap::new();
    for stranger in facts.book().strangers.iter().filter(|stranger| used.contains(&stranger.gpu)) {
        let (bytes, all) = gpus.entry(stranger.gpu).or_default();
        *bytes = bytes.saturating_add(stranger.bytes.unwrap_or(0));
        all.push(*stranger);
    }
    gpus.retain(|_, (bytes, _)| *bytes >= SMALL);
    gpus
}

pub(super) fn of_one(facts: &Facts<'_, '_>) -> Vec<Suspect> {
    let gpus = by_gpu(facts);
    let total = gpus.values().fold(0, |sum: u64, (bytes, _)| sum.saturating_add(*bytes));
    if total == 0 {
        return Vec::new();
    }
    let on = |(gpu, (bytes, all)): (&usize, &(u64, Vec<Stranger>))| {
        let pids: Vec<String> = all.iter().take(3).map(|stranger| stranger.pid.to_string()).collect();
        let more = if all.len() > 3 { format!(" and {} more", all.len() - 3) } else { String::new() };
        let word = if all.len() == 1 { "pid" } else { "pids" };
        format!("{} on {} ({word} {}{more})", human(*bytes), facts.axes.gpu(*gpu), list(&pids))
    };
    let homes = facts.homes();
    let ranks =
        homes.iter().filter(|(_, gpu)| gpus.contains_key(gpu)).map(|(process, _)| facts.axes.rank(*process).to_owned());
    vec![Suspect {
        kind: "foreign_process",
        bytes: i64::try_from(total).ok(),
        ranks: ranks.collect(),
        text: format!("Processes that are not traced hold {}", list(&gpus.iter().map(on).collect::<Vec<_>>())),
        evidence: vec!["NVML's list of processes".to_owned()],
        ..Suspect::default()
    }]
}

/// Those of OTHER that BASE had not.
pub(super) fn of_two(pair: &Pair<'_, '_, '_>) -> Vec<Suspect> {
    let sum = |facts: &Facts<'_, '_>| by_gpu(facts).values().fold(0, |sum: u64, (bytes, _)| sum.saturating_add(*bytes));
    let (base, other) = (sum(pair.base), sum(pair.other));
    let change = i64::try_from(i128::from(other) - i128::from(base)).unwrap_or(i64::MAX);
    if base.abs_diff(other) < SMALL {
        return Vec::new();
    }
    let of = |facts| of_one(facts).into_iter();
    if other > base {
        let new = |suspect: Suspect| Suspect {
            bytes: Some(change),
            text: format!(
                "{} ({} more than beside {}): no part of the sums below",
                suspect.text,
                delta(change),
                pair.base.name
            ),
            ..suspect
        };
        return of(pair.other).map(new).collect();
    }
    let gone = |suspect: Suspect| Suspect {
        weight: Weight::Notable,
        bytes: Some(change),
        text: format!("{}: {}; beside {} they held {}", pair.base.name, suspect.text, pair.other.name, human(other)),
        ..suspect
    };
    of(pair.base).map(gone).collect()
}
