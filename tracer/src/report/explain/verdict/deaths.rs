//! Processes that a signal killed while GPU memory was not short: what is suspected first is not what happened.

use super::words::list;
use super::{Facts, Pair, Suspect, Weight};
use crate::ledger::Book;
use crate::lifecycle::UNATTRIBUTED;
use crate::report::bytes::human;
use crate::report::errors::ProcessError;
use crate::report::trust;
use crate::trace::record::Source;

/// Signals by which somebody ends a program.
const ASKED: [&str; 3] = ["SIGHUP", "SIGINT", "SIGTERM"];

/// The first deaths of a run in which nothing says that memory was short.
pub(super) fn of_one(facts: &Facts<'_, '_>) -> Vec<Suspect> {
    killed(facts).into_iter().collect()
}

/// That of OTHER, where nobody was killed in BASE.
pub(super) fn of_two(pair: &Pair<'_, '_, '_>) -> Vec<Suspect> {
    let of_other = killed(pair.other).filter(|_| deaths(pair.base).next().is_none());
    let named = |suspect: Suspect| Suspect { text: format!("{}: {}", pair.other.name, suspect.text), ..suspect };
    of_other.map(named).into_iter().collect()
}

fn deaths<'f>(facts: &'f Facts<'_, '_>) -> impl Iterator<Item = &'f ProcessError> {
    let is_asked = |error: &ProcessError| ASKED.iter().any(|name| error.text.contains(name));
    facts.errors.iter().filter(move |error| error.kind == "signal" && !is_asked(error))
}

fn killed(facts: &Facts<'_, '_>) -> Option<Suspect> {
    let first = deaths(facts).next()?;
    let book = facts.book();
    if may_be_short(facts) {
        return None;
    }
    let is_alike = |error: &&ProcessError| error.text == first.text && error.phase == first.phase;
    let ranks: Vec<String> = deaths(facts).filter(is_alike).map(|error| error.rank.clone()).collect();
    let were = if ranks.len() == 1 { "was" } else { "were" };
    let phase = if first.phase == UNATTRIBUTED { String::new() } else { format!(" in {}", first.phase) };
    let taken = fullest(book, book.header.t.saturating_add(first.time_ns));
    let taken = taken.map_or(String::new(), |(held, total)| {
        format!(", and no GPU had more than {} of {} taken", human(held), human(total))
    });
    let text = format!(
        "{} {were} {}{phase}, not for want of GPU memory: no request for it failed{taken}",
        list(&ranks),
        first.text
    );
    let evidence = vec!["no failed request for memory, no line that speaks of it, nothing lost".to_owned()];
    Some(Suspect { kind: "killed", weight: Weight::Failure, ranks, text, evidence, ..Suspect::default() })
}

/// Something says that memory was short, or what would say so may be lost.
fn may_be_short(facts: &Facts<'_, '_>) -> bool {
    let book = facts.book();
    facts.errors.iter().any(|error| error.kind == "message")
        || book.failures.iter().any(|failure| failure.out_of_memory)
        || !book.torch.failures.is_empty()
        || book.losses.keys().any(|why| trust::costs_bytes(book, why))
}

/// What was taken at `t` of the GPU with the least left, by traced processes and others, and its size. Nothing where the ledger
/// does not have all that drivers take.
fn fullest(book: &Book, t: u64) -> Option<(u64, u64)> {
    let taken = |gpu: usize| {
        let total = book.size_of(gpu)?;
        let others = book.strangers.iter().filter(|other| other.gpu == gpu && other.first <= t && t <= other.last);
        let others = others.fold(0, |sum: u64, other| sum.saturating_add(other.bytes.unwrap_or(0)));
        let held = book.live_at(t, |row| row.gpu == gpu).saturating_add(others);
        (held <= total).then_some((held, total))
    };
    let all: Option<Vec<(u64, u64)>> = (0..book.gpus.len()).map(taken).collect();
    let all = all.filter(|_| book.header.ledger != Source::DriverApi)?;
    all.into_iter().min_by_key(|(held, total)| total - held)
}
