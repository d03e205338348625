use super::*;
use crate::ledger::{Kind as Memory, Past};
use crate::lifecycle::Rules;
use crate::report::testbook::TestBook;

fn snapshot(t: TestBook) -> Snapshot {
    Snapshot::of_book(t.book, &[], &Past::default(), Rules::standard())
}

/// Value of the sample that begins so.
fn value(text: &str, start: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(start)?.rsplit(' ').next()?.parse().ok())
}

#[test]
fn what_is_live_is_told_by_cell() {
    let mut t = TestBook::new();
    let (process, gpu) = (t.process(7, "sglang::scheduler_TP0"), t.gpu(0));
    t.allocate_by(process, gpu, 5 << 20, &["sglang/srt/model_executor/model_runner.py: ModelRunner.load_model"]);
    let gone = t.allocate(process, gpu, 3 << 20);
    t.free(gone);
    t.allocate_kind(process, gpu, 2 << 20, Memory::Context);
    t.fail(process, gpu, 9 << 30);
    t.book.losses.insert("ring_full".to_owned(), 3);
    t.book.losses.insert("unreadable_stack".to_owned(), 4);
    insta::assert_snapshot!(Exporter::default().text(&snapshot(t)));
}

#[test]
fn nothing_is_no_error() {
    let text = Exporter::default().text(&snapshot(TestBook::new()));
    assert!(text.starts_with("# HELP vramtrace_info ") && !text.contains("live_bytes"), "{text}");
}

#[test]
fn label_values_are_escaped_and_short() {
    let mut t = TestBook::new();
    let (process, gpu) = (t.process(7, "a\"b\\c\u{1b}[2J\nd"), t.gpu(0));
    t.allocate(process, gpu, 1 << 20);
    let long = t.process(8, "");
    t.allocate(long, gpu, 1 << 20);
    let mut shown = snapshot(t);
    shown.rows[1].rank = "é".repeat(10_000);
    let text = Exporter::default().text(&shown);
    assert!(text.contains(r#"rank="7 a\"b\\c\\u{1b}[2J""#), "{text}");
    assert!(text.lines().all(|line| line.len() < 600 && !line.contains('\u{1b}')), "{text}");
}

#[test]
fn what_has_no_series_of_its_own_is_summed_up() {
    let mut t = TestBook::new();
    let gpu = t.gpu(0);
    for pid in 1..=1_500 {
        let process = t.process(pid, "worker");
        t.allocate(process, gpu, 1 << 20);
    }
    let mut shown = snapshot(t);
    // The last in order is by far the biggest: it must not be among the rest.
    shown.rows[1_499].cells[0].live = 1 << 40;
    let mut exporter = Exporter::default();
    let text = exporter.text(&shown);
    let samples = |text: &str| text.lines().filter(|line| line.starts_with("vramtrace_live_bytes{")).count();
    assert_eq!(samples(&text), LABEL_SETS + 1);
    let rest = r#"vramtrace_live_bytes{gpu="other",rank="other",phase="other",kind="other",owner="other"}"#;
    assert_eq!(value(&text, rest), Some(500 << 20));
    assert!(text.contains(" 1099511627776\n"));

    // One that grows does not push another out, and the place of one that is gone is taken.
    shown.rows.retain(|row| row.pid != 1_500);
    shown.rows[1_400].cells[0].live = 1 << 39;
    let text = exporter.text(&shown);
    assert_eq!(samples(&text), LABEL_SETS + 1);
    let sum: u64 = text
        .lines()
        .filter(|line| line.starts_with("vramtrace_live_bytes{"))
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(sum, (1_498 << 20) + (1 << 39), "no byte is left out");
}

#[test]
fn a_counter_keeps_its_series() {
    let mut exporter = Exporter::default();
    let mut one = snapshot({
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(7, "server"), t.gpu(0));
        t.fail(process, gpu, 1 << 30);
        t
    });
    let series = r#"vramtrace_failures_total{gpu="0",rank="7 server",reason="out_of_memory"}"#;
    assert_eq!(value(&exporter.text(&one), series), Some(1));
    let rows = std::mem::take(&mut one.rows);
    _ = exporter.text(&one);
    one.rows = rows;
    one.rows[0].failures.0 = 2;
    assert_eq!(value(&exporter.text(&one), series), Some(2));
}
