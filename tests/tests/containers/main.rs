//! Targets in containers, seen from outside: namespaces of their own, libraries and a root of their own. And a tracer that
//! is in one itself, as container engines confine it.

mod confined;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use live_tests::live::{Talk, alone, attach, book, exact, held_at_end, in_company, vramtrace, wait_until};
use live_tests::sim::{Config, Sim};
use nix::sys::signal::Signal;
use tracer::ledger::Kind;

const MIB: u64 = 1 << 20;
/// Names and values.
type Environment = Vec<(&'static str, OsString)>;

/// A simulation whose directory is a root to change to, the environment in it, and where the trace goes.
fn start() -> Result<(Sim, Environment, PathBuf)> {
    let mut sim = Sim::start(Config::default())?;
    let environment = sim.make_root()?;
    let file = sim.scratch().join("trace.vrt");
    Ok((sim, environment, file))
}

/// Namespaces that engines make: all of them, as root of the host and as root of a user namespace (rootless).
const KINDS: [&[&str]; 4] = [
    &["--pid", "--fork"],
    &["--pid", "--fork", "--mount-proc"],
    &["--mount", "--pid", "--fork", "--ipc", "--uts", "--net", "--cgroup"],
    &["--user", "--map-root-user", "--mount", "--pid", "--fork", "--ipc", "--uts"],
];

/// `NAME=VALUE …`, for env(1) in the container: the tracer's own environment is the host's.
fn words(environment: &[(&str, OsString)]) -> Vec<String> {
    environment.iter().map(|(name, value)| format!("{name}={}", value.to_string_lossy())).collect()
}

/// Processes of the driver's truth that made memory, as the host numbers them.
fn outer_pid(sim: &Sim) -> Result<u32> {
    let mut pids = Vec::new();
    wait_until("a process of the container", || {
        pids = sim.truth()?.processes();
        Ok(!pids.is_empty())
    })?;
    ensure!(pids.len() == 1, "{pids:?}");
    Ok(pids[0])
}

#[test]
fn containers_that_are_started_traced() -> Result<()> {
    let _company = in_company();
    for kind in KINDS {
        let (sim, environment, file) = start()?;
        let mut command = sim.command(&vramtrace()?.to_string_lossy())?;
        command.args(["run", "--as-root", "-o"]).arg(&file).args(["--", "unshare"]).args(kind);
        command.arg("env").args(words(&environment)).arg("chroot").arg(sim.scratch()).arg("/server");
        let mut run = Talk::server(command).with_context(|| format!("{kind:?}"))?;
        run.order("alloc 10")?;
        run.order("alloc 20")?;
        // Until NVML was asked, and open files were looked at twice.
        sleep(Duration::from_millis(2500));
        run.order("free")?;
        // The number it has in there.
        ensure!(run.server_pid() == 1, "{kind:?}: {}", run.server_pid());
        run.close();
        ensure!(run.wait()?.success(), "{kind:?}: {}", run.errors());
        let (truth, book) = (sim.settled()?, book(&file)?);
        let pids = truth.processes();
        ensure!(pids.len() == 1 && pids[0] > 2, "{kind:?}: {pids:?}");
        exact(&book, &truth, pids[0]).with_context(|| format!("{kind:?}"))?;
        let late: Vec<_> = book.libraries.iter().filter(|library| library.late).collect();
        ensure!(late.is_empty() && book.notices.is_empty(), "{kind:?}: {late:?} {:?}", book.notices);
        // NVML's figures are by the host's numbers too.
        ensure!(book.samples.iter().any(|sample| sample.nvml > 0), "{kind:?}: {:?}", book.samples);
        let quiet = book.samples.iter().filter(|sample| sample.quiet);
        ensure!(quiet.clone().all(|sample| sample.nvml == sample.live), "{kind:?}: {:?}", book.samples);
    }
    Ok(())
}

#[test]
fn containers_that_run_already() -> Result<()> {
    let _alone = alone();
    for (number, kind) in KINDS.into_iter().enumerate() {
        let (sim, environment, file) = start()?;
        let word = format!("container-{number}-{}", std::process::id());
        let mut command = Command::new("unshare");
        command.args(kind).arg("chroot").arg(sim.scratch()).args(["/server", "ready", &word]).envs(environment);
        let mut server = Talk::server(command)?;
        server.order("alloc 10")?;
        let pid = outer_pid(&sim)?;
        let before = sim.smi()?.processes[&(0, pid)];
        let chosen = [pid.to_string(), format!("^/server ready {word}$")];
        // By the host's number, or by its command line.
        let which = if number == 1 { ["--match", &chosen[1]] } else { ["--pid", &chosen[0]] };
        let mut tracer = attach(&sim, &file, &which)?;
        sleep(Duration::from_millis(500));
        server.order("alloc 20")?;
        server.order("alloc 30")?;
        sleep(Duration::from_millis(500));
        tracer.signal(Signal::SIGINT)?;
        ensure!(tracer.wait()?.success(), "{kind:?}: {}", tracer.errors());
        let now = sim.smi()?.processes[&(0, pid)];
        let book = book(&file)?;
        ensure!(held_at_end(&book, pid) == now && now == before + 50 * MIB, "{kind:?}: {:?}", book.allocations);
        let made = book.allocations.iter().filter(|row| row.kind == Kind::CudaMalloc).map(|row| row.bytes);
        ensure!(made.collect::<Vec<_>>() == [20 * MIB, 30 * MIB], "{kind:?}: {:?}", book.allocations);
    }
    Ok(())
}

/// Files of an overlay have one device number in a process's map and another in `stat`.
#[test]
fn a_container_on_an_overlay() -> Result<()> {
    let _company = in_company();
    let (sim, environment, file) = start()?;
    let scratch = sim.scratch().display().to_string();
    let script = format!(
        "mount -t tmpfs tmpfs /mnt; mkdir /mnt/upper /mnt/work /mnt/merged; \
         mount -t overlay overlay -o lowerdir={scratch},upperdir=/mnt/upper,workdir=/mnt/work /mnt/merged; \
         mount --bind {scratch}/dev /mnt/merged/dev; exec chroot /mnt/merged /server"
    );
    let mut command = sim.command(&vramtrace()?.to_string_lossy())?;
    command.args(["run", "--as-root", "-o"]).arg(&file).args(["--", "env"]).args(words(&environment));
    command.args(["unshare", "--mount", "sh", "-e", "-c", &script]);
    let mut run = Talk::server(command)?;
    run.order("alloc 10")?;
    let (status, _, errors) = run.finish()?;
    ensure!(status.success(), "{errors}");
    let (truth, book) = (sim.settled()?, book(&file)?);
    exact(&book, &truth, truth.processes()[0])?;
    let of_overlay = |path: &str| path.ends_with("/merged/lib/libcuda.so.1");
    ensure!(book.libraries.iter().any(|library| of_overlay(&library.path) && !library.late), "{:?}", book.libraries);
    Ok(())
}

/// What a container has under the name of its mapped library, once that is mapped: a link out, a FIFO, a device. The tracer
/// neither waits nor looks at it; what is mapped is what is probed.
#[test]
fn a_library_exchanged_behind_the_tracers_back() -> Result<()> {
    let _company = in_company();
    let ways = ["ln -s /etc/shadow", "mkfifo", "mknod_zero", "mkdir"];
    for way in ways {
        let (sim, environment, file) = start()?;
        let mut command = Command::new("unshare");
        command.args(["--mount", "chroot"]).arg(sim.scratch()).arg("/server").envs(environment);
        let mut server = Talk::server(command)?;
        server.order("alloc 10")?;
        let pid = outer_pid(&sim)?;
        let library = sim.scratch().join("lib/libcuda.so.1");
        let there = library.display();
        let exchange = match way {
            "mknod_zero" => format!("mknod {there} c 1 5"),
            way => format!("{way} {there}"),
        };
        let done = Command::new("sh").args(["-e", "-c", &format!("rm {there}; {exchange}")]).status()?;
        ensure!(done.success(), "{way}");
        let mut tracer = attach(&sim, &file, &["--pid", &pid.to_string()])?;
        sleep(Duration::from_millis(500));
        server.order("alloc 20")?;
        tracer.signal(Signal::SIGINT)?;
        ensure!(tracer.wait()?.success(), "{way}: {}", tracer.errors());
        let book = book(&file)?;
        let made = book.allocations.iter().filter(|row| row.kind == Kind::CudaMalloc).map(|row| row.bytes);
        ensure!(made.collect::<Vec<_>>() == [20 * MIB], "{way}: {:?} {:?}", book.allocations, book.notices);
        ensure!(
            book.libraries.iter().any(|library| library.path.ends_with("/lib/libcuda.so.1")),
            "{way}: {:?}",
            book.libraries
        );
    }
    Ok(())
}
