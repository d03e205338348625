//! Causes that are known, in pairs of runs of the simulated `SGLang` server that differ in one thing: the verdict must name it
//! first. The founding case stands at the front.
//!
//! These load BPF programs and need root. `VRAMTRACE` names the binary to test (default: the one built beside).

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, ensure};
use live_tests::live::{Talk, vramtrace};
use live_tests::sim::{Config, Sim, target_directory};
use live_tests::sim_server::{Server, Traced};
use serde_json::Value;

/// An RTX PRO 6000 Blackwell, as CUDA sees it.
const LARGE: u64 = 95 << 30;
/// Room for the small model: expandable segments of a pool of 80 GiB would take thousands of calls.
const SMALL: u64 = 24 << 30;
/// One server at a time.
static ONE: Mutex<()> = Mutex::new(());

fn trace(server: &Server, gpus: u32, gpu_bytes: u64) -> Result<Traced> {
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    server.trace(Config { gpus, gpu_bytes, ..Config::default() })
}

fn json(arguments: &[&str], files: &[&Path]) -> Result<Value> {
    let output = Command::new(vramtrace()?).args(arguments).args(["--format", "json"]).args(files).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(serde_json::from_slice(&output.stdout)?)
}

/// The first suspect's kind and the sentence of the verdict.
fn verdict(json: &Value) -> (String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&json["verdict"]["suspects"][0]["kind"]), text(&json["verdict"]["summary"]))
}

fn compare(base: &Path, other: &Path) -> Result<(String, String)> {
    Ok(verdict(&json(&["diff"], &[base, other])?))
}

/// A server of two ranks that leaves room for what is changed, traced once for all tests that compare with it.
fn usual() -> Result<&'static Path> {
    static USUAL: OnceLock<Option<PathBuf>> = OnceLock::new();
    // Kept by its file: a static is never dropped, and the simulation must be.
    let record = || -> Result<PathBuf> {
        let file = target_directory()?.join("sim/usual-server.vrt");
        std::fs::copy(&trace(&Server::new("--tp-size 2 --mem-fraction-static 0.7"), 2, SMALL)?.file, &file)?;
        Ok(file)
    };
    USUAL.get_or_init(|| record().ok()).as_deref().context("the usual server left no trace")
}

/// Its like with one thing changed must have `kind` named first; beside the usual one itself nothing is to be said.
fn named(kind: &str, server: &Server) -> Result<String> {
    let (usual, changed) = (usual()?, trace(server, 2, SMALL)?);
    let (first, summary) = compare(usual, &changed.file)?;
    ensure!(first == kind, "{first}: {summary}");
    let (none, _) = compare(usual, usual)?;
    ensure!(none.is_empty(), "{none}");
    Ok(summary)
}

#[test]
fn founding_case() -> Result<()> {
    let arguments = "--tp-size 8 --model-path sim/large --mem-fraction-static";
    let off = trace(&Server::new(&format!("{arguments} 0.88")), 8, LARGE)?;
    let on = Server::new(&format!("{arguments} 0.55"));
    let on = on.env("SGLANG_FORCE_CUSTOM_AR_PCIE", "1").env("SGLANG_CUSTOM_ALLREDUCE_ALGO", "1stage");
    let on = trace(&on, 8, LARGE)?;
    ensure!(on.code != Some(0) && on.log.contains("Not enough memory"), "{:?}: {}", on.code, on.log);
    let (kind, summary) = compare(&off.file, &on.file)?;
    println!("{summary}");
    ensure!(kind == "kv_budget", "{kind}: {summary}");
    ensure!(summary.contains("KV pool cannot be sized") && summary.contains("× (1 - 0.55) = -"), "{summary}");
    ensure!(summary.contains("Not the cause: custom all-reduce adds"), "{summary}");
    // One trace alone says as much, and its figures are those of the formula.
    let report = json(&["report"], &[&on.file])?;
    ensure!(verdict(&report).0 == "kv_budget", "{}", report["verdict"]);
    let budgets = report["kv_budget"].as_array().context("budgets")?;
    ensure!(budgets.len() == 8, "{} budgets", budgets.len());
    for budget in budgets {
        let number = |key: &str| budget[key].as_f64().with_context(|| format!("{key} in {budget}"));
        let rest = number("available_bytes")? - number("pre_load_bytes")? * (1.0 - number("mem_fraction_static")?);
        ensure!(number("mem_fraction_static")? == 0.55 && (rest - number("rest_bytes")?).abs() < 1.0, "{budget}");
        ensure!(rest < 0.0 && budget["evidence"][0]["from"] == "reading_by_frame", "{budget}");
    }
    // With it off the pool got what the formula gives.
    let report = json(&["report"], &[&off.file])?;
    for budget in report["kv_budget"].as_array().context("budgets")? {
        let (rest, pool) =
            (budget["rest_bytes"].as_u64().context("rest")?, budget["pool_bytes"].as_u64().context("pool")?);
        ensure!(rest.abs_diff(pool) < rest / 50, "{budget}");
    }
    Ok(())
}

macro_rules! causes {
    ($($name:ident: $kind:literal $server:expr;)*) => {
        $(
            #[test]
            fn $name() -> Result<()> {
                println!("{}", named($kind, &$server)?);
                Ok(())
            }
        )*
    };
}

causes! {
    custom_allreduce: "custom_allreduce" Server::new("--tp-size 2 --mem-fraction-static 0.7 --disable-custom-all-reduce");
    larger_graphs: "cuda_graphs" Server::new("--tp-size 2 --mem-fraction-static 0.7 --cuda-graph-max-bs 64");
    expandable_segments: "expandable_segments"
        Server::new("--tp-size 2 --mem-fraction-static 0.7").env("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True");
    nccl_from_the_driver: "nccl" Server::new("--tp-size 2 --mem-fraction-static 0.7").env("NCCL_CUMEM_ENABLE", "1");
    draft_model: "draft_model" Server::new("--tp-size 2 --mem-fraction-static 0.7 --speculative-algorithm EAGLE");
    smaller_fraction: "kv_budget" Server::new("--tp-size 2 --mem-fraction-static 0.6");
    stray_context: "extra_context" Server::new("--tp-size 2 --mem-fraction-static 0.7 --sim-stray-context");
    leak: "serving_growth" Server::new("--tp-size 2 --mem-fraction-static 0.7 --sim-requests 12 --sim-leak 64");
    more_weights: "weights" Server::new("--tp-size 2 --mem-fraction-static 0.7 --sim-extra-weights 700");
}

/// The other way round: the usual server makes its second communicator at the first request.
#[test]
fn communicator_at_the_first_request() -> Result<()> {
    let early = trace(&Server::new("--tp-size 2 --mem-fraction-static 0.7 --sim-lazy-nccl off"), 2, SMALL)?;
    let (kind, summary) = compare(&early.file, usual()?)?;
    ensure!(kind == "late_communicator", "{kind}: {summary}");
    Ok(())
}

/// Somebody else's process sits on GPU 0: the ledger does not have it, NVML does.
#[test]
fn foreign_process() -> Result<()> {
    let usual = usual()?;
    let _alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let sim = Sim::start(Config { gpus: 2, gpu_bytes: SMALL, ..Config::default() })?;
    let mut command = sim.command("server")?;
    command.arg("ready");
    let mut foreign = Talk::server(command)?;
    foreign.order("alloc 2048")?;
    let pid = foreign.server_pid();
    let (crowded, _) = Server::new("--tp-size 2 --mem-fraction-static 0.7").record(&sim, "server.vrt")?;
    let (kind, summary) = compare(usual, &crowded)?;
    ensure!(kind == "foreign_process", "{kind}: {summary}");
    ensure!(summary.contains(&pid.to_string()), "{pid} is not in {summary:?}");
    Ok(())
}
