//! Python stacks against what the target itself says of them: for each interpreter of this machine, every frame of every
//! allocation must equal `traceback`'s.
//!
//! These load BPF programs and need root. `VRAMTRACE` names the binary to test (default: the one built beside).
#![cfg(feature = "live")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use live_tests::pythons::{self, Python};
use live_tests::sim::{Config, Sim, workspace_binary};
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

fn vramtrace() -> Result<PathBuf> {
    std::env::var_os("VRAMTRACE").map_or_else(|| workspace_binary("vramtrace"), |path| Ok(path.into()))
}

fn program(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs").join(name)
}

fn trace(python: &Python, options: &[&str]) -> Result<Run> {
    let sim = Sim::start(Config::default())?;
    let file = sim.scratch().join("run.vrt");
    let mut command = sim.command(vramtrace()?.to_str().context("an odd path")?)?;
    command.args(["run", "--as-root"]).args(options).arg("-o").arg(&file).arg("--");
    let output = command.args(&python.command).arg(program("stacks.py")).output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}: {errors}", output.status);
    let said = String::from_utf8(output.stdout)?
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| line.to_owned()))
        .collect::<Result<_>>()?;
    let book = Book::read(&file).context(errors)?;
    let mut seen = BTreeMap::new();
    for allocation in book.allocations.iter().filter(|a| a.kind == Kind::CudaMalloc) {
        let Some(stack) = allocation.stack.and_then(|stack| book.stacks.get(stack as usize)) else { continue };
        let frames = stack.iter().filter_map(|frame| book.frames.get(*frame as usize)).cloned().collect();
        seen.insert(allocation.bytes >> 21, frames);
    }
    Ok(Run { said, seen, book })
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
    // Before 3.11 each Python call takes native stack: deep recursion goes beyond the copied part of it.
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
        // Three times Python, C's sort, Python again: each of the sorts lies between two Python frames.
        let sorts = seen.iter().enumerate().filter(|(_, frame)| !is_python(frame) && frame.function == "qsort_r").map(|(n, _)| n);
        let caller = |n: usize| seen[..n].iter().rfind(is_python).map(|frame| frame.function.clone());
        let callers: Vec<Option<String>> = sorts.map(caller).collect();
        ensure!(callers.len() == 3, "{callers:?} {shown:#?}");
        let mut inner = callers.iter().flatten();
        ensure!(inner.all(|name| name.ends_with("qsort_callbacks")), "{callers:?}");
    }
    Ok(())
}

fn check(version: (u8, u8)) -> Result<()> {
    let found: Vec<Python> = pythons::all()?.into_iter().filter(|python| python.version == version).collect();
    if found.is_empty() {
        eprintln!("skipped: no CPython {}.{} on this machine", version.0, version.1);
    }
    for python in found {
        let run = trace(&python, &[]).with_context(|| format!("{:?}", python.command))?;
        compare(&run).with_context(|| format!("{:?}", python.command))?;
    }
    Ok(())
}

fn compare(run: &Run) -> Result<()> {
    ensure!(run.said.len() > 60, "the target said little: {}", run.said.len());
    ensure!(run.book.losses.is_empty(), "{:?}", run.book.losses);
    for said in &run.said {
        let seen = run.seen.get(&said.number).with_context(|| format!("{}: no stack", said.case))?;
        assert_equal(said, seen)?;
        assert_merged(said, seen)?;
    }
    let all = run.seen.values().flatten();
    ensure!(all.clone().all(|frame| !frame.function.contains("busy_bystander")), "another thread's frames");
    Ok(())
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
