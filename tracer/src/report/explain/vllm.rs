//! vLLM's budget: `total × gpu_memory_utilization`, less all that is not KV cache.

use super::figure::{Figure, Found, fraction, signed};
use super::kv_budget::{Case, KvBudget};
use super::lines::Said;
use super::readings::Function;
use crate::report::bytes::human;
use crate::report::summary::since_start;

const FORMULA: &str = "rest_bytes = total_bytes * gpu_memory_utilization - non_kv_bytes";

/// Functions that take the first snapshot (`MemorySnapshot` is made in `init_device`).
const START: [Function; 3] = [
    ("vllm/v1/worker/gpu_worker.py", "init_device"),
    ("vllm/utils/mem_utils.py", "__post_init__"),
    ("vllm/utils/__init__.py", "__post_init__"),
];
/// Lines that only vLLM's workers write.
const AVAILABLE: &str = "Available KV cache memory:";
const WEIGHTS: &str = "Model loading took";

/// `None` for a process that sizes no KV cache of vLLM.
pub(super) fn budget(case: &Case<'_, '_>) -> Option<KvBudget> {
    let too_little = case.lines.iter().find_map(Said::too_little);
    let find = |before: &str| case.lines.iter().find_map(|said| Some((said.t, said.gib_after(before)?)));
    let (available, weights) = (find(AVAILABLE), find(WEIGHTS));
    let start = case.readings.iter().find(|asked| asked.among(&START).is_some());
    if too_little.is_none() && available.is_none() && weights.is_none() && start.is_none() {
        return None;
    }
    let total_of_gpu = || case.book().size_of(case.gpu?);
    let total = start.and_then(|asked| asked.reading.total);
    let total = total.or(too_little.map(|said| said.total)).or_else(total_of_gpu);
    let utilization = case.arguments.number("gpu_memory_utilization").or(too_little.map(|said| said.fraction));
    let requested = total.zip(utilization).map(|(total, fraction)| (total as f64 * fraction).round() as u64);
    let rest = available.map(|(_, bytes)| bytes);
    let non_kv =
        requested.zip(rest).and_then(|(requested, rest)| u64::try_from(i128::from(requested) - i128::from(rest)).ok());
    let tokens = case.lines.iter().find_map(Said::vllm_tokens);
    let error = case.error().or_else(|| {
        case.lines.iter().find(|said| said.too_little().is_some()).map(|said| said.message.trim().to_owned())
    });
    let mut budget = KvBudget {
        server: "vllm",
        formula: FORMULA,
        time_ns: available.map(|(t, _)| since_start(case.book(), t)),
        available_bytes: start.map(|asked| asked.reading.free).or(too_little.map(|said| said.free)),
        total_bytes: total,
        gpu_memory_utilization: utilization,
        requested_bytes: requested.or(too_little.map(|said| said.wanted)),
        weights_bytes: weights.and_then(|(_, bytes)| u64::try_from(bytes).ok()),
        non_kv_bytes: non_kv,
        rest_bytes: rest,
        tokens,
        error,
        ..case.budget()
    };
    budget.smallest_fraction = total.zip(non_kv).and_then(|(total, taken)| {
        (1..100_u32).map(|n| f64::from(n) / 100.0).find(|fraction| total as f64 * fraction > taken as f64)
    });
    evidence(&mut budget, start.is_some());
    let has_pool = tokens.is_some() || budget.pool_bytes.is_some_and(|bytes| bytes > 0);
    budget.fits = match (budget.error.is_some(), rest) {
        (true, _) => Some(false),
        (false, Some(rest)) => Some(rest > 0),
        (false, None) => has_pool.then_some(true),
    };
    budget.sentence = sentence(&budget);
    Some(budget)
}

/// Names where the figures come from, and those that are not known.
fn evidence(budget: &mut KvBudget, is_read: bool) {
    let from = if is_read { Found::ReadingByFrame } else { Found::Printed };
    let figures = [
        ("available", budget.available_bytes, from, if is_read { "first snapshot" } else { "printed with the error" }),
        ("weights", budget.weights_bytes, Found::Printed, "printed with \"Model loading took\""),
        (
            "rest",
            budget.rest_bytes.and_then(|rest| u64::try_from(rest).ok()),
            Found::Printed,
            "printed with \"Available KV cache memory\"",
        ),
    ];
    let known = figures.into_iter().filter(|(_, bytes, _, _)| bytes.is_some());
    budget.evidence.extend(known.map(|(figure, bytes, from, text)| Figure {
        figure,
        bytes,
        from,
        text: text.to_owned(),
    }));
    let missing = [
        (budget.gpu_memory_utilization.is_none(), "gpu_memory_utilization, neither printed nor given"),
        (budget.total_bytes.is_none(), "the GPU's total memory"),
        (budget.rest_bytes.is_none() && budget.error.is_none(), "the line \"Available KV cache memory\""),
    ];
    budget.missing.extend(missing.into_iter().filter(|(missing, _)| *missing).map(|(_, name)| name.to_owned()));
}

fn sentence(budget: &KvBudget) -> String {
    let (Some(total), Some(f), Some(requested)) =
        (budget.total_bytes, budget.gpu_memory_utilization, budget.requested_bytes)
    else {
        return format!("KV budget not known: the trace does not hold {}", budget.missing.join("; "));
    };
    let wanted = format!("{} × {} = {}", human(total), fraction(f), human(requested));
    if let Some(free) = budget.available_bytes.filter(|free| *free < requested && budget.fits == Some(false)) {
        let most = (free as f64 / total as f64 * 100.0).floor() / 100.0;
        let others = human(total.saturating_sub(free));
        return format!(
            "vLLM is to use {wanted}, but only {} was free at its start: {others} was taken already; \
             free it, or --gpu-memory-utilization {} at most",
            human(free),
            fraction(most)
        );
    }
    let (Some(taken), Some(rest)) = (budget.non_kv_bytes, budget.rest_bytes) else {
        return format!("KV budget: vLLM is to use {wanted}; the trace does not hold {}", budget.missing.join("; "));
    };
    let weights = budget.weights_bytes.map_or(String::new(), |weights| format!(", {} of it weights", human(weights)));
    let formula = format!("{wanted} - {} not KV cache{weights} = {}", human(taken), signed(rest));
    match (budget.fits, budget.smallest_fraction) {
        (Some(false), Some(least)) => format!(
            "KV cache cannot be sized: {formula}; --gpu-memory-utilization {} or more leaves room",
            fraction(least)
        ),
        (Some(false), None) => format!("KV cache cannot be sized: {formula}"),
        _ => format!("KV cache: {formula}{}", budget.tokens.map_or(String::new(), |n| format!(", for {n} tokens"))),
    }
}
