//! Top of the comparison: which runs, how they ended, what makes the figures less than certain, where they are compared.

use crate::report::diff::{Diff, RunFacts};
use crate::report::text::{Style, counted, sentence};
use crate::report::{bytes, physical};

pub(super) fn title(diff: &Diff, style: Style) -> String {
    style.title(&format!("vramtrace diff: {} → {}", diff.base.name, diff.other.name)) + "\n"
}

/// How the runs ended, and where they are compared.
pub(super) fn runs(diff: &Diff, style: Style) -> String {
    let mut text = run("BASE", &diff.base, style) + &run("OTHER", &diff.other, style);
    text += &moment(diff);
    if diff.configuration.iter().any(|setting| setting.key == "ledger") {
        let warning = "The ledgers are of different kinds: one has memory that the driver takes for itself, the other has \
                       not. Their difference is not that of the runs.";
        text += &(style.alarm(warning) + "\n");
    }
    text
}

fn run(which: &str, facts: &RunFacts, style: Style) -> String {
    let explained = facts.explained_percent.map_or_else(
        || "no quiet NVML sample to compare with".to_owned(),
        |percent| format!("explains {} % of NVML's bytes", physical::format_percent(percent)),
    );
    let line = |mark: &str| format!("{which:<5}  {}: {mark}{}; {explained}", facts.name, facts.outcome.detail);
    let mut text = match facts.outcome.kind {
        "oom" => style.alarm(&line("OUT OF MEMORY: ")) + "\n",
        "truncated" => style.alarm(&line("TRUNCATED TRACE: ")) + "\n",
        _ => sentence(&line("")),
    };
    if facts.lost_events > 0 {
        let lost = counted(facts.lost_events, "event");
        text +=
            &(style.alarm(&format!("       LOST {lost}: {which}'s figures may be off by what they carried")) + "\n");
    }
    if facts.pre_attach_bytes > 0 {
        let held = bytes::human(facts.pre_attach_bytes);
        let line = format!("       {held} of {which} was held before tracing began: without stack, kind or phase");
        text += &(style.warning(&line) + "\n");
    }
    for notice in &facts.notices {
        text += &(style.warning(&format!("       Note ({which}): {notice}")) + "\n");
    }
    text
}

/// Where the runs are compared, if that needs a word.
fn moment(diff: &Diff) -> String {
    let compared = &diff.compared;
    match (&compared.phase, &compared.why) {
        (Some(phase), Some(why)) => sentence(&format!(
            "{why}: both are compared at the end of {phase}, the last phase that both went through (--at end: as they ended)"
        )),
        (Some(phase), None) => sentence(&format!("Both are compared at the end of {phase}")),
        (None, Some(why)) => sentence(&format!("{why}: both are compared at their ends")),
        (None, None) => String::new(),
    }
}
