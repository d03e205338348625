//! Disks that are slow, broken, or taken away: one error or none, and no harm to the target. What was seen while a disk kept the
//! tracer waiting is there.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use live_tests::disk::{BadDisk, Trouble};
use live_tests::live::{Footprint, Talk, book, exact, history, run_command, vramtrace, wait_until};
use nix::errno::Errno;

use super::{MIB, start, traced};

#[test]
fn a_slow_disk_costs_nothing() -> Result<()> {
    let (sim, _) = start()?;
    let disk = BadDisk::mount(&sim.scratch().join("slow"), Trouble::Slow(Duration::from_millis(150)))?;
    let mut run = traced(&sim, &disk.file())?;
    run.order("churn 300")?;
    let pid = run.server_pid();
    let (status, ..) = run.finish()?;
    ensure!(status.success() && disk.met(), "{status}");
    exact(&book(&disk.file())?, &sim.settled()?, pid)
}

/// The ring buffer takes what comes while the tracer waits for its disk: driver requests to the last, of stacks a part.
#[test]
fn a_disk_that_stalls_costs_stacks_but_no_bytes() -> Result<()> {
    let (sim, _) = start()?;
    let disk = BadDisk::mount(&sim.scratch().join("stalled"), Trouble::Stalled(4096))?;
    let mut run = traced(&sim, &disk.file())?;
    let pid = run.server_pid();
    while !disk.met() {
        run.order("churn 100")?;
    }
    run.order("churn 2500")?;
    disk.heal();
    let (status, ..) = run.finish()?;
    ensure!(status.success(), "{status}");
    let (book, truth) = (book(&disk.file())?, sim.settled()?);
    ensure!(book.losses.contains_key("ring_full_stack"), "{:?}", book.losses);
    let end = book.processes.iter().find(|p| p.pid == pid).and_then(|p| p.died).context("no end")?;
    let theirs = truth.history(pid, 0).into_iter().take_while(|(t, _)| *t < end).map(|(_, live)| live);
    ensure!(history(&book, pid, end).into_iter().eq(theirs));
    Ok(())
}

/// The trace cannot be written on: the target goes on without probes, and what was written before is there.
fn cut_short(mut run: Talk, why: &str, meet: impl Fn(&mut Talk) -> Result<()>) -> Result<()> {
    let footprint = Footprint::of(run.pid())?;
    meet(&mut run)?;
    footprint.gone().context("it goes on tracing")?;
    run.order("alloc 4")?;
    run.say("exit 3")?;
    let (status, _, errors) = run.finish()?;
    // A failure of ours.
    ensure!(status.code() == Some(1), "{status}: {errors}");
    ensure!(errors.lines().count() == 1 && errors.contains(why) && errors.contains("goes on untraced"), "{errors}");
    Ok(())
}

fn has_the_first_allocation(file: &std::path::Path) -> Result<()> {
    let book = book(file)?;
    ensure!(book.outcome.is_none() && book.allocations.iter().any(|a| a.bytes == 10 * MIB), "{book:?}");
    Ok(())
}

/// Long enough for what was seen to be in the file.
fn let_it_flush() {
    std::thread::sleep(Duration::from_millis(500));
}

#[test]
fn a_disk_with_errors() -> Result<()> {
    let (sim, _) = start()?;
    let disk = BadDisk::mount(&sim.scratch().join("broken"), Trouble::Broken(24 << 10))?;
    let run = traced(&sim, &disk.file())?;
    cut_short(run, "Input/output error", |run| {
        while !disk.met() {
            run.order("churn 100")?;
        }
        Ok(())
    })?;
    let copy = sim.scratch().join("copy.vrt");
    disk.save(&copy)?;
    has_the_first_allocation(&copy)
}

#[test]
fn a_limit_on_file_sizes() -> Result<()> {
    let (sim, file) = start()?;
    let mut command = run_command(&sim, &file, &[])?;
    let limit = libc::rlimit { rlim_cur: 16 << 10, rlim_max: 16 << 10 };
    // SAFETY: a system call that is safe after fork, on a structure of the closure's own.
    unsafe {
        command.pre_exec(move || Ok(Errno::result(libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit)).map(drop)?));
    }
    let mut run = Talk::server(command)?;
    run.order("alloc 10")?;
    cut_short(run, "File too large", |run| run.order("busy"))?;
    has_the_first_allocation(&file)
}

#[test]
fn an_output_directory_that_is_removed() -> Result<()> {
    let (sim, _) = start()?;
    let directory = sim.scratch().join("gone");
    fs::create_dir(&directory)?;
    let run = traced(&sim, &directory.join("run.vrt"))?;
    let_it_flush();
    cut_short(run, "was removed while it was written", |_| Ok(fs::remove_dir_all(&directory)?))
}

/// Moved, it is the same file.
#[test]
fn a_trace_that_is_moved() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = traced(&sim, &file)?;
    let moved = sim.scratch().join("moved.vrt");
    wait_until("the trace", || Ok(file.exists()))?;
    fs::rename(&file, &moved)?;
    run.order("alloc 20")?;
    let pid = run.server_pid();
    let (status, _, errors) = run.finish()?;
    ensure!(status.success() && !errors.contains("(0 B"), "{status}: {errors}");
    exact(&book(&moved)?, &sim.settled()?, pid)
}

/// `vramtrace run … 2>&1 | head`: whoever read our standard error is gone.
#[test]
fn nobody_reads_standard_error() -> Result<()> {
    let (sim, file) = start()?;
    let mut command: Command = sim.command(&vramtrace()?.to_string_lossy())?;
    command.args(["run", "--as-root", "-v", "-o"]).arg(&file).args(["--", "sh", "-c", "exit 5"]);
    let mut child = command.stderr(std::process::Stdio::piped()).spawn()?;
    drop(child.stderr.take());
    ensure!(child.wait()?.code() == Some(5));
    ensure!(book(&file)?.outcome.is_some());
    Ok(())
}
