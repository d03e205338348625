//! What differs between any two runs of one command.

use std::sync::LazyLock;

use regex::Regex;

use crate::report::diff::model::{Source, canonical};

/// Settings that are drawn, counted or found anew for each run.
const NAMES: [&str; 16] = [
    "port",
    "nccl_port",
    "dist_init_addr",
    "master_port",
    "random_seed",
    "seed",
    "log_file",
    "instance_id",
    "run_id",
    "rank",
    "local_rank",
    "node_rank",
    "group_rank",
    "hostname",
    "engine_id",
    "data_parallel_rpc_port",
];

/// Endings of such names: `SGLANG_RUN_ID`, `VLLM_RPC_PORT`, `TORCHELASTIC_RUN_ID`.
const ENDINGS: [&str; 5] = ["_run_id", "_port", "_seed", "_pid", "_uuid"];

/// Temporary paths, times, ids, local addresses with a port.
static VOLATILE: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r#"/(?:tmp|var/tmp|dev/shm|run/user|proc)/[^\s,'"]*"#,
        r"|\b\d{4}-\d\d-\d\d[T _]\d\d[:\-]?\d\d(?:[:\-]?\d\d)?(?:\.\d+)?\b",
        r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
        r"|\b(?:127\.0\.0\.1|localhost|0\.0\.0\.0):\d+\b",
        r"|\b0x[0-9a-f]{6,}\b",
    ))
});

#[expect(clippy::expect_used, reason = "a constant pattern: a test compiles it")]
fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a constant pattern")
}

/// True when the two values of a setting say nothing about the runs' memory.
pub(super) fn is(source: Source, name: &str, base: Option<&String>, other: Option<&String>) -> bool {
    let name = canonical(name).to_ascii_lowercase();
    let is_named = NAMES.contains(&name.as_str()) || ENDINGS.iter().any(|ending| name.ends_with(ending));
    let is_set = matches!(source, Source::Argument | Source::ServerArgument | Source::Environment);
    if is_set && is_named {
        return true;
    }
    match (base, other) {
        (Some(base), Some(other)) => VOLATILE.replace_all(base, "…") == VOLATILE.replace_all(other, "…"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_seeds_and_paths_of_the_run_are_noise() {
        let noise = |name: &str, base: &str, other: &str| {
            is(Source::Environment, name, Some(&base.to_owned()), Some(&other.to_owned()))
        };
        assert!(noise("--port", "1", "2") && noise("random_seed", "1", "2") && noise("SGLANG_RUN_ID", "a", "b"));
        assert!(noise("TRITON_CACHE_DIR", "/tmp/a/b", "/tmp/c"));
        assert!(noise("x", "a 2026-11-29T10:11:12 b", "a 2026-11-30T01:02:03 b"));
        assert!(noise("--init", "tcp://127.0.0.1:5000", "tcp://127.0.0.1:6000"));
        assert!(!noise("mem_fraction_static", "0.88", "0.55"));
        assert!(!noise("model_path", "/srv/a", "/srv/b") && !noise("NCCL_CUMEM_ENABLE", "0", "1"));
        assert!(!noise("model_path", "/tmp/a", "/srv/a"), "one is no temporary path");
        assert!(!is(Source::Environment, "NCCL_ALGO", None, Some(&"Ring".to_owned())));
        assert!(!is(Source::Library, "seed", Some(&"1".to_owned()), Some(&"2".to_owned())));
    }
}
