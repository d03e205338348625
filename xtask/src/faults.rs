//! `cargo xtask faults`: kills of those who take part in a traced run, at every point of it, interruptions of the tracer, and a
//! table of what came of them.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use anyhow::{Context, Result, ensure};

use crate::{setup, test};

/// What the tests put before a row.
const ROW: &str = "faults: ";

/// Arguments of `cargo xtask faults`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Rounds of each kind
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    rounds: u64,
    /// Which points: the same seed, the same points
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the loop and prints the table.
pub(crate) fn main(args: &Args) -> Result<()> {
    setup::main()?;
    let mut command = test::live_tests(&["--test", "faults", "--", "--nocapture"])?;
    command.env("VRAMTRACE_FAULT_ROUNDS", args.rounds.to_string());
    command.env("VRAMTRACE_FAULT_SEED", args.seed.to_string());
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot run cargo")?;
    let mut rows = Vec::new();
    for line in BufReader::new(child.stdout.take().context("no output")?).lines() {
        let line = line?;
        println!("{line}");
        // The test program may have begun the line.
        rows.extend(line.split_once(ROW).map(|(_, row)| row.to_owned()));
    }
    let status = child.wait()?;
    test::give_back_target()?;
    rows.sort_unstable();
    println!(
        "\n| killed | rounds | before there was anything to trace | while tracing | as the tracer ended | too late |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    rows.iter().for_each(|row| println!("{row}"));
    ensure!(status.success(), "something did not hold: the error above tells the round");
    Ok(())
}
