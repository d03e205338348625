//! Names of phases.
//!
//! A phase is one of [`PHASES`], or a sub-phase of one: `cuda_graph.prefill`.

/// Phases in the order in which a server goes through them.
pub const PHASES: [&str; 13] = [
    "startup",
    "cuda_context",
    "distributed_init",
    "custom_allreduce",
    "weights",
    "lora",
    "kv_cache",
    "attention_backend",
    "kernel_warmup",
    "cuda_graph",
    "warmup",
    "serving",
    "shutdown",
];

/// The phase that a sub-phase is part of: `cuda_graph` of `cuda_graph.prefill`.
#[must_use]
pub fn root(phase: &str) -> &str {
    phase.split('.').next().unwrap_or(phase)
}

/// True when `part` is a sub-phase of `whole`.
pub(super) fn is_part(part: &str, whole: &str) -> bool {
    part.strip_prefix(whole).is_some_and(|rest| rest.starts_with('.'))
}

/// Where a phase stands in the server's life.
#[must_use]
pub fn order(phase: &str) -> usize {
    PHASES.iter().position(|known| *known == root(phase)).unwrap_or(PHASES.len())
}

/// Judges a name.
pub(super) fn check(phase: &str) -> Result<(), String> {
    let is_word =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if order(phase) < PHASES.len() && phase.len() <= 64 && phase.split('.').all(is_word) {
        return Ok(());
    }
    let phases = PHASES.join(", ");
    Err(format!(
        "`{phase}` is no phase: write one of {phases}, or a sub-phase of one like `serving.{}`",
        word_of(phase)
    ))
}

/// What is left of a wrong name that may stand behind a dot.
fn word_of(phase: &str) -> String {
    let word: String = phase.chars().filter(|c| c.is_ascii_lowercase() || *c == '_').take(24).collect();
    if word.is_empty() { "part".to_owned() } else { word }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sub_phases_belong_to_a_known_phase() {
        assert_eq!((root("cuda_graph.prefill"), root("weights")), ("cuda_graph", "weights"));
        assert!(is_part("cuda_graph.prefill", "cuda_graph"));
        assert!(!is_part("cuda_graph", "cuda_graph") && !is_part("cuda_graphs.x", "cuda_graph"));
        for good in ["startup", "serving.step_2", "cuda_graph.draft.extend"] {
            assert_eq!(check(good), Ok(()));
        }
        for bad in ["", "train", "weights.", ".weights", "weights.Load", "Weights", "weights..x", "weights.a b"] {
            assert!(check(bad).is_err(), "{bad:?}");
        }
        assert!(check("training").unwrap_err().ends_with("like `serving.training`"));
    }
}
