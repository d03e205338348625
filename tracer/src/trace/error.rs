//! What can go wrong with a trace file.

use std::io;

/// Why a trace file could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused.
    #[error("{path}: {source}")]
    Io {
        /// File as the user named it, or `trace` for a stream.
        path: String,
        /// What the system said.
        source: io::Error,
    },
    /// The output exists and `force` was not given.
    #[error("{0}: exists; use another name or allow overwriting")]
    Exists(String),
    /// The output was removed while it was written.
    #[error("{0}: was removed while it was written; what it held is gone")]
    Removed(String),
    /// The output is not something to overwrite.
    #[error("{path}: not overwritten: {why}")]
    Unsafe {
        /// File.
        path: String,
        /// What it is instead.
        why: &'static str,
    },
    /// The input is no trace.
    #[error("{path}: not a vramtrace file: {why}")]
    NotATrace {
        /// File.
        path: String,
        /// What was found instead.
        why: &'static str,
    },
    /// A later, incompatible format.
    #[error("{path}: format {major} was written by a newer vramtrace ({tool}); this one reads up to {supported}")]
    Newer {
        /// File.
        path: String,
        /// Its major version.
        major: u32,
        /// Version of the program that wrote it.
        tool: String,
        /// Highest major version this program reads.
        supported: u32,
    },
    /// The file is damaged; all before it was read.
    #[error("{path}: damaged after line {line}: {why}")]
    Damaged {
        /// File.
        path: String,
        /// Last good line, counted from 1.
        line: u64,
        /// What is wrong with what follows.
        why: String,
    },
    /// A record could not be encoded.
    #[error("cannot encode a record: {0}")]
    Encode(#[from] serde_json::Error),
}

impl Error {
    pub(super) fn io(path: &str, source: io::Error) -> Self {
        Self::Io { path: path.to_owned(), source }
    }
}
