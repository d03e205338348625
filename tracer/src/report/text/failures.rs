//! Calls that failed.

use super::stacks::{frame_lines, short_frame};
use super::table::{Column, Table};
use super::{Style, counted, sentence};
use crate::report::failures::Failed;
use crate::report::summary::Summary;
use crate::report::{bytes, clock};

/// Failures told at length; of the others a line each.
const AT_LENGTH: usize = 4;
/// Lines for further failures, and rows for other failed calls.
const LINES: usize = 20;
/// What the driver rounds sizes up to.
const ROUNDING: u64 = 2 << 20;
/// Frames shown.
const FRAMES: usize = 10;

/// Failures for want of memory, the last first: it is the one a server dies of.
pub(super) fn out_of_memory(summary: &Summary, style: Style) -> String {
    let mut failures: Vec<&Failed> = summary.failures.iter().filter(|failed| failed.out_of_memory).collect();
    if failures.is_empty() {
        return String::new();
    }
    failures.sort_by_key(|failed| std::cmp::Reverse(failed.time_ns));
    let mut text = style.alarm("Calls that failed for want of memory, the last first") + "\n";
    for (n, failed) in failures.iter().take(LINES).enumerate() {
        text += &sentence(&format!("  {}", what_failed(failed)));
        if n < AT_LENGTH {
            text += &frame_lines(&failed.asked_by[..failed.asked_by.len().min(FRAMES)], "no stack recorded");
            text += &slack(failed);
            text += &holders(summary, failed);
        }
    }
    if failures.len() > LINES {
        text += &format!("  … and {} more (--format json lists all)\n", failures.len() - LINES);
    }
    text
}

fn what_failed(failed: &Failed) -> String {
    let asked = failed.requested_bytes.map_or_else(
        || format!("{} failed for want of memory", failed.api),
        |size| format!("{} asked for {}", failed.api, bytes::human(size)),
    );
    let most = if failed.free_is_bound { "at most " } else { "" };
    let free = failed
        .free_bytes
        .map_or_else(|| "free memory is not known".to_owned(), |f| format!("{most}{} was free", bytes::human(f)));
    let gpu = failed.gpu.as_deref().unwrap_or("an unknown GPU");
    let again = if failed.count > 1 {
        format!("; {} times, the first at {}", failed.count, clock::format(failed.first_time_ns))
    } else {
        String::new()
    };
    let of_driver = match (failed.requested_bytes, failed.refused_bytes) {
        // The driver rounds up: only what a pool or a context asked on its own account is worth a word.
        (Some(asked), Some(refused)) if refused.abs_diff(asked) >= ROUNDING => {
            format!(" (of the driver {})", bytes::human(refused))
        }
        _ => String::new(),
    };
    let short = match (failed.refused_bytes.or(failed.requested_bytes), failed.free_bytes) {
        (Some(asked), Some(free)) if asked > free => format!(", {} short", bytes::human(asked - free)),
        _ => String::new(),
    };
    format!("{} at {}: {asked}{of_driver} on {gpu}; {free}{short}{again}", failed.rank, clock::format(failed.time_ns))
}

/// What `PyTorch` had and did not use.
fn slack(failed: &Failed) -> String {
    let (Some(used), Some(slack)) = (failed.torch_allocated_bytes, failed.torch_slack_bytes) else {
        return String::new();
    };
    let (used, slack) = (bytes::human(used), bytes::human(slack));
    sentence(&format!("  PyTorch had handed out {used} then, and had {slack} more reserved and unused"))
}

fn holders(summary: &Summary, failed: &Failed) -> String {
    let (Some(held), Some(gpu)) = (failed.held_bytes, &failed.gpu) else { return String::new() };
    let mut text = sentence(&format!("  Traced processes held {} on {gpu} then; most by:", bytes::human(held)));
    let mut table = Table::new(vec![
        Column::Number("Live"),
        Column::Number("Count"),
        Column::Name("Rank"),
        Column::Name("Phase"),
        Column::Name("Kind"),
        Column::Name("Owner"),
        Column::Name("Asked by"),
    ]);
    for holder in summary.holders(failed) {
        table.row([
            bytes::human(holder.live_bytes),
            holder.live_count.to_string(),
            holder.rank.clone(),
            holder.phase.clone(),
            holder.kind.clone(),
            holder.owner.clone(),
            holder.frame.as_deref().map_or_else(|| "-".to_owned(), short_frame),
        ]);
    }
    if held > 0 {
        text += &table.render();
    }
    text
}

/// Other failed calls.
pub(super) fn others(summary: &Summary, style: Style) -> String {
    let failures: Vec<&Failed> = summary.failures.iter().filter(|failed| !failed.out_of_memory).collect();
    let calls: u64 = failures.iter().map(|failed| failed.count).sum();
    if failures.is_empty() {
        return String::new();
    }
    let mut text =
        style.title(&format!("Other failed calls: {}, no bytes of theirs are counted", counted(calls, "call"))) + "\n";
    let mut table = Table::new(vec![
        Column::Name("API call"),
        Column::Name("Result"),
        Column::Name("Process"),
        Column::Number("First at"),
        Column::Number("Times"),
    ]);
    for failed in failures.iter().take(LINES) {
        let first = clock::format(failed.first_time_ns);
        table.row([failed.api.clone(), result(failed), failed.rank.clone(), first, failed.count.to_string()]);
    }
    text += &table.render();
    if failures.len() > LINES {
        text += &format!("  … and {} more (--format json lists all)\n", failures.len() - LINES);
    }
    text
}

/// A result code, with its meaning where CUDA's and the runtime's codes agree (`cuda.h` and `driver_types.h`, CUDA 11 on).
fn result(failed: &Failed) -> String {
    let Some(result) = failed.result else {
        return failed.driver_status.map_or(String::new(), |status| format!("driver status {status:#x}"));
    };
    let is_cuda = failed.api.starts_with("cu");
    let meaning = match result {
        1 => "invalid value",
        2 => "out of memory",
        3 => "not initialized",
        4 => "driver is shutting down",
        35 => "driver too old for this runtime",
        46 => "device unavailable",
        100 => "no device",
        101 => "invalid device",
        201 => "invalid context",
        209 => "no code for this GPU",
        400 => "invalid handle",
        500 => "not found",
        600 => "not ready",
        700 => "illegal address",
        719 => "launch failed",
        800 => "not permitted",
        801 => "not supported",
        802 => "system not ready",
        803 => "driver and library versions differ",
        999 => "unknown error",
        _ => "",
    };
    match (is_cuda, meaning) {
        (true, meaning) => format!("{result} {meaning}").trim_end().to_owned(),
        (false, _) => result.to_string(),
    }
}
