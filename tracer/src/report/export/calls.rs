//! API calls: read from the trace once more, for a book does not keep them.

use std::collections::HashMap;

use super::{Error, Job};
use crate::ledger::{Allocation, Book, Kind, Owner};
use crate::lifecycle::{Axes, Axis};
use crate::trace::Reader;
use crate::trace::record::{Call, Record};

/// Which of a book's processes a pid means at a time.
pub(super) struct Lives(HashMap<u32, Vec<(u64, usize)>>);

impl Lives {
    pub(super) fn new(book: &Book) -> Self {
        let mut lives: HashMap<u32, Vec<(u64, usize)>> = HashMap::new();
        for (number, process) in book.processes.iter().enumerate() {
            lives.entry(process.pid).or_default().push((process.born, number));
        }
        Self(lives)
    }

    /// The last process with that pid that had appeared by then, or else the first.
    pub(super) fn at(&self, pid: u32, t: u64) -> Option<usize> {
        let lives = self.0.get(&pid)?;
        let by_then = lives.iter().rfind(|(born, _)| *born <= t);
        by_then.or(lives.first()).map(|(_, number)| *number)
    }
}

/// Gives each call of the trace to `visit`, with the process that made it. What is damaged was noted when the book was read.
pub(super) fn each(job: &Job<'_>, mut visit: impl FnMut(&Call, usize) -> Result<(), Error>) -> Result<(), Error> {
    if std::fs::metadata(job.trace).is_ok_and(|found| !found.is_file()) {
        return Err(Error::Pipe(job.trace.display().to_string()));
    }
    let lives = Lives::new(job.axes.book());
    for record in Reader::open(job.trace)?.flatten() {
        if let Record::Call(call) = record
            && let Some(process) = lives.at(call.pid, call.start.min(call.t))
        {
            visit(&call, process)?;
        }
    }
    Ok(())
}

/// Phase in which a call was made, by the rules that decide for memory.
pub(super) fn phase(axes: &Axes<'_>, call: &Call, process: usize) -> u32 {
    // The same evidence as for memory made inside it.
    let inside = Allocation {
        process,
        tid: call.tid,
        gpu: 0,
        bytes: 0,
        born: call.start,
        died: None,
        kind: Kind::Other,
        owner: Owner("unknown".into()),
        calls: [call.api.clone()].into(),
        stack: call.stack,
        evidence: "",
    };
    axes.cell(Axis::Phase, &inside)
}
