//! The table of the current level.

use ratatui::Frame;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::Text;
use ratatui::widgets::{Block, Borders, Cell, Row, Table, TableState};
use tracer::live::{self, Snapshot, State};
use tracer::report::bytes::{human, signed};
use tracer::report::text::plain::{columns, fit};

use super::Theme;
use crate::cli::top::levels::View;
use crate::cli::top::state::{RowKey, Sort, Top};

/// A table to draw: its head, the widths of its columns, its rows.
struct Shown {
    head: Row<'static>,
    widths: Vec<Constraint>,
    rows: Vec<Row<'static>>,
}

/// Draws it, with where we are as its title.
pub(super) fn draw(frame: &mut Frame<'_>, area: Rect, top: &Top, snapshot: &Snapshot, theme: Theme) {
    let shown = match &top.level().view {
        View::Ranks => ranks(top, snapshot, area.width, theme),
        View::Cells(row) => cells(top, row, theme),
        View::Stacks(row, cell) => {
            let line = |(part, asked): (&live::Part, String)| vec![asked, part.count.to_string(), human(part.live)];
            let lines = top.parts(row, cell).into_iter().map(line).collect();
            listed(
                ["CALLED BY", "COUNT", "LIVE"],
                &[Constraint::Fill(1), Constraint::Length(7), Constraint::Length(11)],
                lines,
                1,
            )
        }
        View::Frames(stack) => {
            let lines = top.frames(*stack).into_iter().map(|frame| vec![frame]).collect();
            listed(["FRAME, INNERMOST FIRST"], &[Constraint::Fill(1)], lines, 1)
        }
    };
    let mut state = TableState::default().with_selected((!shown.rows.is_empty()).then_some(top.level().selected));
    let table = Table::new(shown.rows, shown.widths)
        .header(shown.head.style(Theme::strong()))
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED))
        .block(Block::new().borders(Borders::TOP).title(place(top, snapshot, area.width)));
    frame.render_stateful_widget(table, area, &mut state);
}

/// Where we are: ` ranks › TP0 on GPU 0 › kv_cache cuda_malloc torch [filter: x] `. A filter is told whatever the width: it
/// hides something.
fn place(top: &Top, snapshot: &Snapshot, width: u16) -> String {
    let of_row = |row: &RowKey| {
        let name = snapshot.rows.iter().find(|known| known.process == row.0).map(|known| known.rank.as_str());
        format!("{} on {}", name.unwrap_or("gone"), row.1)
    };
    let name = |view: &View| match view {
        View::Ranks => "ranks".to_owned(),
        View::Cells(row) => of_row(row),
        View::Stacks(_, (phase, kind, owner)) => format!("{phase} {kind} {owner}"),
        View::Frames(Some(stack)) => format!("stack {stack}"),
        View::Frames(None) => "no stack".to_owned(),
    };
    let names: Vec<String> = top.levels.iter().map(|level| name(&level.view)).collect();
    let filter = &top.level().filter;
    let filter = if filter.is_empty() { String::new() } else { format!("[filter: {filter}] ") };
    let room = usize::from(width).saturating_sub(columns(&filter) + 2);
    format!(" {} {filter}", fit(&names.join(" › "), room))
}

/// Text on the right.
fn right(text: String) -> Cell<'static> {
    Cell::from(Text::from(text).right_aligned())
}

/// Columns of which those from `numbers` on stand on the right.
fn listed<const N: usize>(head: [&str; N], widths: &[Constraint], lines: Vec<Vec<String>>, numbers: usize) -> Shown {
    let row = |line: Vec<String>| {
        let cell = |(n, text): (usize, String)| if n < numbers { Cell::from(text) } else { right(text) };
        Row::new(line.into_iter().enumerate().map(cell).collect::<Vec<_>>())
    };
    let head = row(head.iter().map(|&text| text.to_owned()).collect());
    Shown { head, widths: widths.to_vec(), rows: lines.into_iter().map(row).collect() }
}

/// Columns after the first, in the table of ranks: width, name, what sorts by it.
const COLUMNS: [(u16, &str, Option<Sort>); 6] = [
    (6, "GPU", None),
    (18, "PHASE", None),
    (11, "LIVE", Some(Sort::Live)),
    (11, "PEAK", Some(Sort::Peak)),
    (11, "RATE/S", Some(Sort::Rate)),
    (5, "FAIL", Some(Sort::Failures)),
];

fn ranks(top: &Top, snapshot: &Snapshot, width: u16, theme: Theme) -> Shown {
    let fixed: u16 = COLUMNS.iter().map(|(width, ..)| width + 1).sum();
    let room = usize::from(width.saturating_sub(fixed).max(8));
    let arrow = |sort: Sort| match (top.sort == sort, top.reversed) {
        (false, _) => "",
        (true, false) => "▾",
        (true, true) => "▴",
    };
    let mut head = vec![Cell::from(format!("RANK{}", arrow(Sort::Rank)))];
    head.extend(COLUMNS.iter().map(|(_, name, sort)| match sort {
        Some(sort) => right(format!("{name}{}", arrow(*sort))),
        None => Cell::from(*name),
    }));
    let row = |row: &live::Row| {
        let (oom, other) = row.failures;
        let failures = right((oom + other).to_string());
        let cells = vec![
            Cell::from(fit(&row.rank, room)),
            Cell::from(snapshot.gpus[row.gpu].label.clone()),
            Cell::from(fit(&phase(row), usize::from(COLUMNS[1].0))),
            right(human(row.live)),
            right(human(row.peak)),
            right(rate(top.rate(snapshot, row))),
            if oom + other > 0 { failures.style(theme.alarm()) } else { failures },
        ];
        let style = if row.state == State::Runs { Style::new() } else { Theme::faint() };
        Row::new(cells).style(style)
    };
    let mut widths = vec![Constraint::Fill(1)];
    widths.extend(COLUMNS.iter().map(|(width, ..)| Constraint::Length(*width)));
    Shown { head: Row::new(head), widths, rows: top.ranks().into_iter().map(row).collect() }
}

/// Phase of a process, or how it ended.
fn phase(row: &live::Row) -> String {
    match row.state {
        State::Runs => row.phase.clone(),
        State::Exited(Some(code)) => format!("exited ({code})"),
        State::Exited(None) => "exited".to_owned(),
        State::Killed(signal) => format!("killed ({signal})"),
    }
}

/// Nothing reads better than a column of zeros.
fn rate(rate: i64) -> String {
    if rate == 0 { "-".to_owned() } else { signed(rate) }
}

fn cells(top: &Top, row: &RowKey, theme: Theme) -> Shown {
    let line = |cell: &live::Cell| {
        let own = [&cell.phase, &cell.kind, &cell.owner].map(|text| Cell::from(text.clone()));
        let style =
            if cell.phase == tracer::lifecycle::UNATTRIBUTED { theme.colored(Color::Yellow) } else { Style::new() };
        Row::new(own.into_iter().chain([right(cell.count.to_string()), right(human(cell.live))])).style(style)
    };
    let head = ["PHASE", "KIND", "OWNER"].map(Cell::from).into_iter().chain(["COUNT", "LIVE"].map(|t| right(t.into())));
    let widths = [Constraint::Fill(2), Constraint::Fill(1), Constraint::Fill(1)].into_iter();
    Shown {
        head: Row::new(head),
        widths: widths.chain([Constraint::Length(7), Constraint::Length(11)]).collect(),
        rows: top.cells(row).into_iter().map(line).collect(),
    }
}
