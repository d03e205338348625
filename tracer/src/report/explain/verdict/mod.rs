//! The likeliest causes, ranked: of one run, and of the difference between two.
//!
//! A judge looks at one kind of cause and says only what the trace shows. What a judge finds is ordered by how much it
//! decides (what made the run fail goes first), then by bytes. A cause that a reader would think of and the data excludes is
//! said to be ruled out.

mod allocator;
mod budget;
mod communicators;
mod configuration;
mod contexts;
mod deaths;
mod facts;
mod foreign;
mod growth;
mod imbalance;
mod oom;
mod paused;
mod ruled_out;
mod topics;
mod words;

use serde::Serialize;

pub use facts::Facts;
use facts::Held;

use crate::lifecycle::Role;
use crate::map::Map;
use crate::report::diff::{Diff, RankChange};

/// Suspects kept.
const MOST: usize = 8;

/// How much a suspect decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// What made the run fail.
    Cause,
    /// That it failed, and how.
    Failure,
    /// Where bytes went.
    #[default]
    Explains,
    /// Worth knowing.
    Notable,
}

/// A likely cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Suspect {
    /// What kind of cause it is: `kv_budget`, `foreign_process`, `nccl`, …
    pub kind: &'static str,
    /// How much it decides.
    pub weight: Weight,
    /// Bytes that it accounts for, with their sign; of one run what it holds, of two what OTHER has more.
    pub bytes: Option<i64>,
    /// Ranks concerned.
    pub ranks: Vec<String>,
    /// One sentence, without its full stop.
    pub text: String,
    /// What it was concluded from.
    pub evidence: Vec<String>,
    /// Bytes to rank it by, where that is not the size of `bytes`.
    #[serde(skip)]
    moved: Option<u64>,
    /// A setting that decides about it differs.
    #[serde(skip)]
    configured: bool,
}

/// What a setting that differs decided about goes before what merely differs, unless it is this much less.
const CONFIGURED: u64 = 20;

/// What is not the cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RuledOut {
    /// As in [`Suspect`].
    pub kind: &'static str,
    /// One sentence, without its full stop.
    pub text: String,
}

/// The conclusion.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Verdict {
    /// What a person would write; empty where there is nothing to say.
    pub summary: String,
    /// The likeliest first.
    pub suspects: Vec<Suspect>,
    /// What the data excludes.
    pub ruled_out: Vec<RuledOut>,
}

/// Finds causes of one kind.
type Judge = fn(&Facts<'_, '_>) -> Vec<Suspect>;

/// Judges that need no other run to compare with.
const OF_ONE: [Judge; 9] = [
    budget::of_one,
    oom::of_one,
    deaths::of_one,
    foreign::of_one,
    imbalance::of_one,
    contexts::of_one,
    communicators::of_one,
    growth::of_one,
    allocator::fragmentation,
];

/// Finds causes of the difference between two runs.
type PairJudge = fn(&Pair<'_, '_, '_>) -> Vec<Suspect>;

const OF_TWO: [PairJudge; 10] = [
    budget::of_two,
    oom::of_two,
    deaths::of_two,
    foreign::of_two,
    imbalance::of_two,
    growth::of_two,
    allocator::expandable,
    configuration::of_two,
    paused::of_two,
    topics::of_two,
];

/// Two runs and their comparison.
pub(super) struct Pair<'a, 'b, 'c> {
    base: &'a Facts<'b, 'c>,
    other: &'a Facts<'b, 'c>,
    diff: &'a Diff,
    /// What the comparison calls the processes of each, by pid.
    labels: [Map<u32, &'a str>; 2],
    /// What each has paused, as if it were held.
    paused: [Vec<Held>; 2],
}

impl<'a, 'b, 'c> Pair<'a, 'b, 'c> {
    fn new(base: &'a Facts<'b, 'c>, other: &'a Facts<'b, 'c>, diff: &'a Diff) -> Self {
        let labels = [0, 1].map(|side| {
            let pid = |place: &RankChange| [place.base_pid, place.other_pid][side];
            diff.ranks.iter().rev().filter_map(|place| Some((pid(place)?, place.rank.as_str()))).collect()
        });
        Self { base, other, diff, labels, paused: [paused::held(base), paused::held(other)] }
    }

    /// Facts of BASE (0) or OTHER (1).
    fn side(&self, side: usize) -> &Facts<'b, 'c> {
        if side == 0 { self.base } else { self.other }
    }

    /// What a process of one side is called in both runs: a rank, its role, or where it has none as the comparison pairs it.
    fn label(&self, side: usize, process: usize) -> String {
        let facts = self.side(side);
        let compared = || self.labels[side].get(&facts.book().processes.get(process)?.pid).copied();
        if facts.is_rank(process) {
            return facts.axes.rank(process).to_owned();
        }
        match facts.axes.role(process) {
            Role::Other => compared().unwrap_or("other").to_owned(),
            role => role.name().to_owned(),
        }
    }
}

impl Verdict {
    /// On one run.
    #[must_use]
    pub fn of_one(facts: &Facts<'_, '_>) -> Self {
        let suspects = ranked(OF_ONE.iter().flat_map(|judge| judge(facts)).collect());
        let ruled_out = ruled_out::of_one(facts, &suspects);
        Self { summary: summary(&suspects, &ruled_out), suspects, ruled_out }
    }

    /// On what `other` has or lacks beside `base`; `diff` is their comparison, at the moments of these facts.
    #[must_use]
    pub fn of_two(base: &Facts<'_, '_>, other: &Facts<'_, '_>, diff: &Diff) -> Self {
        let pair = Pair::new(base, other, diff);
        let mut suspects: Vec<Suspect> = OF_TWO.iter().flat_map(|judge| judge(&pair)).collect();
        // A leak says what of the memory for requests is the matter.
        let leaks = suspects.iter().any(|suspect| suspect.kind == "serving_growth");
        suspects.iter_mut().filter(|s| leaks && s.kind == "requests").for_each(|s| s.weight = Weight::Notable);
        promote(&pair, &mut suspects);
        let mut suspects = ranked(suspects);
        let ruled_out = ruled_out::of_two(&pair, &suspects);
        suspects.retain(|suspect| !ruled_out.iter().any(|not| not.kind == suspect.kind));
        Self { summary: summary(&suspects, &ruled_out), suspects, ruled_out }
    }

    /// True when there is nothing to say.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.summary.is_empty()
    }
}

/// Orders suspects: what decides most, then what accounts for most bytes.
fn ranked(mut suspects: Vec<Suspect>) -> Vec<Suspect> {
    let size = |suspect: &Suspect| {
        let bytes = suspect.moved.or(suspect.bytes.map(i64::unsigned_abs)).unwrap_or(0);
        bytes.saturating_mul(if suspect.configured { CONFIGURED } else { 1 })
    };
    let shrank = |suspect: &Suspect| suspect.bytes.is_some_and(i64::is_negative);
    suspects.sort_by_key(|s| (s.weight, std::cmp::Reverse(size(s)), shrank(s), s.kind));
    suspects.truncate(MOST);
    suspects
}

/// Where OTHER failed for want of memory and its budget arithmetic alone does not say why: what took the memory is the cause.
fn promote(pair: &Pair<'_, '_, '_>, suspects: &mut [Suspect]) {
    if suspects.iter().any(|suspect| suspect.weight == Weight::Cause) {
        return;
    }
    let Some(missing) = budget::missing(pair).or_else(|| oom::missing(pair.other)) else { return };
    let per_rank = |suspect: &Suspect| {
        let most = suspect.moved.or(suspect.bytes.and_then(|bytes| u64::try_from(bytes).ok())).unwrap_or(0);
        most / (suspect.ranks.len().max(1) as u64)
    };
    let grown = suspects.iter_mut().filter(|suspect| suspect.weight == Weight::Explains && suspect.kind != "kv_cache");
    if let Some(most) = grown.max_by_key(|suspect| per_rank(suspect))
        && per_rank(most) >= missing / 2
    {
        most.weight = Weight::Cause;
    }
}

/// The first suspect in a sentence, and what is ruled out that a reader would think of first.
fn summary(suspects: &[Suspect], ruled_out: &[RuledOut]) -> String {
    let Some(first) = suspects.first().filter(|first| first.weight < Weight::Notable) else { return String::new() };
    let mut text = first.text.clone();
    // A cause without the failure that it made is half of the story.
    if let Some(second) =
        suspects.get(1).filter(|second| first.weight == Weight::Cause && second.weight == Weight::Failure)
    {
        text += &format!(". {}", second.text);
    }
    let thought_of = ruled_out.iter().find(|not| not.kind == "custom_allreduce");
    if let Some(not) = thought_of.filter(|_| first.weight <= Weight::Failure) {
        text += &format!(". Not the cause: {}", not.text);
    }
    text
}

#[cfg(test)]
mod tests;
