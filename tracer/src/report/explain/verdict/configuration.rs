//! Settings that are all that differs: then what differs in memory is by them, wherever it is.

use std::cmp::Reverse;

use super::topics::{self, Topic};
use super::words::{delta, list, setting};
use super::{Pair, Suspect, Weight};
use crate::report::diff::{Setting, Source, canonical};

/// Of more settings nobody can tell which did what.
const FEW: usize = 3;
/// Topics named.
const NAMED: usize = 3;

/// What the few settings that differ did, where none of them decides about memory that is known by its own name.
pub(super) fn of_two(pair: &Pair<'_, '_, '_>) -> Vec<Suspect> {
    let mut changed: Vec<&Setting> = Vec::new();
    let is_given = |s: &&Setting| matches!(s.source, Source::Argument | Source::ServerArgument | Source::Environment);
    for setting in pair.diff.configuration.iter().filter(|setting| !setting.noise).filter(is_given) {
        if !changed.iter().any(|known| canonical(&known.key) == canonical(&setting.key)) {
            changed.push(setting);
        }
    }
    let sums = topics::sums(pair);
    let is_told = topics::all()
        .any(|topic| !topic.changed(&pair.diff.configuration).is_empty() && sums[topic.place()].delta() != 0);
    let mut moved: Vec<(&Topic, i64)> = topics::all().map(|topic| (topic, sums[topic.place()].delta())).collect();
    moved.retain(|(_, bytes)| *bytes != 0);
    if changed.is_empty() || changed.len() > FEW || is_told || moved.is_empty() {
        return Vec::new();
    }
    moved.sort_by_key(|(_, bytes)| Reverse(bytes.unsigned_abs()));
    let part = |(topic, _): &(&Topic, i64)| format!("{} {}", topic.name, sums[topic.place()].by_rank());
    let parts: Vec<String> = moved.iter().take(NAMED).map(part).collect();
    let settings: Vec<String> = changed.iter().map(|changed| setting(changed)).collect();
    let of_one_topic = topics::all().find(|topic| topic.changed(&pair.diff.configuration).len() == changed.len());
    let name = of_one_topic.map_or(String::new(), |topic| format!("{}: ", topic.name));
    vec![Suspect {
        kind: of_one_topic.map_or("configuration", |topic| topic.kind),
        bytes: Some(pair.diff.bytes.delta_bytes),
        ranks: pair.other.ranks(),
        text: format!(
            "{name}{} is all that differs in arguments and environment: {}; in all {}",
            list(&settings),
            parts.join("; "),
            delta(pair.diff.bytes.delta_bytes)
        ),
        evidence: settings,
        moved: Some(moved.iter().fold(0, |sum: u64, (_, bytes)| sum.saturating_add(bytes.unsigned_abs()))),
        // A setting that no topic knows may have nothing to do with it.
        weight: if of_one_topic.is_some() { Weight::Explains } else { Weight::Notable },
        configured: true,
    }]
}
