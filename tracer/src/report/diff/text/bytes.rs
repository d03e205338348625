//! Signed bytes by the axes asked for.

use std::collections::HashMap;

use super::ranks::{self, Group};
use crate::lifecycle::Axis;
use crate::report::bytes::{human, signed};
use crate::report::diff::{CellChange, Change, Diff};
use crate::report::text::stacks::short_frame;
use crate::report::text::table::{Column, Table};
use crate::report::text::{Style, cells::axis_title, sentence};

/// Rows before the smaller ones become one.
const ROWS: usize = 20;

/// Axes beside which there is room for what changed in each rank.
const EACH_AXES: usize = 4;

/// Cells of a group of ranks that have the same labels on the other axes.
struct Row {
    group: usize,
    labels: Vec<String>,
    bytes: Change,
    /// Change in each of the group's ranks that has such a cell.
    deltas: Vec<i64>,
}

/// The table of what changed.
pub(super) fn table(diff: &Diff, style: Style) -> String {
    let Change { base_bytes, other_bytes, delta_bytes } = diff.bytes;
    let by = if diff.by.is_empty() { String::new() } else { format!(", by {}", diff.by.join(", ")) };
    let sizes = format!("{} → {}, {}", human(base_bytes), human(other_bytes), signed(delta_bytes));
    let text = style.title(&format!("GPU memory {}: {sizes}{by}", moment(diff))) + "\n";
    let groups = if by_rank(diff).is_some() { ranks::groups(diff) } else { Vec::new() };
    let rows: Vec<Row> = rows(diff, &groups).into_iter().filter(|row| row.deltas.iter().any(|d| *d != 0)).collect();
    if rows.is_empty() {
        return text + "  Equal in every row.\n";
    }
    text + &set(diff, &groups, &rows)
}

fn moment(diff: &Diff) -> String {
    match (diff.compared.at.as_str(), &diff.compared.phase) {
        (_, Some(phase)) => format!("at the end of {phase}"),
        ("end", _) => "at the end".to_owned(),
        ("peak", _) => "at the peak".to_owned(),
        ("oom", _) => "when memory ran out".to_owned(),
        (time, _) => format!("{time} after tracing began"),
    }
}

/// The axis of ranks, if the cells are divided by it.
fn by_rank(diff: &Diff) -> Option<&'static str> {
    diff.by.iter().copied().find(|axis| *axis == Axis::Rank.name() || *axis == Axis::Process.name())
}

/// The axes beside that of ranks.
fn rest(diff: &Diff) -> Vec<&'static str> {
    diff.by.iter().copied().filter(|axis| Some(*axis) != by_rank(diff)).collect()
}

fn rows(diff: &Diff, groups: &[Group]) -> Vec<Row> {
    let group_of: HashMap<&str, usize> = groups
        .iter()
        .enumerate()
        .flat_map(|(at, group)| group.members.iter().map(move |n| (diff.ranks[*n].rank.as_str(), at)))
        .collect();
    let (axis, rest) = (by_rank(diff), rest(diff));
    let mut numbers: HashMap<(usize, Vec<String>), usize> = HashMap::new();
    let mut rows: Vec<Row> = Vec::new();
    let label = |cell: &CellChange, axis: &str| cell.labels.get(axis).cloned().unwrap_or_default();
    for cell in &diff.cells {
        let group = axis.and_then(|axis| group_of.get(label(cell, axis).as_str()).copied()).unwrap_or(0);
        let labels: Vec<String> = rest.iter().map(|axis| label(cell, axis)).collect();
        let number = *numbers.entry((group, labels.clone())).or_insert_with(|| {
            rows.push(Row { group, labels, bytes: Change::default(), deltas: Vec::new() });
            rows.len() - 1
        });
        rows[number].bytes = rows[number].bytes + cell.bytes;
        rows[number].deltas.push(cell.bytes.delta_bytes);
    }
    let is_ordered = rest.first().is_some_and(|axis| axis.parse::<Axis>().is_ok_and(Axis::is_ordered));
    let size = |row: &Row| std::cmp::Reverse(row.bytes.delta_bytes.unsigned_abs());
    if is_ordered {
        let mut first: HashMap<(usize, String), usize> = HashMap::new();
        for (n, row) in rows.iter().enumerate() {
            first.entry((row.group, row.labels[0].clone())).or_insert(n);
        }
        rows.sort_by_key(|row| (row.group, first[&(row.group, row.labels[0].clone())], size(row)));
    } else {
        rows.sort_by_key(|row| (row.group, size(row)));
    }
    rows
}

/// Columns: the group of ranks, the other axes, both runs, the change, and what it is in each rank of a group of several.
fn set(diff: &Diff, groups: &[Group], rows: &[Row]) -> String {
    let several = groups.iter().any(|group| group.members.len() > 1) && diff.by.len() <= EACH_AXES;
    let rest = rest(diff);
    let names = by_rank(diff).into_iter().chain(rest.iter().copied());
    let mut columns: Vec<Column> = names.map(|axis| Column::Name(axis_title(axis))).collect();
    columns.extend(["BASE", "OTHER", "Change"].map(Column::Number));
    columns.extend(several.then_some(Column::Number("In each rank")));
    let mut table = Table::new(columns);
    let numbers = |bytes: Change, each: String| {
        let cells = [human(bytes.base_bytes), human(bytes.other_bytes), signed(bytes.delta_bytes)];
        cells.into_iter().chain(several.then_some(each))
    };

    let (shown, smaller) = biggest(rows);
    let mut above = None;
    for row in shown {
        let group = groups.get(row.group);
        let first = group.map(|group| if above == Some(row.group) { String::new() } else { group.label.clone() });
        let labels = rest.iter().zip(&row.labels).map(|(axis, label)| match *axis {
            "stack" => label.split(" < ").next().map(short_frame).unwrap_or_default(),
            _ => label.clone(),
        });
        table.row(first.into_iter().chain(labels).chain(numbers(row.bytes, each(row, group))));
        above = Some(row.group);
    }
    let width = by_rank(diff).iter().count() + rest.len();
    let lone = |label: String| [label].into_iter().chain(std::iter::repeat(String::new())).take(width);
    if !smaller.is_empty() {
        let sum = smaller.iter().map(|row| row.bytes).sum();
        table.row(lone(format!("({} smaller)", smaller.len())).chain(numbers(sum, String::new())));
    }
    if width > 0 {
        table.row(lone("Total".to_owned()).chain(numbers(diff.bytes, String::new())));
    }
    table.render()
}

/// The rows that changed most, in the order given, and the others.
fn biggest(rows: &[Row]) -> (Vec<&Row>, Vec<&Row>) {
    let mut sizes: Vec<(u64, usize)> =
        rows.iter().enumerate().map(|(n, row)| (row.bytes.delta_bytes.unsigned_abs(), n)).collect();
    sizes.sort_unstable_by_key(|(size, n)| (std::cmp::Reverse(*size), *n));
    let mut is_shown = vec![false; rows.len()];
    sizes.iter().take(ROWS).for_each(|(_, n)| is_shown[*n] = true);
    let (shown, smaller): (Vec<_>, Vec<_>) = rows.iter().zip(is_shown).partition(|(_, shown)| *shown);
    let only_rows = |pairs: Vec<(_, _)>| pairs.into_iter().map(|(row, _)| row).collect();
    (only_rows(shown), only_rows(smaller))
}

/// `+24.0 MiB` where it is that in every rank of the group, else the least and the most.
fn each(row: &Row, group: Option<&Group>) -> String {
    let Some(members) = group.map(|group| group.members.len()).filter(|members| *members > 1) else {
        return String::new();
    };
    // A rank without such a cell changed by nothing.
    let absent = (row.deltas.len() < members).then_some(0);
    let deltas = || row.deltas.iter().copied().chain(absent);
    match (deltas().min(), deltas().max()) {
        (Some(least), Some(most)) if least != most => range(&signed(least), &signed(most)),
        (Some(same), _) => signed(same),
        _ => String::new(),
    }
}

/// `+1.00 … +4.00 GiB`: the unit once, where it is the same.
fn range(least: &str, most: &str) -> String {
    match (least.split_once(' '), most.split_once(' ')) {
        (Some((number, unit)), Some((_, same))) if unit == same => format!("{number} … {most}"),
        _ => format!("{least} … {most}"),
    }
}

/// What is no part of the sum above.
pub(super) fn apart(diff: &Diff) -> String {
    let sum = |of: fn(&crate::report::diff::RankChange) -> Change| diff.ranks.iter().map(of).sum::<Change>();
    let part = |what: &str, change: Change| {
        let Change { base_bytes, other_bytes, delta_bytes } = change;
        (delta_bytes != 0)
            .then(|| format!("{what} {} → {}, {}", human(base_bytes), human(other_bytes), signed(delta_bytes)))
    };
    let parts = [
        part("memory of other processes mapped (IPC, shared handles; costs the importer nothing)", sum(|r| r.imported)),
        part("pinned host memory", sum(|r| r.host)),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    if parts.is_empty() { String::new() } else { sentence(&format!("Apart from the sum: {}", parts.join("; "))) }
}
