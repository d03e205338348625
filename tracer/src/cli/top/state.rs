//! What the screen shows, and how snapshots change it. Nothing here knows of a terminal.

use std::collections::HashMap;

use tracer::live::{Row, Snapshot, State};

use super::levels::{Level, View};

/// Column that ranks are sorted by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Sort {
    /// The order of reports.
    #[default]
    Rank,
    Live,
    Peak,
    Rate,
    Failures,
}

impl Sort {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Rank => Self::Live,
            Self::Live => Self::Peak,
            Self::Peak => Self::Rate,
            Self::Rate => Self::Failures,
            Self::Failures => Self::Rank,
        }
    }
}

/// A row of the table apart from any snapshot: process and GPU.
pub(super) type RowKey = (usize, String);

/// The whole state.
#[derive(Debug, Default)]
pub(super) struct Top {
    pub(super) snapshot: Option<Snapshot>,
    /// Bytes a second that each row gained, between the last two snapshots.
    rates: HashMap<RowKey, i64>,
    pub(super) sort: Sort,
    pub(super) reversed: bool,
    /// What was gone into, outermost first; never empty.
    pub(super) levels: Vec<Level>,
    /// The filter is being typed.
    pub(super) typing: bool,
    pub(super) help: bool,
    /// What is waited for, while there is nothing.
    pub(super) pattern: Option<String>,
}

impl Top {
    pub(super) fn new(pattern: Option<String>) -> Self {
        Self { levels: vec![Level::new(View::Ranks)], pattern, ..Self::default() }
    }

    /// A new snapshot came.
    pub(super) fn update(&mut self, snapshot: Snapshot) {
        if let Some(before) = &self.snapshot {
            let seconds = snapshot.status.t.saturating_sub(before.status.t) as f64 / 1e9;
            if seconds > 0.0 {
                let old: HashMap<RowKey, u64> = before.rows.iter().map(|row| (key(before, row), row.live)).collect();
                let rate = |row: &Row| {
                    let key = key(&snapshot, row);
                    let gained = i128::from(row.live) - i128::from(old.get(&key).copied().unwrap_or(0));
                    (key, (gained as f64 / seconds).round() as i64)
                };
                self.rates = snapshot.rows.iter().map(rate).collect();
            }
        }
        self.snapshot = Some(snapshot);
        self.clamp();
    }

    pub(super) fn rate(&self, snapshot: &Snapshot, row: &Row) -> i64 {
        self.rates.get(&key(snapshot, row)).copied().unwrap_or(0)
    }

    pub(super) fn level(&self) -> &Level {
        &self.levels[self.levels.len() - 1]
    }

    pub(super) fn level_mut(&mut self) -> &mut Level {
        let last = self.levels.len() - 1;
        &mut self.levels[last]
    }

    /// Rows of the table of ranks, filtered and sorted. Those of processes that are gone stand last.
    pub(super) fn ranks(&self) -> Vec<&Row> {
        let Some(snapshot) = &self.snapshot else { return Vec::new() };
        let mut rows: Vec<&Row> =
            snapshot.rows.iter().filter(|row| self.levels[0].lets(&shown(snapshot, row))).collect();
        // The biggest first, but for ranks, which count from 0.
        let by = |row: &Row| match self.sort {
            Sort::Rank => 0,
            Sort::Live => -i128::from(row.live),
            Sort::Peak => -i128::from(row.peak),
            Sort::Rate => -i128::from(self.rate(snapshot, row)),
            Sort::Failures => -i128::from(row.failures.0 + row.failures.1),
        };
        if self.reversed {
            rows.reverse();
            rows.sort_by_key(|row| (row.state != State::Runs, -by(row)));
        } else {
            rows.sort_by_key(|row| (row.state != State::Runs, by(row)));
        }
        rows
    }

    /// Lines of the current view.
    pub(super) fn count(&self) -> usize {
        match &self.level().view {
            View::Ranks => self.ranks().len(),
            View::Cells(row) => self.cells(row).len(),
            View::Stacks(row, cell) => self.parts(row, cell).len(),
            View::Frames(stack) => self.frames(*stack).len(),
        }
    }

    /// Moves the selection.
    pub(super) fn move_by(&mut self, lines: isize) {
        let selected = self.level().selected.saturating_add_signed(lines);
        self.level_mut().selected = selected;
        self.clamp();
    }

    pub(super) fn clamp(&mut self) {
        let last = self.count().saturating_sub(1);
        let level = self.level_mut();
        level.selected = level.selected.min(last);
    }
}

pub(super) fn key(snapshot: &Snapshot, row: &Row) -> RowKey {
    (row.process, snapshot.gpus[row.gpu].label.clone())
}

/// What the filter looks at in a row of ranks.
fn shown(snapshot: &Snapshot, row: &Row) -> String {
    format!("{} {} {} {}", row.rank, row.pid, snapshot.gpus[row.gpu].label, row.phase)
}
