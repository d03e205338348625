//! The report as text.

use super::summary::Summary;

pub(super) mod cells;
mod errors;
mod failures;
mod head;
mod kv_budget;
mod paused;
mod physical;
pub mod plain;
mod printed;
pub(super) mod stacks;
pub mod table;
mod torch;
pub(in crate::report) mod verdict;

use plain::{plain, wrap};
use table::WIDTH;

/// How text is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Use ANSI colours: only for a terminal, and only while `NO_COLOR` is unset.
    pub color: bool,
}

impl Style {
    fn paint(self, code: &str, text: &str) -> String {
        if self.color { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Title of a section.
    pub(in crate::report) fn title(self, text: &str) -> String {
        self.paint("1", &wrap(&plain(text), WIDTH, 2))
    }

    /// What makes the figures wrong, or what the run died of.
    pub(in crate::report) fn alarm(self, text: &str) -> String {
        self.paint("1;31", &wrap(&plain(text), WIDTH, 2))
    }

    /// What makes the figures less telling.
    pub(in crate::report) fn warning(self, text: &str) -> String {
        self.paint("33", &wrap(&plain(text), WIDTH, 2))
    }
}

/// `summary` of the trace called `name`, in lines of at most 100 columns. Sections stand apart by an empty line.
#[must_use]
pub fn render(summary: &Summary, name: &str, style: Style) -> String {
    // A budget that does not work out is why the server did not start: it goes first.
    let (no_room, budget) = kv_budget::budget(summary, style);
    let sections = [
        head::trust(summary, name, style),
        verdict::verdict(&summary.verdict, style),
        no_room,
        head::origin(summary),
        cells::table(summary, style),
        cells::second_table(summary, style),
        physical::against_nvml(summary, style),
        physical::apart(summary, style),
        paused::paused(summary, style),
        budget,
        torch::allocators(summary, style),
        printed::memory(summary, style),
        stacks::biggest(summary, style),
        failures::out_of_memory(summary, style),
        errors::errors(summary, style),
        failures::others(summary, style),
    ];
    let sections: Vec<String> = sections.into_iter().filter(|section| !section.is_empty()).collect();
    sections.join("\n")
}

/// A sentence on lines of its own.
pub(super) fn sentence(text: &str) -> String {
    wrap(&plain(text), WIDTH, 2) + "\n"
}

/// `1 event`, `2 events`.
pub(super) fn counted(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") }
}

/// Names the moment looked at, to follow what was held at it.
fn moment(summary: &Summary) -> String {
    match (summary.at.as_str(), summary.one_moment) {
        ("end", true) => "at the end".to_owned(),
        ("end", false) => "at the end of each process".to_owned(),
        ("peak", _) => "at the peak of each process on each GPU".to_owned(),
        ("oom", _) => "when memory ran out".to_owned(),
        (time, _) => format!("{time} after tracing began"),
    }
}

#[cfg(test)]
pub(super) mod tests;
