//! The tracer against the simulation: for every scenario the ledger must equal the driver's truth, byte for byte, and the
//! program must not notice.
//!
//! These load BPF programs and need root. `VRAMTRACE` names the binary to test (default: the one built beside).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context, Result, bail, ensure};
use live_tests::sim::{Config, Sim, workspace_binary};
use live_tests::truth::{Event, Owned, Truth, What};
use tracer::ledger::{Allocation, Book, Death, Kind};

mod scenarios;
use scenarios::{End, SCENARIOS, Scenario};

/// One traced run.
struct Run {
    sim: Sim,
    output: Output,
    book: Book,
    truth: Truth,
}

fn vramtrace() -> Result<PathBuf> {
    std::env::var_os("VRAMTRACE").map_or_else(|| workspace_binary("vramtrace"), |path| Ok(path.into()))
}

/// The one place that reads a trace.
fn read(trace: &Path) -> Result<Book> {
    Book::read(trace).with_context(|| format!("cannot read {}", trace.display()))
}

fn start(scenario: &Scenario) -> Result<Sim> {
    Sim::start(Config { gpus: scenario.gpus, reverse_instances: scenario.gpus > 1, ..Config::default() })
}

fn trace(program: &str, scenario: &Scenario, environment: &[(&str, &str)]) -> Result<Run> {
    let sim = start(scenario)?;
    let file = sim.scratch().join("run.vrt");
    let mut command = sim.command(vramtrace()?.to_str().context("an odd path")?)?;
    command.args(["run", "--as-root", "-o"]).arg(&file).arg("--").arg(sim.program(program)).arg(scenario.name);
    let output = command.envs(environment.iter().copied()).output()?;
    let book = read(&file).with_context(|| String::from_utf8_lossy(&output.stderr).into_owned())?;
    let truth = sim.settled()?;
    Ok(Run { sim, output, book, truth })
}

type Check = fn(&Run, &Scenario) -> Result<()>;

fn check(program: &str, name: &str, environment: &[(&str, &str)]) -> Result<()> {
    let scenario = SCENARIOS.iter().find(|s| s.name == name).with_context(|| format!("no scenario {name}"))?;
    let run = trace(program, scenario, environment)?;
    let checks: [(&str, Check); 7] = [
        ("the target was left alone", target_unchanged),
        ("nothing was lost", nothing_lost),
        ("history of live bytes", histories_agree),
        ("each allocation", allocations_agree),
        ("live bytes at each mark", marks_agree),
        ("imports and failures", imports_and_failures_agree),
        ("NVML samples", samples_agree),
    ];
    for (what, check) in checks {
        check(&run, scenario).with_context(|| format!("{name}: {what}"))?;
    }
    Ok(())
}

/// Output and exit code are those of a run without the tracer.
fn target_unchanged(run: &Run, scenario: &Scenario) -> Result<()> {
    // A program that a signal kills gives the code a shell would.
    let code = match scenario.end {
        End::Code(code) => code,
        End::Signal(signal) => 128 + signal,
    };
    let stderr = String::from_utf8_lossy(&run.output.stderr);
    ensure!(run.output.status.code() == Some(code), "{}, not {code}\n{stderr}", run.output.status);
    let alone = start(scenario)?.command("scenario")?.arg(scenario.name).output()?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    ensure!(scenario.ended_as_it_must(alone.status), "alone: {}", alone.status);
    ensure!(run.output.stdout == alone.stdout, "{}\n--- alone:\n{}", text(&run.output.stdout), text(&alone.stdout));
    ensure!(alone.stderr.is_empty() || stderr.contains(&text(&alone.stderr)), "stderr: {stderr}");
    Ok(())
}

fn nothing_lost(run: &Run, _: &Scenario) -> Result<()> {
    let carry_bytes = ["ring_full", "unreadable_ioctl", "undecoded_ioctl", "map_full", "too_deep"];
    let lost: Vec<_> = run.book.losses.iter().filter(|(why, _)| carry_bytes.contains(&why.as_str())).collect();
    ensure!(lost.is_empty(), "{lost:?}");
    ensure!(run.book.outcome.is_some(), "the trace is cut off");
    Ok(())
}

/// The ledger's rows of one process on one GPU, in order of birth.
fn rows<'a>(book: &'a Book, pid: u32, gpu: u32) -> Vec<&'a Allocation> {
    let of = |a: &&'a Allocation| book.processes[a.process].pid == pid && book.gpus[a.gpu].index == Some(gpu);
    book.allocations.iter().filter(of).collect()
}

/// Live bytes after each moment at which they changed.
fn history(rows: &[&Allocation]) -> Vec<u64> {
    let mut changes: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    for row in rows {
        changes.entry(row.born).or_default().0 += row.bytes;
        if let Some((died, _)) = row.died {
            changes.entry(died).or_default().1 += row.bytes;
        }
    }
    let mut live = 0;
    let mut steps = Vec::new();
    for (plus, minus) in changes.into_values() {
        let before = live;
        live = live + plus - minus;
        if live != before {
            steps.push(live);
        }
    }
    steps
}

/// Every process and GPU of the truth or the ledger.
fn places(run: &Run, scenario: &Scenario) -> Vec<(u32, u32)> {
    let mut pids = run.truth.processes();
    pids.extend(run.book.allocations.iter().map(|a| run.book.processes[a.process].pid));
    pids.sort_unstable();
    pids.dedup();
    pids.into_iter().flat_map(|pid| (0..scenario.gpus).map(move |gpu| (pid, gpu))).collect()
}

fn histories_agree(run: &Run, scenario: &Scenario) -> Result<()> {
    ensure!(!run.truth.processes().is_empty(), "the driver saw no memory at all");
    for (pid, gpu) in places(run, scenario) {
        let ledger = history(&rows(&run.book, pid, gpu));
        let truth: Vec<u64> = run.truth.history(pid, gpu).into_iter().map(|(_, live)| live).collect();
        if ledger != truth {
            let at = ledger.iter().zip(&truth).take_while(|(a, b)| a == b).count();
            let (a, b) = (ledger.get(at), truth.get(at));
            bail!("process {pid}, GPU {gpu}, step {at} of {}: ledger {a:?}, truth {b:?}", truth.len());
        }
    }
    Ok(())
}

fn kind_name(kind: Kind) -> Result<String> {
    Ok(serde_json::to_value(kind)?.as_str().unwrap_or_default().to_owned())
}

fn death_name(death: Death) -> &'static str {
    match death {
        Death::Freed | Death::Paused => "free",
        Death::Reclaimed => "reclaim",
        Death::Transferred => "lost",
        Death::Adjusted => "adjusted",
    }
}

fn allocations_agree(run: &Run, scenario: &Scenario) -> Result<()> {
    for (pid, gpu) in places(run, scenario) {
        let truth: Vec<Owned> = run.truth.owned(pid, gpu);
        let ledger = rows(&run.book, pid, gpu);
        for (n, (row, owned)) in ledger.iter().zip(&truth).enumerate() {
            let seen = (row.bytes, kind_name(row.kind)?, row.died.map(|(_, death)| death_name(death)));
            let want = (owned.bytes, owned.kind.clone(), owned.how);
            ensure!(seen == want, "process {pid}, GPU {gpu}, row {n}: {seen:?}, truth {want:?} ({})", row.evidence);
        }
        ensure!(ledger.len() == truth.len(), "process {pid}, GPU {gpu}: {} rows, not {}", ledger.len(), truth.len());
    }
    Ok(())
}

fn marks_agree(run: &Run, _: &Scenario) -> Result<()> {
    let events = &run.truth.events;
    for (n, event) in events.iter().enumerate() {
        let What::Mark { name, gpu, live, .. } = &event.what else { continue };
        let rows = rows(&run.book, event.pid, *gpu);
        let at = |t: u64| -> u64 { rows.iter().filter(|row| row.live_at(t)).map(|row| row.bytes).sum() };
        let mut ledger = at(event.t);
        // The hook sees no close: that of a file which held memory shows when the next driver request begins (or within
        // 50 ms). So a gain by a close just before the mark may show just after it, never later than the next request.
        let mine = |e: &&Event| e.pid == event.pid && e.what.changes();
        if let (Some(What::Gained(_)), Some(next)) =
            (events[..n].iter().rev().find(mine).map(|e| &e.what), events[n..].iter().find(mine))
        {
            ledger = at(next.t);
        }
        ensure!(ledger == *live, "mark {name:?}, process {}, GPU {gpu}: {ledger}, truth {live}", event.pid);
    }
    Ok(())
}

fn imports_and_failures_agree(run: &Run, _: &Scenario) -> Result<()> {
    let foreign = run.truth.events.iter().filter(|e| matches!(&e.what, What::Import(p) if p.peer != e.pid)).count();
    ensure!(run.book.imports.len() == foreign, "{} imports, not {foreign}", run.book.imports.len());
    for event in &run.truth.events {
        let What::Failed { requested, status: 0x51, .. } = event.what else { continue };
        let pid_of = |process: usize| run.book.processes[process].pid;
        let mut of_process = run.book.failures.iter().filter(|f| pid_of(f.process) == event.pid && f.out_of_memory);
        ensure!(of_process.any(|f| f.refused == Some(requested)), "no failure of {requested} bytes in the ledger");
    }
    if !run.truth.events.iter().any(|e| matches!(e.what, What::Failed { .. })) {
        ensure!(run.book.failures.iter().all(|f| !f.out_of_memory), "{:?}", run.book.failures);
    }
    Ok(())
}

fn samples_agree(run: &Run, _: &Scenario) -> Result<()> {
    for sample in run.book.samples.iter().filter(|sample| sample.quiet) {
        ensure!(sample.nvml == sample.live, "{sample:?}");
    }
    Ok(())
}

macro_rules! scenarios {
    ($($name:ident)*) => {
        const TESTED: &[&str] = &[$(stringify!($name)),*];
        $(
            #[test]
            fn $name() -> Result<()> {
                check("scenario", stringify!($name), &[])
            }
        )*
    };
}

scenarios! {
    small large pitch arrays managed host wrong_arguments out_of_memory mem_info async_pool own_pool pool_threshold vmm
    vmm_orders vmm_retain expandable_segments ipc_closed_first ipc_owner_first ipc_owner_exits ipc_two_importers
    share_closed_first share_owner_first share_file_last graph_capture graph_nodes local_memory side_streams modules
    eager_modules context_create context_reset two_gpus threads fork_exec fork_idle reopened exec_again killed_in_call
    killed_in_driver exits_with_7 ioctl_errors slow_call late_library nccl c10 memory_saver
}

#[test]
fn every_scenario_is_traced() {
    assert!(SCENARIOS.iter().map(|s| s.name).eq(TESTED.iter().copied()));
}

#[test]
fn static_runtimes() -> Result<()> {
    for scenario in SCENARIOS.iter().filter(|s| s.static_too) {
        check("scenario-static", scenario.name, &[])?;
    }
    Ok(())
}

#[test]
fn older_forms_of_the_driver_interface() -> Result<()> {
    for abi in ["rm32", "heap", "xfer"] {
        check("scenario", "large", &[("VRAMTRACE_SIM_ABI", abi)]).context(abi)?;
    }
    Ok(())
}

#[test]
fn paused_memory() -> Result<()> {
    live_tests::paused::is_told_apart(&Sim::start(Config::default())?, None)
}

/// Kernels before 6.6 have no multi-uprobes. Taking this many probes away one by one takes half a minute.
#[test]
fn probes_by_perf_event() -> Result<()> {
    check("scenario", "ipc_owner_first", &[("VRAMTRACE_PERF_UPROBES", "1")])
}

/// Where libc cannot be probed. What this hook cannot see by its nature is left out: requests that a death cuts short
/// (`killed_*`: there is no return), when a request began (`slow_call`; `share_file_last`, where a close shows only at the
/// end of the next request), and the callers of libc's `ioctl` while another
/// tracer, of a test beside this one, has its return address replaced (kinds that only a stack tells).
#[test]
fn driver_requests_at_system_calls() -> Result<()> {
    let scenarios = ["small", "threads", "vmm", "async_pool", "modules", "ioctl_errors", "fork_exec", "exec_again"];
    for name in scenarios.into_iter().chain(["ipc_owner_exits", "share_owner_first"]) {
        check("scenario", name, &[("VRAMTRACE_DRIVER_HOOK", "syscall")])?;
    }
    Ok(())
}

/// The driver may not have come to what a death cut short: the report must say so.
#[test]
fn a_request_cut_short_is_named() -> Result<()> {
    let scenario = SCENARIOS.iter().find(|s| s.name == "killed_in_driver").context("no scenario")?;
    let run = trace("scenario", scenario, &[])?;
    let notices = &run.book.notices;
    ensure!(notices.iter().any(|n| n.starts_with("1 driver request for memory ended with the death")), "{notices:?}");
    Ok(())
}

/// What `wrong_arguments` does wrong is in the ledger as failures of 0 bytes.
#[test]
fn wrong_arguments_are_failures() -> Result<()> {
    let scenario = SCENARIOS.iter().find(|s| s.name == "wrong_arguments").context("no scenario")?;
    let run = trace("scenario", scenario, &[])?;
    let failed = |api: &str, result| run.book.failures.iter().any(|f| f.api == api && f.result == result);
    for (api, result) in [("cudaMalloc", 1), ("cudaFree", 1), ("cudaMallocManaged", 1), ("cuMemCreate", 1)] {
        ensure!(failed(api, result), "{api} → {result} is missing: {:?}", run.book.failures);
    }
    ensure!(failed("cuMemCreate", 101));
    drop(run.sim);
    Ok(())
}
