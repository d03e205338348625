//! The ledger against NVML, and memory that is no part of it.

use super::table::{Column, Table};
use super::{Style, sentence};
use crate::report::bytes;
use crate::report::holdings::Process;
use crate::report::physical::{self, Compared};
use crate::report::summary::Summary;

/// The ledger against NVML, a row for each process and GPU.
pub(super) fn against_nvml(summary: &Summary, style: Style) -> String {
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
            with_pid(process),
            device.label.clone(),
            bytes::human(device.bytes.peak_bytes),
            bytes::human(compared.live_bytes.unwrap_or(device.bytes.live_bytes)),
            nvml_figure(compared),
            or_dash(both.map(|(nvml, live)| bytes::difference(nvml, live))),
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
        text += &sentence(&format!("  Largest difference in a quiet sample: {} ({rank})", bytes::human(off)));
    }
    text + &gpus(summary)
}

/// Name of a process with the pid under which `nvidia-smi` lists it.
fn with_pid(process: &Process) -> String {
    let pid = process.pid.to_string();
    if process.rank.contains(&pid) { process.rank.clone() } else { format!("{} ({pid})", process.rank) }
}

fn nvml_figure(compared: &Compared) -> String {
    match (compared.nvml_bytes, compared.samples) {
        (Some(nvml), _) => bytes::human(nvml),
        (None, 0) => "no sample".to_owned(),
        (None, _) => "none quiet".to_owned(),
    }
}

/// What all traced processes hold on each GPU, where more than one shares one.
fn gpus(summary: &Summary) -> String {
    let holders = |label: &str| summary.devices().filter(|(_, d)| d.label == label && d.bytes.peak_bytes > 0).count();
    let mut text = String::new();
    for gpu in summary.gpus.iter().filter(|gpu| holders(&gpu.label) > 1) {
        let of = gpu.total_bytes.map_or(String::new(), |total| format!(" of {}", bytes::human(total)));
        let (live, peak) = (bytes::human(gpu.bytes.live_bytes), bytes::human(gpu.bytes.peak_bytes));
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
        table.row([process.rank.clone(), bytes::human(process.host_bytes), bytes::human(process.imported_bytes)]);
    }
    if any { style.title("Not part of these sums") + "\n" + &table.render() } else { String::new() }
}
