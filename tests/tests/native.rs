//! Native stacks: those in the trace equal gdb's, frame for frame, inlined functions and lines included.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use live_tests::live::{book, vramtrace};
use live_tests::sim::{Config, Sim};
use tracer::ledger::Book;
use tracer::trace::record::Frame;

/// Function, file name and line of a frame; what is not known is `None`.
type Place = (Option<String>, Option<String>, Option<u32>);

/// Stacks that gdb finds at each request to the resource manager, innermost frame first.
fn gdbs(sim: &Sim, scenario: &str) -> Result<Vec<Vec<Place>>> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/stacks.gdb.py");
    let file = sim.scratch().join("gdb.jsonl");
    let mut command = sim.command("/usr/bin/gdb")?;
    command.args(["-nx", "-batch", "-x"]).arg(script).arg("--args").arg(sim.program("scenario")).arg(scenario);
    let output = command.env("STACKS", &file).output().context("gdb")?;
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let text = fs::read_to_string(&file).with_context(|| said.clone())?;
    let stacks: Vec<Vec<Place>> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    ensure!(!stacks.is_empty(), "gdb saw no request: {said}");
    Ok(stacks)
}

/// Stacks of the trace, innermost frame first.
fn ours(sim: &Sim, scenario: &str) -> Result<Book> {
    let file = sim.scratch().join("run.vrt");
    let mut command = sim.command(vramtrace()?.to_str().context("an odd path")?)?;
    command.args(["run", "--as-root", "-o"]).arg(&file).arg("--").arg(sim.program("scenario")).arg(scenario);
    let output = command.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    book(&file)
}

fn place(frame: &Frame) -> Place {
    let name = |path: &String| path.rsplit('/').next().unwrap_or(path).to_owned();
    (Some(frame.function.clone()).filter(|name| !name.is_empty()), frame.file.as_ref().map(name), frame.line)
}

/// A frame of code without debug information in the file itself (libc, the start-up code) counts as a frame: gdb takes its
/// name and line from elsewhere, and of several names of one function another than we do.
fn agree(gdb: &Place, ours: &Place) -> bool {
    ours.1.is_none() || gdb == ours
}

fn compare(scenario: &str) -> Result<()> {
    let sim = Sim::start(Config::default())?;
    let gdbs = gdbs(&sim, scenario)?;
    let book = ours(&sim, scenario)?;
    let rows: Vec<_> = book.allocations.iter().filter_map(|row| row.stack).collect();
    ensure!(!rows.is_empty(), "no stack in the trace");
    let mut gdbs = gdbs.into_iter();
    for stack in rows {
        let ours: Vec<Place> =
            book.stacks[stack as usize].iter().rev().map(|frame| place(&book.frames[*frame as usize])).collect();
        // gdb stops at requests of other kinds too.
        let fits = |gdb: &Vec<Place>| gdb.len() == ours.len() && gdb.iter().zip(&ours).all(|(a, b)| agree(a, b));
        let mut passed = Vec::new();
        let found = gdbs.by_ref().any(|gdb| {
            fits(&gdb) || {
                passed.push(gdb);
                false
            }
        });
        ensure!(found, "no stack of gdb's equals {ours:#?}; the next was {:#?}", passed.first());
        ensure!(
            ours.iter().any(|(function, ..)| function.as_deref() == Some("main")),
            "main is not reached: {ours:#?}"
        );
    }
    Ok(())
}

#[test]
fn stacks_of_allocations_equal_gdbs() -> Result<()> {
    compare("large")
}

#[test]
fn stacks_of_vmm_handles_equal_gdbs() -> Result<()> {
    compare("expandable_segments")
}
