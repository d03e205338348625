//! Contexts where none is wanted: of ranks on another rank's GPU, and of processes that are no rank.

use std::collections::BTreeMap;

use super::words::{list, ranks};
use super::{Facts, Suspect};
use crate::report::bytes::human;
use crate::report::frames;

pub(super) fn of_one(facts: &Facts<'_, '_>) -> Vec<Suspect> {
    let strays = facts.strays();
    if strays.is_empty() {
        return Vec::new();
    }
    let places = facts.by_place();
    let mut gpus: BTreeMap<usize, (u64, Vec<String>)> = BTreeMap::new();
    for place @ (process, gpu) in &strays {
        let (bytes, names) = gpus.entry(*gpu).or_default();
        *bytes = bytes.saturating_add(places[place]);
        names.push(facts.axes.rank(*process).to_owned());
    }
    let total: u64 = gpus.values().map(|(bytes, _)| bytes).sum();
    let on = |(gpu, (bytes, names)): (&usize, &(u64, Vec<String>))| {
        format!("{} of {} on {}", human(*bytes), ranks(names), facts.axes.gpu(*gpu))
    };
    let text = format!("Contexts beside a process's own GPU hold {}", list(&gpus.iter().map(on).collect::<Vec<_>>()));
    let asked = asked_by(facts, &strays);
    let by = asked.first().map_or(String::new(), |frame| format!(", first made by {frame}"));
    vec![Suspect {
        kind: "extra_context",
        bytes: i64::try_from(total).ok(),
        ranks: gpus.into_values().flat_map(|(_, names)| names).collect(),
        text: text + &by,
        evidence: asked,
        ..Suspect::default()
    }]
}

/// The frames that made the first of these contexts.
fn asked_by(facts: &Facts<'_, '_>, strays: &std::collections::BTreeSet<(usize, usize)>) -> Vec<String> {
    let rows = facts.book().allocations.iter().filter(|row| strays.contains(&(row.process, row.gpu)));
    let stack = rows.min_by_key(|row| row.born).and_then(|row| row.stack);
    stack.map(|stack| frames::innermost_useful(facts.book(), stack, 3)).unwrap_or_default()
}
