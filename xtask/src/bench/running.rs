//! What a program takes while it runs.

use std::{
    fs,
    path::Path,
    process::{Child, Command, ExitStatus},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::{Bench, built};
use crate::command::line;

/// Kernel ticks of processor time a second, as /proc shows it (`USER_HZ`, fixed on Linux).
const TICKS: f64 = 100.0;
/// How often a running program is looked at.
const SLICE: Duration = Duration::from_millis(20);

/// What a command took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// Wall-clock seconds.
    pub(super) seconds: f64,
    /// Processor time of all its threads, seconds.
    pub(super) cpu_seconds: f64,
    /// Resident memory at most.
    pub(super) peak_bytes: u64,
}

/// Runs a command to its end.
pub(super) fn measured(bench: &Bench<'_>, command: &Command) -> Result<Taken> {
    let file = bench.dir.join("measured");
    let mut runner = Command::new(built("measured"));
    runner.arg(&file).arg(command.get_program()).args(command.get_args());
    let output = runner.output().with_context(|| format!("cannot run `{}`", line(&runner)))?;
    ensure!(output.status.success(), "`{}`: {}", line(command), String::from_utf8_lossy(&output.stderr).trim());
    let text = fs::read_to_string(&file)?;
    let mut numbers = text.split_ascii_whitespace().map(str::parse::<f64>);
    let mut number = || numbers.next().context("a number")?.context("a number");
    let (seconds, cpu_seconds, kib) = (number()?, number()?, number()?);
    Ok(Taken { seconds, cpu_seconds, peak_bytes: kib as u64 * 1024 })
}

/// The tracer at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sample {
    /// Since it was first seen.
    pub(super) at: Duration,
    pub(super) resident_bytes: u64,
    /// User and system time so far.
    pub(super) cpu_seconds: f64,
}

/// Waits for `child`, looking at the tracer that it is, or that is below it, all the while.
pub(super) fn watched(child: &mut Child) -> Result<(ExitStatus, Vec<Sample>)> {
    let (mut samples, mut tracer, mut begin) = (Vec::new(), None, Instant::now());
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, samples));
        }
        if tracer.is_none() {
            tracer = below(child.id(), "vramtrace");
            begin = Instant::now();
        }
        samples.extend(tracer.and_then(|pid| sample(pid, begin.elapsed())));
        thread::sleep(SLICE);
    }
}

fn sample(pid: u32, at: Duration) -> Option<Sample> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let kib: u64 =
        status.lines().find_map(|l| l.strip_prefix("VmRSS:"))?.split_ascii_whitespace().next()?.parse().ok()?;
    let stat = stat(pid)?;
    // utime and stime, proc_pid_stat(5).
    let ticks: f64 = stat.fields.get(11..13)?.iter().filter_map(|n| n.parse::<f64>().ok()).sum();
    Some(Sample { at, resident_bytes: kib * 1024, cpu_seconds: ticks / TICKS })
}

/// The first process called `name` among `root` and its descendants.
fn below(root: u32, name: &str) -> Option<u32> {
    let (mut generation, mut seen) = (vec![root], 0);
    while !generation.is_empty() && seen < 64 {
        if let Some(found) = generation.iter().find(|pid| stat(**pid).is_some_and(|stat| stat.name == name)) {
            return Some(*found);
        }
        seen += generation.len();
        generation = generation.iter().flat_map(|pid| children(*pid)).collect();
    }
    None
}

fn children(pid: u32) -> Vec<u32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect()
}

/// `/proc/PID/stat`.
struct Stat {
    name: String,
    /// From the third on.
    fields: Vec<String>,
}

fn stat(pid: u32) -> Option<Stat> {
    let text = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("stat")).ok()?;
    let (before, after) = text.rsplit_once(") ")?;
    let (_, name) = before.split_once('(')?;
    Some(Stat { name: name.to_owned(), fields: after.split_ascii_whitespace().map(str::to_owned).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_below_its_parent_and_looked_at() {
        let mut shell = Command::new("sh").args(["-c", "sleep 5 & wait"]).spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        let found = loop {
            match below(shell.id(), "sleep") {
                None if Instant::now() < deadline => thread::sleep(SLICE),
                found => break found,
            }
        };
        let looked = sample(found.expect("the sleep below the shell"), Duration::ZERO).unwrap();
        assert!(looked.resident_bytes > 0 && looked.cpu_seconds < 5.0, "{looked:?}");
        assert_eq!(below(shell.id(), "no such name"), None);
        shell.kill().unwrap();
        shell.wait().unwrap();
    }
}
