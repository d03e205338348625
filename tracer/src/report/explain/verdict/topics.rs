//! Where bytes went: every byte belongs to one topic, so that the topics' differences, and that of what is paused, sum to the
//! difference of the runs.

use std::collections::BTreeMap;

use super::facts::Held;
use super::words::{by_process, by_rank, delta, list, setting};
use super::{Pair, Suspect, Weight};
use crate::ledger::Kind;
use crate::lifecycle::kind_name;
use crate::report::bytes::human;
use crate::report::diff::{Setting, canonical};

/// Something that takes memory, and the settings that decide how much.
pub(super) struct Topic {
    pub(super) kind: &'static str,
    pub(super) name: &'static str,
    /// Canonical names of settings; a `*` at an end stands for anything.
    settings: &'static [&'static str],
    holds: fn(&Held) -> bool,
}

/// The first that fits has it.
const TOPICS: [Topic; 15] = [
    Topic {
        kind: "extra_context",
        name: "Contexts beside a process's own GPU",
        settings: &[],
        holds: |held| held.is_stray,
    },
    // One pool a context, as large as the kernel needs that needs most: it is no phase's, whichever launched that first.
    Topic {
        kind: "local_memory",
        name: "Local memory of the driver",
        settings: &[],
        holds: |held| held.kind == Kind::LocalMemory,
    },
    Topic {
        kind: "draft_model",
        name: "The draft model",
        settings: &["speculative*"],
        holds: |held| held.role == "draft",
    },
    Topic {
        kind: "custom_allreduce",
        name: "Custom all-reduce",
        settings: &[
            "disable_custom_all_reduce",
            "SGLANG_FORCE_CUSTOM_AR*",
            "SGLANG_CUSTOM_ALLREDUCE*",
            "SGLANG_OPT_USE_CUSTOM_ALL_REDUCE*",
        ],
        holds: |held| {
            held.root() == "custom_allreduce"
                || held.owner == "custom_allreduce"
                || held.phase == "cuda_graph.ipc_register"
        },
    },
    Topic {
        kind: "late_communicator",
        name: "NCCL communicators made once the server ran",
        settings: &[],
        holds: Held::is_late_nccl,
    },
    Topic { kind: "nccl", name: "NCCL", settings: &["NCCL_*", "libnccl*", "enable_nccl_nvls"], holds: Held::is_nccl },
    Topic {
        kind: "cuda_graphs",
        name: "CUDA graphs",
        settings: &[
            "cuda_graph*",
            "disable_cuda_graph*",
            // Prefill graphs are captured up to this many tokens (SGLang since 0.5.14).
            "chunked_prefill_size",
            "enable_torch_compile",
            "compilation_config",
            "enforce_eager",
        ],
        holds: |held| held.root() == "cuda_graph" || held.owner == "torch_graph_pool",
    },
    Topic {
        kind: "kv_cache",
        name: "The KV cache",
        settings: &[
            "mem_fraction_static",
            "max_total_tokens",
            "kv_cache_dtype",
            "page_size",
            "gpu_memory_utilization",
            "num_gpu_blocks_override",
        ],
        holds: |held| held.root() == "kv_cache",
    },
    Topic { kind: "lora", name: "LoRA adapters", settings: &["*lora*"], holds: |held| held.root() == "lora" },
    Topic {
        kind: "weights",
        name: "Weights",
        settings: &[
            "model_path",
            "model",
            "load_format",
            "quantization",
            "dtype",
            "tp_size",
            "pp_size",
            "tensor_parallel_size",
        ],
        holds: |held| held.root() == "weights",
    },
    Topic {
        kind: "attention_backend",
        name: "Attention backends and kernel warm-up",
        settings: &["*attention_backend", "SGLANG_FLASHINFER_WORKSPACE_SIZE"],
        holds: |held| matches!(held.root(), "attention_backend" | "kernel_warmup"),
    },
    Topic {
        kind: "requests",
        name: "Requests (warm-up and serving)",
        settings: &["max_running_requests", "max_prefill_tokens", "max_num_seqs", "max_num_batched_tokens"],
        holds: |held| matches!(held.root(), "warmup" | "serving"),
    },
    Topic {
        kind: "cuda_context",
        name: "CUDA contexts",
        settings: &["driver", "libcuda*", "CUDA_MODULE_LOADING", "CUDA_DEVICE_MAX_CONNECTIONS"],
        holds: |held| held.kind == Kind::Context || held.root() == "cuda_context",
    },
    Topic {
        kind: "distributed_init",
        name: "Distributed init beside NCCL and custom all-reduce",
        settings: &[],
        holds: |held| held.root() == "distributed_init",
    },
    Topic { kind: "other", name: "Other memory", settings: &[], holds: |_| true },
];

pub(super) fn all() -> impl Iterator<Item = &'static Topic> {
    TOPICS.iter()
}

fn topic(held: &Held) -> usize {
    TOPICS.iter().position(|topic| (topic.holds)(held)).unwrap_or(TOPICS.len() - 1)
}

impl Topic {
    pub(super) fn named(kind: &str) -> Option<&'static Self> {
        TOPICS.iter().find(|topic| topic.kind == kind)
    }

    /// Its place in [`sums`].
    pub(super) fn place(&self) -> usize {
        TOPICS.iter().position(|topic| topic.kind == self.kind).unwrap_or(TOPICS.len() - 1)
    }

    /// Its settings that differ, each once.
    pub(super) fn changed<'d>(&self, configuration: &'d [Setting]) -> Vec<&'d Setting> {
        let mut changed: Vec<&Setting> = Vec::new();
        for setting in configuration.iter().filter(|setting| !setting.noise) {
            let name = canonical(&setting.key);
            let is_mine = self.settings.iter().any(|pattern| fits(pattern, &name));
            if is_mine && !changed.iter().any(|known| canonical(&known.key) == name) {
                changed.push(setting);
            }
        }
        changed
    }
}

/// `*lora*`, `NCCL_*`, `dtype`.
fn fits(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(part), Some(_)) => name.contains(part.trim_end_matches('*')),
        (Some(end), None) => name.ends_with(end),
        (None, Some(begin)) => name.starts_with(begin),
        (None, None) => name == pattern,
    }
}

/// What a topic holds in each run.
#[derive(Clone, Debug, Default)]
pub(super) struct Bytes {
    /// OTHER less BASE by rank.
    by_rank: BTreeMap<String, i64>,
    /// Some of these are no ranks.
    has_others: bool,
    by_kind: BTreeMap<Kind, i64>,
    base: u64,
    other: u64,
}

impl Bytes {
    /// Adds what `side` holds.
    pub(super) fn add(&mut self, pair: &Pair<'_, '_, '_>, side: usize, held: &Held, sign: i64) {
        self.has_others |= !pair.side(side).is_rank(held.process);
        let label = pair.label(side, held.process);
        let bytes = i64::try_from(held.bytes).unwrap_or(i64::MAX).saturating_mul(sign);
        for sum in [self.by_rank.entry(label).or_default(), self.by_kind.entry(held.kind).or_default()] {
            *sum = sum.saturating_add(bytes);
        }
        let side = if sign < 0 { &mut self.base } else { &mut self.other };
        *side = side.saturating_add(held.bytes);
    }

    /// Ranks and processes that differ.
    pub(super) fn changed(&self) -> Vec<String> {
        self.by_rank.iter().filter(|(_, bytes)| **bytes != 0).map(|(rank, _)| rank.clone()).collect()
    }

    /// The differences in one phrase.
    pub(super) fn by_rank(&self) -> String {
        if self.has_others { by_process(&self.by_rank) } else { by_rank(&self.by_rank) }
    }

    pub(super) fn delta(&self) -> i64 {
        self.by_rank.values().fold(0, |sum, bytes| sum.saturating_add(*bytes))
    }

    /// Bytes that came or went: more than the difference where one kind of memory took another's place.
    fn moved(&self) -> u64 {
        let sum = |sign: i64| {
            let part = self.by_kind.values().filter(|bytes| bytes.signum() == sign);
            part.fold(0_u64, |sum, bytes| sum.saturating_add(bytes.unsigned_abs()))
        };
        sum(1).max(sum(-1))
    }

    /// `; cuda_malloc -544.0 MiB, vmm +600.0 MiB`, where kinds took each other's place.
    fn kinds(&self) -> String {
        if self.moved() == self.delta().unsigned_abs() {
            return String::new();
        }
        let kinds = self.by_kind.iter().filter(|(_, bytes)| **bytes != 0);
        let kinds: Vec<String> = kinds.map(|(kind, bytes)| format!("{} {}", kind_name(*kind), delta(*bytes))).collect();
        format!(" ({})", kinds.join(", "))
    }
}

/// The topics of both runs, by place in [`TOPICS`].
pub(super) fn sums(pair: &Pair<'_, '_, '_>) -> Vec<Bytes> {
    let mut sums = vec![Bytes::default(); TOPICS.len()];
    for (side, sign) in [(0, -1), (1, 1)] {
        // What is paused is a difference of its own: its topic has it still.
        for held in pair.side(side).held.iter().chain(&pair.paused[side]) {
            sums[topic(held)].add(pair, side, held, sign);
        }
    }
    sums
}

pub(super) fn of_two(pair: &Pair<'_, '_, '_>) -> Vec<Suspect> {
    let sums = sums(pair);
    let mut suspects = Vec::new();
    for (topic, bytes) in TOPICS.iter().zip(&sums) {
        let changed = topic.changed(&pair.diff.configuration);
        let moved = if changed.is_empty() { bytes.delta().unsigned_abs() } else { bytes.moved() };
        if moved == 0 {
            continue;
        }
        // Where the budget is known, the pool's size follows from it.
        let follows = topic.kind == "kv_cache" && pair.other.budgets.iter().any(|budget| budget.rest_bytes.is_some());
        suspects.push(Suspect {
            kind: topic.kind,
            weight: if follows { Weight::Notable } else { Weight::Explains },
            bytes: Some(bytes.delta()),
            ranks: bytes.changed(),
            text: text(topic, bytes, &changed) + &consequence(pair, topic, &sums, &changed),
            evidence: evidence(pair, topic, &changed),
            moved: Some(moved),
            configured: !changed.is_empty(),
        });
    }
    suspects
}

fn text(topic: &Topic, bytes: &Bytes, changed: &[&Setting]) -> String {
    let settings: Vec<String> = changed.iter().take(3).map(|changed| setting(changed)).collect();
    let with = if settings.is_empty() { String::new() } else { format!(" with {}", list(&settings)) };
    let was = match (bytes.base, bytes.other) {
        (0, _) => ", none before".to_owned(),
        (_, 0) => ", none any more".to_owned(),
        _ => String::new(),
    };
    format!("{}: {}{was}{}{with}", topic.name, bytes.by_rank(), bytes.kinds())
}

/// What a switched custom all-reduce does elsewhere: it takes the place of NCCL's kernels, whose memory comes in capture.
fn consequence(pair: &Pair<'_, '_, '_>, topic: &Topic, sums: &[Bytes], changed: &[&Setting]) -> String {
    if topic.kind != "custom_allreduce" || changed.is_empty() {
        return String::new();
    }
    let of = |kind: &str| TOPICS.iter().position(|topic| topic.kind == kind).map(|n| &sums[n]);
    let graphs = of("cuda_graphs").filter(|bytes| bytes.delta() != 0);
    let graphs = graphs.map_or(String::new(), |bytes| format!("; CUDA graphs {}", bytes.by_rank()));
    let mapped = mapped(pair)
        .map_or(String::new(), |mapped| format!(", and 0 B for the buffers of other ranks that it maps ({mapped})"));
    format!("{mapped}{graphs}; in all {}", delta(pair.diff.bytes.delta_bytes))
}

/// Most that a rank of OTHER maps of others beyond what it maps in BASE.
pub(super) fn mapped(pair: &Pair<'_, '_, '_>) -> Option<String> {
    let more = pair.diff.ranks.iter().map(|rank| rank.imported.delta_bytes).max()?;
    u64::try_from(more).ok().filter(|more| *more > 0).map(|more| format!("{} a rank", human(more)))
}

/// The stacks of a topic that changed most, and its settings.
fn evidence(pair: &Pair<'_, '_, '_>, topic: &Topic, changed: &[&Setting]) -> Vec<String> {
    let is_mine = |stack: &&crate::report::diff::StackChange| {
        let kind = crate::lifecycle::KINDS.iter().find(|kind| kind_name(**kind) == stack.kind).copied();
        let held = Held {
            process: 0,
            gpu: 0,
            phase: stack.phase.clone(),
            kind: kind.unwrap_or(Kind::Other),
            owner: stack.owner.clone(),
            role: String::new(),
            is_stray: false,
            bytes: 0,
        };
        TOPICS[self::topic(&held)].kind == topic.kind
    };
    let line = |stack: &crate::report::diff::StackChange| {
        let frame = stack.frames.first().map_or(stack.api.as_str(), String::as_str);
        format!("{} {} from {frame}", stack.change, delta(stack.bytes.delta_bytes))
    };
    let stacks = pair.diff.stacks.iter().filter(is_mine).take(2).map(line);
    changed.iter().map(|changed| setting(changed)).chain(stacks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_of_settings() {
        assert!(fits("NCCL_*", "NCCL_CUMEM_ENABLE") && !fits("NCCL_*", "MY_NCCL_X"));
        assert!(fits("*lora*", "max_loras_per_batch") && fits("*attention_backend", "prefill_attention_backend"));
        assert!(fits("dtype", "dtype") && !fits("dtype", "kv_cache_dtype"));
    }
}
