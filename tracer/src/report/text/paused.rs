//! Memory that was given back and will be taken again.

use super::table::{Column, Table};
use super::{Style, moment, sentence};
use crate::report::bytes;
use crate::report::summary::Summary;

pub(super) fn paused(summary: &Summary, style: Style) -> String {
    if summary.paused.is_empty() {
        return String::new();
    }
    let mut table = Table::new(vec![
        Column::Name("Rank"),
        Column::Name("GPU"),
        Column::Name("Phase"),
        Column::Number("Paused"),
        Column::Number("Count"),
    ]);
    for paused in &summary.paused {
        let (size, count) = (bytes::human(paused.bytes), paused.allocations.to_string());
        table.row([paused.rank.clone(), paused.gpu.clone(), paused.phase.clone(), size, count]);
    }
    style.title(&format!("Paused by torch_memory_saver {}", moment(summary)))
        + "\n"
        + &table.render()
        + &sentence(
            "  Given back to the GPU, to be taken again: part of no sum. PyTorch goes on counting it as its own.",
        )
}
