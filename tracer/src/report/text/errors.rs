//! Failures that are no failed CUDA call.

use super::{Style, counted, sentence};
use crate::report::clock;
use crate::report::summary::Summary;

/// Lines shown.
const LINES: usize = 8;

/// What processes wrote and who was killed, in order of time.
pub(super) fn errors(summary: &Summary, style: Style) -> String {
    let errors = &summary.errors;
    if errors.is_empty() {
        return String::new();
    }
    let mut text = style.alarm("What processes said and died of, the first one first") + "\n";
    for error in errors.iter().take(LINES) {
        let times = if error.count > 1 { format!(" ({})", counted(error.count, "time")) } else { String::new() };
        let when = clock::format(error.time_ns);
        text += &sentence(&format!("  {} at {when}, in {}: {}{times}", error.rank, error.phase, error.text));
    }
    if errors.len() > LINES {
        text += &format!("  … and {} more (--format json lists all)\n", errors.len() - LINES);
    }
    text
}
