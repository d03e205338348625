//! What holds of any two traces.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::books::{any_server, compare, try_compare};
use crate::ledger::Book;
use crate::lifecycle::Axis;
use crate::report::diff::{Change, Diff, Question, When, json, text};
use crate::report::query::{At, Query};
use crate::report::summary::Summary;
use crate::report::testbook::any_book;
use crate::report::text::Style;
use crate::report::text::plain::columns;

/// Any trace: of a server with its phases, or of processes that come and go at the same instants.
fn any() -> impl Strategy<Value = Book> {
    prop_oneof![any_server(), any_book()]
}

fn axes() -> impl Strategy<Value = Vec<Axis>> {
    prop::sample::subsequence(Axis::ALL.to_vec(), 0..=Axis::ALL.len())
}

fn negative(change: Change) -> Change {
    Change::new(change.other_bytes, change.base_bytes)
}

/// Changes by what they are of.
fn by_name(diff: &Diff) -> BTreeMap<Vec<String>, Change> {
    let mut changes = BTreeMap::new();
    for rank in &diff.ranks {
        changes.insert(vec![rank.rank.clone()], rank.bytes);
        for phase in &rank.phases {
            changes.insert(vec![rank.rank.clone(), phase.phase.clone()], phase.bytes);
        }
    }
    for cell in &diff.cells {
        let labels = cell.labels.iter().flat_map(|(axis, label)| [(*axis).to_owned(), label.clone()]);
        changes.insert(labels.collect(), cell.bytes);
    }
    changes
}

fn check_sums(diff: &Diff) -> Result<(), TestCaseError> {
    let total = diff.bytes;
    let sum = |changes: &mut dyn Iterator<Item = Change>| changes.sum::<Change>();
    prop_assert_eq!(sum(&mut diff.ranks.iter().map(|rank| rank.bytes)), total);
    prop_assert_eq!(sum(&mut diff.cells.iter().map(|cell| cell.bytes)), total);
    for rank in &diff.ranks {
        prop_assert_eq!(sum(&mut rank.phases.iter().map(|phase| phase.bytes)), rank.bytes);
    }
    // Stacks that are equal in both are left out: they add nothing to the difference.
    prop_assert_eq!(sum(&mut diff.stacks.iter().map(|stack| stack.bytes)).delta_bytes, total.delta_bytes);
    Ok(())
}

proptest! {
    #[test]
    fn a_trace_does_not_differ_from_itself(book in any()) {
        let diff = compare(&book, &book);
        prop_assert!(diff.is_empty(), "{diff:?}");
        prop_assert!(diff.configuration.is_empty() && diff.stacks.is_empty());
        prop_assert!(diff.cells.iter().all(|cell| cell.bytes.delta_bytes == 0));
        prop_assert!(text::render(&diff, Style::default()).contains("No difference"));
    }

    #[test]
    fn every_division_sums_to_the_total(base in any(), other in any(), by in axes()) {
        check_sums(&try_compare(&base, &other, &Question { by, ..Question::default() }).unwrap())?;
    }

    #[test]
    fn the_totals_are_those_of_the_reports(base in any(), other in any()) {
        let question = Question { when: When::At(At::End), ..Question::default() };
        let diff = try_compare(&base, &other, &question).unwrap();
        let live = |book: &Book| Summary::new(book, &Query::default()).unwrap().total.live_bytes;
        prop_assert_eq!(diff.bytes, Change::new(live(&base), live(&other)));
    }

    #[test]
    fn the_other_way_round_every_sign_changes(base in any(), other in any(), by in axes()) {
        let question = Question { by, ..Question::default() };
        let there = try_compare(&base, &other, &question).unwrap();
        let back = try_compare(&other, &base, &question).unwrap();
        prop_assert_eq!(back.bytes, negative(there.bytes));
        let turned: BTreeMap<_, _> = by_name(&back).into_iter().map(|(name, change)| (name, negative(change))).collect();
        prop_assert_eq!(by_name(&there), turned);
        let mut there: Vec<i64> = there.stacks.iter().map(|stack| stack.bytes.delta_bytes).collect();
        let mut back: Vec<i64> = back.stacks.iter().map(|stack| -stack.bytes.delta_bytes).collect();
        there.sort_unstable();
        back.sort_unstable();
        prop_assert_eq!(there, back);
    }

    #[test]
    fn any_comparison_fits_the_page(base in any(), other in any(), name in ".{0,60}", by in axes()) {
        let mut other = other;
        for process in &mut other.processes {
            process.title = format!("{}{name}", process.title);
        }
        other.header.command = vec![name.clone(), format!("--{name}")];
        for frame in &mut other.frames {
            frame.function += &name;
        }
        let diff = try_compare(&base, &other, &Question { by, ..Question::default() }).unwrap();
        let text = text::render(&diff, Style::default());
        for line in text.lines() {
            prop_assert!(columns(line) <= 100, "{} columns: {line:?}", columns(line));
            prop_assert!(!line.chars().any(char::is_control), "{line:?}");
        }
        prop_assert!(serde_json::from_str::<serde_json::Value>(&json::render(&diff)).is_ok());
    }
}
