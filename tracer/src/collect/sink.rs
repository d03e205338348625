//! Where records go: a trace file, a ledger kept meanwhile, or both.

use std::fs::File;

use crate::ledger::Ledger;
use crate::trace::record::Record;
use crate::trace::{Error, Writer};

/// Takes all records of a session.
///
/// The ledger is pushed to at once: that costs less than to encode the record for the file, and needs no queue that could
/// run over. [`Ledger::fold`] bounds it.
pub struct Sink {
    file: Option<Writer<File>>,
    ledger: Option<Ledger>,
}

impl Sink {
    /// Writes to `file`, if given; keeps a ledger where it is `live`.
    #[must_use]
    pub fn new(file: Option<Writer<File>>, live: bool) -> Self {
        Self { file, ledger: live.then(Ledger::new) }
    }

    /// The ledger so far.
    #[must_use]
    pub const fn ledger(&self) -> Option<&Ledger> {
        self.ledger.as_ref()
    }

    /// Takes a record.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn record(&mut self, record: &Record) -> Result<(), Error> {
        if let Some(ledger) = &mut self.ledger {
            ledger.push_live(record);
        }
        self.file.as_mut().map_or(Ok(()), |file| file.record(record))
    }

    /// Makes all records so far readable in the file.
    ///
    /// # Errors
    /// The file cannot be written, or was removed.
    pub fn flush(&mut self) -> Result<(), Error> {
        let Some(file) = &mut self.file else { return Ok(()) };
        file.flush()?;
        file.check()
    }

    /// Ends the file; gives its size in bytes, 0 without one.
    ///
    /// # Errors
    /// The file cannot be written, or was removed.
    pub fn finish(self) -> Result<u64, Error> {
        let Some(file) = self.file else { return Ok(0) };
        file.check()?;
        Ok(file.finish()?.metadata().map_or(0, |meta| meta.len()))
    }
}
