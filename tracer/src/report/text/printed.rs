//! Free memory as the server printed it, beside what it read.

use super::table::{Column, Table};
use super::{Style, counted, sentence};
use crate::report::summary::Summary;
use crate::report::{bytes, clock};

/// Lines shown.
const ROWS: usize = 40;

/// A row for each line that prints free memory.
pub(super) fn memory(summary: &Summary, style: Style) -> String {
    if summary.printed_memory.is_empty() {
        return String::new();
    }
    let mut table = Table::new(vec![
        Column::Number("Time"),
        Column::Name("Rank"),
        Column::Name("Line"),
        Column::Number("Printed"),
        Column::Number("Read"),
        Column::Name("Agrees"),
    ]);
    for line in summary.printed_memory.iter().take(ROWS) {
        let (whole, part) = (line.printed_centi_gib / 100, line.printed_centi_gib % 100);
        table.row([
            clock::format(line.time_ns),
            line.rank.clone(),
            line.mark.clone(),
            format!("{whole}.{part:02} GiB"),
            line.read_bytes.map_or("-".to_owned(), bytes::human),
            line.agrees.map_or("", |agrees| if agrees { "yes" } else { "no" }).to_owned(),
        ]);
    }
    let lines = &summary.printed_memory;
    let agree = lines.iter().filter(|line| line.agrees == Some(true)).count();
    let title = format!("Free memory, as the server printed it and as it read it: {agree} of {} agree", lines.len());
    let mut text = style.title(&title) + "\n" + &table.render();
    if summary.printed_memory.len() > ROWS {
        let more = summary.printed_memory.len() - ROWS;
        text += &sentence(&format!("  … and {more} lines more (--format json lists all)"));
    }
    let readings: u64 = summary.memory_readings.iter().map(|place| place.count).sum();
    let places = counted(summary.memory_readings.len() as u64, "place");
    text += &sentence(&format!("  {} in {places} of its code (--format json)", counted(readings, "reading")));
    text
}
