//! How many events a second are taken without loss, from eight processes; and what that takes of the tracer.
//!
//! The processes share this machine's cores with the tracer, which limits both: what they made is printed beside what was
//! asked for.

use std::{
    fmt::Write as _,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{
    Bench, built,
    peers::number_behind,
    running::{Sample, watched},
    traced,
};
use crate::command::output;

const PROCESSES: u32 = 8;
/// Tried in turn, up to the first loss.
const RATES: [u64; 7] = [5_000, 10_000, 25_000, 50_000, 100_000, 200_000, 400_000];
/// SPEC §12: none lost at this rate for this long; bytes of the tracer, however long.
const TARGET: (u64, u32) = (200_000, 10);
const TARGET_BYTES: u64 = 256 << 20;

/// What events are of: its name, options of the tracer, the step that makes them.
type Kind = (&'static str, &'static [&'static str], &'static str);

const KINDS: [Kind; 3] = [
    ("API calls, no stack", &["--native-stacks", "off"], "call"),
    ("PyTorch blocks", &[], "block"),
    ("API calls, native stack", &[], "call"),
];

/// A run.
struct Storm {
    /// Calls made, and in how many seconds.
    made: u64,
    seconds: f64,
    /// Events that are not in the trace; stacks that are not.
    lost: u64,
    stacks_lost: u64,
    samples: Vec<Sample>,
}

impl Storm {
    fn rate(&self) -> f64 {
        self.made as f64 / self.seconds
    }

    /// The processes made as many events as they were asked for.
    fn is_made(&self, rate: u64) -> bool {
        self.rate() > 0.9 * rate as f64
    }

    fn is_whole(&self) -> bool {
        self.lost == 0 && self.stacks_lost == 0
    }

    fn peak(&self) -> u64 {
        self.samples.iter().map(|sample| sample.resident_bytes).max().unwrap_or(0)
    }

    /// Processor time up to the first event.
    fn start_seconds(&self) -> f64 {
        let end = self.samples.last().map_or(Duration::ZERO, |sample| sample.at);
        let first = end.saturating_sub(Duration::from_secs_f64(self.seconds + 0.2));
        self.samples.iter().take_while(|sample| sample.at < first).last().map_or(0.0, |sample| sample.cpu_seconds)
    }

    fn cpu_seconds(&self) -> f64 {
        self.samples.last().map_or(0.0, |sample| sample.cpu_seconds)
    }
}

pub(super) fn table(bench: &Bench<'_>) -> Result<String> {
    let seconds = bench.args.seconds;
    let mut text =
        format!("{PROCESSES} processes, {seconds} s a row, up to the first loss, or to where they make no more\n\n");
    let _ = writeln!(
        text,
        "{:<26}{:>9}{:>9}{:>10}{:>8}{:>8}{:>12}{:>9}{:>10}",
        "", "asked/s", "made/s", "events", "lost", "stacks", "tracer CPU", "an event", "peak MiB"
    );
    let mut best = RATES[0];
    for (n, kind) in KINDS.iter().enumerate() {
        for rate in RATES.into_iter().filter(|rate| kind.0.contains("native") || *rate >= 50_000) {
            let storm = run(bench, kind, rate, seconds)?;
            text += &row(kind.0, rate, &storm);
            if !storm.is_whole() || !storm.is_made(rate) {
                break;
            }
            if n == 0 {
                best = rate;
            }
        }
    }
    let storm = run(bench, &KINDS[0], TARGET.0, TARGET.1)?;
    let _ = writeln!(text, "\nTarget: none lost at {} events/s for {} s", TARGET.0, TARGET.1);
    text += &row(KINDS[0].0, TARGET.0, &storm);
    text += &long_run(bench, best.min(TARGET.0))?;
    Ok(text)
}

/// Memory of the tracer as a run goes on.
fn long_run(bench: &Bench<'_>, rate: u64) -> Result<String> {
    let seconds = (bench.args.events / rate).max(1) as u32;
    let storm = run(bench, &KINDS[0], rate, seconds)?;
    let mut text = format!("\nTarget: at most {} MiB, however long\n", TARGET_BYTES >> 20);
    text += &row(KINDS[0].0, rate, &storm);
    let end = storm.samples.last().map_or(Duration::ZERO, |sample| sample.at);
    let begin = end.saturating_sub(Duration::from_secs_f64(storm.seconds));
    for part in [0.01, 0.1, 0.5, 1.0] {
        let until = begin + Duration::from_secs_f64(storm.seconds * part);
        let before = storm.samples.iter().filter(|sample| sample.at <= until);
        let peak = before.map(|sample| sample.resident_bytes).max().unwrap_or(0);
        let events = storm.made as f64 * part;
        let _ = writeln!(text, "  after {events:>10.0} events: {:>6.1} MiB at most", mib(peak));
    }
    Ok(text)
}

fn run(bench: &Bench<'_>, kind: &Kind, rate: u64, seconds: u32) -> Result<Storm> {
    let trace = bench.dir.join("events.vrt");
    let mut command = bench.root(&[])?;
    traced(&mut command, kind.1, &trace);
    command.arg(bench.library("bench")).args(["storm", kind.2]);
    command.args([rate.to_string(), seconds.to_string(), PROCESSES.to_string()]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (status, samples) = watched(&mut child)?;
    let output_of = child.wait_with_output()?;
    ensure!(status.success(), "{}: {}", kind.0, String::from_utf8_lossy(&output_of.stderr).trim());
    let text = String::from_utf8_lossy(&output_of.stdout);
    let (made, took) = text.trim().split_once(' ').context("no count")?;
    // Losses as any report gives them.
    let report = output(Command::new(built("vramtrace")).args(["report", "--format", "json"]).arg(&trace))?;
    let loss = |why: &str| number_behind(&report, &format!("\"{why}\": ")).unwrap_or(0);
    Ok(Storm {
        made: made.parse()?,
        seconds: took.parse()?,
        lost: loss("lost_events"),
        stacks_lost: loss("unreadable_stack"),
        samples,
    })
}

fn row(name: &str, rate: u64, storm: &Storm) -> String {
    let short = if storm.is_made(rate) { "" } else { "  (no more were made)" };
    format!(
        "{name:<26}{rate:>9}{:>9.0}{:>10}{:>8}{:>8}{:>10.1} s{:>6.2} µs{:>10.1}{short}\n",
        storm.rate(),
        storm.made,
        storm.lost,
        storm.stacks_lost,
        storm.cpu_seconds(),
        // Starting up is not an event's.
        1e6 * (storm.cpu_seconds() - storm.start_seconds()) / storm.made as f64,
        mib(storm.peak())
    )
}

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}
