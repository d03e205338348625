//! The simulated `SGLang` server, traced: every cell of the report (rank × phase × owner × role) must equal what the server
//! itself says of its memory, byte for byte.
//!
//! These load BPF programs and need root. `VRAMTRACE` names the binary to test (default: the one built beside).

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use live_tests::live::{book, vramtrace};
use live_tests::sim::Config;
use live_tests::sim_server::{Cell, Server, Traced};
use serde_json::Value;
use tracer::ledger::{Book, Kind};
use tracer::lifecycle::{Axes, Axis};

const GPU_BYTES: u64 = 95 << 30;
const FORCE: &str = "SGLANG_FORCE_CUSTOM_AR_PCIE";

type Cells = BTreeMap<Cell, u64>;

/// Eight ranks keep any machine busy: one server at a time.
static ONE: Mutex<()> = Mutex::new(());

/// Traces a server to its end and compares all that can be told of its memory.
fn check(server: &Server, gpus: u32) -> Result<Traced> {
    check_on(server, Config { gpus, gpu_bytes: GPU_BYTES, ..Config::default() })
}

fn check_on(server: &Server, config: Config) -> Result<Traced> {
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let traced = server.trace(config)?;
    // By SIGKILL, as the real one ends itself.
    ensure!(traced.code == Some(137), "{:?}: {}", traced.code, traced.log);
    let book = book(&traced.file)?;
    for point in ["ready", "served"] {
        let t = traced.mark(point)?;
        let after = format!("{}ns", t - book.header.t);
        compare(&reported(&traced, &after)?, &live(&traced, t)?).with_context(|| point.to_owned())?;
    }
    let end = traced.mark("served")?;
    compare(&reported(&traced, "end")?, &live(&traced, end)?).context("end")?;
    let ever = traced.cells(end)?.into_iter().map(|(cell, (_, bytes))| (cell, bytes)).collect();
    compare(&allocated(&book), &ever).context("all allocations")?;
    Ok(traced)
}

fn live(traced: &Traced, t: u64) -> Result<Cells> {
    let live = traced.cells(t)?.into_iter().map(|(cell, (bytes, _))| (cell, bytes));
    Ok(live.filter(|(_, bytes)| *bytes > 0).collect())
}

fn json(traced: &Traced, at: &str) -> Result<Value> {
    let mut report = Command::new(vramtrace()?);
    report.arg("report").arg(&traced.file).args(["--format", "json", "--by", "rank,phase,owner,role", "--at", at]);
    let output = report.output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// Live bytes by cell as the report has them. Nothing may be lost or unexplained.
fn reported(traced: &Traced, at: &str) -> Result<Cells> {
    let report = json(traced, at)?;
    ensure!(report["lost_events"] == 0, "{}", report["losses"]);
    // A server that is gone within a second may have no sample.
    let explained = &report["explained_percent"];
    ensure!(explained == 100.0 || explained.is_null(), "{explained}");
    let text = |cell: &Value, key: &str| cell[key].as_str().unwrap_or_default().to_owned();
    let cells = report["cells"].as_array().context("no cells")?.iter().map(|cell| {
        let axes = Cell {
            rank: text(cell, "rank"),
            phase: text(cell, "phase"),
            owner: text(cell, "owner"),
            role: text(cell, "role"),
        };
        (axes, cell["live_bytes"].as_u64().unwrap_or_default())
    });
    Ok(cells.filter(|(_, bytes)| *bytes > 0).collect())
}

/// All that was ever allocated; what a process inherits from one that was killed is nobody's allocation.
fn allocated(book: &Book) -> Cells {
    let axes = Axes::new(book);
    let mut cells = Cells::new();
    for row in book.allocations.iter().filter(|row| row.kind != Kind::IpcImport) {
        let label = |axis| axes.label(axis, axes.cell(axis, row)).into_owned();
        let cell = Cell {
            rank: label(Axis::Rank),
            phase: label(Axis::Phase),
            owner: label(Axis::Owner),
            role: label(Axis::Role),
        };
        *cells.entry(cell).or_default() += row.bytes;
    }
    cells
}

fn compare(seen: &Cells, truth: &Cells) -> Result<()> {
    ensure!(!truth.is_empty(), "the server says nothing");
    let cells: std::collections::BTreeSet<&Cell> = seen.keys().chain(truth.keys()).collect();
    let differ = cells.into_iter().filter(|cell| seen.get(cell) != truth.get(cell));
    let lines: Vec<String> =
        differ.map(|cell| format!("{cell:?}: {:?}, truth {:?}", seen.get(cell), truth.get(cell))).collect();
    ensure!(lines.is_empty(), "{} cells differ:\n{}", lines.len(), lines.join("\n"));
    Ok(())
}

/// True when some memory is in a cell of this phase, owner and role.
fn has(traced: &Traced, phase: &str, owner: &str, role: &str) -> Result<bool> {
    let fits = |cell: &Cell| cell.phase == phase && cell.owner == owner && cell.role == role;
    Ok(live(traced, traced.mark("served")?)?.keys().any(fits))
}

fn eight_ranks(version: &str, all_reduce: bool, draft: bool) -> Result<()> {
    let draft_arguments = if draft { "--speculative-algorithm EAGLE" } else { "" };
    let mut server = Server::new(&format!("--tp-size 8 --sim-version {version} {draft_arguments}"));
    if all_reduce {
        server = server.env(FORCE, "1");
    }
    let traced = check(&server, 8)?;
    // What the run is about is there, so that the comparison is about it.
    ensure!(has(&traced, "custom_allreduce", "custom_allreduce", "target")? == all_reduce);
    ensure!(has(&traced, "kv_cache", "torch", "draft")? == draft);
    ensure!(has(&traced, "warmup.nccl", "nccl", "target")?);
    Ok(())
}

macro_rules! eight_ranks {
    ($($name:ident: $version:literal $all_reduce:literal $draft:literal;)*) => {
        $(
            #[test]
            fn $name() -> Result<()> {
                eight_ranks($version, $all_reduce, $draft)
            }
        )*
    };
}

// Weights of the draft after the target's pool, and before it.
eight_ranks! {
    old_order: "0.5.9" false false;
    old_order_with_all_reduce: "0.5.9" true false;
    old_order_with_draft: "0.5.9" false true;
    old_order_with_draft_and_all_reduce: "0.5.9" true true;
    new_order: "0.5.17" false false;
    new_order_with_all_reduce: "0.5.17" true false;
    new_order_with_draft: "0.5.17" false true;
    new_order_with_draft_and_all_reduce: "0.5.17" true true;
}

#[test]
fn data_and_tensor_parallel() -> Result<()> {
    let traced = check(&Server::new("--tp-size 2 --dp-size 2"), 4)?;
    ensure!(live(&traced, traced.mark("served")?)?.keys().any(|cell| cell.rank == "DP1 TP0"));
    Ok(())
}

#[test]
fn pipeline_parallel() -> Result<()> {
    let traced = check(&Server::new("--tp-size 2 --pp-size 2 --sim-version 0.5.17"), 4)?;
    ensure!(live(&traced, traced.mark("served")?)?.keys().any(|cell| cell.rank == "PP1 TP1"));
    Ok(())
}

#[test]
fn one_rank() -> Result<()> {
    check(&Server::new("--tp-size 1 --speculative-algorithm EAGLE --sim-version 0.5.17"), 1)?;
    Ok(())
}

/// NCCL's buffers from `cuMemCreate`, `PyTorch`'s segments in pieces of 20 MiB: small GPUs have enough of them.
#[test]
fn virtual_memory() -> Result<()> {
    let server = Server::new("--tp-size 2").env("NCCL_CUMEM_ENABLE", "1");
    let server = server.env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
    check_on(&server, Config { gpus: 2, gpu_bytes: 12 << 30, ..Config::default() })?;
    Ok(())
}

/// Contexts where none should be, growth while serving, one rank with more weights than the other.
#[test]
fn what_goes_wrong() -> Result<()> {
    let faults = "--sim-stray-context --sim-tokenizer-context --sim-leak 24 --sim-fragment 200 --sim-imbalance 1:300";
    let traced = check(&Server::new(&format!("--tp-size 2 --sim-requests 5 {faults}")), 2)?;
    let cells = live(&traced, traced.mark("served")?)?;
    ensure!(cells.keys().any(|cell| cell.role == "tokenizer"), "{cells:?}");
    Ok(())
}
