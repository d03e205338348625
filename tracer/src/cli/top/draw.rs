//! From state to screen.

mod gpus;
mod tables;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};
use tracer::live::Snapshot;
use tracer::report::text::plain::{columns, plain};

use super::state::Top;

/// Colours, unless `NO_COLOR` is set and not empty (<https://no-color.org>).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Theme {
    colors: bool,
}

impl Theme {
    pub(super) fn of_environment() -> Self {
        Self { colors: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) }
    }

    #[cfg(test)]
    pub(super) const fn plain() -> Self {
        Self { colors: false }
    }

    fn colored(self, color: Color) -> Style {
        if self.colors { Style::new().fg(color) } else { Style::new() }
    }

    /// What is wrong: told by weight too, for who sees no red.
    fn alarm(self) -> Style {
        self.colored(Color::Red).add_modifier(Modifier::BOLD)
    }

    const fn faint() -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    const fn strong() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }
}

/// Draws the whole screen.
pub(super) fn draw(frame: &mut Frame<'_>, top: &Top, theme: Theme) {
    let snapshot = top.snapshot.as_ref();
    let area = frame.area();
    let notice = snapshot.and_then(|snapshot| snapshot.notices.last());
    let of_gpus = snapshot.map_or(0, |snapshot| gpus::height(snapshot, area));
    let [head, cards, body, note, foot] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(of_gpus),
        Constraint::Min(0),
        Constraint::Length(u16::from(notice.is_some())),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(title(snapshot, area.width, theme), head);
    if let Some(snapshot) = snapshot {
        gpus::draw(frame, cards, snapshot, theme);
    }
    match snapshot.filter(|snapshot| !snapshot.rows.is_empty()) {
        Some(snapshot) => tables::draw(frame, body, top, snapshot, theme),
        None => frame.render_widget(waiting(top), body),
    }
    if let Some(text) = notice {
        let text = plain(text);
        frame.render_widget(Line::styled(format!(" ! {text}"), Theme::faint()), note);
    }
    frame.render_widget(keys(top), foot);
    if top.help {
        help(frame, area);
    }
}

fn title(snapshot: Option<&Snapshot>, width: u16, theme: Theme) -> Line<'static> {
    let mut spans = vec![Span::styled(" vramtrace top", Theme::strong())];
    let Some(snapshot) = snapshot else { return Line::from(spans) };
    let seconds = snapshot.status.t.saturating_sub(snapshot.begun) / 1_000_000_000;
    let time = format!("{}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60);
    let driver = snapshot.driver.as_ref().map(|driver| format!("driver {driver}"));
    let count = |n: u64, one: &str, many: &str| if n == 1 { format!("1 {one}") } else { format!("{n} {many}") };
    let processes = count(snapshot.status.processes as u64, "process", "processes");
    let events = count(snapshot.status.events, "event", "events");
    spans.push(Span::raw(format!(" · {time} · {processes} · ")));
    spans.push(match snapshot.lost_events() {
        0 => Span::raw("0 lost"),
        lost => Span::styled(format!("{lost} LOST"), theme.alarm()),
    });
    // What a narrow screen can do without.
    let mut room = usize::from(width).saturating_sub(spans.iter().map(Span::width).sum());
    let more = [driver, Some(events), Some(snapshot.host.clone())].into_iter().flatten();
    for part in more.filter(|part| !part.is_empty()).map(|part| format!(" · {part}")) {
        match room.checked_sub(columns(&part)) {
            Some(left) => room = left,
            None => break,
        }
        spans.push(Span::styled(part, Theme::faint()));
    }
    Line::from(spans)
}

fn waiting(top: &Top) -> Paragraph<'static> {
    let whose = top.pattern.as_ref().map(|pattern| format!("\nwhose command line matches {pattern}"));
    let Some(snapshot) = &top.snapshot else { return Paragraph::new("\nreading …").centered() };
    let probes = snapshot.status.probes;
    let text = format!(
        "\nWaiting for a process that holds GPU memory{}\n\n{probes} probes are placed; it is seen from its first call.",
        whose.unwrap_or_default()
    );
    Paragraph::new(text).centered().wrap(Wrap { trim: true })
}

fn keys(top: &Top) -> Line<'static> {
    if top.typing {
        return Line::from(format!(" / {}_   Enter keeps, Esc clears", top.level().filter));
    }
    let out = if top.levels.len() > 1 { "Esc back  " } else { "" };
    Line::styled(format!(" {out}Enter open  s sort  r reverse  / filter  ? help  q quit"), Theme::faint())
}

const HELP: &str = "\
Enter →   into a rank: its memory by phase, kind and owner;
          into these: call stacks; into a stack: its frames
Esc ←     back out (or clears the filter)
↑ ↓ j k   move; PageUp, PageDown, Home, End
s  r      sort ranks by the next column; reversed
/         filter: only what holds this text
q         quit: all probes go, the server goes on

LIVE is what the driver charges now, PEAK the most at once
since tracing began, RATE/S what a second added or took, FAIL
calls that failed for want of memory or otherwise. In bars:
█ traced, ▒ others and the driver's own, · free.";

fn help(frame: &mut Frame<'_>, area: Rect) {
    let height = HELP.lines().count() as u16 + 2;
    let [area] = Layout::horizontal([Constraint::Length(64)]).flex(ratatui::layout::Flex::Center).areas(area);
    let [area] = Layout::vertical([Constraint::Length(height)]).flex(ratatui::layout::Flex::Center).areas(area);
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(HELP).block(Block::bordered().title(" help: any key closes it ")), area);
}
