//! Kills and interruptions at every point of a traced run, and what must hold afterwards.
//!
//! A round starts a simulation, runs the same work on it, kills one of those who take part with SIGKILL at a given point of the
//! way, and looks at what is left: the target did all its work, or ended as it does without a tracer; nobody is stopped; probes
//! are gone; the trace reads up to its last whole line, and what it says is what the driver did up to there.

mod aftermath;
mod interrupted;
mod rounds;
mod steps;

use anyhow::{Context, Result};

/// Who is killed, and at what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// `vramtrace run`, at a system call of its main thread.
    Run,
    /// `vramtrace attach`, likewise.
    Attach,
    /// The traced program, at a driver request, which the driver carries out.
    TargetInDriver,
    /// The traced program, at a time, from before it executes to its end.
    Target,
    /// The driver: its requests fail from then on.
    Driver,
    /// The process that continues held processes when the tracer cannot.
    Guard,
    /// Nobody: every second system call of the main thread of `vramtrace run` is interrupted, then fewer.
    Interrupted,
}

/// All of them, with what they are called in tables.
pub const VICTIMS: [(Victim, &str); 7] = [
    (Victim::Run, "tracer (run), at a system call"),
    (Victim::Attach, "tracer (attach), at a system call"),
    (Victim::TargetInDriver, "target, in a driver request"),
    (Victim::Target, "target, at a time"),
    (Victim::Driver, "driver, at a time"),
    (Victim::Guard, "guard, at a time"),
    (Victim::Interrupted, "nobody; tracer (run) interrupted in many system calls"),
];

/// When the kill came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum When {
    /// Before the target's first instruction, or before there was anything to read.
    Before,
    /// While the target was traced.
    During,
    /// After its end, while the tracer finished.
    After,
    /// Not at all: all was over.
    Never,
}

/// What rounds came to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// Rounds by [`When`].
    pub counts: [u64; 4],
}

/// Runs `rounds` rounds, at points spread over the whole way, each shifted by what `seed` says.
///
/// # Errors
/// Something that must hold does not; the error tells the round.
pub fn loop_over(victim: Victim, rounds: u64, seed: u64) -> Result<Tally> {
    let mut tally = Tally::default();
    for round in 0..rounds {
        let point = (f64::from(u32::try_from(round)?) + random(seed, round)) / f64::from(u32::try_from(rounds)?);
        let when = rounds::round(victim, point)
            .with_context(|| format!("{victim:?}, round {round} of {rounds}, seed {seed}, at {point:.5} of the way"))?;
        tally.counts[when as usize] += 1;
    }
    Ok(tally)
}

/// A number from 0 to 1 (splitmix64).
fn random(seed: u64, round: u64) -> f64 {
    let mut x = seed.wrapping_add((round + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    f64::from(u32::try_from((x ^ x >> 31) >> 32).unwrap_or(0)) / f64::from(u32::MAX)
}
