//! Memory that one run has paused and the other holds.

use std::collections::BTreeMap;

use super::facts::Held;
use super::topics::Bytes;
use super::words::list;
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
    let mut bytes = Bytes::default();
    // What is paused is not held.
    for (side, sign) in [(0, 1), (1, -1)] {
        pair.paused[side].iter().for_each(|held| bytes.add(pair, side, held, sign));
    }
    let delta = bytes.delta();
    if delta == 0 {
        return Vec::new();
    }
    let side = usize::from(delta < 0);
    let mut phases: BTreeMap<&str, u64> = BTreeMap::new();
    for held in &pair.paused[side] {
        let sum = phases.entry(&held.phase).or_default();
        *sum = sum.saturating_add(held.bytes);
    }
    let parts: Vec<String> = phases.into_iter().map(|(phase, bytes)| format!("{phase} {}", human(bytes))).collect();
    vec![Suspect {
        kind: "paused",
        bytes: Some(delta),
        text: format!(
            "Memory that torch_memory_saver has paused in {}, {}: {}; it is taken again when that is resumed",
            pair.side(side).name,
            list(&parts),
            bytes.by_rank()
        ),
        ranks: bytes.changed(),
        evidence: vec!["freed inside tms_pause".to_owned()],
        ..Suspect::default()
    }]
}
