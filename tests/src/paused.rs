//! What `torch_memory_saver` gives back and will take again, traced.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, ensure};
use tracer::ledger::{Allocation, Book};
use tracer::lifecycle::Axes;
use tracer::report::At;
use tracer::report::paused::paused;
use tracer::report::query::Moments;

use crate::live::{book, vramtrace};
use crate::sim::Sim;
use crate::truth::What;

/// Paused MiB at each mark of the scenario `memory_saver`.
const PAUSED: [(&str, u64); 7] = [
    ("allocated", 0),
    ("cache paused", 200),
    ("all paused", 230),
    ("weights resumed", 200),
    ("all resumed", 0),
    ("freed", 0),
    ("paused again", 130),
];

/// Runs the scenario with the libraries in `first` before the simulated ones: at each mark the report must have as paused what
/// is paused, and the ledger what the driver has.
///
/// # Errors
/// When it has not, or the scenario fails.
pub fn is_told_apart(sim: &Sim, first: Option<&Path>) -> Result<()> {
    let file = sim.scratch().join("paused.vrt");
    let scenario = sim.program("scenario");
    let mut command = sim.command(&vramtrace()?.to_string_lossy())?;
    if let (Some(first), Some(simulated)) = (first, scenario.parent()) {
        command.env("LD_LIBRARY_PATH", format!("{}:{}", first.display(), simulated.display()));
    }
    command.args(["run", "--as-root", "-o"]).arg(&file).arg("--").arg(&scenario).arg("memory_saver");
    let output = command.output()?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let book = book(&file)?;
    let axes = Axes::new(&book);
    let mut seen = Vec::new();
    for event in sim.settled()?.events {
        let What::Mark { name, live, .. } = event.what else { continue };
        let ledger = book.live_at(event.t, |_| true);
        ensure!(ledger == live, "{name}: {ledger} bytes, truth {live}");
        let since = Duration::from_nanos(event.t - book.header.t);
        let paused = paused(&axes, &Moments::new(&axes, At::Time(since))?);
        seen.push((name, paused.iter().map(|paused| paused.bytes >> 20).sum::<u64>()));
    }
    let expected: Vec<(String, u64)> = PAUSED.iter().map(|(name, mib)| ((*name).to_owned(), *mib)).collect();
    ensure!(seen == expected, "{seen:?}");
    every_resumption_is_known(&book)
}

/// Which memory each took the place of, by its address.
fn every_resumption_is_known(book: &Book) -> Result<()> {
    let is_resumed = |row: &Allocation| row.calls.iter().any(|call| call == "tms_resume");
    let resumed: Vec<u32> = (0..).zip(&book.allocations).filter(|(_, row)| is_resumed(row)).map(|(n, _)| n).collect();
    ensure!(!resumed.is_empty() && resumed.iter().eq(book.resumed.keys()), "{resumed:?}, {:?}", book.resumed);
    for (row, first) in &book.resumed {
        let [row, first] = [row, first].map(|n| &book.allocations[*n as usize]);
        ensure!(row.bytes == first.bytes && !is_resumed(first) && first.born < row.born, "{row:?} was {first:?}");
    }
    Ok(())
}
