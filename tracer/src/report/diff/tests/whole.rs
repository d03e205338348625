//! Whole comparisons, as they are shown.

use super::books::{GIB, MIB, compare, dies_of_memory, goes_through, server};
use crate::report::diff::{json, text};
use crate::report::testbook::TestBook;
use crate::report::text::Style;

const OFF: [u64; 5] = [900, 70 * 1024, 10 * 1024, 400, 64];

/// The founding case: the all-reduce on, a smaller fraction, dead while the KV cache is sized.
fn founding_case() -> [TestBook; 2] {
    let mut off = server(8, 5, OFF);
    off.book.header.command.extend(["--mem-fraction-static", "0.88"].map(str::to_owned));
    let mut on = server(8, 1, OFF);
    on.book.header.command.extend(["--mem-fraction-static", "0.55"].map(str::to_owned));
    let stack = on.python_stack(&[
        "sglang/srt/distributed/parallel_state.py: GroupCoordinator.__init__",
        "sglang/srt/distributed/device_communicators/custom_all_reduce.py: CustomAllreduce.create_shared_buffer",
        "libcudart.so.12",
    ]);
    for rank in 0..8 {
        let row = on.allocate(1 + rank, rank, 24 * MIB);
        on.book.allocations[row].stack = Some(stack);
        on.import(1 + rank, rank, 7 * 24 * MIB);
        on.book.processes[1 + rank].env.push("SGLANG_FORCE_CUSTOM_AR_PCIE=1".to_owned());
    }
    goes_through(&mut on, 8, 1, OFF[1]);
    dies_of_memory(&mut on, 3, 2);
    [off, on]
}

#[test]
fn of_a_server_that_died() {
    let [off, on] = founding_case();
    let diff = compare(&off.book, &on.book);
    let text = text::render(&diff, Style::default());
    assert!(text.lines().count() <= 40, "more than a screen:\n{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn of_a_server_that_died_as_json() {
    let [off, on] = founding_case();
    let mut diff = compare(&off.book, &on.book);
    diff.ranks.truncate(2);
    insta::assert_snapshot!(json::render(&diff));
}

#[test]
fn of_ranks_that_changed_unequally() {
    let (mut base, mut other) = (server(4, 5, OFF), server(5, 5, OFF));
    for rank in 0..4 {
        other.allocate(1 + rank, rank, (rank as u64 + 1) * GIB);
    }
    base.allocate(0, 0, 518 * MIB);
    base.book.losses.insert("ring_full".to_owned(), 3);
    other.book.outcome = None;
    other.book.header.ledger = crate::trace::record::Source::DriverApi;
    insta::assert_snapshot!(text::render(&compare(&base.book, &other.book), Style::default()));
}
