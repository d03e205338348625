//! System calls of the tracer that a signal interrupts, as a stop does that ends again: Ctrl-Z and `fg`, a container that is
//! frozen for a while, a debugger that comes and goes.

use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};

use super::When;
use super::aftermath::{self, Extent};
use super::rounds::{Stage, finished, run_of};
use super::steps::Stepped;

/// Every how many system calls one is interrupted, at the least. With fewer between, one that is made again would be
/// interrupted again.
const LEAST: f64 = 2.0;
/// How many such distances there are.
const DISTANCES: f64 = 6.0;

/// `vramtrace run` with interruptions all the way: it does what it does without.
pub(super) fn tracer_of_run(point: f64) -> Result<When> {
    // How probes are placed, and what is said of it.
    static UNDISTURBED: OnceLock<(String, Vec<String>)> = OnceLock::new();
    let nth = |number: f64| std::time::Duration::from_secs_f64(number).as_secs();
    let every = nth(LEAST + DISTANCES * point);
    let first = nth((DISTANCES * point).fract() * (LEAST + DISTANCES * point).floor());
    let ways = match UNDISTURBED.get() {
        Some(ways) => ways,
        None => {
            let ways = traced(None)?;
            UNDISTURBED.get_or_init(|| ways)
        }
    };
    let disturbed = traced(Some((every, first)))?;
    ensure!(disturbed == *ways, "every {every}th from the {first}th: {disturbed:?}, undisturbed {ways:?}");
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
