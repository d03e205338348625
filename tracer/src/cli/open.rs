//! Opening traces.

use std::io::ErrorKind;
use std::path::Path;

use anyhow::anyhow;
use tracer::ledger::Book;
use tracer::trace::Error;

/// Reads the trace at `path` into a ledger. One that breaks off is read up to there; its report says so.
pub(super) fn book(path: &Path) -> anyhow::Result<Book> {
    if path == Path::new("-") {
        return Err(anyhow!("a trace is read from a file; for standard input give /dev/stdin"));
    }
    Book::read(path).map_err(|error| match remedy(&error) {
        "" => error.into(),
        remedy => anyhow!("{error}; {remedy}"),
    })
}

fn remedy(error: &Error) -> &'static str {
    match error {
        Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => {
            "traces are written by `vramtrace run` and `vramtrace attach`"
        }
        Error::Io { source, .. } if source.kind() == ErrorKind::PermissionDenied => {
            "a trace belongs to the user who made it: read it as that user"
        }
        Error::NotATrace { .. } => "give a file that `vramtrace run` or `vramtrace attach` wrote",
        Error::Newer { .. } => "update vramtrace",
        _ => "",
    }
}
