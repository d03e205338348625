//! How the server sized its KV cache.

use super::table::{Column, Table};
use super::{Style, sentence};
use crate::map::Map;
use crate::report::bytes;
use crate::report::explain::KvBudget;
use crate::report::explain::figure::{fraction, signed};
use crate::report::summary::Summary;

/// Rows shown.
const ROWS: usize = 32;

/// The section, as the first of the pair where some rank had no room, else as the second; the other is empty.
pub(super) fn budget(summary: &Summary, style: Style) -> (String, String) {
    let budgets = &summary.kv_budget;
    if budgets.is_empty() {
        return (String::new(), String::new());
    }
    let has_no_room = budgets.iter().any(|budget| budget.fits == Some(false));
    let mut text = if has_no_room { style.alarm("KV budget") } else { style.title("KV budget") } + "\n";
    // The verdict has the sentences on budgets that do not work out.
    for (ranks, budget) in told_alike(budgets).into_iter().filter(|(_, budget)| budget.fits != Some(false)) {
        text += &sentence(&format!("  {ranks}: {}", budget.sentence));
    }
    for unknown in
        budgets.iter().filter(|budget| budget.rest_bytes.is_some()).take(1).flat_map(|budget| &budget.missing)
    {
        text += &sentence(&format!("  Not known: {unknown}"));
    }
    text += &table(budgets);
    for (ranks, figure) in evidence(budgets) {
        text += &sentence(&format!("  {ranks}: {figure}"));
    }
    if has_no_room { (text, String::new()) } else { (String::new(), text) }
}

/// Budgets of which the same can be said, with the ranks of each.
fn told_alike(budgets: &[KvBudget]) -> Vec<(String, &KvBudget)> {
    let mut groups: Vec<(Vec<&str>, &KvBudget)> = Vec::new();
    let mut known = Map::default();
    for budget in budgets {
        let at = *known.entry(&budget.sentence).or_insert(groups.len());
        match groups.get_mut(at) {
            Some((ranks, _)) => ranks.push(&budget.rank),
            None => groups.push((vec![&budget.rank], budget)),
        }
    }
    groups.into_iter().map(|(ranks, budget)| (named(&ranks), budget)).collect()
}

/// `TP0`, `TP0, TP1`, `TP0 … TP7 (8 ranks)`.
fn named(ranks: &[&str]) -> String {
    match ranks {
        [first, .., last] if ranks.len() > 2 => format!("{first} … {last} ({} ranks)", ranks.len()),
        _ => ranks.join(", "),
    }
}

/// What the figures were taken from, once for all ranks where it is the same.
fn evidence(budgets: &[KvBudget]) -> Vec<(&'static str, String)> {
    let name = |figure: &str| match figure {
        "available" => "A",
        "pre_load" => "P",
        "mem_fraction_static" => "Fraction",
        "weights" => "Weights",
        _ => "Rest",
    };
    let mut lines: Vec<(&'static str, String)> = Vec::new();
    for figure in budgets.iter().flat_map(|budget| &budget.evidence) {
        let line = (name(figure.figure), figure.text.clone());
        if !lines.contains(&line) && lines.iter().filter(|(known, _)| *known == line.0).count() < 2 {
            lines.push(line);
        }
    }
    lines.sort_by_key(|(name, _)| *name);
    lines
}

fn table(budgets: &[KvBudget]) -> String {
    let is_vllm = budgets.iter().all(|budget| budget.server == "vllm");
    let (first, second) = if is_vllm { ("Requested", "Not KV") } else { ("A", "P") };
    let mut table = Table::new(vec![
        Column::Name("Rank"),
        Column::Number(first),
        Column::Number(second),
        Column::Number("Fraction"),
        Column::Number(if is_vllm { "Free at start" } else { "Reserve" }),
        Column::Number("Rest"),
        Column::Number("Pool"),
        Column::Number("Tokens"),
    ]);
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), bytes::human);
    for budget in budgets.iter().take(ROWS) {
        let f = if is_vllm { budget.gpu_memory_utilization } else { budget.mem_fraction_static };
        let [a, p, reserve] = if is_vllm {
            [budget.requested_bytes, budget.non_kv_bytes, budget.available_bytes]
        } else {
            [budget.available_bytes, budget.pre_load_bytes, budget.reserve_bytes]
        };
        table.row([
            budget.rank.clone(),
            size(a),
            size(p),
            f.map_or_else(|| "-".to_owned(), fraction),
            size(reserve),
            budget.rest_bytes.map_or_else(|| "-".to_owned(), signed),
            size(budget.pool_bytes),
            budget.tokens.map_or_else(|| "-".to_owned(), |n| n.to_string()),
        ]);
    }
    let more = budgets.len().saturating_sub(ROWS);
    table.render()
        + &if more > 0 { format!("  … and {more} ranks more (--format json lists all)\n") } else { String::new() }
}
