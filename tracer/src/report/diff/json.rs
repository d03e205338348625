//! The comparison as JSON: [`Diff`] as it stands, schema `vramtrace.diff/1`.

use super::Diff;

/// `diff` as one JSON document, ended by a newline.
#[must_use]
#[expect(clippy::missing_panics_doc, reason = "strings, numbers and maps with string keys always serialize")]
pub fn render(diff: &Diff) -> String {
    let text = serde_json::to_string_pretty(diff);
    text.expect("a comparison holds strings, numbers and maps with string keys only") + "\n"
}
