//! Top of the report: how the run ended, what was not seen, where the trace comes from.

use super::{Style, counted, sentence};
use crate::report::summary::Summary;
use crate::report::{clock, physical, trust};
use crate::trace::record::Source;

/// Losses and probes named before the rest is only counted.
const NAMED: usize = 5;

/// What a reader must know before he believes the figures.
pub(super) fn trust(summary: &Summary, name: &str, style: Style) -> String {
    let mut lines = vec![style.title(&format!("vramtrace report: {name}")), outcome(summary, style)];
    lines.push(lost_events(summary, style));
    for (why, count) in &summary.losses {
        lines.push(style.warning(&format!("  {}: {count}", trust::loss_meaning(why))));
    }
    if summary.unknown_records > 0 {
        let records = counted(summary.unknown_records, "record");
        let text = format!("Skipped: {records} of kinds unknown to this version; a newer vramtrace wrote the file");
        lines.push(style.alarm(&text));
    }
    lines.push(ledger(summary, style));
    lines.extend(late(&summary.probes.late).map(|text| style.warning(&text)));
    let failed = |symbol| format!("Not probed: {symbol}");
    lines.extend(named(&summary.probes.failed, "other functions", failed).map(|text| style.warning(&text)));
    lines.extend(summary.notices.iter().map(|notice| style.warning(&format!("Note: {notice}"))));
    lines.join("\n") + "\n"
}

fn outcome(summary: &Summary, style: Style) -> String {
    let detail = &summary.outcome.detail;
    match summary.outcome.kind {
        "oom" => style.alarm(&format!("OUT OF MEMORY: {detail}")),
        "truncated" => style.alarm(&format!("TRUNCATED TRACE: {detail}")),
        "killed" => style.alarm(&format!("Outcome: {detail}")),
        _ => super::sentence(&format!("Outcome: {detail}")).trim_end().to_owned(),
    }
}

fn lost_events(summary: &Summary, style: Style) -> String {
    match summary.lost_events {
        0 if summary.losses.is_empty() => "Lost events: none".to_owned(),
        0 => style.warning("Lost events: none that carry bytes; some calls or stacks are missing:"),
        lost => style.alarm(&format!("LOST {}: figures may be off by what they carried:", counted(lost, "event"))),
    }
}

fn ledger(summary: &Summary, style: Style) -> String {
    let explained = summary.explained_percent.map_or_else(
        || "nothing to compare with: no quiet NVML sample".to_owned(),
        |percent| {
            format!("explains {} % of NVML's bytes in {}", physical::format_percent(percent), quiet_samples(summary))
        },
    );
    match summary.ledger {
        Source::Ioctl => format!("Ledger: driver ioctls; {explained}"),
        Source::DriverApi => style.alarm(&format!(
            "Ledger: driver API calls, because the driver's ioctls could not be read: memory that the driver takes for \
             itself (contexts, code, local memory) is missing; {explained}"
        )),
    }
}

fn quiet_samples(summary: &Summary) -> String {
    counted(summary.devices().map(|(_, device)| device.compared.quiet_samples).sum(), "quiet sample")
}

/// Libraries that were in use before tracing began: one by its path, several by name. Whoever attaches knows that.
fn late(libraries: &[String]) -> Option<String> {
    let name = |path: &String| path.rsplit('/').next().unwrap_or_default().to_owned();
    match libraries {
        [] => None,
        [path] => Some(format!("Late: {path} was in use before its probes were placed; its first calls were not seen")),
        paths => {
            let first: Vec<String> = paths.iter().take(NAMED).map(name).collect();
            let more = match paths.len().saturating_sub(NAMED) {
                0 => String::new(),
                more => format!(" and {more} more (--format json lists all)"),
            };
            Some(format!(
                "Late: {} libraries were in use before their probes were placed; their first calls were not seen: {}{more}",
                paths.len(),
                first.join(", ")
            ))
        }
    }
}

/// A line for each of the first `items`, and one that counts the rest.
fn named<'a>(
    items: &'a [String],
    what: &'a str,
    line: impl Fn(&'a str) -> String + 'a,
) -> impl Iterator<Item = String> + 'a {
    let rest = items.len().saturating_sub(NAMED) as u64;
    let more = (rest > 0).then(|| format!("  … and {rest} {what} (--format json lists all)"));
    items.iter().take(NAMED).map(move |item| line(item)).chain(more)
}

/// Where the trace comes from.
pub(super) fn origin(summary: &Summary) -> String {
    let trace = &summary.trace;
    let mut facts = vec![trace.host.clone()];
    facts.extend((!trace.kernel.is_empty()).then(|| format!("Linux {}", trace.kernel)));
    facts.extend(trace.driver.as_ref().map(|driver| format!("NVIDIA driver {driver}")));
    facts.extend(gpus(summary));
    facts.retain(|fact| !fact.is_empty());
    let lasted = clock::format(trace.duration_ns);
    // A file that breaks off within its header knows no date.
    let when = match trace.start_unix_ns {
        0 => format!("traced for {lasted}"),
        began => format!("traced on {}, for {lasted}", clock::format_utc(began)),
    };
    let command = match (trace.command.as_slice(), trace.attached) {
        ([], true) => "attached to running processes".to_owned(),
        ([], false) => "unknown command".to_owned(),
        (words, _) => words.join(" "),
    };
    // A server's command line can be pages long; its beginning says which run this is.
    let command: String = command.chars().take(300).collect();
    [command, facts.join(" · "), when].iter().filter(|line| !line.is_empty()).map(|line| sentence(line)).collect()
}

/// `2 × NVIDIA H200`, by name.
fn gpus(summary: &Summary) -> Vec<String> {
    let mut names: Vec<(&str, u64)> = Vec::new();
    for name in summary.gpus.iter().filter_map(|gpu| gpu.name.as_deref()) {
        match names.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => names.push((name, 1)),
        }
    }
    names.into_iter().map(|(name, count)| format!("{count} × {name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_in_use_before_is_one_line() {
        let paths = |n: usize| (0..n).map(|n| format!("/usr/lib/lib{n}.so")).collect::<Vec<_>>();
        assert_eq!(late(&[]), None);
        assert!(late(&paths(1)).unwrap().starts_with("Late: /usr/lib/lib0.so was in use"));
        assert!(late(&paths(2)).unwrap().ends_with("not seen: lib0.so, lib1.so"));
        assert!(late(&paths(7)).unwrap().ends_with("lib3.so, lib4.so and 2 more (--format json lists all)"));
    }
}
