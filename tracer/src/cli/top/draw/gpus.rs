//! GPUs: a bar each.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Color;
use ratatui::text::{Line, Span};
use tracer::live::{Gpu, Snapshot};
use tracer::report::bytes::human;

use super::Theme;

/// GPUs from which on two share a line.
const PAIRED: usize = 3;
/// Columns from which on all is told of a GPU.
const WIDE: u16 = 100;
/// Columns of a bar.
const BAR: (u16, u16) = (8, 30);

/// Lines that GPUs take; at most a third of the screen.
pub(super) fn height(snapshot: &Snapshot, area: Rect) -> u16 {
    let lines = snapshot.gpus.len().div_ceil(columns(snapshot));
    u16::try_from(lines).unwrap_or(u16::MAX).min(area.height / 3)
}

fn columns(snapshot: &Snapshot) -> usize {
    if snapshot.gpus.len() < PAIRED { 1 } else { 2 }
}

/// Draws them.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, snapshot: &Snapshot, theme: Theme) {
    let columns = columns(snapshot);
    let halves = Layout::horizontal(vec![Constraint::Fill(1); columns]).split(area);
    for (n, gpu) in snapshot.gpus.iter().enumerate() {
        let (line, half) = (u16::try_from(n / columns).unwrap_or(u16::MAX), halves[n % columns]);
        if line < area.height {
            let area = Rect { y: area.y + line, height: 1, ..half };
            frame.render_widget(card(gpu, half.width, columns > 1, theme), area);
        }
    }
}

fn card(gpu: &Gpu, width: u16, is_short: bool, theme: Theme) -> Line<'static> {
    let mut spans = vec![Span::raw(format!(" {:<6}", gpu.label))];
    let traced = human(gpu.traced);
    let (Some(total), Some((used, free))) = (gpu.total, gpu.memory) else {
        spans.push(Span::raw(format!(" {traced} traced; NVML says nothing of it")));
        return Line::from(spans);
    };
    let room = (width / 4).clamp(BAR.0, BAR.1);
    let of_bar = |bytes: u64| {
        let cells = (u128::from(bytes) * u128::from(room)).div_ceil(u128::from(total.max(1)));
        usize::try_from(cells).unwrap_or(0).min(usize::from(room))
    };
    let (ours, all) = (of_bar(gpu.traced), of_bar(used.max(gpu.traced)));
    spans.push(Span::styled("█".repeat(ours), theme.colored(Color::Cyan)));
    spans.push(Span::raw("▒".repeat(all - ours)));
    spans.push(Span::raw("·".repeat(usize::from(room) - all)));
    let (free, total) = (human(free), human(total));
    spans.push(Span::raw(if is_short {
        format!(" {free} free")
    } else {
        let used = if width < WIDE { String::new() } else { format!(" {} used,", human(used)) };
        format!(" {traced} traced,{used} {free} free of {total}")
    }));
    Line::from(spans)
}
