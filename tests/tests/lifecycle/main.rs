//! How tracing ends: signals, time limits, kills of either side, a full disk. The target must not notice, the trace must be
//! readable, and nothing may stay behind.

mod holds;
mod serving;
mod signals;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use live_tests::live::{
    Footprint, Talk, attach, attach_command, book, code_is_untouched, goes_on, held_at_end, patience, run_command,
    vramtrace, wait_until,
};
use live_tests::sim::{Config, Sim, detach};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tracer::attach::find::descendants;
use tracer::trace::record::Outcome;

const MIB: u64 = 1 << 20;
/// Kills while probes are placed, and how many of the last links they are spread over.
const ROUNDS: usize = 24;
const SPREAD: usize = 8;
/// A context of the simulated GPU.
const CONTEXT: u64 = 518 * MIB;

fn start() -> Result<(Sim, PathBuf)> {
    let mut sim = Sim::start(Config::default())?;
    // Other tests probe libraries at the same time: nobody else may touch those whose code is looked at.
    sim.own_libraries()?;
    let file = sim.scratch().join("run.vrt");
    Ok((sim, file))
}

fn running(why: &str) -> Option<Outcome> {
    Some(Outcome::Running { why: why.to_owned() })
}

/// Long enough for the tracer to have written all that was seen before.
fn let_it_flush() {
    sleep(Duration::from_millis(500));
}

/// The server runs as if there never had been a tracer.
fn unharmed(server: &mut Talk, footprint: &Footprint) -> Result<()> {
    footprint.gone()?;
    code_is_untouched(server.server_pid(), "libcuda.so.1")?;
    code_is_untouched(server.server_pid(), "libcudart.so.12")?;
    server.order("alloc 4")
}

#[test]
fn a_time_limit_ends_tracing_not_the_target() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = Talk::server(run_command(&sim, &file, &["--until", "1s"])?)?;
    run.order("alloc 10")?;
    let footprint = Footprint::of(run.pid())?;
    footprint.gone()?;
    let book = book(&file)?;
    ensure!(book.outcome == running("until"), "{:?}", book.outcome);
    ensure!(held_at_end(&book, run.server_pid()) == CONTEXT + 10 * MIB);
    unharmed(&mut run, &footprint)?;
    // It stands in front of the target as before.
    run.order("report 10")?;
    run.signal(Signal::SIGUSR1)?;
    ensure!(run.answer("signal")? == 10);
    run.order("ending 15")?;
    run.signal(Signal::SIGTERM)?;
    run.answer("ending")?;
    ensure!(run.wait()?.code() == Some(5));
    Ok(())
}

/// Kills the tracer and looks at what it leaves; `allocated` is what the server had when the trace was last flushed.
fn killed(prepare: fn(&mut Talk) -> Result<()>, allocated: Option<u64>) -> Result<()> {
    let (sim, file) = start()?;
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    prepare(&mut run)?;
    let footprint = Footprint::of(run.pid())?;
    run.signal(Signal::SIGKILL)?;
    run.wait()?;
    run.order("alloc 2")?;
    unharmed(&mut run, &footprint)?;
    let book = book(&file)?;
    ensure!(book.outcome.is_none(), "{:?}", book.outcome);
    if let Some(bytes) = allocated {
        let held = held_at_end(&book, run.server_pid());
        ensure!(held == bytes, "{held}, not {bytes}");
    }
    Ok(())
}

#[test]
fn kill_9_before_the_first_call() -> Result<()> {
    killed(|_| Ok(()), None)
}

#[test]
fn kill_9_after_some_calls() -> Result<()> {
    let prepare = |run: &mut Talk| {
        run.order("alloc 10")?;
        run.order("alloc 20")?;
        let_it_flush();
        Ok(())
    };
    killed(prepare, Some(CONTEXT + 30 * MIB))
}

#[test]
fn kill_9_in_the_middle_of_calls() -> Result<()> {
    killed(|run| run.order("busy"), None)
}

/// The kernel takes no breakpoint out for a process that is about to be killed: it is not the tracer that closes its links.
#[test]
fn kill_9_while_the_probes_are_taken_out() -> Result<()> {
    let (sim, file) = start()?;
    let mut server = Talk::server(sim.command("server")?)?;
    server.order("alloc 10")?;
    for round in 0..5 {
        let mut tracer = attach(&sim, &file, &["--force", "--pid", &server.server_pid().to_string()])?;
        let footprint = Footprint::of(tracer.pid())?;
        tracer.signal(Signal::SIGINT)?;
        // When this is depends on the machine: its descriptors tell, and no two rounds go equally far.
        let links = || Footprint::so_far(tracer.pid()).links();
        let all = links();
        wait_until("the first link to be closed", || Ok(links() < all))?;
        sleep(Duration::from_millis(round));
        tracer.signal(Signal::SIGKILL)?;
        tracer.wait()?;
        unharmed(&mut server, &footprint)?;
    }
    Ok(())
}

/// The same as they are placed, which takes some milliseconds a library, in one system call: the kernel takes out what it
/// has placed for a caller that is about to be killed no more than other breakpoints.
#[test]
fn kill_9_while_the_probes_are_placed() -> Result<()> {
    let (sim, file) = start()?;
    let mut server = Talk::server(sim.command("server")?)?;
    server.order("alloc 10")?;
    let whole = attach(&sim, &file, &["--pid", &server.server_pid().to_string()])?;
    let all = Footprint::so_far(whole.pid()).links();
    drop(whole);
    for round in 0..ROUNDS {
        let options = ["--force", "--pid", &server.server_pid().to_string()];
        let mut tracer = Talk::start(attach_command(&sim, &file, &options)?)?;
        // A link more each time, and a while after that.
        let wanted = all.saturating_sub(round % SPREAD);
        let begun = Instant::now();
        while Footprint::so_far(tracer.pid()).links() < wanted {
            ensure!(begun.elapsed() < patience(), "round {round}: no {wanted} links");
        }
        sleep(Duration::from_micros(100 * (round / SPREAD) as u64));
        let footprint = Footprint::so_far(tracer.pid());
        tracer.signal(Signal::SIGKILL)?;
        tracer.wait()?;
        let context = || format!("round {round}: {wanted} of {all} links");
        unharmed(&mut server, &footprint).with_context(context)?;
    }
    Ok(())
}

#[test]
fn kill_9_of_the_target() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    run.order("alloc 10")?;
    let pid = run.server_pid();
    kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL)?;
    ensure!(run.wait()?.code() == Some(128 + 9));
    let book = book(&file)?;
    ensure!(book.outcome == Some(Outcome::Killed { signal: 9 }), "{:?}", book.outcome);
    let process = book.processes.iter().find(|p| p.pid == pid).context("no process")?;
    ensure!(process.exit_signal == Some(9), "{process:?}");
    ensure!(held_at_end(&book, pid) == 0);
    Ok(())
}

#[test]
fn a_crash_of_the_target() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    run.order("alloc 10")?;
    let pid = run.server_pid();
    run.say("crash 16")?;
    ensure!(run.wait()?.code() == Some(128 + 11));
    let book = book(&file)?;
    ensure!(book.outcome == Some(Outcome::Killed { signal: 11 }), "{:?}", book.outcome);
    // All of it was there until the crash.
    let end = book.processes.iter().find(|p| p.pid == pid).and_then(|p| p.died).context("no end")?;
    ensure!(book.live_at(end - 1, |_| true) == CONTEXT + 10 * MIB);
    ensure!(held_at_end(&book, pid) == 0);
    Ok(())
}

/// A small file system of its own.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn new(at: PathBuf, size: &str) -> Result<Self> {
        fs::create_dir(&at)?;
        let size = format!("size={size}");
        ensure!(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "small"]).arg(&at).status()?.success());
        Ok(Self(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        _ = detach(&self.0);
    }
}

#[test]
fn a_full_disk_is_one_error_and_no_harm() -> Result<()> {
    let (sim, _) = start()?;
    let disk = SmallDisk::new(sim.scratch().join("small"), "32k")?;
    let file = disk.0.join("run.vrt");
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    run.order("alloc 10")?;
    let footprint = Footprint::of(run.pid())?;
    run.order("busy")?;
    footprint.gone().context("the trace was never too large")?;
    unharmed(&mut run, &footprint)?;
    run.say("exit 3")?;
    let (status, _, errors) = run.finish()?;
    // A failure of ours.
    ensure!(status.code() == Some(1), "{status}");
    ensure!(errors.lines().count() == 1 && errors.contains("No space left on device"), "{errors}");
    let book = book(&file)?;
    ensure!(book.outcome.is_none() && book.allocations.iter().any(|a| a.bytes == 10 * MIB), "{book:?}");
    Ok(())
}

/// Bytes, exit code, standard streams: of a command that is no CUDA program at all.
#[test]
fn streams_and_exit_code_are_the_commands_own() -> Result<()> {
    let (sim, file) = start()?;
    let mut command = Command::new(vramtrace()?);
    command.arg("run").arg("-o").arg(&file).args(["--", "sh", "-c", "cat; printf 'e\\000\\377' >&2; exit 7"]);
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    fs::write(sim.scratch().join("input"), &bytes)?;
    command.stdin(fs::File::open(sim.scratch().join("input"))?).stdout(Stdio::piped()).stderr(Stdio::piped());
    let output = command.output()?;
    ensure!(output.status.code() == Some(7) && output.stdout == bytes, "{}", output.status);
    ensure!(output.stderr.starts_with(b"e\0\xff") && output.stderr.ends_with(b".vrt\n"));
    Ok(())
}

#[test]
fn probes_are_out_quickly() -> Result<()> {
    let (sim, file) = start()?;
    let mut server = Talk::server(sim.command("server")?)?;
    server.order("alloc 10")?;
    server.order("busy")?;
    let mut tracer = attach(&sim, &file, &["--pid", &server.server_pid().to_string()])?;
    sleep(Duration::from_millis(300));
    let footprint = Footprint::of(tracer.pid())?;
    let begin = Instant::now();
    tracer.signal(Signal::SIGKILL)?;
    tracer.wait()?;
    let killed = begin.elapsed();
    footprint.gone()?;
    let probes: u32 = book(&file)?.libraries.iter().map(|library| library.placed).sum();
    println!("{probes} probes of a process that is killed are out after {killed:.0?}, freed {:.0?}", begin.elapsed());
    ensure!(probes > 100, "{probes} probes");
    // What perf's probes take here: ten seconds and more. Not a timed test.
    ensure!(killed < Duration::from_secs(5), "{killed:?}");
    ensure!(goes_on(server.server_pid()));
    Ok(())
}

/// The guard is gone a moment after the tracer, and holds none of its streams.
#[test]
fn no_process_stays_behind() -> Result<()> {
    let (sim, file) = start()?;
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    let children = descendants(run.pid());
    ensure!(children.len() == 4, "itself, the server, the guard and its member of the group: {children:?}");
    let children: Vec<_> = children.iter().map(|pid| Path::new("/proc").join(pid.to_string())).collect();
    run.close();
    ensure!(run.wait()?.success());
    wait_until("the guard's end", || Ok(children.iter().all(|child| !child.join("fd").exists() || is_zombie(child))))
}

fn is_zombie(process: &Path) -> bool {
    fs::read_to_string(process.join("stat")).is_ok_and(|stat| stat.contains(") Z "))
}
