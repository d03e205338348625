//! The arithmetic of the KV cache.

use super::words::{delta, ranks, setting};
use super::{Facts, Pair, Suspect, Weight};
use crate::map::Map;
use crate::report::bytes::human;
use crate::report::explain::figure::{fraction, fraction_leaving, rest_bytes, signed};
use crate::report::explain::kv_budget::KvBudget;

/// A pool that does not fit, or that holds less than one request.
pub(super) fn of_one(facts: &Facts<'_, '_>) -> Vec<Suspect> {
    let mut suspects: Vec<Suspect> = Vec::new();
    let mut known = Map::default();
    for budget in &facts.budgets {
        let Some(new) = not_sized(budget).or_else(|| too_small(budget)) else { continue };
        let at = *known.entry(new.text.clone()).or_insert(suspects.len());
        match suspects.get_mut(at) {
            Some(known) => known.ranks.extend(new.ranks),
            None => suspects.push(new),
        }
    }
    suspects
}

fn not_sized(budget: &KvBudget) -> Option<Suspect> {
    (budget.fits == Some(false)).then(|| Suspect {
        kind: "kv_budget",
        weight: Weight::Cause,
        bytes: budget.rest_bytes,
        ranks: vec![budget.rank.clone()],
        text: budget.sentence.clone(),
        evidence: evidence(budget),
        ..Suspect::default()
    })
}

fn too_small(budget: &KvBudget) -> Option<Suspect> {
    let (tokens, context) = (budget.tokens?, budget.context_tokens?);
    (tokens < context).then(|| Suspect {
        kind: "kv_pool_small",
        bytes: budget.pool_bytes.and_then(|bytes| i64::try_from(bytes).ok()),
        ranks: vec![budget.rank.clone()],
        text: format!(
            "The KV pool holds {tokens} tokens, less than one request of the longest context ({context}); {}",
            budget.sentence
        ),
        evidence: evidence(budget),
        ..Suspect::default()
    })
}

fn evidence(budget: &KvBudget) -> Vec<String> {
    let figures = budget.evidence.iter().map(|figure| format!("{}: {}", figure.figure, figure.text));
    figures.chain(budget.error.clone()).collect()
}

/// How a budget differs from that of the same rank in the other run: terms that sum to the difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Terms {
    /// By A.
    available: i64,
    /// By P, at BASE's fraction.
    pre_load: i64,
    /// By the fraction.
    fraction: i64,
}

impl Terms {
    fn of(base: &KvBudget, other: &KvBudget) -> Option<Self> {
        let (a, p) = (base.available_bytes?, base.pre_load_bytes?);
        let (other_a, other_p) = (other.available_bytes?, other.pre_load_bytes?);
        let f = base.mem_fraction_static?;
        let (base_rest, other_rest) = (base.rest_bytes?, other.rest_bytes?);
        let with_a = rest_bytes(other_a, p, f);
        let with_p = rest_bytes(other_a, other_p, f);
        debug_assert_eq!(base_rest, rest_bytes(a, p, f));
        Some(Self { available: with_a - base_rest, pre_load: with_p - with_a, fraction: other_rest - with_p })
    }

    fn total(self) -> i64 {
        self.available + self.pre_load + self.fraction
    }

    /// The fraction does most of it.
    fn is_by_fraction(self) -> bool {
        self.fraction.unsigned_abs() > (self.available + self.pre_load).unsigned_abs()
    }
}

/// Budgets of the same ranks of both runs.
fn pairs<'a>(pair: &Pair<'a, '_, '_>) -> Vec<(&'a KvBudget, &'a KvBudget)> {
    // The first of a rank: later ones overwrite.
    let of_other: Map<&str, &KvBudget> = pair.other.budgets.iter().rev().map(|b| (b.rank.as_str(), b)).collect();
    pair.base.budgets.iter().filter_map(|base| Some((base, *of_other.get(base.rank.as_str())?))).collect()
}

/// A pool that fits in one run only, or that got another size.
pub(super) fn of_two(pair: &Pair<'_, '_, '_>) -> Vec<Suspect> {
    let budgets = pairs(pair);
    let are_known = budgets.iter().any(|(base, other)| base.rest_bytes.is_some() && other.rest_bytes.is_some());
    if let (false, Some(suspect)) = (are_known, fraction_alone(pair)) {
        return vec![suspect];
    }
    if budgets.is_empty() {
        let only_other = of_one(pair.other).into_iter();
        return only_other
            .map(|suspect| Suspect { text: format!("{}: {}", pair.other.name, suspect.text), ..suspect })
            .collect();
    }
    let mut suspects: Vec<Suspect> = Vec::new();
    for (base, other) in budgets {
        let new = match (base.fits, other.fits) {
            (_, Some(false)) if base.fits != Some(false) => fails(pair, base, other),
            (Some(false), _) if other.fits != Some(false) => mended(pair, base, other),
            (Some(false), Some(false)) => not_sized(other),
            _ => resized(base, other),
        };
        let Some(new) = new else { continue };
        match suspects.iter_mut().find(|known| known.kind == new.kind) {
            Some(known) => {
                known.ranks.extend(new.ranks);
                known.bytes = known.bytes.zip(new.bytes).map(|(a, b)| a.saturating_add(b));
            }
            None => suspects.push(new),
        }
    }
    suspects
}

/// Another fraction where what was free is not known.
fn fraction_alone(pair: &Pair<'_, '_, '_>) -> Option<Suspect> {
    let changed = pair
        .diff
        .configuration
        .iter()
        .find(|s| !s.noise && (s.is("mem_fraction_static") || s.is("gpu_memory_utilization")))?;
    let text = format!(
        "{}: it decides what the KV cache gets; what was free is not in these traces, so by how much is not known",
        setting(changed)
    );
    let evidence = vec![setting(changed)];
    Some(Suspect {
        kind: "kv_budget",
        ranks: pair.other.ranks(),
        text,
        evidence,
        configured: true,
        ..Suspect::default()
    })
}

/// OTHER finds no room where BASE did.
fn fails(pair: &Pair<'_, '_, '_>, base: &KvBudget, other: &KvBudget) -> Option<Suspect> {
    let terms = Terms::of(base, other);
    let by_fraction = terms.is_some_and(Terms::is_by_fraction);
    let contrast = contrast(base, other, pair.base.name);
    Some(Suspect {
        weight: if by_fraction { Weight::Cause } else { Weight::Failure },
        bytes: terms.map(Terms::total),
        text: format!("{}: {}{contrast}{}", pair.other.name, other.sentence, why(terms, by_fraction)),
        evidence: evidence(other).into_iter().chain([format!("{}: {}", pair.base.name, base.sentence)]).collect(),
        ..not_sized(other)?
    })
}

/// What BASE's fraction left there and leaves here.
fn contrast(base: &KvBudget, other: &KvBudget, name: &str) -> String {
    let (Some(there), Some(f)) = (base.rest_bytes, base.mem_fraction_static) else { return String::new() };
    if base.mem_fraction_static == other.mem_fraction_static {
        return format!("; in {name} the same fraction left {}", signed(there));
    }
    let Some((available, before)) = other.available_bytes.zip(other.pre_load_bytes) else {
        return format!("; {} in {name} left {}", fraction(f), signed(there));
    };
    let here = rest_bytes(available, before, f);
    // A hundredth of the fraction is the least step.
    let enough = u64::try_from(there).ok().and_then(|there| fraction_leaving(there, available, before));
    let enough =
        enough.filter(|enough| *enough > f + 0.015).map(|enough| format!("; {} leaves as much", fraction(enough)));
    format!(
        "; {}, as in {name}, leaves {} (there {}){}",
        fraction(f),
        signed(here),
        signed(there),
        enough.unwrap_or_default()
    )
}

fn why(terms: Option<Terms>, by_fraction: bool) -> String {
    let Some(terms) = terms.filter(|_| !by_fraction) else { return String::new() };
    let by_a = delta(terms.available + terms.pre_load);
    format!("; {by_a} is by what was free, {} by the fraction", delta(terms.fraction))
}

/// BASE found no room and OTHER does.
fn mended(pair: &Pair<'_, '_, '_>, base: &KvBudget, other: &KvBudget) -> Option<Suspect> {
    let with = other.mem_fraction_static.map_or(String::new(), |f| format!(" with {}", fraction(f)));
    let rest = other.rest_bytes.map_or(String::new(), |rest| format!(" left {}", signed(rest)));
    Some(Suspect {
        bytes: Terms::of(base, other).map(Terms::total),
        text: format!("{}: {}; {}{with}{rest}", pair.base.name, base.sentence, pair.other.name),
        ..not_sized(base)?
    })
}

/// Both find room, of different size.
fn resized(base: &KvBudget, other: &KvBudget) -> Option<Suspect> {
    let terms = Terms::of(base, other).filter(|terms| terms.total() != 0)?;
    let (from, to) = (base.rest_bytes?, other.rest_bytes?);
    let (f, g) = (base.mem_fraction_static?, other.mem_fraction_static?);
    let by_fraction = terms.is_by_fraction();
    let mut parts = Vec::new();
    if terms.fraction != 0 {
        parts.push(format!("{} by the fraction ({} → {})", delta(terms.fraction), fraction(f), fraction(g)));
    }
    if terms.available != 0 {
        parts.push(format!("{} by what is free after the weights (A)", delta(terms.available)));
    }
    if terms.pre_load != 0 {
        parts.push(format!("{} by what is free before them (P)", delta(terms.pre_load)));
    }
    Some(Suspect {
        kind: "kv_budget",
        // Else it follows from what was taken: that is the cause.
        weight: if by_fraction { Weight::Explains } else { Weight::Notable },
        bytes: Some(terms.total()),
        ranks: vec![other.rank.clone()],
        text: format!(
            "The budget of the KV pool differs by {} a rank ({} → {}): {}",
            delta(terms.total()),
            signed(from),
            signed(to),
            parts.join(", ")
        ),
        evidence: evidence(other),
        configured: terms.fraction != 0,
        ..Suspect::default()
    })
}

/// What would have to be free for OTHER's pool to be sized, bytes a rank, where that is not a matter of its fraction.
pub(super) fn missing(pair: &Pair<'_, '_, '_>) -> Option<u64> {
    let short = pairs(pair).into_iter().find(|(base, other)| other.fits == Some(false) && base.fits != Some(false));
    short.and_then(|(_, other)| other.rest_bytes).map(|rest| rest.min(0).unsigned_abs())
}

/// What is free after the weights, if it is the same in both runs but for `within` bytes.
pub(super) fn same_available(pair: &Pair<'_, '_, '_>, within: u64) -> Option<String> {
    let all = pairs(pair);
    let both = all.iter().filter_map(|(base, other)| base.available_bytes.zip(other.available_bytes));
    let most = both.max_by_key(|(base, other)| base.abs_diff(*other))?;
    let named: Vec<String> = all.iter().map(|(base, _)| base.rank.clone()).collect();
    let (base, other) = most;
    (base.abs_diff(other) <= within).then(|| {
        format!(
            "free memory after the weights is nearly the same ({} and {}, {})",
            human(base),
            human(other),
            ranks(&named)
        )
    })
}
