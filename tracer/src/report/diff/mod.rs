//! Two runs compared: configuration, signed bytes by rank and phase, stacks.

mod configuration;
pub mod flame;
pub mod json;
mod model;
mod moment;
mod pair;
pub(super) mod stack_key;
mod stacks;
mod sums;
pub mod text;

#[cfg(test)]
mod tests;

pub use model::{
    CellChange, Change, Compared, Diff, PhaseChange, RankChange, RunFacts, SCHEMA, Setting, Source, StackChange,
    canonical,
};
pub use moment::When;

use std::collections::BTreeMap;

use crate::ledger::Kind;
use crate::lifecycle::{Axes, Axis};
use crate::report::explain::verdict::{Facts, Verdict};
use crate::report::query::{self, Moments};
use crate::report::{physical, trust};
use moment::Life;
use pair::Pairs;
use stack_key::StackKeys;
use sums::{Both, Held, Part};

/// A run to compare: what its file is called, and its memory with the rules to go by.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a, 'b> {
    /// Name of its trace file, for people.
    pub name: &'a str,
    /// Its book and rules. Both runs must be read by the same rules.
    pub axes: &'a Axes<'b>,
}

/// A question to two traces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Question {
    /// Axes that divide [`Diff::cells`], without repeats; empty: rank and phase, or rank and kind where no phase is known.
    pub by: Vec<Axis>,
    /// Where to compare.
    pub when: When,
}

/// Why two traces cannot be compared as asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// One of them has no such moment.
    #[error("{run}: {source}")]
    Query {
        /// Its name.
        run: String,
        /// Why.
        source: query::Error,
    },
    /// One of them never got through the phase.
    #[error("{run} did not get through {phase}, so there is no end of it to compare at: use --at common or --at end")]
    Phase {
        /// Its name.
        run: String,
        /// The phase.
        phase: &'static str,
    },
    /// `--at common` without such a phase.
    #[error("no phase is known that both runs went through: use --at end, or --at with a time since tracing began")]
    NoCommonPhase,
}

impl Diff {
    /// Compares `other` with `base`.
    ///
    /// # Errors
    ///
    /// When one of them has no such moment as the question asks for.
    pub fn new(base: &Run<'_, '_>, other: &Run<'_, '_>, question: &Question) -> Result<Self, Error> {
        let runs = [base, other];
        let lives = runs.map(Life::new);
        let (moments, compared) = moment::moments(runs, &lives, question.when)?;
        let pairs = Pairs::new(runs);
        let both = Both { runs, moments: &moments, pairs: &pairs };
        let mut keys = runs.map(|run| StackKeys::new(run.axes.book()));
        let by = match &question.by[..] {
            [] if runs.iter().any(|run| run.axes.has_phases()) => vec![Axis::Rank, Axis::Phase],
            [] => vec![Axis::Rank, Axis::Kind],
            by => by.to_vec(),
        };
        let ranks = ranks(&both, &mut keys);
        let [base, other] = [0, 1].map(|side| facts(runs[side], &moments[side], &lives[side]));
        let mut diff = Self {
            schema: SCHEMA,
            base,
            other,
            compared,
            configuration: configuration::differences(runs),
            bytes: ranks.iter().map(|rank| rank.bytes).sum(),
            ranks,
            by: by.iter().map(|axis| axis.name()).collect(),
            cells: cells(&by, both.divide(&by, &mut keys)),
            stacks: stacks::stacks(&both, &mut keys),
            verdict: Verdict::default(),
        };
        let [base, other] = [0, 1].map(|side| Facts::new(runs[side].name, runs[side].axes, &moments[side]));
        diff.verdict = Verdict::of_two(&base, &other, &diff);
        Ok(diff)
    }

    /// True when nothing differs: neither bytes nor settings, those apart that differ in any two runs.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.delta_bytes == 0
            && self.stacks.is_empty()
            && self.configuration.iter().all(|setting| setting.noise)
            && self.ranks.iter().flat_map(|rank| &rank.phases).all(|phase| phase.bytes.delta_bytes == 0)
            && self.ranks.iter().all(|rank| rank.imported.delta_bytes == 0 && rank.host.delta_bytes == 0)
    }
}

fn facts(run: &Run<'_, '_>, moments: &Moments, life: &Life) -> RunFacts {
    let book = run.axes.book();
    let losses = book.losses.iter().filter(|(why, _)| trust::costs_bytes(book, why));
    let before = book.allocations.iter().filter(|row| row.kind == Kind::PreAttach && moments.is_live(row));
    RunFacts {
        name: run.name.to_owned(),
        host: book.header.host.clone(),
        outcome: trust::outcome(book, run.axes),
        lost_events: losses.map(|(_, count)| count).sum(),
        explained_percent: physical::explained_percent(&book.samples),
        notices: book.notices.clone(),
        pre_attach_bytes: before.fold(0, |sum, row| sum.saturating_add(row.bytes)),
        failed_in: life.failed_in().map(str::to_owned),
    }
}

fn ranks(both: &Both<'_, '_, '_>, keys: &mut [StackKeys<'_>; 2]) -> Vec<RankChange> {
    let mut phases: BTreeMap<usize, Vec<PhaseChange>> = BTreeMap::new();
    for (parts, held) in both.divide(&[Axis::Rank, Axis::Phase], keys) {
        if let [rank, phase] = &parts[..] {
            let change = PhaseChange { phase: phase.name.clone(), bytes: held.change() };
            phases.entry(rank.order as usize).or_default().push(change);
        }
    }
    let mut imported = both.apart(|axes| &axes.book().imports);
    let mut host = both.apart(|axes| &axes.book().host);
    let rank = |(at, place): (usize, &pair::Place)| {
        let phases = phases.remove(&at).unwrap_or_default();
        let pid = |side: usize| place.processes[side].map(|n| both.runs[side].axes.book().processes[n].pid);
        RankChange {
            rank: place.label.clone(),
            is_rank: place.is_rank,
            base_pid: pid(0),
            other_pid: pid(1),
            bytes: phases.iter().map(|phase| phase.bytes).sum(),
            phases,
            imported: imported.remove(&at).unwrap_or_default(),
            host: host.remove(&at).unwrap_or_default(),
        }
    };
    both.pairs.places.iter().enumerate().map(rank).collect()
}

/// Names and orders cells: axes with an order of their own in that, the others by name.
fn cells(by: &[Axis], cells: BTreeMap<Vec<Part>, Held>) -> Vec<CellChange> {
    let cell = |(parts, held): (Vec<Part>, Held)| {
        let labels = by.iter().zip(parts).map(|(axis, part)| (axis.name(), part.name)).collect();
        CellChange { labels, bytes: held.change() }
    };
    cells.into_iter().map(cell).collect()
}
