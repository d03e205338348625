//! Texts of the table, each held once.

use std::collections::HashMap;

use parquet::data_type::ByteArray;

use super::columns::Row;
use crate::lifecycle::{Axes, Axis};

/// A text, on its way into the table.
pub(super) fn text(text: &str) -> ByteArray {
    text.as_bytes().to_vec().into()
}

pub(super) struct Names<'a> {
    axes: &'a Axes<'a>,
    texts: HashMap<String, ByteArray>,
    cells: HashMap<(Axis, u32), ByteArray>,
    gpus: Vec<ByteArray>,
    uuids: Vec<ByteArray>,
}

impl<'a> Names<'a> {
    pub(super) fn new(axes: &'a Axes<'a>) -> Self {
        let gpus = &axes.book().gpus;
        Self {
            axes,
            texts: HashMap::new(),
            cells: HashMap::new(),
            gpus: (0..gpus.len()).map(|gpu| text(&axes.gpu(gpu))).collect(),
            uuids: gpus.iter().map(|gpu| text(&gpu.uuid)).collect(),
        }
    }

    /// The text, shared with all rows that have it.
    pub(super) fn text(&mut self, name: &str) -> Option<ByteArray> {
        if !self.texts.contains_key(name) {
            self.texts.insert(name.to_owned(), text(name));
        }
        self.texts.get(name).cloned()
    }

    /// Name of a cell.
    pub(super) fn cell(&mut self, axis: Axis, cell: u32) -> Option<ByteArray> {
        let name = || text(&self.axes.label(axis, cell));
        Some(self.cells.entry((axis, cell)).or_insert_with(name).clone())
    }

    /// Fills in what says which GPU is meant.
    pub(super) fn gpu(&self, row: &mut Row, gpu: usize) {
        let known = self.axes.book().gpus.get(gpu);
        row.device = known.and_then(|gpu| gpu.index).map(i64::from);
        row.gpu = self.gpus.get(gpu).cloned();
        row.gpu_uuid = self.uuids.get(gpu).filter(|uuid| !uuid.is_empty()).cloned();
    }
}
