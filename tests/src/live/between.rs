//! A program that is attached to between two things that it says.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::vramtrace;
use crate::sim::Sim;

/// Runs a program that says a line, waits for one and goes on to its end. The tracer is attached to it while it waits, and
/// writes `file`. Gives the line, and what the program said after.
///
/// # Errors
/// When the program or the tracer fails, or another process is traced too.
pub fn attached_between(sim: &Sim, mut target: Command, file: &Path) -> Result<(String, String)> {
    let mut target = target.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut output = BufReader::new(target.stdout.take().context("no output")?);
    let (mut first, mut rest) = (String::new(), String::new());
    output.read_line(&mut first)?;
    let mut command = sim.command(vramtrace()?.to_str().context("an odd path")?)?;
    command.args(["attach", "--pid", &target.id().to_string(), "-o"]).arg(file);
    let mut tracer = command.stderr(Stdio::piped()).spawn()?;
    let mut errors = BufReader::new(tracer.stderr.take().context("no output")?);
    let (mut line, mut all) = (String::new(), String::new());
    while !line.contains("tracing 1 processes") {
        line.clear();
        ensure!(errors.read_line(&mut line)? > 0, "the tracer ended: {all}");
        all.push_str(&line);
    }
    writeln!(target.stdin.take().context("no input")?, "go")?;
    output.read_to_string(&mut rest)?;
    ensure!(target.wait()?.success() && tracer.wait()?.success(), "{all}");
    Ok((first, rest))
}
