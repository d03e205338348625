//! `PyTorch`'s caching allocator: what it keeps unused, and how it gets its memory.

use super::words::{delta, setting};
use super::{Facts, Pair, Suspect, Weight};
use crate::ledger::Kind;
use crate::report::bytes::human;

/// Slack below this is usual.
const SMALL: u64 = 512 << 20;

/// What one of its failures left unused.
struct GaveUp {
    rank: String,
    used: Option<u64>,
    slack: u64,
    evidence: String,
}

/// Memory that it had reserved and could not use when it gave up: by its own account, or as its error says.
pub(super) fn fragmentation(facts: &Facts<'_, '_>) -> Vec<Suspect> {
    let of_account = facts.book().torch.failures.iter().map(|failure| GaveUp {
        rank: facts.axes.rank(failure.process).to_owned(),
        used: Some(failure.allocated),
        slack: failure.reserved.saturating_sub(failure.allocated),
        evidence: format!("the allocator's own account when {} could not be had", human(failure.requested)),
    });
    let of_error = facts.errors.iter().filter_map(|error| {
        let (rank, evidence) = (error.rank.clone(), error.text.clone());
        Some(GaveUp { rank, used: error.torch_allocated_bytes, slack: error.torch_slack_bytes?, evidence })
    });
    let worst = of_account.chain(of_error).max_by_key(|gave_up| gave_up.slack);
    let Some(GaveUp { rank, used, slack, evidence }) = worst.filter(|gave_up| gave_up.slack >= SMALL) else {
        return Vec::new();
    };
    let used = used.map_or(String::new(), |used| format!(" beside {} in use", human(used)));
    vec![Suspect {
        kind: "fragmentation",
        bytes: i64::try_from(slack).ok(),
        text: format!(
            "PyTorch had {} reserved and unused in {rank} when it gave up{used}: expandable segments \
             (PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True) would let it use them",
            human(slack),
        ),
        ranks: vec![rank],
        evidence: vec![evidence],
        ..Suspect::default()
    }]
}

/// The names of its setting: the second since 2.9.
const SETTINGS: [&str; 2] = ["PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"];

/// Memory that moved from `cudaMalloc` to `cuMemCreate` or back because the setting changed.
pub(super) fn expandable(pair: &Pair<'_, '_, '_>) -> Vec<Suspect> {
    let is_on = |value: &Option<String>| value.as_ref().is_some_and(|value| value.contains("expandable_segments:True"));
    let changed = pair
        .diff
        .configuration
        .iter()
        .find(|setting| SETTINGS.contains(&setting.key.as_str()) && is_on(&setting.base) != is_on(&setting.other));
    let Some(changed) = changed else { return Vec::new() };
    let of_torch = |facts: &Facts<'_, '_>, kind: Kind| {
        let held = facts.held.iter().filter(|held| held.kind == kind && held.owner.starts_with("torch"));
        held.fold(0_u64, |sum, held| sum.saturating_add(held.bytes))
    };
    let change = |kind: Kind| {
        let (base, other) = (of_torch(pair.base, kind), of_torch(pair.other, kind));
        i64::try_from(i128::from(other) - i128::from(base)).unwrap_or(0)
    };
    let (vmm, malloc) = (change(Kind::Vmm), change(Kind::CudaMalloc));
    let moved = vmm.unsigned_abs().min(malloc.unsigned_abs());
    if moved == 0 || vmm.signum() == malloc.signum() {
        return Vec::new();
    }
    vec![Suspect {
        kind: "expandable_segments",
        weight: Weight::Explains,
        bytes: Some(vmm + malloc),
        ranks: pair.other.ranks(),
        text: format!(
            "{}: PyTorch gets its segments by cuMemCreate {} and by cudaMalloc {}, in all {}",
            setting(changed),
            delta(vmm),
            delta(malloc),
            delta(vmm + malloc)
        ),
        evidence: vec![setting(changed)],
        moved: Some(moved),
        configured: true,
    }]
}
