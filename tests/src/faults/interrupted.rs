//! System calls of the tracer that a signal interrupts, as a stop does that ends again: Ctrl-Z and `fg`, a container that is
//! frozen for a while, a debugger that comes and goes.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::When;
use super::aftermath::{self, Extent};
use super::rounds::{Stage, finished, run_of};
use super::steps::Stepped;

/// Every how many system calls one is interrupted, at the least: a call that is made again must have a chance.
const LEAST: u64 = 2;
/// Distances beyond that one, of which a round has one too.
const OTHERS: u64 = 5;

/// `vramtrace run` with interruptions all the way: it does what it does without.
pub(super) fn tracer_of_run(point: f64) -> Result<When> {
    // How probes are placed, and what is said of it.
    static UNDISTURBED: OnceLock<(String, Vec<String>)> = OnceLock::new();
    if UNDISTURBED.get().is_none() {
        let ways = traced(None)?;
        UNDISTURBED.get_or_init(|| ways);
    }
    let number = u64::from(Duration::from_secs_f64(point).subsec_nanos());
    for every in [LEAST, LEAST + 1 + number / 1000 % OTHERS] {
        let first = number % every;
        let which = || format!("one in {every} system calls, from the {first}th");
        let ways = traced(Some((every, first))).with_context(which)?;
        ensure!(Some(&ways) == UNDISTURBED.get(), "{}: {ways:?}, undisturbed {UNDISTURBED:?}", which());
    }
    Ok(When::During)
}

/// The same work each time, traced with these system calls interrupted; gives the method of the probes, and notices.
fn traced(interrupted: Option<(u64, u64)>) -> Result<(String, Vec<String>)> {
    let stage = Stage::new(5)?;
    let mut tracer = Stepped::start(run_of(&stage)?)?;
    let (every, first) = interrupted.unwrap_or((u64::MAX, u64::MAX));
    let count = tracer.go_interrupted(every, first)?;
    ensure!(interrupted.is_none() || count > 0, "nothing was interrupted");
    let errors = std::fs::read_to_string(stage.sim.scratch().join("errors"))?;
    ensure!(tracer.code() == Some(0), "it ended with {:?}: {errors}", tracer.code());
    finished(&stage, Extent::All)?;
    ensure!(stage.all_or_nothing()?, "it did nothing: {errors}");
    let book = aftermath::read(&stage.file)?.context("no trace")?;
    Ok((book.header.probes, book.notices))
}
