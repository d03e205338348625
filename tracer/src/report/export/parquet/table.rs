//! The file: rows are gathered into row groups, and each group is written a column at a time.

use std::sync::Arc;

use parquet::basic::{Compression, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int64Type};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::parser::parse_message_type;

use super::columns::{COLUMNS, Get, Row};
use super::{Error, Sink, about, failed, names};
use crate::ledger::Book;
use crate::report::frames;

/// Rows of a group. `DuckDB` reads groups in parallel and makes them of this size itself.
const GROUP: usize = 122_880;
/// Rows whose values are put together at once.
const BATCH: usize = 1024;

/// The table while it is being written.
pub(super) struct Table<'b, 'w, 's> {
    writer: SerializedFileWriter<&'w mut Sink<'s>>,
    rows: Vec<Row>,
    book: &'b Book,
    frames: Vec<ByteArray>,
}

impl<'b, 'w, 's> Table<'b, 'w, 's> {
    pub(super) fn new(book: &'b Book, to: &'w mut Sink<'s>) -> Result<Self, Error> {
        let schema = Arc::new(parse_message_type(&schema()).map_err(failed)?);
        let facts = about(book).into_iter().map(|(key, value)| KeyValue::new(key, value)).collect();
        let properties = WriterProperties::builder()
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(concat!("vramtrace ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(facts))
            .build();
        let writer = SerializedFileWriter::new(to, schema, Arc::new(properties)).map_err(failed)?;
        let frames = book.frames.iter().map(|frame| names::text(&frames::describe(frame))).collect();
        Ok(Self { writer, rows: Vec::new(), book, frames })
    }

    pub(super) fn push(&mut self, row: Row) -> Result<(), Error> {
        self.rows.push(row);
        if self.rows.len() == GROUP { self.group() } else { Ok(()) }
    }

    pub(super) fn finish(mut self) -> Result<(), Error> {
        if !self.rows.is_empty() {
            self.group()?;
        }
        self.writer.close().map_err(failed).map(|_| ())
    }

    fn group(&mut self) -> Result<(), Error> {
        let mut group = self.writer.next_row_group().map_err(failed)?;
        for (_, get) in &COLUMNS {
            let Some(mut column) = group.next_column().map_err(failed)? else { break };
            for rows in self.rows.chunks(BATCH) {
                match get {
                    Get::Int(get) | Get::Time(get) => {
                        ints(&mut column, &rows.iter().map(get).collect::<Vec<_>>(), None)
                    }
                    Get::Maybe(get) => {
                        let values: Vec<i64> = rows.iter().filter_map(get).collect();
                        ints(&mut column, &values, Some(&present(rows, |row| get(row).is_some())))
                    }
                    Get::Text(get) => {
                        let values: Vec<ByteArray> = rows.iter().filter_map(|row| get(row).cloned()).collect();
                        texts(&mut column, &values, &present(rows, |row| get(row).is_some()), None)
                    }
                    Get::Stack(get) => {
                        let stacks = rows.iter().map(|row| self.book.stacks.get(get(row)? as usize));
                        let (values, defined, repeated) = lists(stacks, &self.frames);
                        texts(&mut column, &values, &defined, Some(&repeated))
                    }
                }?;
            }
            column.close().map_err(failed)?;
        }
        group.close().map_err(failed)?;
        self.rows.clear();
        Ok(())
    }
}

/// Definition levels of a column that may be null: 1 where it is not.
fn present(rows: &[Row], is_some: impl Fn(&Row) -> bool) -> Vec<i16> {
    rows.iter().map(|row| i16::from(is_some(row))).collect()
}

/// Frames of stacks with the levels of a nullable list: defined 0 is null, 1 an empty list, 2 an element; repeated 1 is an
/// element of the list that the one before is in (Apache Parquet, "Nested Encoding").
fn lists<'a>(
    stacks: impl Iterator<Item = Option<&'a Vec<u32>>>,
    frames: &[ByteArray],
) -> (Vec<ByteArray>, Vec<i16>, Vec<i16>) {
    let (mut values, mut defined, mut repeated) = (Vec::new(), Vec::new(), Vec::new());
    for stack in stacks {
        let numbers = stack.map_or(&[][..], Vec::as_slice);
        let before = values.len();
        values.extend(numbers.iter().filter_map(|number| frames.get(*number as usize).cloned()));
        let count = values.len() - before;
        if count == 0 {
            defined.push(i16::from(stack.is_some()));
            repeated.push(0);
        }
        defined.extend(std::iter::repeat_n(2, count));
        repeated.extend((0..count).map(|n| i16::from(n > 0)));
    }
    (values, defined, repeated)
}

fn ints(column: &mut SerializedColumnWriter<'_>, values: &[i64], defined: Option<&[i16]>) -> Result<(), Error> {
    column.typed::<Int64Type>().write_batch(values, defined, None).map_err(failed).map(|_| ())
}

fn texts(
    column: &mut SerializedColumnWriter<'_>,
    values: &[ByteArray],
    defined: &[i16],
    repeated: Option<&[i16]>,
) -> Result<(), Error> {
    column.typed::<ByteArrayType>().write_batch(values, Some(defined), repeated).map_err(failed).map(|_| ())
}

/// The table's schema in the language of the format's documentation.
fn schema() -> String {
    let column = |(name, get): &(&str, Get)| match get {
        Get::Int(_) => format!("required int64 {name};"),
        Get::Time(_) => format!("required int64 {name} (TIMESTAMP(NANOS,true));"),
        Get::Maybe(_) => format!("optional int64 {name};"),
        Get::Text(_) => format!("optional binary {name} (STRING);"),
        Get::Stack(_) => {
            format!("optional group {name} (LIST) {{ repeated group list {{ required binary element (STRING); }} }}")
        }
    };
    format!("message event {{ {} }}", COLUMNS.iter().map(column).collect::<String>())
}
