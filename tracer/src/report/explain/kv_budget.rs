//! How a server sized its KV cache, recomputed from what the trace saw.
//!
//! `SGLang`, 0.4.1 to 0.5.23 (`profile_max_num_token`, later `_profile_available_bytes`): `rest = A − P × (1 − f)`, where A is
//! free after the weights, P free before them (right after NCCL and the custom all-reduce), both the least over ranks, and f
//! is `mem_fraction_static`. The GPU's total memory plays no part. From 0.5.14 on, A is read after the draft model's weights
//! too. vLLM (V1): `requested = total × gpu_memory_utilization`, of which weights, peak activations and what is not PyTorch's
//! are taken off.
//!
//! An input that the trace does not hold stays `None` and is named in [`KvBudget::missing`].

use std::collections::BTreeMap;

use serde::Serialize;

use super::figure::Figure;
use super::lines::{self, Said};
use super::readings::{self, Asked};
use super::server::{Arguments, Servers, Team};
use super::{sglang, vllm};
use crate::ledger::{Allocation, Book, Timeline};
use crate::lifecycle::{Axes, Axis, Role, root};

/// Budget of one rank.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct KvBudget {
    /// Rank label.
    pub rank: String,
    /// Process id.
    pub pid: u32,
    /// Label of the rank's GPU.
    pub gpu: Option<String>,
    /// `sglang` or `vllm`.
    pub server: &'static str,
    /// Versions of the server that the functions and lines met belong to, e.g. `>=0.5.14, <=0.5.15`.
    pub versions: Option<String>,
    /// The formula, in the names of the keys.
    pub formula: &'static str,
    /// When the server read what is available, nanoseconds since tracing began.
    pub time_ns: Option<u64>,
    /// A: free after the weights, the least over ranks. vLLM: free at its start.
    pub available_bytes: Option<u64>,
    /// P: free before the weights, the least over ranks.
    pub pre_load_bytes: Option<u64>,
    /// The rank's own reading for A.
    pub own_available_bytes: Option<u64>,
    /// The rank's own reading for P.
    pub own_pre_load_bytes: Option<u64>,
    /// f.
    pub mem_fraction_static: Option<f64>,
    /// P × (1 − f): what must stay free.
    pub reserve_bytes: Option<u64>,
    /// What the formula leaves for the KV cache: negative when there is no room.
    pub rest_bytes: Option<i64>,
    /// What the KV cache of the target model got: bytes of the ledger in phase `kv_cache`, most at once.
    pub pool_bytes: Option<u64>,
    /// The same of the draft model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub draft_pool_bytes: Option<u64>,
    /// K and V as the server printed them.
    pub printed_pool_bytes: Option<u64>,
    /// Tokens that the KV cache holds, as printed.
    pub tokens: Option<u64>,
    /// `--max-total-tokens`, where given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_total_tokens: Option<u64>,
    /// Longest request the server admits, tokens, where printed.
    pub context_tokens: Option<u64>,
    /// Whether there was room; `None` where neither figures nor lines tell.
    pub fits: Option<bool>,
    /// The smallest fraction, of two decimals, under which something is left.
    pub smallest_fraction: Option<f64>,
    /// What the server said when there was no room.
    pub error: Option<String>,
    /// Memory of the GPU (vLLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total_bytes: Option<u64>,
    /// Fraction of it to use (vLLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_memory_utilization: Option<f64>,
    /// Their product (vLLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_bytes: Option<u64>,
    /// The model's weights, as printed (vLLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub weights_bytes: Option<u64>,
    /// Weights, activations and memory that is not PyTorch's (vLLM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub non_kv_bytes: Option<u64>,
    /// Where each figure comes from.
    pub evidence: Vec<Figure>,
    /// What the trace does not hold.
    pub missing: Vec<String>,
    /// All of it in one sentence.
    pub sentence: String,
}

/// What is known of one process.
pub(super) struct Case<'a, 'b> {
    pub(super) axes: &'a Axes<'b>,
    pub(super) process: usize,
    /// Its GPU: where it held most.
    pub(super) gpu: Option<usize>,
    pub(super) lines: &'a [Said<'b>],
    pub(super) readings: &'a [Asked<'b>],
    pub(super) arguments: &'a Arguments<'a>,
    pub(super) pools: Pools,
}

/// KV caches of one process by the ledger.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pools {
    /// Most bytes at once, of the target and of the draft model; `None` where no memory is of that phase.
    bytes: [Option<u64>; 2],
    /// When the first piece appeared.
    pub(super) born: Option<u64>,
}

impl Case<'_, '_> {
    pub(super) fn book(&self) -> &Book {
        self.axes.book()
    }

    /// What does not depend on the server.
    pub(super) fn budget(&self) -> KvBudget {
        KvBudget {
            rank: self.axes.rank(self.process).to_owned(),
            pid: self.book().processes[self.process].pid,
            gpu: self.gpu.map(|gpu| self.axes.gpu(gpu)),
            pool_bytes: self.pools.bytes[0],
            draft_pool_bytes: self.pools.bytes[1],
            ..KvBudget::default()
        }
    }

    /// The error that no KV cache fits, as the server put it.
    pub(super) fn error(&self) -> Option<String> {
        self.lines.iter().find(|said| said.is_no_pool()).map(|said| said.message.trim().to_owned())
    }
}

/// The budgets of all ranks of all servers, in the order of ranks.
#[must_use]
pub fn kv_budgets(axes: &Axes<'_>) -> Vec<KvBudget> {
    let book = axes.book();
    let (lines, readings) = (lines::by_process(book), readings::by_process(book));
    let (gpus, servers) = (main_gpus(axes), Servers::of(axes, &lines));
    let mut pools = pools(axes, &gpus);
    let (mut of_sglang, mut budgets) = (BTreeMap::<Team, Vec<(usize, sglang::Own)>>::new(), Vec::new());
    // Of the others, which a server may have any number of, nothing is known that a budget could be told by.
    let tells = |n: &usize| !lines[*n].is_empty() || !readings[*n].is_empty() || gpus.contains_key(n);
    for process in (0..book.processes.len()).filter(tells) {
        let case = Case {
            axes,
            process,
            gpu: gpus.get(&process).copied(),
            lines: &lines[process],
            readings: &readings[process],
            arguments: &servers.arguments(process),
            pools: pools.remove(&process).unwrap_or_default(),
        };
        if let Some(own) = sglang::own(&case) {
            of_sglang.entry(Team::of(axes, case.arguments, process)).or_default().push((process, own));
        } else if let Some(budget) = vllm::budget(&case) {
            budgets.push((process, budget));
        }
    }
    budgets.extend(of_sglang.into_values().flat_map(sglang::budgets));
    budgets.sort_by_key(|(process, _)| (axes.place(*process), *process));
    budgets.into_iter().map(|(_, budget)| budget).collect()
}

/// The GPU on which each process ever allocated most.
fn main_gpus(axes: &Axes<'_>) -> BTreeMap<usize, usize> {
    let mut bytes: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for (row, (more, _)) in axes.firsts().zip(axes.sums(|_| true)) {
        let sum = bytes.entry((row.process, row.gpu)).or_default();
        *sum = sum.saturating_add(more);
    }
    let mut most: BTreeMap<usize, (u64, usize)> = BTreeMap::new();
    for ((process, gpu), bytes) in bytes {
        let known = most.entry(process).or_insert((bytes, gpu));
        if bytes > known.0 {
            *known = (bytes, gpu);
        }
    }
    most.into_iter().map(|(process, (_, gpu))| (process, gpu)).collect()
}

/// The KV caches of each process on its GPU.
fn pools(axes: &Axes<'_>, gpus: &BTreeMap<usize, usize>) -> BTreeMap<usize, Pools> {
    let mut rows: BTreeMap<usize, [Vec<&Allocation>; 2]> = BTreeMap::new();
    let is_pool = |row: &Allocation| {
        let phase = axes.label(Axis::Phase, axes.cell(Axis::Phase, row));
        root(&phase) == "kv_cache" && gpus.get(&row.process) == Some(&row.gpu)
    };
    let is_draft = |row: &Allocation| axes.cell(Axis::Role, row) == Role::Draft as u32;
    let pool_of: Vec<Option<bool>> = axes.firsts().map(|row| is_pool(row).then(|| is_draft(row))).collect();
    for (row, class) in axes.book().allocations.iter().zip(axes.classes()) {
        if let Some(is_draft) = pool_of[*class as usize] {
            rows.entry(row.process).or_default()[usize::from(is_draft)].push(row);
        }
    }
    let most = |rows: Vec<&Allocation>| (!rows.is_empty()).then(|| Timeline::of(rows).peak().bytes);
    let pools = |both: [Vec<&Allocation>; 2]| {
        let born = both.iter().flatten().map(|row| row.born).min();
        Pools { bytes: both.map(most), born }
    };
    rows.into_iter().map(|(process, both)| (process, pools(both))).collect()
}
