//! `PyTorch`'s caching allocator.

use std::collections::BTreeMap;

use super::table::{Column, Table};
use super::{Style, counted, moment, sentence};
use crate::lifecycle::phase_order;
use crate::report::holdings::{Device, Process};
use crate::report::summary::Summary;
use crate::report::torch::{TorchMemory, TorchSum};
use crate::report::{bytes, clock};

/// Failures shown.
const FAILURES: usize = 5;

/// A row for each process and GPU, then the sums by phase.
pub(super) fn allocators(summary: &Summary, style: Style) -> String {
    let allocators: Vec<(&Process, &Device, &TorchMemory)> =
        summary.devices().filter_map(|(process, device)| Some((process, device, device.torch.as_ref()?))).collect();
    if allocators.is_empty() {
        return String::new();
    }
    let mut table = Table::new(columns(&[Column::Name("Rank"), Column::Name("GPU")], Some("Graph pools")));
    for (process, device, torch) in &allocators {
        let graphs = bytes::human(torch.graph_pools.reserved_bytes);
        table.row([process.rank.clone(), device.label.clone()].into_iter().chain(numbers(&torch.sum, Some(graphs))));
    }
    let mut text = style.title(&format!("PyTorch's caching allocator {}", moment(summary))) + "\n" + &table.render();
    for (process, _, torch) in &allocators {
        text += &doubts(&process.rank, torch);
    }
    text += &failures(&allocators);
    text + &by_phase(&allocators, style)
}

fn columns(names: &[Column], more: Option<&'static str>) -> Vec<Column> {
    let numbers = ["Allocated", "Reserved", "Slack"].into_iter().chain(more).chain(["Blocks"]);
    names.iter().copied().chain(numbers.map(Column::Number)).collect()
}

fn numbers(sum: &TorchSum, more: Option<String>) -> impl Iterator<Item = String> {
    let slack = bytes::human(sum.slack_bytes.unsigned_abs());
    let slack = if sum.slack_bytes < 0 { format!("-{slack}") } else { slack };
    let sizes = [bytes::human(sum.allocated_bytes), bytes::human(sum.reserved_bytes), slack];
    sizes.into_iter().chain(more).chain([sum.blocks.to_string()])
}

/// What makes the figures less than exact.
fn doubts(rank: &str, torch: &TorchMemory) -> String {
    let mut text = String::new();
    if torch.before_bytes != 0 {
        let before = bytes::human(torch.before_bytes.unsigned_abs());
        text +=
            &sentence(&format!("  {rank}: {before} was handed out before tracing began, by the allocator's account."));
    }
    if torch.mismatches > 0 {
        let times = counted(torch.mismatches, "time");
        text += &sentence(&format!(
            "  {rank}: {times} its account did not follow from the one before: blocks were missed."
        ));
    }
    if torch.reserved_mismatches > 0 {
        let times = counted(torch.reserved_mismatches, "time");
        text += &sentence(&format!("  {rank}: {times} its segments were not those of the ledger."));
    }
    text
}

/// All ranks together; nothing where there is one phase.
fn by_phase(allocators: &[(&Process, &Device, &TorchMemory)], style: Style) -> String {
    let mut phases: BTreeMap<(usize, &str), TorchSum> = BTreeMap::new();
    for of in allocators.iter().flat_map(|(.., torch)| &torch.phases) {
        phases.entry((phase_order(&of.phase), &of.phase)).or_default().add(&of.sum);
    }
    if phases.len() < 2 {
        return String::new();
    }
    let mut table = Table::new(columns(&[Column::Name("Phase")], None));
    for ((_, phase), sum) in &phases {
        table.row([(*phase).to_owned()].into_iter().chain(numbers(sum, None)));
    }
    let note = "  Blocks by when they were asked for, segments by when they were made: slack below zero lies in another \
                phase's segments.";
    let text = "\n".to_owned() + &style.title("The same by phase") + "\n" + &table.render();
    text + &if phases.values().any(|sum| sum.slack_bytes < 0) { sentence(note) } else { String::new() }
}

fn failures(allocators: &[(&Process, &Device, &TorchMemory)]) -> String {
    let all: Vec<_> = allocators
        .iter()
        .flat_map(|(process, device, torch)| torch.out_of_memory.iter().map(move |failed| (process, device, failed)))
        .collect();
    let mut text = String::new();
    for (process, device, failed) in all.iter().take(FAILURES) {
        let [asked, allocated, reserved] =
            [failed.requested_bytes, failed.allocated_bytes, failed.reserved_bytes].map(bytes::human);
        text += &sentence(&format!(
            "  torch.OutOfMemoryError at {}: {} asked for {asked} on {} ({allocated} allocated, {reserved} reserved, \
             phase {})",
            clock::format(failed.time_ns),
            process.rank,
            device.label,
            failed.phase
        ));
    }
    if all.len() > FAILURES {
        text += &sentence(&format!("  … and {} more (--format json lists all)", all.len() - FAILURES));
    }
    text
}
