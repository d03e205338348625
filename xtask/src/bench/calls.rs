//! What a probed call costs the program that makes it, beside an empty uprobe and uretprobe pair and other tools.
//!
//! The probed function does nothing, so that all of its time is the probes'; it is the calling thread's own time.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, ChildStdin, Command, Stdio},
};

use anyhow::{Context, Result, ensure};

use super::{
    Bench, built, median,
    peers::{self, CALL, Peer, Script},
    torch, traced,
};
use crate::command::{as_root, line, root};

/// Calls a run: so few that their stacks fit the ring buffer, since a call whose record is dropped costs less.
const ROUNDS: u64 = 1000;
/// The same where there are no stacks.
const PLAIN_ROUNDS: u64 = 20_000;
/// Python calls below which the probed function is called. A server's stacks have 20 to 60.
const DEEP: u32 = 30;
const SHALLOW: u32 = 5;

/// What is around the calls.
#[derive(Clone, Copy)]
enum Around {
    /// Nothing.
    Bare,
    /// An empty pair of probes.
    Pair,
    /// vramtrace, with options.
    Traced(&'static [&'static str]),
    /// A function in front of the call's.
    Preload,
    Bpftrace(Script),
    Memleak,
}

/// One row of the table.
struct Kind {
    name: &'static str,
    around: Around,
    /// The calls come from Python code so many calls deep, else from C alone.
    python: Option<u32>,
    /// What is called: a step of `tests/actors/bench/step.c`.
    what: &'static str,
    rounds: u64,
    /// SPEC §12, as a ratio.
    limit: Option<f64>,
}

const fn kind(name: &'static str, around: Around, python: Option<u32>, what: &'static str, limit: Option<f64>) -> Kind {
    Kind { name, around, python, what, rounds: ROUNDS, limit }
}

/// A row without stacks.
const fn plain(name: &'static str, around: Around, what: &'static str, limit: Option<f64>) -> Kind {
    Kind { name, around, python: None, what, rounds: PLAIN_ROUNDS, limit }
}

/// vramtrace without native stacks.
const NO_NATIVE: Around = Around::Traced(&["--native-stacks", "off"]);
const ALL: Around = Around::Traced(&[]);
const TENSORS: Around = Around::Traced(&["--tensors", "on"]);
const SUM: Around = Around::Bpftrace(Script::Sum);
const SUM_BY_STACK: Around = Around::Bpftrace(Script::SumByStack);
const PRINT: Around = Around::Bpftrace(Script::Print);

/// Rows that others are compared with: no probes, around the same work.
const BARE: [(&str, Option<u32>); 3] = [("call", None), ("call", Some(DEEP)), ("malloc", None)];
/// The yardstick.
const PAIR: usize = BARE.len();

const KINDS: [Kind; 20] = [
    plain("no probe", Around::Bare, "call", None),
    Kind { python: Some(DEEP), ..plain("no probe, Python", Around::Bare, "call", None) },
    plain("no probe, memleak's malloc", Around::Bare, "malloc", None),
    plain("empty uprobe + uretprobe", Around::Pair, "call", None),
    plain("vramtrace, no stack", NO_NATIVE, "call", Some(1.3)),
    kind("vramtrace, native stack", ALL, None, "call", Some(2.5)),
    kind("vramtrace, Python stack (5 calls)", NO_NATIVE, Some(SHALLOW), "call", Some(2.5)),
    kind("vramtrace, Python stack (30 calls)", NO_NATIVE, Some(DEEP), "call", Some(2.5)),
    kind("vramtrace, both stacks (5 calls)", ALL, Some(SHALLOW), "call", Some(2.5)),
    kind("vramtrace, both stacks (30 calls)", ALL, Some(DEEP), "call", Some(2.5)),
    plain("vramtrace, PyTorch block", ALL, "block", Some(1.3)),
    kind("vramtrace, PyTorch block, Python (5)", TENSORS, Some(SHALLOW), "block", Some(2.5)),
    kind("vramtrace, PyTorch block, Python (30)", TENSORS, Some(DEEP), "block", Some(2.5)),
    plain("LD_PRELOAD counter", Around::Preload, "call", None),
    plain("bpftrace, sums", SUM, "call", None),
    kind("bpftrace, sums by native stack", SUM_BY_STACK, None, "call", None),
    kind("bpftrace, sums by native stack, Python", SUM_BY_STACK, Some(DEEP), "call", None),
    kind("bpftrace, prints native stack", PRINT, None, "call", None),
    kind("bpftrace, prints native stack, Python", PRINT, Some(DEEP), "call", None),
    kind("bcc memleak, sums by native stack", Around::Memleak, None, "malloc", None),
];

/// What was measured for a row.
#[derive(Default)]
struct Measured {
    /// Nanoseconds a call, of each run.
    times: Vec<f64>,
    /// Share of the calls that the tool's own account has, at least.
    kept: Option<f64>,
    /// Why it could not be run.
    missing: Option<String>,
}

/// Runs all rows in turn.
pub(super) fn table(bench: &Bench<'_>) -> Result<String> {
    let peers = peers::install();
    let mut rows: Vec<Measured> = KINDS.iter().map(|_| Measured::default()).collect();
    for _ in 0..bench.args.repeat {
        for (kind, row) in KINDS.iter().zip(&mut rows).filter(|(_, row)| row.missing.is_none()) {
            match (measure(bench, kind), kind.around) {
                (Ok((time, kept)), _) => {
                    row.times.push(time);
                    row.kept = kept.map(|kept| row.kept.map_or(kept, |before| before.min(kept)));
                }
                // A tool that is not ours may be missing, or not fit this kernel.
                (Err(error), Around::Bpftrace(_) | Around::Memleak) => {
                    row.missing = Some(match &peers {
                        Err(why) => format!("{why:#}"),
                        Ok(()) => format!("{error:#}"),
                    });
                }
                (Err(error), _) => return Err(error.context(kind.name)),
            }
        }
    }
    Ok(render(&rows, bench.args.repeat) + &format!("\n{}\n", torch::line(bench)))
}

/// Nanoseconds a call, and the share of calls that a peer has kept.
fn measure(bench: &Bench<'_>, kind: &Kind) -> Result<(f64, Option<f64>)> {
    let pair = matches!(kind.around, Around::Pair).then(|| Pair::start(&bench.library("libc10.so"))).transpose()?;
    let peer = match kind.around {
        Around::Bpftrace(script) => Some((Peer::bpftrace(bench, script)?, Some(script))),
        _ => None,
    };
    let program = Program::start(bench, kind)?;
    let peer = match kind.around {
        Around::Memleak => Some((Peer::memleak(bench, program.child.id())?, None)),
        _ => peer,
    };
    let (time, told) = program.end()?;
    let is_traced = matches!(kind.around, Around::Traced(_));
    ensure!(!is_traced || told.contains("none lost"), "events were lost: {told}");
    // A tenth more, to warm up.
    let made = kind.rounds + kind.rounds / 10;
    ensure!(
        !matches!(kind.around, Around::Preload) || told.contains(&format!("counted {made} calls")),
        "not counted: {told}"
    );
    let kept = peer.map(|(peer, script)| peer.end(script)).transpose()?.map(|kept| kept as f64 / made as f64);
    ensure!(kept != Some(0.0), "it saw no call");
    drop(pair);
    Ok((time, kept))
}

/// The program that makes the calls, waiting for a line.
struct Program {
    child: Child,
    stdin: Option<ChildStdin>,
    line: String,
}

impl Program {
    fn start(bench: &Bench<'_>, kind: &Kind) -> Result<Self> {
        let mut before = vec!["BENCH_WAIT=1".to_owned()];
        if matches!(kind.around, Around::Preload) {
            before.push(format!("LD_PRELOAD={}", bench.library("libpreload.so").display()));
        }
        let mut command = bench.root(&before.iter().map(String::as_str).collect::<Vec<_>>())?;
        if let Around::Traced(options) = kind.around {
            traced(&mut command, options, &bench.dir.join("calls.vrt"));
        }
        match kind.python {
            Some(_) => command.arg(&bench.args.python).arg(root().join("tests/programs/bench.py")),
            None => command.arg(bench.library("bench")),
        };
        command.args([kind.what, &kind.rounds.to_string()]).args(kind.python.map(|depth| depth.to_string()));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        Ok(Self { stdin: child.stdin.take(), child, line: line(&command) })
    }

    /// Lets it go on to its end. Gives nanoseconds a call, and what was said on standard error.
    fn end(mut self) -> Result<(f64, String)> {
        // A child that failed has closed it: its own error says more.
        let _ = self.stdin.take().map(|mut stdin| stdin.write_all(b"\n"));
        let output = self.child.wait_with_output()?;
        let told = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        ensure!(output.status.success(), "`{}` failed: {told}", self.line);
        let text = String::from_utf8_lossy(&output.stdout);
        Ok((text.trim().parse().with_context(|| format!("no number: {text}"))?, told))
    }
}

/// Empty probes, for as long as this lives.
struct Pair(Child);

impl Pair {
    fn start(library: &Path) -> Result<Self> {
        let mut command: Command = as_root(&built("empty-probes").to_string_lossy())?;
        let mut child = command.arg(library).arg(CALL).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut ready = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut ready)?;
        let pair = Self(child);
        ensure!(ready == "ready\n", "no empty probes could be placed (its error is above)");
        Ok(pair)
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn render(rows: &[Measured], repeat: u32) -> String {
    let medians: Vec<f64> = rows.iter().map(|row| median(&row.times)).collect();
    // What the same program takes without probes is not theirs.
    let cost = |n: usize| {
        let kind = &KINDS[n];
        let bare =
            BARE.iter().position(|(what, python)| *what == kind.what && python.is_some() == kind.python.is_some());
        medians[n] - medians[bare.unwrap_or(usize::from(kind.python.is_some()))]
    };
    let pair = cost(PAIR);
    let mut text = format!("Medians of {repeat} runs of {PLAIN_ROUNDS} calls (some {ROUNDS} with stacks), in turn\n\n");
    let _ = writeln!(text, "{:<42}{:>11}{:>12}{:>8}{:>8}  kept", "", "ns a call", "probes' ns", "ratio", "target");
    for (n, (kind, row)) in KINDS.iter().zip(rows).enumerate() {
        if let Some(why) = &row.missing {
            let _ = writeln!(text, "{:<42}not run: {}", kind.name, why.lines().next().unwrap_or_default());
            continue;
        }
        let (ratio, limit) = (cost(n) / pair, kind.limit.map_or(String::new(), |limit| format!("≤ {limit}")));
        let (ratio, own) =
            if n < PAIR { Default::default() } else { (format!("{ratio:.2}"), format!("{:.0}", cost(n))) };
        let missed = if kind.limit.is_some_and(|limit| cost(n) / pair > limit) { "  missed" } else { "" };
        let kept = row.kept.map_or(String::new(), |kept| format!("  {:.0} %", 100.0 * kept));
        let _ = writeln!(text, "{:<42}{:>11.0}{own:>12}{ratio:>8}{limit:>8}{kept}{missed}", kind.name, medians[n]);
    }
    text + "\nkept: share of the calls that the tool's own account has, at least; vramtrace's: all, or the run fails\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cost_is_what_the_probes_add() {
        let mut rows: Vec<Measured> = KINDS
            .iter()
            .map(|kind| Measured {
                times: vec![if kind.python.is_some() { 204.0 } else { 252.0 }; 3],
                ..Measured::default()
            })
            .collect();
        (rows[0].times, rows[1].times, rows[PAIR].times) = (vec![2.0], vec![4.0, 9e9, 4.0], vec![102.0]);
        rows[2].times = vec![52.0];
        let last = KINDS.len() - 1;
        (rows[last].kept, rows[last - 1].missing) = (Some(0.5), Some("no headers\nand more".to_owned()));
        let text = render(&rows, 3);
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row("vramtrace, no stack").ends_with("2.50   ≤ 1.3  missed"), "{text}");
        assert!(row("vramtrace, both stacks (30").ends_with("2.00   ≤ 2.5"), "{text}");
        assert!(row("empty uprobe").trim_end().ends_with("1.00"), "{text}");
        assert!(row("bcc memleak").ends_with("2.00          50 %"), "{text}");
        assert!(row("bpftrace, prints native stack, Python").ends_with("not run: no headers"), "{text}");
    }
}
