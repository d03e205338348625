//! The comparison as text, in lines of at most 100 columns.
//!
//! The first screen answers: what is the matter, what was different, where the bytes went. What is equal in both runs is
//! left out.

mod bytes;
mod configuration;
mod head;
mod ranks;
mod stacks;

use super::Diff;
use crate::report::text::verdict::verdict;
use crate::report::text::{Style, sentence};

/// `diff` in lines of at most 100 columns. Sections stand apart by an empty line.
#[must_use]
pub fn render(diff: &Diff, style: Style) -> String {
    let mut sections = vec![head::title(diff, style) + &verdict(&diff.verdict, style), head::runs(diff, style)];
    if diff.is_empty() {
        let held = crate::report::bytes::human(diff.bytes.base_bytes);
        sections.push(sentence(&format!("No difference: both hold {held}, in the same ranks, phases and stacks.")));
    }
    sections.push(configuration::table(&diff.configuration, style));
    if !diff.is_empty() {
        sections.extend([bytes::table(diff, style), bytes::apart(diff), stacks::changed(diff, style)]);
    }
    sections.retain(|section| !section.is_empty());
    sections.join("\n")
}
