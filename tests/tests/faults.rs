//! Kills and interruptions at every point. A few of each here; `cargo xtask faults --rounds N` runs many and prints the table.

use anyhow::{Context, Result, ensure};
use live_tests::faults::{VICTIMS, Victim, loop_over};

/// Rounds of each kind unless `VRAMTRACE_FAULT_ROUNDS` says how many.
const ROUNDS: u64 = 2;

fn number(variable: &str, default: u64) -> Result<u64> {
    std::env::var(variable).map_or(Ok(default), |text| text.parse().with_context(|| format!("{variable}={text}")))
}

fn kills(victim: Victim) -> Result<()> {
    let (rounds, seed) = (number("VRAMTRACE_FAULT_ROUNDS", ROUNDS)?, number("VRAMTRACE_FAULT_SEED", 1)?);
    let (_, name) = VICTIMS.iter().find(|(kind, _)| *kind == victim).context("no name")?;
    let tally = loop_over(victim, rounds, seed)?;
    let [before, during, after, never] = tally.counts;
    println!("faults: | {name} | {rounds} | {before} | {during} | {after} | {never} |");
    ensure!(before + during + after > 0, "all came too late");
    Ok(())
}

#[test]
fn the_tracer_of_run() -> Result<()> {
    kills(Victim::Run)
}

#[test]
fn the_tracer_of_attach() -> Result<()> {
    kills(Victim::Attach)
}

#[test]
fn the_target_in_the_driver() -> Result<()> {
    kills(Victim::TargetInDriver)
}

#[test]
fn the_target_at_any_time() -> Result<()> {
    kills(Victim::Target)
}

#[test]
fn the_driver() -> Result<()> {
    kills(Victim::Driver)
}

#[test]
fn the_tracer_is_interrupted() -> Result<()> {
    kills(Victim::Interrupted)
}

#[test]
fn the_guard() -> Result<()> {
    kills(Victim::Guard)
}
