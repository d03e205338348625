//! Traces recorded on real GPUs (`tests/traces`), as tests read them: `NAME.vrt`, and in `NAME.txt` what was read beside it.

use std::path::PathBuf;

use tracer::ledger::Book;

/// A file of `tests/traces`.
#[must_use]
pub fn path(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("traces").join(file)
}

/// The number in a line's `NAME=NUMBER`; `None` without one.
#[must_use]
pub fn field(line: &str, name: &str) -> Option<u64> {
    line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='))?.parse().ok()
}

/// At least `least` samples were quiet, and in each of them NVML said what the ledger held.
///
/// # Panics
/// Otherwise.
pub fn samples_agree(name: &str, book: &Book, least: usize) {
    let quiet: Vec<_> = book.samples.iter().filter(|sample| sample.quiet).collect();
    assert!(quiet.len() >= least, "{name}: {} quiet samples", quiet.len());
    for sample in quiet {
        assert_eq!(sample.live, sample.nvml, "{name}: at {} of process {}", sample.t, sample.process);
    }
}
