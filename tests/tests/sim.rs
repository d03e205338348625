//! The simulation against itself: every scenario's own arithmetic, the driver's truth and NVML must agree.
//!
//! These run without the tracer; they need root and `/dev/fuse`.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use live_tests::sim::{Config, Sim};
use live_tests::truth::{Truth, What};

mod scenarios;
use scenarios::{SCENARIOS, Scenario};

fn start(scenario: &Scenario) -> Result<Sim> {
    Sim::start(Config { gpus: scenario.gpus, reverse_instances: scenario.gpus > 1, ..Config::default() })
}

fn scenario(name: &str) -> Result<&'static Scenario> {
    SCENARIOS.iter().find(|s| s.name == name).with_context(|| format!("no scenario {name}"))
}

fn run(sim: &Sim, program: &str, scenario: &Scenario) -> Result<String> {
    let output = sim.command(program)?.arg(scenario.name).output()?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(scenario.ended_as_it_must(output.status), "{}: {}\n{text}", scenario.name, output.status);
    Ok(text)
}

/// Every mark of a run is what the scenario expects there.
fn check_marks(truth: &Truth, name: &str) -> Result<usize> {
    let mut marks = 0;
    for event in &truth.events {
        if let What::Mark { name: mark, gpu, expected: Some(expected), live } = &event.what {
            ensure!(expected == live, "{name}, mark {mark:?}, GPU {gpu}: expects {expected}, has {live}");
            marks += 1;
        }
    }
    Ok(marks)
}

/// The log's own figures are consistent: each `live` follows from the one before.
fn check_sums(truth: &Truth) -> Result<()> {
    let mut live: BTreeMap<(u32, u32, bool), u64> = BTreeMap::new();
    for event in &truth.events {
        let (piece, plus) = match &event.what {
            What::Alloc(piece) | What::Gained(piece) => (piece, true),
            What::Free(piece) | What::Reclaim(piece) | What::Lost(piece) => (piece, false),
            _ => continue,
        };
        let sum = live.entry((event.pid, piece.gpu, piece.host)).or_default();
        *sum = if plus { *sum + piece.bytes } else { sum.checked_sub(piece.bytes).context("below zero")? };
        ensure!(*sum == piece.live, "{event:?}: live should be {sum}");
    }
    Ok(())
}

#[test]
fn every_scenario_does_what_it_says() -> Result<()> {
    for scenario in SCENARIOS {
        let sim = start(scenario)?;
        let text = run(&sim, "scenario", scenario)?;
        let truth = sim.settled()?;
        let marks = check_marks(&truth, scenario.name)?;
        ensure!(marks == text.matches("mark ").count(), "{}: {marks} marks in the log\n{text}", scenario.name);
        ensure!(marks > 0 || scenario.name == "killed_in_call", "{} has no mark", scenario.name);
        check_sums(&truth).with_context(|| scenario.name)?;
        for pid in truth.processes() {
            for gpu in 0..scenario.gpus {
                ensure!(truth.live(pid, gpu) == 0, "{}: {pid} is gone and holds memory", scenario.name);
            }
        }
        ensure!(sim.smi()?.processes.is_empty(), "{}: NVML lists the dead", scenario.name);
    }
    Ok(())
}

#[test]
fn the_scenario_list_is_complete() -> Result<()> {
    let sim = Sim::start(Config::default())?;
    let output = sim.command("scenario")?.output()?;
    let names = String::from_utf8(output.stdout)?;
    let listed: Vec<&str> = SCENARIOS.iter().map(|s| s.name).collect();
    ensure!(names.lines().eq(listed), "{names}");
    Ok(())
}

#[test]
fn output_is_the_same_every_time() -> Result<()> {
    for name in ["expandable_segments", "out_of_memory", "ipc_two_importers", "threads"] {
        let sim = start(scenario(name)?)?;
        let first = run(&sim, "scenario", scenario(name)?)?;
        let sim = start(scenario(name)?)?;
        ensure!(first == run(&sim, "scenario", scenario(name)?)?, "{name}");
    }
    Ok(())
}

/// At every mark the process waits, and NVML is asked.
#[test]
fn nvml_agrees_at_every_mark() -> Result<()> {
    for name in ["large", "async_pool", "vmm_orders", "graph_nodes", "local_memory", "two_gpus", "context_create"] {
        let scenario = scenario(name)?;
        let sim = start(scenario)?;
        let mut command: Command = sim.command("scenario")?;
        command.arg(name).env("VRAMTRACE_SIM_STEP", "1").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let mut go = child.stdin.take().context("no stdin")?;
        for line in BufReader::new(child.stdout.take().context("no stdout")?).lines() {
            if !line?.starts_with("mark ") {
                continue;
            }
            // The mark is printed before it is logged; the log has it when the process waits.
            let (gpu, live) = wait_for_mark(&sim, child.id())?;
            let smi = sim.smi()?;
            let nvml = smi.processes.get(&(gpu, child.id())).copied().unwrap_or(0);
            ensure!(nvml == live, "{name}: NVML says {nvml}, the truth is {live}");
            ensure!(smi.used.get(&gpu) == Some(&live), "{name}: the GPU's sum");
            go.write_all(b"g")?;
        }
        ensure!(scenario.ended_as_it_must(child.wait()?), "{name} failed");
    }
    Ok(())
}

fn wait_for_mark(sim: &Sim, pid: u32) -> Result<(u32, u64)> {
    let pipe_wait = || std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
    for _ in 0..2000 {
        if pipe_wait().contains("pipe_read") {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let truth = sim.truth()?;
    let last = truth.events.iter().rev().find_map(|event| match event.what {
        What::Mark { gpu, live, .. } => Some((gpu, live)),
        _ => None,
    });
    last.context("no mark in the log")
}

#[test]
fn every_form_of_the_driver_interface_gives_the_same_bytes() -> Result<()> {
    let mut histories = Vec::new();
    for abi in ["rm48", "rm32", "heap", "xfer"] {
        let scenario = scenario("large")?;
        let sim = start(scenario)?;
        let status = sim.command("scenario")?.arg("large").env("VRAMTRACE_SIM_ABI", abi).output()?.status;
        ensure!(scenario.ended_as_it_must(status), "{abi}: {status}");
        let truth = sim.settled()?;
        check_marks(&truth, abi)?;
        let pid = *truth.processes().first().context("no process")?;
        histories.push(truth.history(pid, 0).into_iter().map(|(_, live)| live).collect::<Vec<_>>());
    }
    ensure!(histories.windows(2).all(|pair| pair[0] == pair[1]));
    Ok(())
}

#[test]
fn a_static_runtime_behaves_like_the_shared_one() -> Result<()> {
    for scenario in SCENARIOS.iter().filter(|s| s.static_too) {
        let sim = start(scenario)?;
        run(&sim, "scenario-static", scenario)?;
        check_marks(&sim.settled()?, scenario.name)?;
    }
    Ok(())
}

#[test]
fn a_context_is_made_of_what_an_h200_showed() -> Result<()> {
    let sim = Sim::start(Config::default())?;
    run(&sim, "scenario", scenario("small")?)?;
    let truth = sim.settled()?;
    let pieces: Vec<_> = truth
        .events
        .iter()
        .filter_map(|event| match &event.what {
            What::Alloc(piece) if piece.kind == "context" => Some(piece),
            _ => None,
        })
        .collect();
    let asked = |host| pieces.iter().filter(|p| p.host == host).map(|p| p.requested).sum::<u64>();
    let count = |host| pieces.iter().filter(|p| p.host == host).count();
    assert_eq!((count(false), count(true)), (17, 26));
    // 513.4 MiB asked, 518 MiB charged; largest 432,537,600 and 72,116,352 bytes.
    assert_eq!(asked(false), 432_537_600 + 72_116_352 + 0x42_0000 + 14 * (2 << 20));
    assert_eq!(pieces.iter().filter(|p| !p.host).map(|p| p.bytes).sum::<u64>(), 518 << 20);
    assert_eq!(asked(true), 58_720_256 + 20 * 4096 + 4 * (2 << 20) + 0x5e_a410);
    Ok(())
}

#[test]
fn imports_and_failures_are_in_the_truth() -> Result<()> {
    let sim = Sim::start(Config::default())?;
    run(&sim, "scenario", scenario("ipc_owner_first")?)?;
    let truth = sim.settled()?;
    let [owner, importer] = truth.processes()[..] else { anyhow::bail!("two processes expected") };
    let imported = truth
        .events
        .iter()
        .any(|e| matches!(&e.what, What::Import(p) if e.pid == importer && p.peer == owner && p.bytes == 100 << 20));
    let gained =
        truth.events.iter().any(|e| matches!(&e.what, What::Gained(p) if e.pid == importer && p.peer == owner));
    ensure!(imported && gained);
    let lost = truth.owned(owner, 0).into_iter().filter(|row| row.how == Some("lost")).count();
    ensure!(lost == 1);

    let sim = Sim::start(Config::default())?;
    run(&sim, "scenario", scenario("out_of_memory")?)?;
    let truth = sim.settled()?;
    let refused: Vec<u64> = truth
        .events
        .iter()
        .filter_map(|e| match e.what {
            What::Failed { requested, status: 0x51, gpu: Some(0) } => Some(requested),
            _ => None,
        })
        .collect();
    // libcuda tries twice.
    assert_eq!(refused[..2], [4 << 40, 4 << 40]);
    Ok(())
}

#[test]
fn a_simulation_leaves_no_mount_behind() -> Result<()> {
    let mounts = || std::fs::read_to_string("/proc/self/mounts");
    let sim = Sim::start(Config::default())?;
    let path = sim.devices().display().to_string();
    ensure!(mounts()?.contains(&path));
    drop(sim);
    ensure!(!mounts()?.contains(&path));
    Ok(())
}
