//! Long runs, many events and much that is live: the tracer stays as small as it was. Event counts stand for time, since a server
//! that serves does little else than allocate and free. `VRAMTRACE_LOAD_ROUNDS` and `VRAMTRACE_LOAD_LIVE` make it longer.

use std::fs;

use anyhow::{Context, Result, ensure};
use live_tests::live::{Talk, book, history, run_command, wait_until};
use live_tests::sim::{Config, Sim};

use super::{CONTEXT, MIB, start, traced};

/// What a tracer may grow by, bytes: what an allocator keeps, not what events leave behind.
const SLACK: u64 = 6 * MIB;

fn number(variable: &str, default: u64) -> Result<u64> {
    std::env::var(variable).map_or(Ok(default), |text| text.parse().with_context(|| format!("{variable}={text}")))
}

/// A figure of `/proc/PID/status` in bytes.
fn memory(pid: u32, field: &str) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let kib: u64 = line.and_then(|line| line.split_whitespace().next()).context("no such field")?.parse()?;
    Ok(kib << 10)
}

/// Waits until a tracer has read all, and gives its own memory (the ring buffer, which it shares with the kernel, apart).
fn at_rest(run: &Talk, file: &std::path::Path) -> Result<u64> {
    let mut size = u64::MAX;
    wait_until("a tracer that has read all", || {
        std::thread::sleep(std::time::Duration::from_millis(400));
        Ok(std::mem::replace(&mut size, fs::metadata(file)?.len()) == size)
    })?;
    memory(run.pid(), "RssAnon")
}

#[test]
fn a_tracer_does_not_grow_with_the_length_of_the_run() -> Result<()> {
    let rounds = number("VRAMTRACE_LOAD_ROUNDS", 2000)?;
    let (sim, file) = start()?;
    let mut run = traced(&sim, &file)?;
    let step = |run: &mut Talk, file: &std::path::Path, rounds: u64| -> Result<u64> {
        // In pieces that the ring buffer takes whole.
        for _ in 0..rounds.div_ceil(500) {
            run.order("churn 500")?;
            at_rest(run, file)?;
        }
        at_rest(run, file)
    };
    let before = step(&mut run, &file, rounds / 4)?;
    let begun = fs::metadata(&file)?.len();
    let after = step(&mut run, &file, rounds)?;
    let written = fs::metadata(&file)?.len() - begun;
    let resident = memory(run.pid(), "VmHWM")?;
    println!(
        "{rounds} allocations and frees: {} KiB of memory before, {} KiB after, {} MiB resident at most with the ring \
         buffer; {} bytes of trace each",
        before >> 10,
        after >> 10,
        resident >> 20,
        written / rounds.next_multiple_of(500)
    );
    ensure!(after < before + SLACK, "{before} and {after} bytes");
    run.finish()?;
    ensure!(!book(&file)?.losses.contains_key("ring_full"));
    Ok(())
}

#[test]
fn what_is_live_costs_the_tracer_nothing() -> Result<()> {
    let live = number("VRAMTRACE_LOAD_LIVE", 4000)?;
    let sim = Sim::start(Config { gpu_bytes: (live + 1000) * 2 * MIB, ..Config::default() })?;
    let file = sim.scratch().join("run.vrt");
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    run.order("hold 500")?;
    let before = at_rest(&run, &file)?;
    for _ in 0..live / 500 {
        run.order("hold 500")?;
        at_rest(&run, &file)?;
    }
    let after = at_rest(&run, &file)?;
    let held = (500 + live / 500 * 500) * 2 * MIB + CONTEXT;
    let pid = run.server_pid();
    ensure!(sim.truth()?.live(pid, 0) == held);
    let (status, ..) = run.finish()?;
    ensure!(status.success(), "{status}");
    let book = book(&file)?;
    println!("{live} live allocations: {} KiB of memory before, {} KiB after", before >> 10, after >> 10);
    ensure!(after < before + SLACK, "{before} and {after} bytes");
    let end = book.processes.iter().find(|p| p.pid == pid).and_then(|p| p.died).context("no end")?;
    ensure!(history(&book, pid, end).last() == Some(&held));
    Ok(())
}
