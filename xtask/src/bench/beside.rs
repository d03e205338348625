//! What a running tracer costs programs that it does not trace, and its hook the requests of one that it does.

use std::{
    fmt::Write as _,
    io::{BufRead as _, BufReader, Lines, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};

use super::{Bench, built, median, traced};
use crate::command::{output, root};

/// SPEC §12: how much slower a program that is not traced may be, percent.
const LIMIT: f64 = 1.0;

/// No line says that probes are in: much longer than it takes. As long without a tracer: a processor that was idle begins
/// slowly, which is more than what is looked for.
const BEGUN: Duration = Duration::from_secs(2);

/// How often each program that is not traced does its work in a round.
const TIMES: usize = 8;

/// Who traces meanwhile. In each round another is the first.
const TRACERS: [&str; 3] = ["none", "run", "attach"];

/// Programs that are not traced: a name, a step of `tests/actors/bench/step.c` with its rounds, or none for a Python
/// program, and whether the limit is for it.
type Other = (&'static str, Option<(&'static str, &'static str)>, bool);
const OTHERS: [Other; 3] = [
    ("a system call (getppid)", Some(("syscall", "300000")), true),
    ("a Python program", None, true),
    // Where libc's function is the driver hook, its callers pay.
    ("ioctl of libc", Some(("ioctl", "20000")), false),
];

/// Requests of a traced Python program that has libcuda: a name, and a step. The file refuses them at once.
const OWN: [(&str, &str, &str); 4] = [
    ("a system call (getppid)", "syscall", "200000"),
    ("ioctl of libc, not a driver's", "ioctl", "50000"),
    ("driver request, not of memory", "control", "20000"),
    ("driver request for memory, with stacks", "allocation", "1000"),
];

pub(super) fn table(bench: &Bench<'_>) -> Result<String> {
    let mut times: [[Vec<f64>; TRACERS.len()]; OTHERS.len()] = Default::default();
    let mut own: [[Vec<f64>; 2]; OWN.len()] = Default::default();
    let mut untraced = OTHERS.iter().map(|(_, step, _)| Untraced::start(bench, *step)).collect::<Result<Vec<_>>>()?;
    for round in 0..bench.args.repeat as usize {
        for n in (0..TRACERS.len()).map(|n| (n + round) % TRACERS.len()) {
            let tracer = TRACERS[n];
            let tracing = Tracing::start(bench, tracer)?;
            for (program, times) in untraced.iter_mut().zip(&mut times) {
                for _ in 0..TIMES {
                    times[n].push(program.measure()?);
                }
            }
            tracing.end()?;
        }
        for ((_, step, rounds), times) in OWN.iter().zip(&mut own) {
            for (is_traced, times) in [false, true].into_iter().zip(times) {
                times.push(traced_request(bench, step, rounds, is_traced)?);
            }
        }
    }
    Ok(render(&times, &own, bench.args.repeat))
}

/// A tracer with an idle target, for as long as this lives.
struct Tracing(Option<Child>);

impl Tracing {
    fn start(bench: &Bench<'_>, tracer: &str) -> Result<Self> {
        let trace = bench.dir.join("beside.vrt");
        let mut command = bench.root(&["BENCH_WAIT=1"])?;
        match tracer {
            "none" => {
                thread::sleep(BEGUN);
                return Ok(Self(None));
            }
            "run" => {
                traced(&mut command, &[], &trace);
                // It waits for its input with libcuda loaded.
                command.arg(&bench.args.python).arg(root().join("tests/programs/bench.py")).args(["call", "10", "5"]);
            }
            "attach" => {
                command.arg(built("vramtrace")).args(["attach", "--force", "-o"]).arg(&trace);
            }
            other => bail!("unknown tracer {other}"),
        }
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        thread::sleep(BEGUN);
        Ok(Self(Some(child)))
    }

    fn end(mut self) -> Result<()> {
        let Some(mut child) = self.0.take() else { return Ok(()) };
        drop(child.stdin.take());
        ensure!(child.try_wait()?.is_none(), "the tracer ended too early");
        // The target ends with its input; `attach` at an interrupt.
        output(crate::command::as_root("kill")?.args(["-INT", &child.id().to_string()]))?;
        child.wait().context("a tracer that ends")?;
        Ok(())
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            drop(child.stdin.take());
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A program that is not traced. It is there before the first tracer and after the last: no two processes have their memory in the
/// same places, which is worth more percents than what is looked for.
struct Untraced {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Untraced {
    fn start(bench: &Bench<'_>, step: Option<(&str, &str)>) -> Result<Self> {
        let mut command = match step {
            Some((step, rounds)) => {
                let mut command = Command::new(bench.library("bench"));
                command.args([step, rounds, "again"]);
                command
            }
            None => {
                let mut command = Command::new(&bench.args.python);
                command.arg(root().join("tests/programs/beside.py"));
                command
            }
        };
        command.env("LD_LIBRARY_PATH", &bench.libraries).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let orders = child.stdin.take().context("no input")?;
        let answers = BufReader::new(child.stdout.take().context("no output")?).lines();
        Ok(Self { child, orders, answers })
    }

    /// Nanoseconds that its work takes.
    fn measure(&mut self) -> Result<f64> {
        writeln!(self.orders, "again")?;
        let line = self.answers.next().context("no answer")??;
        line.trim().parse().with_context(|| format!("no number: {line}"))
    }
}

impl Drop for Untraced {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nanoseconds of a request from Python.
fn traced_request(bench: &Bench<'_>, step: &str, rounds: &str, is_traced: bool) -> Result<f64> {
    let mut command = bench.root(&[])?;
    if is_traced {
        traced(&mut command, &[], &bench.dir.join("beside.vrt"));
    }
    command.arg(&bench.args.python).arg(root().join("tests/programs/bench.py")).args([step, rounds, "5"]);
    number(&mut command)
}

fn number(command: &mut Command) -> Result<f64> {
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut line = String::new();
    BufReader::new(child.stdout.take().context("no output")?).read_line(&mut line)?;
    let result = child.wait_with_output()?;
    ensure!(result.status.success(), "{}", String::from_utf8_lossy(&result.stderr).trim());
    line.trim().parse().with_context(|| format!("no number: {line}"))
}

fn render(times: &[[Vec<f64>; 3]; 3], own: &[[Vec<f64>; 2]; 4], repeat: u32) -> String {
    let mut text = format!(
        "Processor time, medians of {repeat} rounds in turn. Not traced, beside an idle tracer, each program {TIMES} times \
         a round:\n\n"
    );
    let _ = writeln!(text, "{:<34}{:>14}{:>16}{:>16}  target", "", "ns, no tracer", "run", "attach");
    for ((name, _, limited), times) in OTHERS.iter().zip(times) {
        let [none, run, attach] = [0, 1, 2].map(|n| median(&times[n]));
        let slower = |with: f64| 100.0 * (with / none - 1.0);
        let limit = match slower(run).max(slower(attach)) > LIMIT {
            _ if !limited => String::new(),
            true => format!("  ≤ {LIMIT} %: missed"),
            false => format!("  ≤ {LIMIT} %"),
        };
        let [run, attach] = [run, attach].map(|with| format!("{:+.1} %", slower(with)));
        let _ = writeln!(text, "{name:<34}{none:>14.0}{run:>16}{attach:>16}{limit}");
    }
    let _ = writeln!(text, "\n{:<42}{:>14}{:>12}{:>10}", "Traced, a request", "ns, no tracer", "traced", "more");
    for ((name, ..), times) in OWN.iter().zip(own) {
        let [none, traced] = [0, 1].map(|n| median(&times[n]));
        let _ = writeln!(text, "{name:<42}{none:>14.0}{traced:>12.0}{:>10.0}", traced - none);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slower_than_without_a_tracer() {
        let times =
            [[100.0, 100.5, 102.0], [1.0, 0.99, 1.0], [50.0, 500.0, 50.0]].map(|row| row.map(|time| vec![time]));
        let own = [[10.0, 20.0], [1.0, 1.0], [1.0, 3.0], [5.0, 2005.0]].map(|row| row.map(|time| vec![time]));
        let text = render(&times, &own, 1);
        let row = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
        assert!(row("a system").ends_with("+0.5 %          +2.0 %  ≤ 1 %: missed"), "{text}");
        assert!(row("a Python").ends_with("-1.0 %          +0.0 %  ≤ 1 %"), "{text}");
        assert!(row("ioctl of libc  ").ends_with("+900.0 %          +0.0 %"), "{text}");
        assert!(row("driver request for memory").ends_with("2000"), "{text}");
    }
}
