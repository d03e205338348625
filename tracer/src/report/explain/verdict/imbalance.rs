//! Ranks that have less than others.

use std::collections::BTreeMap;

use super::{Facts, Pair, Suspect, Weight};
use crate::lifecycle::{Rank, logs::Coordinate};
use crate::map::Map;
use crate::report::bytes::human;

/// Differences below this are usual: contexts and channels of ranks differ by some MiB.
const SMALL: u64 = 256 << 20;

/// Ranks by something that all should have alike.
struct Compared {
    what: &'static str,
    /// The less the worse, or the more.
    worse_is_less: bool,
    figures: BTreeMap<String, u64>,
}

pub(super) fn of_one(facts: &Facts<'_, '_>) -> Vec<Suspect> {
    let own = |figure: fn(&crate::report::explain::KvBudget) -> Option<u64>| {
        facts.budgets.iter().filter_map(|budget| Some((budget.rank.clone(), figure(budget)?))).collect()
    };
    let mut compared = vec![
        Compared {
            what: "free before the weights",
            worse_is_less: true,
            figures: own(|budget| budget.own_pre_load_bytes),
        },
        Compared {
            what: "free after the weights",
            worse_is_less: true,
            figures: own(|budget| budget.own_available_bytes),
        },
    ];
    compared.extend(of_phases(facts));
    // The first of a label: later ones overwrite.
    let places: Map<&str, &Rank> = facts.axes.ranks().iter().rev().map(|rank| (rank.label.as_str(), rank)).collect();
    let found: Vec<Suspect> = compared.iter().filter_map(|compared| outlier(facts, &places, compared)).collect();
    // What is free is less because of what is held: the largest says it all.
    found.into_iter().max_by_key(|suspect| suspect.bytes).into_iter().collect()
}

/// Phases whose memory tensor-parallel ranks have alike.
const ALIKE: [(&str, &str); 4] = [
    ("distributed_init", "held since distributed init"),
    ("weights", "held in weights"),
    ("cuda_graph", "held since graph capture"),
    ("serving", "held since serving"),
];

fn of_phases<'f>(facts: &'f Facts<'_, '_>) -> impl Iterator<Item = Compared> + 'f {
    ALIKE.iter().map(|(phase, what)| {
        let mut figures: BTreeMap<String, u64> = facts.ranks().into_iter().map(|rank| (rank, 0)).collect();
        for held in facts.held.iter().filter(|held| held.root() == *phase && facts.is_rank(held.process)) {
            *figures.entry(facts.axes.rank(held.process).to_owned()).or_default() += held.bytes;
        }
        Compared { what, worse_is_less: false, figures }
    })
}

/// The rank that stands out, if one does: pipeline stages and replicas are compared among themselves only.
fn outlier(facts: &Facts<'_, '_>, places: &Map<&str, &Rank>, compared: &Compared) -> Option<Suspect> {
    let mut groups: BTreeMap<Vec<Coordinate>, Vec<(&String, u64)>> = BTreeMap::new();
    for (rank, bytes) in &compared.figures {
        let place = places.get(rank.as_str());
        let stage = place.map(|place| place.coordinates.iter().filter(|(dim, _)| !is_tensor(dim)).cloned().collect());
        groups.entry(stage.unwrap_or_default()).or_default().push((rank, *bytes));
    }
    let worst = |group: Vec<(&String, u64)>| {
        let mut sorted: Vec<u64> = group.iter().map(|(_, bytes)| *bytes).collect();
        sorted.sort_unstable();
        // With two ranks the better one is the measure.
        let usual = if compared.worse_is_less { sorted[sorted.len() / 2] } else { sorted[(sorted.len() - 1) / 2] };
        let off =
            |bytes: u64| if compared.worse_is_less { usual.saturating_sub(bytes) } else { bytes.saturating_sub(usual) };
        let (rank, bytes) = group.into_iter().max_by_key(|(_, bytes)| off(*bytes))?;
        (off(bytes) >= SMALL.max(usual / 20)).then(|| (rank.clone(), bytes, usual, off(bytes)))
    };
    let (rank, bytes, usual, off) = groups.into_values().filter_map(worst).max_by_key(|(_, _, _, off)| *off)?;
    Some(Suspect {
        kind: "rank_imbalance",
        bytes: i64::try_from(off).ok(),
        text: format!("{rank} has {} {}, other ranks {}", human(bytes), compared.what, human(usual)),
        ranks: vec![rank],
        evidence: facts
            .errors
            .iter()
            .filter(|error| error.text.contains("unbalanced"))
            .map(|e| e.text.clone())
            .collect(),
        ..Suspect::default()
    })
}

fn is_tensor(dimension: &str) -> bool {
    matches!(dimension, "TP" | "EP" | "MOE_DP" | "ATTN_CP")
}

/// That of OTHER, where BASE's ranks were alike.
pub(super) fn of_two(pair: &Pair<'_, '_, '_>) -> Vec<Suspect> {
    let before = of_one(pair.base).first().and_then(|suspect| suspect.bytes).unwrap_or(0);
    let worse = |suspect: &Suspect| suspect.bytes.is_some_and(|bytes| bytes > before.saturating_mul(2));
    // Where the bytes went is said elsewhere: this says that they went to one rank.
    let new = of_one(pair.other).into_iter().filter(worse);
    new.map(|suspect| Suspect {
        weight: Weight::Notable,
        text: format!("{}: {}", pair.other.name, suspect.text),
        ..suspect
    })
    .collect()
}
