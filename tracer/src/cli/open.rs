//! Opening traces.

use std::io::ErrorKind;
use std::mem::ManuallyDrop;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;

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

/// Reads two traces at once.
pub(super) fn books(paths: [&Path; 2]) -> anyhow::Result<[ManuallyDrop<Book>; 2]> {
    let [base, other] = both(paths, book);
    Ok([kept(base?), kept(other?)])
}

/// Spares a program that is about to end the work of taking apart what the system takes back at once.
pub(super) fn kept<T>(value: T) -> ManuallyDrop<T> {
    ManuallyDrop::new(value)
}

/// Does the same with two at once.
pub(super) fn both<P: Send, T: Send>([base, other]: [P; 2], work: impl Fn(P) -> T + Sync) -> [T; 2] {
    thread::scope(|scope| {
        let other = scope.spawn(|| work(other));
        [work(base), other.join().unwrap_or_else(|panic| resume_unwind(panic))]
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
