//! Memory divided by the axes asked for.

use super::stacks::short_frame;
use super::table::{Column, Table};
use super::{Style, counted, moment, sentence};
use crate::report::bytes;
use crate::report::summary::{Bytes, Summary};
use crate::report::tables::Cell;

/// Rows of a table before the smaller ones become one.
const ROWS: usize = 60;

/// Memory divided by the axes asked for.
pub(super) fn table(summary: &Summary, style: Style) -> String {
    let live = bytes::human(summary.total.live_bytes);
    let count = counted(summary.total.live_count, "allocation");
    let by = if summary.by.is_empty() { String::new() } else { format!(", by {}", summary.by.join(", ")) };
    let title = format!("GPU memory {}: {live} in {count}{by}", moment(summary));
    let text = style.title(&title) + "\n";
    if summary.cells.is_empty() {
        return text + "  No traced process took GPU memory.\n";
    }
    text + &divided(summary, &summary.by, &summary.cells) + &not_at_once(summary) + &pre_attach(summary)
}

/// The same memory, divided otherwise.
pub(super) fn second_table(summary: &Summary, style: Style) -> String {
    if summary.then_cells.is_empty() {
        return String::new();
    }
    let title = format!("The same memory by {}", summary.then_by.join(", "));
    style.title(&title) + "\n" + &divided(summary, &summary.then_by, &summary.then_cells)
}

fn divided(summary: &Summary, by: &[&'static str], cells: &[Cell]) -> String {
    let titles = by.iter().map(|axis| Column::Name(axis_title(axis)));
    let numbers = ["Live", "Peak", "Allocated", "Count"].map(Column::Number);
    let mut table = Table::new(titles.chain(numbers).collect());
    let (shown, rest) = biggest(cells, ROWS);
    let mut above: Option<&Cell> = None;
    for cell in shown {
        table.row(labels(by, cell, above).into_iter().chain(numbers_of(&cell.bytes)));
        above = Some(cell);
    }
    if !rest.is_empty() {
        table.row(first_label(by, &format!("({} smaller)", rest.len())).chain(rest_of(&rest)));
    }
    if !by.is_empty() {
        table.row(first_label(by, "Total").chain(numbers_of(&summary.total)));
    }
    table.render()
}

/// What a reader must not take the total for.
fn not_at_once(summary: &Summary) -> String {
    let (total, peak) = (summary.total, bytes::human(summary.total.peak_bytes));
    match summary.at.as_str() {
        _ if summary.one_moment => String::new(),
        "end" => sentence(&format!("  The processes did not end together; most held at once: {peak}.")),
        _ if total.live_bytes <= total.peak_bytes => String::new(),
        _ => sentence(&format!("  The total was not held at one moment; most held at once: {peak}.")),
    }
}

fn pre_attach(summary: &Summary) -> String {
    match summary.pre_attach_bytes() {
        0 => String::new(),
        held => sentence(&format!(
            "  {} of it was held before tracing began (pre_attach): by NVML's figure then, without call or stack.",
            bytes::human(held)
        )),
    }
}

/// The biggest `rows` cells in the order given, and the others.
fn biggest(cells: &[Cell], rows: usize) -> (Vec<&Cell>, Vec<&Cell>) {
    let mut sizes: Vec<_> =
        cells.iter().enumerate().map(|(n, c)| (c.bytes.live_bytes, c.bytes.peak_bytes, n)).collect();
    sizes.sort_unstable_by_key(|(live, peak, n)| (std::cmp::Reverse((*live, *peak)), *n));
    let mut is_shown = vec![false; cells.len()];
    sizes.iter().take(rows).for_each(|(.., n)| is_shown[*n] = true);
    let (shown, rest): (Vec<_>, Vec<_>) = cells.iter().zip(is_shown).partition(|(_, shown)| *shown);
    let only_cells = |pairs: Vec<(_, _)>| pairs.into_iter().map(|(cell, _)| cell).collect();
    (only_cells(shown), only_cells(rest))
}

/// Labels of a row; those it shares with the row above, from the left, are left out.
fn labels(by: &[&'static str], cell: &Cell, above: Option<&Cell>) -> Vec<String> {
    let mut shared = above.is_some();
    let label = |axis: &&'static str| {
        shared = shared && above.is_some_and(|above| above.label(axis) == cell.label(axis));
        match (shared, *axis) {
            (true, _) => String::new(),
            (false, "stack") => cell.frame.as_deref().map_or_else(|| cell.label(axis).to_owned(), short_frame),
            (false, _) => cell.label(axis).to_owned(),
        }
    };
    by.iter().map(label).collect()
}

fn first_label(by: &[&'static str], label: &str) -> impl Iterator<Item = String> {
    let rest = by.len().saturating_sub(1);
    [label.to_owned()].into_iter().take(by.len()).chain(std::iter::repeat_n(String::new(), rest))
}

fn numbers_of(sum: &Bytes) -> [String; 4] {
    let sizes = [sum.live_bytes, sum.peak_bytes, sum.allocated_bytes].map(bytes::human);
    let [live, peak, allocated] = sizes;
    [live, peak, allocated, sum.count.to_string()]
}

/// Sums of folded rows. Their common peak is not known from their own.
fn rest_of(rest: &[&Cell]) -> [String; 4] {
    let sum = |get: fn(&Bytes) -> u64| rest.iter().map(|cell| get(&cell.bytes)).fold(0, u64::saturating_add);
    let live = bytes::human(sum(|b| b.live_bytes));
    [live, String::new(), bytes::human(sum(|b| b.allocated_bytes)), sum(|b| b.count).to_string()]
}

pub(in crate::report) fn axis_title(axis: &str) -> &'static str {
    match axis {
        "phase" => "Phase",
        "rank" => "Rank",
        "kind" => "Kind",
        "owner" => "Owner",
        "role" => "Role",
        "device" => "GPU",
        "stack" => "Stack",
        "process" => "Process",
        _ => "API call",
    }
}
