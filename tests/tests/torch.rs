//! `PyTorch`'s caching allocator against its own books: at every mark of a program the blocks and segments in the trace must
//! be the allocator's to the byte.
//!
//! These load BPF programs and need root. `VRAMTRACE` names the binary to test (default: the one built beside).

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use live_tests::live::{attached_between, vramtrace};
use live_tests::pythons;
use live_tests::sim::{Config, Sim};
use serde::Deserialize;
use serde_json::Value;
use tracer::ledger::torch::TorchDevice;
use tracer::ledger::{Book, Timeline};

const MIB: u64 = 1 << 20;

/// The allocator's own figures at a moment.
#[derive(Clone, Debug, Deserialize)]
struct Mark {
    mark: String,
    t: u64,
    device: u32,
    allocated: u64,
    reserved: u64,
    blocks: u64,
    pool_allocated: u64,
    pool_reserved: u64,
    ooms: u64,
    reports: u64,
}

struct Run {
    book: Book,
    marks: Vec<Mark>,
    sim: Sim,
    file: PathBuf,
}

fn python() -> Result<PathBuf> {
    Ok(pythons::all()?
        .into_iter()
        .rfind(|python| python.version >= (3, 9))
        .context("no CPython of 3.9 or later")?
        .program)
}

fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/torch_blocks.py")
}

fn tracer(sim: &Sim) -> Result<Command> {
    sim.command(vramtrace()?.to_str().context("an odd path")?)
}

fn trace(options: &[&str], cases: &[&str]) -> Result<Run> {
    let sim = Sim::start(Config { gpus: 2, ..Config::default() })?;
    let file = sim.scratch().join("run.vrt");
    let mut command = tracer(&sim)?;
    command.args(["run", "--as-root"]).args(options).arg("-o").arg(&file).arg("--");
    let output = command.arg(python()?).arg(program()).args(cases).output()?;
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{}: {errors}", output.status);
    let marks = marks(&String::from_utf8(output.stdout)?)?;
    Ok(Run { book: Book::read(&file)?, marks, sim, file })
}

fn marks(output: &str) -> Result<Vec<Mark>> {
    output.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

fn device(book: &Book, ordinal: u32) -> Result<(usize, &TorchDevice)> {
    let found = book.torch.devices.iter().enumerate().find(|(_, device)| device.ordinal == ordinal);
    found.with_context(|| format!("no blocks of device {ordinal}"))
}

/// At each mark the trace holds what the allocator says; every report is there, and nothing was lost.
fn agrees(run: &Run) -> Result<()> {
    let Run { book, marks, .. } = run;
    assert!(book.losses.is_empty(), "{:?}", book.losses);
    for mark in marks {
        let (number, device) = device(book, mark.device)?;
        let live = || book.torch.blocks.iter().filter(|b| b.device as usize == number && b.live_at(mark.t));
        let segments = || device.segments.iter().zip(device.segments(book)).filter(|(_, row)| row.live_at(mark.t));
        let timeline = Timeline::of(device.segments(book));
        let ours = (
            live().map(|block| block.bytes).sum::<u64>(),
            live().count() as u64,
            device.reserved_at(mark.t, &timeline),
            segments().map(|(_, row)| row.bytes).sum::<u64>(),
            live().filter(|block| block.in_graph_pool).map(|block| block.bytes).sum::<u64>(),
            segments().filter(|(segment, _)| segment.in_graph_pool).map(|(_, row)| row.bytes).sum::<u64>(),
        );
        let own = (mark.allocated, mark.blocks, mark.reserved, mark.reserved, mark.pool_allocated, mark.pool_reserved);
        assert_eq!(ours, own, "{}", mark.mark);
        assert_eq!((device.mismatches, device.reserved_mismatches(&timeline, false)), (0, 0));
    }
    for mark in marks {
        let last = marks.iter().rfind(|other| other.device == mark.device).map_or(0, |mark| mark.reports);
        assert_eq!(device(book, mark.device)?.1.events, last);
    }
    Ok(())
}

#[test]
fn segments_are_split_joined_and_given_back() -> Result<()> {
    let run = trace(&[], &["segments"])?;
    assert_eq!(run.marks.len(), 6);
    agrees(&run)?;
    let peak = run.marks.iter().map(|mark| mark.allocated).max();
    assert_eq!(peak, Some(142 * MIB + 107_008), "the program did what this test is about");
    Ok(())
}

#[test]
fn expandable_segments() -> Result<()> {
    let run = trace(&[], &["expandable"])?;
    agrees(&run)?;
    let (_, device) = device(&run.book, 0)?;
    assert!(device.segments(&run.book).all(|row| row.calls.iter().any(|call| call == "cuMemCreate")));
    Ok(())
}

#[test]
fn private_pools_of_graphs() -> Result<()> {
    let run = trace(&[], &["graphs"])?;
    agrees(&run)?;
    assert!(run.marks.iter().any(|mark| mark.pool_allocated > 0 && mark.pool_allocated < mark.allocated));
    Ok(())
}

#[test]
fn an_allocator_that_gives_up() -> Result<()> {
    let run = trace(&[], &["exhaustion"])?;
    agrees(&run)?;
    let failures = &run.book.torch.failures;
    let mark = run.marks.iter().find(|mark| mark.ooms == 1).context("no mark")?;
    let [failure] = failures[..] else { panic!("{failures:?}") };
    assert_eq!((failure.requested, failure.allocated, failure.reserved), (60 << 30, mark.allocated, mark.reserved));
    assert!(stack(&run.book, failure.stack).contains(&"exhaustion".to_owned()));
    Ok(())
}

#[test]
fn blocks_freed_by_other_threads_and_on_other_devices() -> Result<()> {
    let run = trace(&[], &["threads", "devices"])?;
    agrees(&run)?;
    let gpus: Vec<_> = run.book.torch.devices.iter().map(|device| (device.ordinal, device.gpu)).collect();
    assert_eq!(gpus, [(0, Some(0)), (1, Some(1))]);
    Ok(())
}

#[test]
fn a_burst_without_loss() -> Result<()> {
    let run = trace(&[], &["bursts"])?;
    agrees(&run)?;
    assert_eq!(device(&run.book, 0)?.1.events, 200_000);
    let bytes = std::fs::metadata(&run.file)?.len();
    assert!(bytes < 8 << 20, "{bytes} bytes for 200,000 blocks");
    Ok(())
}

fn stack(book: &Book, stack: Option<u32>) -> Vec<String> {
    let frames = stack.and_then(|stack| book.stacks.get(stack as usize)).map_or(&[][..], Vec::as_slice);
    frames.iter().filter_map(|frame| book.frames.get(*frame as usize)).map(|frame| frame.function.clone()).collect()
}

#[test]
fn which_blocks_bring_their_python_frames() -> Result<()> {
    for (options, from) in [(&["--tensors", "auto"], MIB), (&["--tensors", "on"], 0)] {
        let run = trace(options, &["segments"])?;
        agrees(&run)?;
        for block in &run.book.torch.blocks {
            let function = stack(&run.book, block.stack).iter().any(|name| name == "segments");
            assert_eq!(function, block.bytes >= from, "{options:?}: {block:?}");
        }
        assert!(run.book.torch.blocks.iter().any(|block| block.bytes < MIB));
    }
    let run = trace(&["--tensors", "off"], &["segments", "exhaustion"])?;
    assert!(run.book.torch.devices.is_empty() && run.book.torch.failures.is_empty());
    let library = run.book.libraries.iter().find(|library| library.path.ends_with("/libc10.so"));
    assert!(library.is_none_or(|library| library.placed == 0), "{library:?}");
    Ok(())
}

#[test]
fn what_an_allocator_held_before_attaching() -> Result<()> {
    let sim = Sim::start(Config::default())?;
    let file = sim.scratch().join("attached.vrt");
    let mut target = sim.command(python()?.to_str().context("an odd path")?)?;
    target.arg(program()).arg("attached");
    let (held, said) = attached_between(&sim, target, &file)?;
    let (held, marks) = (marks(&held)?, marks(&said)?);
    let book = Book::read(&file)?;
    let (_, device) = device(&book, 0)?;
    let segments = Timeline::of(device.segments(&book));
    assert_eq!((device.mismatches, device.reserved_mismatches(&segments, true)), (0, 0));
    assert_eq!(device.events, marks[1].reports - held[0].reports);
    let seen = |t| book.torch.blocks.iter().filter(|block| block.live_at(t)).map(|block| block.bytes).sum::<u64>();
    for mark in &marks {
        let figures = device.figures_at(mark.t).context("no figures")?;
        let ours = (seen(mark.t).checked_add_signed(figures.before), device.reserved_at(mark.t, &segments));
        assert_eq!(ours, (Some(mark.allocated), mark.reserved), "{}", mark.mark);
        assert!(figures.before > 0 && (figures.before as u64) < held[0].allocated, "{figures:?}");
    }
    Ok(())
}

#[test]
fn the_report_says_the_same() -> Result<()> {
    let run = trace(&[], &["segments", "graphs"])?;
    for mark in run.marks.iter().filter(|mark| ["made", "emptied", "captured"].contains(&&*mark.mark)) {
        let since = mark.t - run.book.header.t;
        let at = format!("{}.{:09}s", since / 1_000_000_000, since % 1_000_000_000);
        let mut report = tracer(&run.sim)?;
        let output = report.args(["report", "--format", "json", "--at", &at]).arg(&run.file).output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let report: Value = serde_json::from_slice(&output.stdout)?;
        let process = report["processes"].as_array().context("processes")?;
        let torch = process.iter().map(|p| &p["devices"][0]["torch"]).find(|torch| torch.is_object());
        let torch = torch.context("no torch")?;
        let number = |value: &Value| value.as_u64().unwrap_or(u64::MAX);
        assert_eq!(
            (number(&torch["allocated_bytes"]), number(&torch["reserved_bytes"]), number(&torch["slack_bytes"])),
            (mark.allocated, mark.reserved, mark.reserved - mark.allocated),
            "{}",
            mark.mark
        );
        assert_eq!(number(&torch["graph_pools"]["reserved_bytes"]), mark.pool_reserved, "{}", mark.mark);
        let phases = torch["phases"].as_array().context("phases")?;
        let sum = |key: &str| phases.iter().map(|phase| number(&phase[key])).sum::<u64>();
        assert_eq!((sum("allocated_bytes"), sum("reserved_bytes")), (mark.allocated, mark.reserved));
    }
    Ok(())
}
