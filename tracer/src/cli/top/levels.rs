//! Ranks, the cells of a rank, the stacks of a cell, the frames of a stack.

use tracer::live::{Cell, Part, Row};

use super::state::{RowKey, Top, key};

/// A cell apart from any snapshot: phase, kind, owner.
pub(super) type CellKey = (String, String, String);

/// What is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum View {
    Ranks,
    Cells(RowKey),
    Stacks(RowKey, CellKey),
    Frames(Option<u32>),
}

/// A view, what is selected in it, and its filter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Level {
    pub(super) view: View,
    pub(super) selected: usize,
    pub(super) filter: String,
}

impl Level {
    pub(super) fn new(view: View) -> Self {
        Self { view, selected: 0, filter: String::new() }
    }

    /// True for text that the filter lets through.
    pub(super) fn lets(&self, text: &str) -> bool {
        self.filter.is_empty() || text.to_lowercase().contains(&self.filter.to_lowercase())
    }
}

impl Top {
    /// The row of ranks that `wanted` names, while it is there.
    pub(super) fn row(&self, wanted: &RowKey) -> Option<&Row> {
        let snapshot = self.snapshot.as_ref()?;
        snapshot.rows.iter().find(|row| key(snapshot, row) == *wanted)
    }

    fn filter(&self, is_this: impl Fn(&View) -> bool) -> Option<&Level> {
        self.levels.iter().rfind(|level| is_this(&level.view))
    }

    /// Cells of a row, filtered.
    pub(super) fn cells(&self, row: &RowKey) -> Vec<&Cell> {
        let level = self.filter(|view| matches!(view, View::Cells(_)));
        let lets = |cell: &&Cell| {
            level.is_none_or(|level| level.lets(&format!("{} {} {}", cell.phase, cell.kind, cell.owner)))
        };
        self.row(row).map_or(&[][..], |row| &row.cells).iter().filter(lets).collect()
    }

    /// Stacks of a cell, filtered by the frame that is shown of each.
    pub(super) fn parts(&self, row: &RowKey, (phase, kind, owner): &CellKey) -> Vec<(&Part, String)> {
        let is_it = |cell: &&Cell| (&cell.phase, &cell.kind, &cell.owner) == (phase, kind, owner);
        let (Some(row), Some(snapshot)) = (self.row(row), &self.snapshot) else { return Vec::new() };
        let level = self.filter(|view| matches!(view, View::Stacks(..)));
        let parts = row.cells.iter().find(is_it).map_or(&[][..], |cell| &cell.parts);
        let shown = parts.iter().map(|part| (part, snapshot.asked(part.stack)));
        shown.filter(|(_, asked)| level.is_none_or(|level| level.lets(asked))).collect()
    }

    /// Frames of a stack, innermost first, filtered.
    pub(super) fn frames(&self, stack: Option<u32>) -> Vec<String> {
        let frames = self.snapshot.as_ref().map_or_else(Vec::new, |snapshot| snapshot.frames(stack));
        let level = self.filter(|view| matches!(view, View::Frames(_)));
        frames.into_iter().filter(|frame| level.is_none_or(|level| level.lets(frame))).collect()
    }

    /// Goes into what is selected.
    pub(super) fn enter(&mut self) {
        let selected = self.level().selected;
        let next = match &self.level().view {
            View::Ranks => {
                let ranks = self.ranks();
                let (Some(row), Some(snapshot)) = (ranks.get(selected), &self.snapshot) else { return };
                View::Cells(key(snapshot, row))
            }
            View::Cells(row) => {
                let cells = self.cells(row);
                let Some(cell) = cells.get(selected) else { return };
                View::Stacks(row.clone(), (cell.phase.clone(), cell.kind.clone(), cell.owner.clone()))
            }
            View::Stacks(row, cell) => match self.parts(row, cell).get(selected) {
                Some((part, _)) => View::Frames(part.stack),
                None => return,
            },
            View::Frames(_) => return,
        };
        self.levels.push(Level::new(next));
    }

    /// Goes back out; false on the outermost level.
    pub(super) fn leave(&mut self) -> bool {
        let inside = self.levels.len() > 1;
        if inside {
            self.levels.pop();
            self.clamp();
        }
        inside
    }
}
