//! Memory that one run has paused and the other holds.

use std::collections::BTreeMap;

use super::facts::Held;
use super::words::{by_rank, list};
use super::{Facts, Pair, Suspect};
use crate::ledger::Kind;
use crate::report::bytes::human;
use crate::report::paused::{Paused, paused};

/// What a run has paused, as if it were held.
pub(super) fn held(facts: &Facts<'_, '_>) -> Vec<Held> {
    let held = |paused: Paused| Held {
        process: paused.process,
        gpu: 0,
        phase: paused.phase,
        kind: Kind::Vmm,
        owner: "tms".to_owned(),
        role: String::new(),
        is_stray: false,
        bytes: paused.bytes,
    };
    paused(facts.axes, facts.moments).into_iter().map(held).collect()
}

pub(super) fn of_two(pair: &Pair<'_, '_, '_>) -> Vec<Suspect> {
    let mut held: BTreeMap<String, i64> = BTreeMap::new();
    let mut phases: [BTreeMap<String, u64>; 2] = Default::default();
    for side in [0, 1] {
        for paused in self::held(pair.side(side)) {
            let bytes = i64::try_from(paused.bytes).unwrap_or(i64::MAX);
            let sum = held.entry(pair.label(side, paused.process)).or_default();
            *sum = sum.saturating_add(if side == 0 { bytes } else { -bytes });
            let phase = phases[side].entry(paused.phase).or_default();
            *phase = phase.saturating_add(paused.bytes);
        }
    }
    let bytes = held.values().fold(0_i64, |sum, bytes| sum.saturating_add(*bytes));
    if bytes == 0 {
        return Vec::new();
    }
    let side = usize::from(bytes < 0);
    let parts: Vec<String> = phases[side].iter().map(|(phase, bytes)| format!("{phase} {}", human(*bytes))).collect();
    vec![Suspect {
        kind: "paused",
        bytes: Some(bytes),
        text: format!(
            "Memory that torch_memory_saver has paused in {}, {}: {}; it is taken again when that is resumed",
            pair.side(side).name,
            list(&parts),
            by_rank(&held)
        ),
        ranks: held.into_iter().filter(|(_, bytes)| *bytes != 0).map(|(rank, _)| rank).collect(),
        evidence: vec!["freed inside tms_pause".to_owned()],
        ..Suspect::default()
    }]
}
