//! Tables of at most [`WIDTH`] columns.

use comfy_table::{CellAlignment, LineStyle, TableStyle};

use super::plain::{columns, fit, plain};

/// Columns a report may take.
pub const WIDTH: usize = 100;
/// Columns left of a table.
const INDENT: usize = 1;
/// Blanks around a cell, one on each side.
const PADDING: usize = 2;
/// Narrowest a column of names may become.
const NARROWEST: usize = 3;

/// How a column is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// Names: left-aligned, shortened when the table is too wide.
    Name(&'static str),
    /// Numbers: right-aligned, never shortened.
    Number(&'static str),
}

impl Column {
    fn title(self) -> &'static str {
        let (Self::Name(title) | Self::Number(title)) = self;
        title
    }
}

/// A table under construction.
#[derive(Clone, Debug)]
pub struct Table {
    columns: Vec<Column>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    #[must_use]
    pub fn new(columns: Vec<Column>) -> Self {
        Self { columns, rows: Vec::new() }
    }

    /// Adds a row; control characters in it are written out.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| plain(&cell)).collect());
    }

    /// The table as lines, each ended.
    #[must_use]
    pub fn render(&self) -> String {
        let widths = self.widths();
        let line = LineStyle::none().fill('─');
        let mut table = comfy_table::Table::new();
        table.load_style(TableStyle::new().header_separator(line));
        table.set_header(self.columns.iter().zip(&widths).map(|(column, width)| fit(column.title(), *width)));
        table.add_rows(self.rows.iter().map(|row| row.iter().zip(&widths).map(|(cell, width)| fit(cell, *width))));
        for (n, column) in self.columns.iter().enumerate() {
            if let (Column::Number(_), Some(set)) = (column, table.column_mut(n)) {
                set.set_cell_alignment(CellAlignment::Right);
            }
        }
        let indent = " ".repeat(INDENT);
        table.lines().map(|line| format!("{}\n", format!("{indent}{line}").trim_end())).collect()
    }

    /// Widths of the columns: their content's, the widest names shortened until the table fits.
    fn widths(&self) -> Vec<usize> {
        let content = |n: usize| self.rows.iter().filter_map(move |row| row.get(n)).map(|cell| columns(cell)).max();
        let mut widths: Vec<usize> = (self.columns.iter().enumerate())
            .map(|(n, column)| columns(column.title()).max(content(n).unwrap_or(0)))
            .collect();
        let room = WIDTH.saturating_sub(INDENT + PADDING * widths.len());
        while widths.iter().sum::<usize>() > room {
            let names = self.columns.iter().zip(&mut widths).filter(|(column, _)| matches!(column, Column::Name(_)));
            let Some((_, widest)) = names.max_by_key(|(_, width)| **width).filter(|(_, width)| **width > NARROWEST)
            else {
                break;
            };
            *widest -= 1;
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_left_numbers_right() {
        let mut table = Table::new(vec![Column::Name("Process"), Column::Number("Live")]);
        table.row(["7 server".to_owned(), "518.0 MiB".to_owned()]);
        table.row(["8".to_owned(), "0 B".to_owned()]);
        let expected = "  Process        Live\n ─────────────────────\n  7 server  518.0 MiB\n  8               0 B\n";
        assert_eq!(table.render(), expected);
    }

    #[test]
    fn long_names_give_way_to_numbers() {
        let mut table = Table::new(vec![Column::Name("A"), Column::Number("N"), Column::Name("B")]);
        table.row(["a".repeat(300), "1".repeat(20), "b".repeat(60)]);
        let text = table.render();
        assert!(text.lines().all(|line| columns(line) <= WIDTH), "{text}");
        assert!(text.contains(&"1".repeat(20)), "{text}");
    }

    #[test]
    fn an_empty_table_is_its_head() {
        assert_eq!(Table::new(vec![Column::Name("A")]).render().lines().count(), 2);
    }
}
