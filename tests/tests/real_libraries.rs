//! NVIDIA's own libcudart and libcuda, and `torch_memory_saver`'s hook, without a device: every probe that is placed fires, and what fails is recorded with
//! no bytes.
//!
//! `VRAMTRACE_REAL_LIBS` names their directory (`cargo xtask setup` fetches them).

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use live_tests::live::{book, vramtrace};
use live_tests::sim::{Config, Sim, target_directory};
use tracer::attach::{elf::ElfFile, plan::Plan};
use tracer::probe::{self, Lib};
use tracer::trace::{Reader, record::Record};

fn real(path: &str) -> Result<PathBuf> {
    let directory = std::env::var_os("VRAMTRACE_REAL_LIBS").map(PathBuf::from);
    let directory = directory.map_or_else(|| Ok(target_directory()?.join("real-libs")), anyhow::Ok)?;
    let path = directory.join(path);
    path.canonicalize().with_context(|| format!("{} is missing: run `cargo xtask setup`", path.display()))
}

/// What can be called of a library: exported name, and the name under which its probe reports.
fn callable(lib: Lib, path: &Path) -> Result<(Vec<(&'static str, &'static str)>, usize)> {
    let wanted = probe::of(lib).filter(|(_, probe)| probe.group.by_default());
    let plan = Plan::new(&ElfFile::open(path)?, wanted)?;
    ensure!(plan.refused.is_empty(), "{:?}", plan.refused);
    let named = plan.points.iter().filter_map(|point| probe::by_id(point.probe)).map(|p| (p.symbol, p.symbol));
    Ok((named.chain(plan.aliases.iter().copied()).collect(), plan.points.len()))
}

/// Calls by function: how often, and with which results.
fn calls(file: &Path) -> Result<BTreeMap<String, Vec<i64>>> {
    let mut calls = BTreeMap::<String, Vec<i64>>::new();
    for record in Reader::open(file)? {
        if let Record::Call(call) = record? {
            ensure!(!call.unreadable || call.result != 0, "{call:?}");
            calls.entry(call.api).or_default().push(call.result);
        }
    }
    Ok(calls)
}

/// Calls all of `library`, with the driver library in reach or not.
fn every_probe_fires(lib: Lib, library: &str, driver: Option<&str>) -> Result<()> {
    let path = real(library)?;
    let (functions, places) = callable(lib, &path)?;
    let sim = Sim::start(Config::default())?;
    let file = sim.scratch().join("run.vrt");
    let mut command = sim.command(&vramtrace()?.to_string_lossy())?;
    match driver {
        Some(driver) => command.env("LD_LIBRARY_PATH", real(driver)?.parent().context("no parent")?),
        None => command.env_remove("LD_LIBRARY_PATH"),
    };
    command.args(["run", "--as-root", "--native-stacks", "off", "-o"]).arg(&file).arg("--");
    command.arg(sim.program("call-all")).arg(&path).args(functions.iter().map(|(name, _)| name));
    let output = command.output()?;
    let said = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));

    let (calls, book) = (calls(&file)?, book(&file)?);
    let placed: u32 = book.libraries.iter().filter(|l| Path::new(&l.path) == path).map(|l| l.placed).sum();
    ensure!(placed as usize == places && places > 50, "{placed} of {places} probes were placed");
    let drivers = book.libraries.iter().filter(|l| l.path.contains("/libcuda.so")).count();
    ensure!(drivers == usize::from(driver.is_some() || lib == Lib::Cuda), "{drivers} driver libraries were found");
    let mut silent = Vec::new();
    let mut succeeded = Vec::new();
    for (function, reported) in &functions {
        let how = said.lines().find(|line| line.split(' ').next() == Some(function)).unwrap_or("not called");
        match calls.get(*reported) {
            None => silent.push(how),
            Some(results) if results.contains(&0) => succeeded.push(how),
            Some(_) => {}
        }
    }
    ensure!(silent.is_empty(), "no call was recorded of {} functions: {silent:#?}", silent.len());
    println!("{library}: {places} probes, {} functions called; without an error: {succeeded:?}", functions.len());
    ensure!(succeeded.is_empty(), "without a device, {succeeded:#?}");
    ensure!(book.allocations.is_empty() && book.host.is_empty() && book.imports.is_empty(), "{:?}", book.allocations);
    ensure!(!book.failures.is_empty() && book.failures.iter().all(|f| f.result != 0));
    let lost: u64 = book.losses.values().sum();
    ensure!(lost == 0, "{:?}", book.losses);
    Ok(())
}

const DRIVER: &str = "libcuda/libcuda.so.1";
const HOOK: &str = "torch_memory_saver_hook_mode_torch.abi3.so";

#[test]
fn driver() -> Result<()> {
    every_probe_fires(Lib::Cuda, DRIVER, None)
}

#[test]
fn runtime_11_8_without_a_driver() -> Result<()> {
    every_probe_fires(Lib::Cudart, "cudart-11.8/libcudart.so.11.0", None)
}

#[test]
fn runtime_11_8() -> Result<()> {
    every_probe_fires(Lib::Cudart, "cudart-11.8/libcudart.so.11.0", Some(DRIVER))
}

#[test]
fn runtime_12_9_without_a_driver() -> Result<()> {
    every_probe_fires(Lib::Cudart, "cudart-12.9/libcudart.so.12", None)
}

#[test]
fn runtime_12_9() -> Result<()> {
    every_probe_fires(Lib::Cudart, "cudart-12.9/libcudart.so.12", Some(DRIVER))
}

#[test]
fn runtime_13_without_a_driver() -> Result<()> {
    every_probe_fires(Lib::Cudart, "cudart-13/libcudart.so.13", None)
}

#[test]
fn runtime_13() -> Result<()> {
    every_probe_fires(Lib::Cudart, "cudart-13/libcudart.so.13", Some(DRIVER))
}

/// The hook of `torch_memory_saver` itself, on the simulated driver. It is linked against the runtime of CUDA 13, and needs
/// nothing of it here that the simulated one has not.
#[test]
fn memory_saver() -> Result<()> {
    let sim = Sim::start(Config::default())?;
    let libraries = sim.scratch().join("lib");
    std::fs::create_dir(&libraries)?;
    symlink(sim.program("libcudart.so.12"), libraries.join("libcudart.so.13"))?;
    symlink(real("memory-saver")?.join(HOOK), libraries.join(HOOK))?;
    live_tests::paused::is_told_apart(&sim, Some(&libraries))?;
    let book = book(&sim.scratch().join("paused.vrt"))?;
    let hook = book.libraries.iter().find(|library| library.path.ends_with(HOOK)).context("it was not found")?;
    ensure!(hook.placed == 2 && hook.missing.is_empty(), "{hook:?}");
    Ok(())
}
