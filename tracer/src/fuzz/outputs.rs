//! Everything that is made of a book.

use std::{hint::black_box, io, path::Path};

use crate::{
    ledger::Book,
    lifecycle::{Axes, Axis, Rules},
    live::{Snapshot, Status, metrics::Exporter},
    report::{
        At, Query, Summary,
        diff::{self, Diff, Question, Run, When},
        export::{FORMATS, Job},
        flamegraph, folded,
        html::{self, Shown},
        json, text,
    },
};

/// The report in each form, at a moment that `which` says, and what must hold of it whatever the book.
pub(super) fn report(book: &Book, rules: &Rules, which: usize) {
    let axes = Axes::with_rules(book, rules);
    let moments = [At::End, At::Peak, At::Oom, At::Time(std::time::Duration::from_millis(1))];
    let at = moments[which % moments.len()];
    let queries = [Query::suiting(&axes, at), Query { by: Axis::ALL.to_vec(), at, ..Query::default() }];
    for query in queries {
        let Ok(summary) = Summary::of(&axes, &query) else { continue };
        adds_up(&summary);
        black_box(text::render(&summary, "a.vrt", text::Style::default()));
        let shown = json::render(&summary);
        serde_json::from_str::<serde_json::Value>(&shown).expect("the report is JSON");
    }
}

/// Cells add up to what they divide, unless there is more than can be counted.
fn adds_up(summary: &Summary) {
    let holds = |of: &mut dyn Iterator<Item = u64>, total: u64, what: &str| {
        let sum = of.map(u128::from).sum::<u128>();
        assert_eq!(sum.min(u64::MAX.into()), total.into(), "{what}");
    };
    holds(&mut summary.cells.iter().map(|cell| cell.bytes.live_bytes), summary.total.live_bytes, "cells");
    holds(&mut summary.cells.iter().map(|cell| cell.bytes.count), summary.total.count, "counts");
    for (_, device) in summary.devices() {
        holds(&mut device.cells.iter().map(|cell| cell.bytes.live_bytes), device.bytes.live_bytes, "a device's cells");
        assert!(device.bytes.live_bytes <= device.bytes.peak_bytes, "more is held than ever was");
    }
}

/// A comparison with another book, in each form, at a moment that `which` says. A book does not differ from itself.
pub(super) fn compare(base: &Book, other: &Book, rules: &Rules, which: usize) {
    let axes = [base, other].map(|book| Axes::with_rules(book, rules));
    let (base, other) = (Run { name: "a.vrt", axes: &axes[0] }, Run { name: "b.vrt", axes: &axes[1] });
    let moments = [When::default(), When::At(At::End), When::At(At::Peak), When::Common];
    let when = moments[which % moments.len()];
    let Ok(diff) = Diff::new(&base, &other, &Question { when, ..Question::default() }) else { return };
    black_box(diff::text::render(&diff, text::Style::default()));
    serde_json::from_str::<serde_json::Value>(&diff::json::render(&diff)).expect("the comparison is JSON");
    if std::ptr::eq(axes[0].book(), axes[1].book()) {
        assert_eq!(diff.bytes.delta_bytes, 0, "a run differs from itself");
    }
}

/// Pictures: flame graphs and the page.
pub(super) fn pictures(book: &Book, rules: &Rules) {
    let axes = Axes::with_rules(book, rules);
    let _ = html::render(Shown { axes: &axes, name: "a.vrt" }, Some(Shown { axes: &axes, name: "b.vrt" }), At::End);
    let by = [Axis::Rank, Axis::Phase];
    for value in [folded::Value::Live, folded::Value::Peak, folded::Value::Allocated] {
        let _ = flamegraph::render(&axes, &by, Path::new("a.vrt"), value, At::End);
    }
    let run = Run { name: "a.vrt", axes: &axes };
    let _ = diff::flame::render(&run, &run, &by, folded::Value::Allocated, When::default());
}

/// A format that others read; `trace` is what the book was read from.
pub(super) fn export(book: &Book, rules: &Rules, trace: &Path, format: usize) {
    let axes = Axes::with_rules(book, rules);
    let job = Job { axes: &axes, trace, value: folded::Value::Allocated, at: At::End, by: &folded::ROOTS };
    let _ = FORMATS[format % FORMATS.len()].write(&job, &mut io::sink());
}

/// What is shown while tracing goes on.
pub(super) fn live(ledger: crate::ledger::Ledger, rules: &Rules) {
    let snapshot = Snapshot::new(ledger, Status::default(), rules);
    for row in &snapshot.rows {
        for cell in &row.cells {
            cell.parts.iter().for_each(|part| drop(snapshot.frames(part.stack)));
        }
    }
    black_box(Exporter::default().text(&snapshot));
}
