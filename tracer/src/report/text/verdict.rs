//! What is the matter.

use super::{Style, sentence};
use crate::report::explain::Verdict;
use crate::report::explain::verdict::Weight;

/// The conclusion, then what else is suspected and what is ruled out; empty where there is nothing to say.
pub(in crate::report) fn verdict(verdict: &Verdict, style: Style) -> String {
    let mut text = String::new();
    let told = if verdict.summary.is_empty() { 0 } else { told(verdict) };
    if told > 0 {
        text += &(style.title(&format!("Verdict: {}.", verdict.summary)) + "\n");
    }
    for suspect in &verdict.suspects[told..] {
        let mark = match suspect.weight {
            Weight::Cause => "Cause",
            Weight::Failure => "Failed",
            Weight::Explains | Weight::Notable => "Also",
        };
        text += &sentence(&format!("  {mark}: {}", suspect.text));
    }
    for not in &verdict.ruled_out {
        if !verdict.summary.contains(&not.text) {
            text += &sentence(&format!("  Ruled out: {}", not.text));
        }
    }
    text
}

/// Suspects that the summary has.
fn told(verdict: &Verdict) -> usize {
    verdict.suspects.iter().take_while(|suspect| verdict.summary.contains(&suspect.text)).count()
}
