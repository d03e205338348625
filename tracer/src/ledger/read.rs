//! Reading a book from a file.

use std::path::Path;

use super::{Book, Ledger};
use crate::trace::{Error, Reader};

impl Book {
    /// Reads a trace file. One that is cut off or damaged gives what stands before; [`Book::outcome`] is `None` then, and
    /// damage is a notice.
    ///
    /// # Errors
    /// When the file cannot be opened, is no trace, or is of a newer format.
    pub fn read(path: &Path) -> Result<Self, Error> {
        Ok(Self::of(Reader::open(path)?))
    }

    /// Reads what a reader gives, as [`read`](Self::read) does.
    #[must_use]
    pub fn of(mut reader: Reader) -> Self {
        let mut ledger = Ledger::new();
        while let Some(batch) = reader.batch() {
            match batch {
                Ok(mut records) => {
                    records.iter_mut().for_each(|record| ledger.take(record));
                    reader.done_with(records);
                }
                Err(damage) => ledger.notice(damage.to_string()),
            }
        }
        let mut book = ledger.finish();
        book.unknown_records = reader.unknown();
        book
    }
}
