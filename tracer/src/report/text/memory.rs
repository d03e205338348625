//! Memory: by the axes asked for, against NVML, by stack.

use super::plain::{columns, fit, plain};
use super::table::{Column, Table, WIDTH};
use super::{Style, counted, sentence};
use crate::lifecycle::NO_API;
use crate::report::bytes;
use crate::report::physical::{self, Compared};
use crate::report::summary::{Bytes, Summary};
use crate::report::tables::Cell;

/// Rows of a table before the smaller ones become one.
const ROWS: usize = 60;

/// Memory divided by the axes asked for.
pub(super) fn cells(summary: &Summary, style: Style) -> String {
    let live = bytes::format(summary.total.live_bytes);
    let count = counted(summary.total.live_count, "allocation");
    let by = if summary.by.is_empty() { String::new() } else { format!(", by {}", summary.by.join(", ")) };
    let title = format!("GPU memory {}: {live} in {count}{by}", moment(&summary.at));
    let mut text = style.title(&title) + "\n";
    if summary.cells.is_empty() {
        return text + "  No traced process took GPU memory.\n";
    }
    let titles = summary.by.iter().map(|axis| Column::Name(axis_title(axis)));
    let numbers = ["Live", "Peak", "Allocated", "Count"].map(Column::Number);
    let mut table = Table::new(titles.chain(numbers).collect());
    let (shown, rest) = biggest(&summary.cells, ROWS);
    let mut above: Option<&Cell> = None;
    for cell in shown {
        table.row(labels(&summary.by, cell, above).into_iter().chain(numbers_of(&cell.bytes)));
        above = Some(cell);
    }
    if !rest.is_empty() {
        table.row(first_label(&summary.by, &format!("({} smaller)", rest.len())).chain(rest_of(&rest)));
    }
    if !summary.by.is_empty() {
        table.row(first_label(&summary.by, "Total").chain(numbers_of(&summary.total)));
    }
    text += &table.render();
    text + &pre_attach(summary)
}

fn pre_attach(summary: &Summary) -> String {
    match summary.pre_attach_bytes() {
        0 => String::new(),
        held => sentence(&format!(
            "  {} of it was held before tracing began (pre_attach): by NVML's figure then, without call or stack.",
            bytes::format(held)
        )),
    }
}

/// The biggest `rows` cells in the order given, and the others.
fn biggest(cells: &[Cell], rows: usize) -> (Vec<&Cell>, Vec<&Cell>) {
    let mut sizes: Vec<_> =
        cells.iter().enumerate().map(|(n, c)| (c.bytes.live_bytes, c.bytes.peak_bytes, n)).collect();
    sizes.sort_unstable_by_key(|(live, peak, n)| (std::cmp::Reverse((*live, *peak)), *n));
    let mut is_shown = vec![false; cells.len()];
    sizes.iter().take(rows).for_each(|(.., n)| is_shown[*n] = true);
    let (shown, rest): (Vec<_>, Vec<_>) = cells.iter().zip(is_shown).partition(|(_, shown)| *shown);
    let only_cells = |pairs: Vec<(_, _)>| pairs.into_iter().map(|(cell, _)| cell).collect();
    (only_cells(shown), only_cells(rest))
}

/// Labels of a row; those it shares with the row above, from the left, are left out.
fn labels(by: &[&'static str], cell: &Cell, above: Option<&Cell>) -> Vec<String> {
    let mut shared = above.is_some();
    let label = |axis: &&'static str| {
        shared = shared && above.is_some_and(|above| above.label(axis) == cell.label(axis));
        match (shared, *axis) {
            (true, _) => String::new(),
            (false, "stack") => cell.frame.as_deref().map_or_else(|| cell.label(axis).to_owned(), short_frame),
            (false, _) => cell.label(axis).to_owned(),
        }
    };
    by.iter().map(label).collect()
}

fn first_label(by: &[&'static str], label: &str) -> impl Iterator<Item = String> {
    let rest = by.len().saturating_sub(1);
    [label.to_owned()].into_iter().take(by.len()).chain(std::iter::repeat_n(String::new(), rest))
}

fn numbers_of(sum: &Bytes) -> [String; 4] {
    let sizes = [sum.live_bytes, sum.peak_bytes, sum.allocated_bytes].map(bytes::format);
    let [live, peak, allocated] = sizes;
    [live, peak, allocated, sum.count.to_string()]
}

/// Sums of folded rows. Their common peak is not known from their own.
fn rest_of(rest: &[&Cell]) -> [String; 4] {
    let sum = |get: fn(&Bytes) -> u64| rest.iter().map(|cell| get(&cell.bytes)).fold(0, u64::saturating_add);
    let live = bytes::format(sum(|b| b.live_bytes));
    [live, String::new(), bytes::format(sum(|b| b.allocated_bytes)), sum(|b| b.count).to_string()]
}

fn moment(at: &str) -> String {
    match at {
        "end" => "at the end".to_owned(),
        "peak" => "at the peak of each process on each GPU".to_owned(),
        "oom" => "when memory ran out".to_owned(),
        time => format!("{time} after tracing began"),
    }
}

fn axis_title(axis: &str) -> &'static str {
    match axis {
        "phase" => "Phase",
        "rank" => "Rank",
        "kind" => "Kind",
        "owner" => "Owner",
        "role" => "Role",
        "device" => "GPU",
        "stack" => "Stack",
        "process" => "Process",
        _ => "API call",
    }
}

/// The ledger against NVML, a row for each process and GPU.
pub(super) fn physical(summary: &Summary, style: Style) -> String {
    if summary.devices().next().is_none() {
        return String::new();
    }
    let mut table = Table::new(vec![
        Column::Name("Process"),
        Column::Name("GPU"),
        Column::Number("Peak"),
        Column::Number("Ledger"),
        Column::Number("NVML"),
        Column::Number("Residual"),
        Column::Number("Explained"),
        Column::Number("Quiet"),
    ]);
    let mut worst: Option<(u64, &str)> = None;
    for (process, device) in summary.devices() {
        let compared = &device.compared;
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let both = compared.nvml_bytes.zip(compared.live_bytes);
        table.row([
            process.rank.clone(),
            device.label.clone(),
            bytes::format(device.bytes.peak_bytes),
            bytes::format(compared.live_bytes.unwrap_or(device.bytes.live_bytes)),
            nvml_figure(compared),
            or_dash(both.map(|(nvml, live)| bytes::format_difference(nvml, live))),
            or_dash(compared.explained_percent.map(|p| format!("{} %", physical::format_percent(p)))),
            if compared.samples == 0 {
                "-".to_owned()
            } else {
                format!("{}/{}", compared.quiet_samples, compared.samples)
            },
        ]);
        let candidate = compared.worst_residual_bytes.filter(|bytes| *bytes > 0).map(|bytes| (bytes, &*process.rank));
        worst = worst.max(candidate);
    }
    let mut text = style.title("Physical memory against NVML, at the last sample without a call in flight") + "\n";
    text += &table.render();
    if let Some((off, rank)) = worst {
        text += &sentence(&format!("  Largest difference in a quiet sample: {} ({rank})", bytes::format(off)));
    }
    text + &gpus(summary)
}

fn nvml_figure(compared: &Compared) -> String {
    match (compared.nvml_bytes, compared.samples) {
        (Some(nvml), _) => bytes::format(nvml),
        (None, 0) => "no sample".to_owned(),
        (None, _) => "none quiet".to_owned(),
    }
}

/// What all traced processes hold on each GPU, where more than one shares one.
fn gpus(summary: &Summary) -> String {
    let holders = |label: &str| summary.devices().filter(|(_, d)| d.label == label && d.bytes.peak_bytes > 0).count();
    let mut text = String::new();
    for gpu in summary.gpus.iter().filter(|gpu| holders(&gpu.label) > 1) {
        let of = gpu.total_bytes.map_or(String::new(), |total| format!(" of {}", bytes::format(total)));
        let (live, peak) = (bytes::format(gpu.bytes.live_bytes), bytes::format(gpu.bytes.peak_bytes));
        let processes = holders(&gpu.label);
        text += &sentence(&format!("  {}: {processes} traced processes hold {live}{of}; peak {peak}", gpu.label));
    }
    text
}

/// Memory that is no part of any GPU sum.
pub(super) fn apart(summary: &Summary, style: Style) -> String {
    let mut table =
        Table::new(vec![Column::Name("Process"), Column::Number("Pinned host"), Column::Number("Mapped from others")]);
    let mut any = false;
    for process in summary.processes.iter().filter(|p| p.host_bytes > 0 || p.imported_bytes > 0) {
        any = true;
        table.row([process.rank.clone(), bytes::format(process.host_bytes), bytes::format(process.imported_bytes)]);
    }
    if any { style.title("Not part of these sums") + "\n" + &table.render() } else { String::new() }
}

/// Stacks that hold most.
pub(super) fn stacks(summary: &Summary, style: Style) -> String {
    if summary.stacks.is_empty() {
        return String::new();
    }
    let mut text = style.title(&format!("Biggest stacks {}", moment(&summary.at))) + "\n";
    for row in &summary.stacks {
        let via = if row.api == NO_API { "outside API calls".to_owned() } else { format!("via {}", row.api) };
        let processes = if row.processes > 1 { format!(", {} processes", row.processes) } else { String::new() };
        let count = counted(row.live_count, "allocation");
        let line = format!("  {:>10}  {} {via}: {count}{processes}", bytes::format(row.live_bytes), row.kind);
        text += &(fit(&plain(&line), WIDTH) + "\n");
        text += &frame_lines(&row.frames, "no stack recorded");
    }
    text
}

/// A frame for a narrow column: the last two parts of the function's name, without arguments, template and place.
pub(super) fn short_frame(frame: &str) -> String {
    let function = frame.rsplit_once(" (").map_or(frame, |(function, _)| function);
    let mut bare = String::new();
    let mut depth = 0_usize;
    for c in function.chars() {
        match c {
            '<' | '(' | '{' => depth += 1,
            '>' | ')' | '}' => depth = depth.saturating_sub(1),
            c if depth == 0 => bare.push(c),
            _ => {}
        }
    }
    let parts: Vec<&str> = bare.split("::").filter(|part| !part.trim().is_empty()).collect();
    // An operator or a lambda alone leaves nothing to name it by.
    if parts.is_empty() {
        function.to_owned()
    } else {
        parts[parts.len().saturating_sub(2)..].join("::").trim().to_owned()
    }
}

/// Frames, one a line, innermost first.
pub(super) fn frame_lines(frames: &[String], none: &str) -> String {
    const INDENT: &str = "                ";
    if frames.is_empty() {
        return format!("{INDENT}({none})\n");
    }
    frames.iter().map(|frame| format!("{INDENT}{}\n", fit(&plain(frame), WIDTH - columns(INDENT)))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_shortened_to_what_tells_them_apart() {
        let cases = [
            ("c10::cuda::CachingAllocator::Native::Device::malloc (libc10_cuda.so)", "Device::malloc"),
            ("at::detail::fill<c10::ArrayRef<long> >(int, char (*)[2]) (lib.so)", "detail::fill"),
            ("void (anonymous namespace)::grow(long) (x.cpp:7)", "void ::grow"),
            ("load_model (loader.py:12)", "load_model"),
            ("libcublas.so+0x12", "libcublas.so+0x12"),
            ("{lambda()#1}", "{lambda()#1}"),
            ("", ""),
        ];
        for (frame, short) in cases {
            assert_eq!(short_frame(frame), short);
        }
    }
}
