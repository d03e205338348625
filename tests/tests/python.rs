//! Python stacks against what the target itself says of them: for each interpreter of this machine, every frame of every
//! allocation must equal `traceback`'s.
//!
//! These load BPF programs and need root. `VRAMTRACE` names the binary to test (default: the one built beside).

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use live_tests::live::{attached_between, vramtrace};
use live_tests::pythons::{self, Python};
use live_tests::sim::{Config, Sim};
use serde::Deserialize;
use tracer::ledger::{Book, Kind};
use tracer::trace::record::{Frame, FrameKind};

/// What the target said of one allocation.
#[derive(Debug, Deserialize)]
struct Said {
    case: String,
    number: u64,
    /// File, line, name, qualified name (3.11 on).
    frames: Vec<(String, Option<u32>, String, Option<String>)>,
}

/// One traced run.
struct Run {
    said: Vec<Said>,
    /// Frames of each allocation, by its number, outermost first.
    seen: BTreeMap<u64, Vec<Frame>>,
    book: Book,
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

fn tracer(sim: &Sim) -> Result<Command> {
    sim.command(vramtrace()?.to_str().context("an odd path")?)
}

/// Runs a program of `tests/programs` with its arguments.
fn trace(python: &Python, options: &[&str], script: &[&str]) -> Result<Run> {
    trace_with(&[], python, options, script)
}

/// The same, with more in the environment.
fn trace_with(environment: &[(&str, &str)], python: &Python, options: &[&str], script: &[&str]) -> Result<Run> {
    let sim = Sim::start(Config::default())?;
    let file = sim.scratch().join("run.vrt");
    let mut command = tracer(&sim)?;
    command.env("VRAMTRACE_TEST_PYTHON", &python.program).envs(environment.iter().copied());
    command.args(["run", "--as-root"]).args(options).arg("-o").arg(&file).arg("--");
    let output = command.arg(&python.program).arg(program(script[0])).args(&script[1..]).output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}: {errors}", output.status);
    read(&file, &String::from_utf8(output.stdout)?).context(errors)
}

fn read(file: &Path, output: &str) -> Result<Run> {
    let said = output
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
        .collect::<Result<_>>()?;
    let book = Book::read(file)?;
    let mut seen = BTreeMap::new();
    for allocation in book.allocations.iter().filter(|a| a.kind == Kind::CudaMalloc) {
        let Some(stack) = allocation.stack.and_then(|stack| book.stacks.get(stack as usize)) else { continue };
        let frames = stack.iter().filter_map(|frame| book.frames.get(*frame as usize)).cloned().collect();
        seen.insert(allocation.bytes >> 21, frames);
    }
    Ok(Run { said, seen, book })
}

impl Run {
    /// Each allocation with both of its stacks.
    fn pairs(&self) -> Result<Vec<(&Said, &[Frame])>> {
        self.said
            .iter()
            .map(|said| {
                let seen = self.seen.get(&said.number);
                Ok((said, &seen.with_context(|| format!("{}: no stack for {}", said.case, said.number))?[..]))
            })
            .collect()
    }
}

fn is_python(frame: &&Frame) -> bool {
    frame.kind == FrameKind::Python
}

/// Both, line for line.
fn assert_equal(said: &Said, seen: &[Frame]) -> Result<()> {
    let ours: Vec<String> = seen.iter().filter(is_python).map(line).collect();
    let theirs: Vec<String> = said
        .frames
        .iter()
        .map(|(file, line, name, qualified)| {
            let line = line.map_or("?".to_owned(), |line| line.to_string());
            format!("{file}:{line} {}", qualified.as_ref().unwrap_or(name))
        })
        .collect();
    ensure!(ours == theirs, "{} ({})\nours: {ours:#?}\ntheirs: {theirs:#?}", said.case, said.number);
    Ok(())
}

fn line(frame: &Frame) -> String {
    let line = frame.line.map_or("?".to_owned(), |line| line.to_string());
    format!("{}:{line} {}", frame.file.as_deref().unwrap_or("?"), frame.function)
}

/// A stack, a word or two a frame.
fn names(frames: &[Frame]) -> Vec<String> {
    let name = |frame: &Frame| match frame.kind {
        FrameKind::Python => line(frame),
        _ => format!("{} ({}+{:#x})", frame.function, frame.module, frame.offset),
    };
    frames.iter().map(name).collect()
}

/// Native frames are where they belong: the program's beginning outside of all Python, the CUDA call inside.
fn assert_merged(said: &Said, seen: &[Frame]) -> Result<()> {
    let at = |name: &str| seen.iter().position(|frame| !is_python(&frame) && frame.function == name);
    let shown = names(seen);
    let python: Vec<usize> = seen.iter().enumerate().filter(|(_, f)| is_python(f)).map(|(n, _)| n).collect();
    let (first, last) = (python.first().context("no Python frame")?, python.last().context("no Python frame")?);
    ensure!(seen.iter().all(|frame| !frame.function.starts_with("_PyEval_Eval")), "{}: {shown:#?}", said.case);
    ensure!(at("cudaMalloc").is_some_and(|call| call > *last), "{}: {shown:#?}", said.case);
    // libc's thread start has no name in a stripped library. Before 3.11 each Python call takes native stack: deep
    // recursion goes beyond the copied part of it.
    let begins = seen.first().is_some_and(|frame| match said.case.as_str() {
        case if case.contains("thread") => frame.module.contains("/libc.so"),
        "recursion" if frame.kind == FrameKind::Cut => true,
        _ => frame.function == "_start",
    });
    ensure!(begins && *first > 0, "{}: begins elsewhere: {shown:#?}", said.case);
    // `main` may have jumped to the interpreter's, and is then in no stack.
    ensure!(at("main").is_none_or(|main| main < *first), "{}: {shown:#?}", said.case);
    if said.case == "callback from qsort" {
        // Three times Python, C's sort, Python again: each of the sorts lies between two Python frames. libc's debug
        // symbols, where they are installed, call it `__qsort_r`.
        let sorts = seen
            .iter()
            .enumerate()
            .filter(|(_, frame)| !is_python(frame) && frame.function.trim_start_matches('_') == "qsort_r")
            .map(|(n, _)| n);
        let caller = |n: usize| seen[..n].iter().rfind(is_python).map(|frame| frame.function.clone());
        let callers: Vec<Option<String>> = sorts.map(caller).collect();
        ensure!(callers.len() == 3, "{callers:?} {shown:#?}");
        let mut inner = callers.iter().flatten();
        ensure!(inner.all(|name| name.ends_with("qsort_callbacks")), "{callers:?}");
    }
    Ok(())
}

/// The version that set-up fetches; the machine has others or has not.
const FETCHED: (u8, u8) = (3, 14);

fn check(version: (u8, u8)) -> Result<()> {
    let found: Vec<Python> = pythons::all()?.into_iter().filter(|python| python.version == version).collect();
    ensure!(version != FETCHED || !found.is_empty(), "no CPython {FETCHED:?}: `cargo xtask setup` fetches it");
    if found.is_empty() {
        eprintln!("skipped: no CPython {}.{} on this machine", version.0, version.1);
    }
    for python in found {
        let compared = compare(&python).with_context(|| python.program.display().to_string())?;
        eprintln!("{}: {compared} stacks equal", python.program.display());
    }
    Ok(())
}

fn compare(python: &Python) -> Result<usize> {
    let run = trace(python, &[], &["stacks.py"])?;
    ensure!(run.said.len() > 60, "the target said little: {}", run.said.len());
    ensure!(run.book.losses.is_empty(), "{:?}", run.book.losses);
    for (said, seen) in run.pairs()? {
        assert_equal(said, seen)?;
        assert_merged(said, seen)?;
    }
    ensure!(run.seen.values().flatten().all(|frame| !frame.function.contains("busy_bystander")), "another thread's");
    let more = trace(python, &[], &["processes.py", "fork", "spawn", "large", "many", "imports"])?;
    ensure!(more.said.len() == 2 + 2 + 1 + 200 + 1, "{} allocations", more.said.len());
    for (said, seen) in more.pairs()? {
        assert_equal(said, seen)?;
    }
    Ok(run.said.len() + more.said.len())
}

#[test]
fn python_3_9() -> Result<()> {
    check((3, 9))
}

#[test]
fn python_3_10() -> Result<()> {
    check((3, 10))
}

#[test]
fn python_3_11() -> Result<()> {
    check((3, 11))
}

#[test]
fn python_3_12() -> Result<()> {
    check((3, 12))
}

#[test]
fn python_3_13() -> Result<()> {
    check((3, 13))
}

#[test]
fn python_3_14() -> Result<()> {
    check((3, 14))
}

/// The newest interpreter that can be walked.
fn newest() -> Result<Python> {
    pythons::all()?.into_iter().rfind(|python| python.version >= (3, 9)).context("no CPython of 3.9 or later")
}

#[test]
fn an_attached_process() -> Result<()> {
    let sim = Sim::start(Config::default())?;
    let file = sim.scratch().join("attached.vrt");
    let python = newest()?;
    let mut target = sim.command(python.program.to_str().context("an odd path")?)?;
    target.arg(program("processes.py")).arg("attached");
    let (first, said) = attached_between(&sim, target, &file)?;
    ensure!(first == "ready\n", "{first}");
    let run = read(&file, &said)?;
    ensure!(run.said.len() == 1, "{said}");
    for (said, seen) in run.pairs()? {
        assert_equal(said, seen)?;
        assert_merged(said, seen)?;
    }
    Ok(())
}

/// Every code object is named by what it is, not by what was at its address before: with a probe that tells when code
/// objects end, and without (kernels before 6.6), where each is looked at again.
#[test]
fn code_at_a_reused_address() -> Result<()> {
    let pythons: Vec<Python> = pythons::all()?.into_iter().filter(|python| python.version >= (3, 9)).collect();
    let newest = newest()?;
    let runs =
        pythons.iter().map(|python| (python, &[][..])).chain([(&newest, &[("VRAMTRACE_PERF_UPROBES", "1")][..])]);
    for (python, environment) in runs {
        let run = trace_with(environment, python, &[], &["processes.py", "reused_after_fork"])?;
        ensure!(run.said.len() == 2 * 60, "{} allocations", run.said.len());
        let addresses: BTreeSet<&str> = run.said.iter().map(|said| said.case.as_str()).collect();
        ensure!(addresses.len() < 30, "{}: addresses are not used again", python.program.display());
        for (said, seen) in run.pairs()? {
            assert_equal(said, seen).with_context(|| format!("{}, {environment:?}", python.program.display()))?;
        }
    }
    Ok(())
}

#[test]
fn without_native_stacks() -> Result<()> {
    let run = trace(&newest()?, &["--native-stacks", "off"], &["stacks.py"])?;
    for (said, seen) in run.pairs()? {
        assert_equal(said, seen)?;
        ensure!(seen.iter().all(|frame| is_python(&frame)), "{:#?}", names(seen));
    }
    Ok(())
}

#[test]
fn a_stack_that_is_too_deep_says_so() -> Result<()> {
    let run = trace(&newest()?, &[], &["processes.py", "deep"])?;
    let (said, seen) = run.pairs()?[0];
    let python: Vec<String> = seen.iter().filter(is_python).map(line).collect();
    let theirs = said.frames.len();
    // Entries of the interpreter count, and there is at least one.
    ensure!((100..theirs).contains(&python.len()), "{} frames of {theirs}", python.len());
    let inner = &said.frames[theirs - python.len()..];
    let equal = inner
        .iter()
        .zip(&python)
        .all(|((file, line, ..), ours)| line.is_some_and(|line| ours.starts_with(&format!("{file}:{line} "))));
    ensure!(equal, "{python:#?}");
    ensure!(seen[0].kind == FrameKind::Cut, "{:#?}", names(seen));
    Ok(())
}

#[test]
fn a_thread_that_runs_no_python_has_no_python_frames() -> Result<()> {
    let run = trace(&newest()?, &[], &["processes.py", "foreign"])?;
    let stacks: Vec<_> = run.book.allocations.iter().filter_map(|a| run.book.stacks.get(a.stack? as usize)).collect();
    ensure!(!stacks.is_empty(), "no stack");
    for stack in stacks {
        let frames: Vec<Frame> = stack.iter().map(|frame| run.book.frames[*frame as usize].clone()).collect();
        ensure!(frames.iter().all(|frame| frame.kind == FrameKind::Native), "{:#?}", names(&frames));
        ensure!(frames.iter().any(|frame| frame.function == "cudaFree"), "{:#?}", names(&frames));
    }
    Ok(())
}

#[test]
fn an_interpreter_that_cannot_be_walked_is_named() -> Result<()> {
    let Some(python) = pythons::all()?.into_iter().rfind(|p| (3, 7) <= p.version && p.version < (3, 9)) else {
        eprintln!("skipped: no CPython 3.7 or 3.8 on this machine");
        return Ok(());
    };
    let run = trace(&python, &[], &["processes.py", "spawn"])?;
    let named: Vec<_> = run.book.notices.iter().filter(|notice| notice.contains("older than 3.9")).collect();
    ensure!(named.len() == 1, "{:?}", run.book.notices);
    for (_, seen) in run.pairs()? {
        ensure!(seen.iter().all(|frame| frame.kind == FrameKind::Native), "{:#?}", names(seen));
        ensure!(seen[0].function == "_start", "{:#?}", names(seen));
    }
    Ok(())
}

/// What stacks cost the target, said and not judged: machines differ.
#[test]
fn cost() -> Result<()> {
    let python = newest()?;
    let time = |options: Option<&[&str]>| -> Result<u64> {
        let sim = Sim::start(Config::default())?;
        let mut command = match options {
            Some(options) => {
                let mut command = tracer(&sim)?;
                command
                    .args(["run", "--as-root"])
                    .args(options)
                    .arg("-o")
                    .arg(sim.scratch().join("cost.vrt"))
                    .arg("--");
                command.arg(&python.program);
                command
            }
            None => sim.command(python.program.to_str().context("an odd path")?)?,
        };
        let output = command.arg(program("cost.py")).output()?;
        let text = String::from_utf8(output.stdout)?;
        text.trim().parse().with_context(|| format!("{text}{}", String::from_utf8_lossy(&output.stderr)))
    };
    let alone = time(None)?;
    for (what, options) in [("Python stacks", &["--native-stacks", "off"][..]), ("both stacks", &[])] {
        let traced = time(Some(options))?;
        eprintln!("{what}: {traced} ns an allocation and release, {:.2} x", traced as f64 / alone as f64);
    }
    Ok(())
}
