//! Where in their lives two runs are compared.
//!
//! A server that died while it sized its KV cache holds less than one that serves, and that says nothing. So where a run
//! failed before it served, both are looked at when they had just gone through the last phase that both went through.

use std::collections::HashSet;
use std::str::FromStr;

use super::model::Compared;
use super::{Error, Run};
use crate::lifecycle::{Axis, PHASES, root};
use crate::report::query::{At, Moments};
use crate::report::trust;

/// Where to compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum When {
    /// At the end; where a run failed before it served, at the end of the last phase that both went through.
    #[default]
    Suiting,
    /// At the end of the last phase that both went through.
    Common,
    /// At the end of a phase, by its place in [`PHASES`].
    Phase(usize),
    /// At a moment of each run's own.
    At(At),
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "common" {
            return Ok(Self::Common);
        }
        if let Some(phase) = PHASES.iter().position(|phase| *phase == text) {
            return Ok(Self::Phase(phase));
        }
        text.parse().map(Self::At).map_err(|_| {
            let phases = PHASES.join(", ");
            format!("give common, end, peak, oom, a time since tracing began like 12.5s, or a phase ({phases})")
        })
    }
}

/// Phases that tell nothing of how far a run got: every CUDA program makes contexts, whenever it comes to it.
const UNTELLING: [&str; 3] = ["startup", "cuda_context", "shutdown"];
/// Phases of which a server goes through one at least.
const OF_SERVERS: [&str; 3] = ["distributed_init", "weights", "kv_cache"];
/// Reached by a server that serves.
const SERVING: &str = "serving";

/// How far a run got.
pub(super) struct Life {
    /// When each process first did something in each phase.
    firsts: Vec<[Option<u64>; PHASES.len()]>,
    /// Phases in the order in which any process first did something in them.
    order: Vec<usize>,
    /// It failed before it served.
    failed: bool,
    /// Where, if that is known.
    failed_in: Option<usize>,
    is_server: bool,
}

impl Life {
    pub(super) fn new(run: &Run<'_, '_>) -> Self {
        let (axes, book) = (run.axes, run.axes.book());
        let mut firsts = vec![[None; PHASES.len()]; book.processes.len()];
        let mut see = |process: usize, t: u64, phase: &str| {
            let at = PHASES.iter().position(|known| *known == root(phase) && !UNTELLING.contains(known));
            if let (Some(at), Some(of_process)) = (at, firsts.get_mut(process)) {
                let first: &mut Option<u64> = &mut of_process[at];
                *first = Some(first.map_or(t, |first| first.min(t)));
            }
        };
        // Rows are in order of birth, so that a process's first in a phase is met first, and is the first of its class.
        let mut seen: HashSet<(usize, u32)> = HashSet::new();
        for row in axes.firsts() {
            let phase = axes.cell(Axis::Phase, row);
            if seen.insert((row.process, phase)) {
                see(row.process, row.born, &axes.label(Axis::Phase, phase));
            }
        }
        book.failures.iter().for_each(|failure| see(failure.process, failure.t, axes.failure_phase(failure)));
        for reading in &book.readings {
            see(reading.process, reading.t, axes.phase_at(reading.process, reading.t, reading.stack));
        }
        book.logs.iter().for_each(|log| see(log.process, log.t, axes.phase_at(log.process, log.t, None)));

        let earliest = |phase: &usize| firsts.iter().filter_map(|of_process| of_process[*phase]).min();
        let mut order: Vec<usize> = (0..PHASES.len()).filter(|phase| earliest(phase).is_some()).collect();
        order.sort_by_key(|phase| (earliest(phase), *phase));
        let serves = order.iter().any(|phase| PHASES[*phase] == SERVING);
        let outcome = trust::outcome(book, axes);
        let failed = !serves && (matches!(outcome.kind, "oom" | "truncated" | "killed") || exited_badly(run));
        let fatal = trust::fatal_failure(book).map(|failure| root(axes.failure_phase(failure)));
        let fatal = fatal.and_then(|phase| order.iter().copied().find(|known| PHASES[*known] == phase));
        let failed_in = fatal.or_else(|| order.last().copied()).filter(|_| failed);
        let is_server = order.iter().any(|phase| OF_SERVERS.contains(&PHASES[*phase]));
        Self { firsts, order, failed, failed_in, is_server }
    }

    /// The phase in which a server failed before it served.
    pub(super) fn failed_in(&self) -> Option<&'static str> {
        self.failed_in.filter(|_| self.is_server).map(|phase| PHASES[phase])
    }

    fn position(&self, phase: usize) -> Option<usize> {
        self.order.iter().position(|known| *known == phase)
    }

    /// Place in its order of a phase that it went through to its end.
    fn completed(&self, phase: usize) -> Option<usize> {
        let limit = self.failed_in.and_then(|failed| self.position(failed));
        self.position(phase).filter(|at| limit.is_none_or(|limit| *at < limit))
    }

    /// For each process, the last moment before it did something in a phase after `phase`.
    fn end_of(&self, phase: usize, ends: &[u64]) -> Vec<u64> {
        let after = &self.order[self.position(phase).map_or(0, |at| at + 1)..];
        let next = |of_process: &[Option<u64>; PHASES.len()]| after.iter().filter_map(|q| of_process[*q]).min();
        let nexts: Vec<Option<u64>> =
            self.firsts.iter().map(|of_process| next(of_process).map(|t| t.saturating_sub(1))).collect();
        // What knows of no later phase is looked at when the last of the others entered it.
        let latest = nexts.iter().flatten().max().copied().unwrap_or(u64::MAX);
        nexts.iter().zip(ends).map(|(next, end)| next.unwrap_or(latest).min(*end)).collect()
    }
}

fn exited_badly(run: &Run<'_, '_>) -> bool {
    use crate::trace::record::Outcome::Exited;
    matches!(run.axes.book().outcome, Some(Exited { code }) if code != 0)
}

/// The moments at which to look, and what to say about them.
pub(super) fn moments(
    runs: [&Run<'_, '_>; 2],
    lives: &[Life; 2],
    when: When,
) -> Result<([Moments; 2], Compared), Error> {
    let both = |at: At| -> Result<[Moments; 2], Error> {
        let of = |run: &Run<'_, '_>| {
            Moments::new(run.axes, at).map_err(|source| Error::Query { run: run.name.to_owned(), source })
        };
        Ok([of(runs[0])?, of(runs[1])?])
    };
    let end_of = |phase: usize, why: Option<String>| -> Result<([Moments; 2], Compared), Error> {
        let ends = both(At::End)?;
        let moments = [0, 1].map(|side| Moments::of_processes(lives[side].end_of(phase, ends[side].processes())));
        Ok((moments, Compared { at: "common".to_owned(), phase: Some(PHASES[phase].to_owned()), why }))
    };
    let at = |at: At, why: Option<String>| Ok((both(at)?, Compared { at: at.to_string(), phase: None, why }));
    match when {
        When::At(moment) => at(moment, None),
        When::Phase(phase) => {
            for (run, life) in runs.iter().zip(lives) {
                if life.completed(phase).is_none() {
                    return Err(Error::Phase { run: run.name.to_owned(), phase: PHASES[phase] });
                }
            }
            end_of(phase, None)
        }
        When::Common => match last_common(lives) {
            Some(phase) => end_of(phase, None),
            None => Err(Error::NoCommonPhase),
        },
        When::Suiting => {
            let [base, other] = lives;
            let one_failed = base.failed != other.failed || base.failed_in != other.failed_in;
            if !(base.is_server || other.is_server) || !one_failed {
                return at(At::End, None);
            }
            let why = reason(lives);
            match last_common(lives) {
                Some(phase) => end_of(phase, Some(why)),
                None => at(At::End, Some(format!("{why}, and no phase is known that both went through"))),
            }
        }
    }
}

/// The last phase that both went through to its end: the same whichever run is BASE.
fn last_common(lives: &[Life; 2]) -> Option<usize> {
    let rank = |phase: usize| Some((lives[0].completed(phase)? + lives[1].completed(phase)?, phase));
    (0..PHASES.len()).filter_map(rank).max().map(|(_, phase)| phase)
}

/// `OTHER failed in kv_cache`.
fn reason(lives: &[Life; 2]) -> String {
    let of = |(name, life): (&str, &Life)| {
        life.failed.then(|| match life.failed_in() {
            Some(phase) => format!("{name} failed in {phase}"),
            None => format!("{name} failed before any phase"),
        })
    };
    let said: Vec<String> = ["BASE", "OTHER"].into_iter().zip(lives).filter_map(of).collect();
    said.join(", ")
}
