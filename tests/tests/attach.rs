//! `vramtrace attach`: beside servers that run already, and those that start later.

use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use live_tests::live::{
    Talk, alone, attach, book, exact, goes_on, held_at_end, in_company, run_command, vramtrace, wait_until,
};
use live_tests::sim::{Config, Sim};
use nix::sys::signal::Signal;
use tracer::ledger::{Book, Death, Kind};
use tracer::trace::record::Outcome;

const MIB: u64 = 1 << 20;
/// A context of the simulated GPU.
const CONTEXT: u64 = 518 * MIB;

fn start() -> Result<(Sim, PathBuf)> {
    let sim = Sim::start(Config::default())?;
    let file = sim.scratch().join("attach.vrt");
    Ok((sim, file))
}

fn server(sim: &Sim) -> Result<Talk> {
    Talk::server(sim.command("server")?)
}

/// Ctrl-C for the tracer; the server goes on.
fn end(mut tracer: Talk, server: &mut Talk) -> Result<()> {
    tracer.signal(Signal::SIGINT)?;
    let status = tracer.wait()?;
    ensure!(status.success(), "{status}: {}", tracer.errors());
    server.order("alloc 1")?;
    server.order("free")
}

fn bytes_of(book: &Book, pid: u32, kind: Kind) -> Vec<u64> {
    let of = |a: &&tracer::ledger::Allocation| book.processes[a.process].pid == pid && a.kind == kind;
    book.allocations.iter().filter(of).map(|a| a.bytes).collect()
}

#[test]
fn what_was_there_is_one_line_and_what_comes_is_exact() -> Result<()> {
    let _company = in_company();
    let (sim, file) = start()?;
    let mut server = server(&sim)?;
    server.order("alloc 10")?;
    server.order("alloc 20")?;
    let pid = server.server_pid();
    let before = sim.smi()?.processes[&(0, pid)];
    let tracer = attach(&sim, &file, &["--pid", &pid.to_string()])?;
    // Until NVML was asked what there is.
    sleep(Duration::from_millis(500));
    server.order("alloc 30")?;
    server.order("alloc 40")?;
    server.order("free")?;
    sleep(Duration::from_millis(500));
    let now = sim.smi()?.processes[&(0, pid)];
    end(tracer, &mut server)?;
    let book = book(&file)?;
    ensure!(bytes_of(&book, pid, Kind::PreAttach) == [before], "{before}: {:?}", book.allocations);
    ensure!(bytes_of(&book, pid, Kind::CudaMalloc) == [30 * MIB, 40 * MIB], "{:?}", book.allocations);
    ensure!(held_at_end(&book, pid) == now && now == before + 30 * MIB);
    ensure!(book.outcome == Some(Outcome::Running { why: "interrupted".to_owned() }), "{:?}", book.outcome);
    ensure!(book.processes.iter().any(|p| p.pid == pid && p.attached));
    let quiet: Vec<_> = book.samples.iter().filter(|s| s.quiet).collect();
    ensure!(!quiet.is_empty() && quiet.iter().all(|s| s.nvml == s.live), "{:?}", book.samples);
    Ok(())
}

#[test]
fn memory_from_before_can_be_freed() -> Result<()> {
    let _company = in_company();
    let (sim, file) = start()?;
    let mut server = server(&sim)?;
    server.order("alloc 10")?;
    server.order("alloc 20")?;
    let pid = server.server_pid();
    let tracer = attach(&sim, &file, &["--pid", &pid.to_string()])?;
    sleep(Duration::from_millis(500));
    server.order("free")?;
    sleep(Duration::from_millis(500));
    end(tracer, &mut server)?;
    let book = book(&file)?;
    ensure!(held_at_end(&book, pid) == CONTEXT + 10 * MIB, "{:?}", book.allocations);
    ensure!(book.allocations.iter().any(|a| matches!(a.died, Some((_, Death::Adjusted)))), "{:?}", book.allocations);
    Ok(())
}

#[test]
fn a_server_that_starts_later_is_seen_from_its_first_call() -> Result<()> {
    let _alone = alone();
    let (sim, file) = start()?;
    let word = sim.scratch().display().to_string();
    let tracer = attach(&sim, &file, &["--match", &format!("server ready {word}$")])?;
    let mut command = sim.command("server")?;
    command.args(["ready", &word]);
    let (mut wanted, mut other) = (Talk::server(command)?, server(&sim)?);
    for server in [&mut wanted, &mut other] {
        server.order("alloc 10")?;
        server.order("alloc 20")?;
        server.order("free")?;
    }
    end(tracer, &mut wanted)?;
    let (truth, book) = (sim.truth()?, book(&file)?);
    // What it did after the tracer's end is in the truth alone.
    let seen = live_tests::live::history(&book, wanted.server_pid(), u64::MAX);
    let all: Vec<u64> = truth.history(wanted.server_pid(), 0).into_iter().map(|(_, live)| live).collect();
    ensure!(all.starts_with(&seen) && seen.last() == Some(&(CONTEXT + 10 * MIB)), "{seen:?} of {all:?}");
    ensure!(book.processes.iter().all(|p| p.pid == wanted.server_pid()), "{:?}", book.processes);
    // It was held until the probes were in.
    ensure!(!book.libraries.is_empty() && book.libraries.iter().all(|l| !l.late), "{:?}", book.libraries);
    Ok(())
}

/// A server's main process has the command line; its ranks name themselves, and run already.
#[test]
fn what_descends_from_a_match_is_traced() -> Result<()> {
    let _alone = alone();
    let (sim, file) = start()?;
    let word = sim.scratch().display().to_string();
    let mut command = sim.command("/bin/sh")?;
    command.args(["-c", "\"$@\"; :", &word]).arg(sim.program("server")).arg("ready");
    let mut server = Talk::server(command)?;
    let pid = server.server_pid();
    server.order("alloc 10")?;
    let tracer = attach(&sim, &file, &["--match", &word])?;
    server.order("alloc 20")?;
    end(tracer, &mut server)?;
    let book = book(&file)?;
    ensure!(held_at_end(&book, pid) == CONTEXT + 30 * MIB, "{:?}", book.allocations);
    // The tracer has the word on its command line too.
    ensure!(book.processes.iter().all(|process| process.pid == pid), "{:?}", book.processes);
    Ok(())
}

#[test]
fn by_default_all_that_use_cuda_are_traced() -> Result<()> {
    let _alone = alone();
    let (sim, file) = start()?;
    let (mut first, mut idle) = (server(&sim)?, server(&sim)?);
    first.order("alloc 10")?;
    let mut tracer = attach(&sim, &file, &[])?;
    sleep(Duration::from_millis(500));
    let mut later = server(&sim)?;
    for server in [&mut later, &mut idle, &mut first] {
        server.order("alloc 20")?;
    }
    let pids = [&first, &idle, &later].map(Talk::server_pid);
    for mut server in [later, idle] {
        server.say("exit 0")?;
        server.wait()?;
    }
    tracer.signal(Signal::SIGINT)?;
    ensure!(tracer.wait()?.success());
    let book = book(&file)?;
    let held = held_at_end(&book, pids[0]);
    ensure!(held == CONTEXT + 30 * MIB, "{} MiB of {}: {:?}", held / MIB, pids[0], book.losses);
    let truth = sim.truth()?;
    exact(&book, &truth, pids[1]).context("it ran, and loaded libcuda later")?;
    exact(&book, &truth, pids[2]).context("it started later")
}

/// Both stop a server for a library that is new to them, and either lets it go on. It is stopped for the next one, perhaps,
/// before the slower tracer has dealt with the first stop.
#[test]
fn two_tracers_that_hold_one_server() -> Result<()> {
    let _alone = alone();
    let (sim, file) = start()?;
    let other = attach(&sim, &sim.scratch().join("other.vrt"), &["--match", "a server that never starts"])?;
    let mut run = Talk::server(run_command(&sim, &file, &[])?)?;
    let mut paths = Vec::new();
    for number in 0..20 {
        let place = sim.scratch().join(number.to_string());
        std::fs::create_dir(&place)?;
        let path = place.join("libcuda.so.1");
        std::fs::copy(sim.libraries().join("libcuda.so.1"), &path)?;
        // Not asked one by one: the server goes on as soon as it can.
        run.say(&format!("driver {}", path.display()))?;
        paths.push(path.display().to_string());
    }
    for path in &paths {
        ensure!(run.answer("driver")? == 0, "{path}");
    }
    // Until the tracer has come to the last one too.
    sleep(Duration::from_millis(500));
    let (status, _, errors) = run.finish()?;
    ensure!(status.success(), "{errors}");
    drop(other);
    let book = book(&file)?;
    for path in paths {
        ensure!(book.libraries.iter().any(|library| library.path == path), "{path}: {:?}", book.libraries);
    }
    Ok(())
}

/// Of containers that start later, libc and dynamic linker are their own.
#[test]
fn by_default_new_containers_are_traced_too() -> Result<()> {
    let _alone = alone();
    let (mut sim, file) = start()?;
    let environment = sim.make_root()?;
    let mut tracer = attach(&sim, &file, &[])?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "chroot"]).arg(sim.scratch()).arg("/server").envs(environment);
    let mut server = Talk::server(command)?;
    // Its start is looked at while it runs.
    sleep(Duration::from_millis(500));
    server.order("alloc 10")?;
    let pid = server.server_pid();
    server.say("exit 0")?;
    server.wait()?;
    tracer.signal(Signal::SIGINT)?;
    ensure!(tracer.wait()?.success());
    exact(&book(&file)?, &sim.settled()?, pid)
}

#[test]
fn descendants_are_traced_too() -> Result<()> {
    let _company = in_company();
    let (sim, file) = start()?;
    let mut server = server(&sim)?;
    server.say("child")?;
    let before = server.answer("ready")?;
    let pid = server.server_pid();
    let tracer = attach(&sim, &file, &["--pid", &pid.to_string()])?;
    let order = |server: &mut Talk, line: &str| -> Result<()> {
        server.say(&format!("below {line}"))?;
        ensure!(server.answer("alloc")? == 0, "{line}");
        Ok(())
    };
    order(&mut server, "alloc 10")?;
    server.say("child")?;
    let after = server.answer("ready")?;
    order(&mut server, "alloc 20")?;
    server.order("alloc 30")?;
    end(tracer, &mut server)?;
    let book = book(&file)?;
    for (pid, mib) in [(before, 10), (after, 20), (pid.cast_signed(), 30)] {
        let held = held_at_end(&book, pid.cast_unsigned());
        ensure!(held == CONTEXT + mib * MIB, "{pid}: {held}");
    }
    Ok(())
}

#[test]
fn a_process_that_executes_another_image_starts_anew() -> Result<()> {
    let _company = in_company();
    let (sim, file) = start()?;
    let mut server = server(&sim)?;
    server.order("alloc 10")?;
    let pid = server.server_pid();
    let tracer = attach(&sim, &file, &["--pid", &pid.to_string()])?;
    sleep(Duration::from_millis(500));
    server.say("exec")?;
    ensure!(server.answer("again")? == pid.cast_signed());
    server.order("alloc 70")?;
    sleep(Duration::from_millis(500));
    end(tracer, &mut server)?;
    let book = book(&file)?;
    ensure!(held_at_end(&book, pid) == CONTEXT + 70 * MIB, "{:?}", book.allocations);
    ensure!(book.allocations.iter().filter(|a| a.kind == Kind::PreAttach).all(|a| a.died.is_some()));
    Ok(())
}

#[test]
fn tracing_ends_with_the_process() -> Result<()> {
    let _company = in_company();
    let (sim, file) = start()?;
    let mut server = server(&sim)?;
    let pid = server.server_pid();
    let mut tracer = attach(&sim, &file, &["--pid", &pid.to_string()])?;
    server.order("alloc 10")?;
    server.say("exit 3")?;
    ensure!(tracer.wait()?.success());
    let book = book(&file)?;
    exact(&book, &sim.settled()?, pid)?;
    ensure!(book.processes.iter().any(|p| p.pid == pid && p.exit_code == Some(3)), "{:?}", book.processes);
    Ok(())
}

#[test]
fn tracing_ends_after_a_time() -> Result<()> {
    let _company = in_company();
    let (sim, file) = start()?;
    let server = server(&sim)?;
    let mut tracer = attach(&sim, &file, &["--pid", &server.server_pid().to_string(), "--until", "300ms"])?;
    ensure!(tracer.wait()?.success());
    ensure!(book(&file)?.outcome == Some(Outcome::Running { why: "until".to_owned() }));
    ensure!(goes_on(server.server_pid()));
    Ok(())
}

fn refusal(arguments: &[&str]) -> Result<String> {
    let output = Command::new(vramtrace()?).args(["attach", "-o", "/dev/null"]).args(arguments).output()?;
    ensure!(output.status.code() == Some(1), "{}", output.status);
    Ok(String::from_utf8(output.stderr)?)
}

#[test]
fn a_process_that_is_none_is_named() -> Result<()> {
    let mut gone = Command::new("true").spawn()?;
    let pid = gone.id().to_string();
    wait_until("a zombie", || Ok(live_tests::live::state(gone.id()) == Some('Z')))?;
    let zombie = refusal(&["--pid", &pid])?;
    gone.wait()?;
    ensure!(zombie == format!("vramtrace: process {pid} is a zombie or of the kernel: see ps\n"), "{zombie}");
    let none = refusal(&["--pid", &pid])?;
    ensure!(none == format!("vramtrace: there is no process {pid}: see ps\n"), "{none}");
    let thread = std::thread::spawn(|| {
        let thread = nix::unistd::gettid();
        (thread, refusal(&["--pid", &thread.to_string()]))
    });
    let (tid, told) = thread.join().map_err(|_| anyhow::anyhow!("it panicked"))?;
    let (told, own) = (told?, std::process::id());
    ensure!(told == format!("vramtrace: {tid} is a thread of process {own}: type --pid {own}\n"), "{told}");
    Ok(())
}
