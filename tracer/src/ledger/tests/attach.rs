//! NVML samples, and memory from before tracing began.

use super::*;

fn attached() -> Trace {
    let mut trace = Trace::new();
    trace.step(1, Step::Attached(Image { argv: vec!["server".into()], ..Image::default() }));
    trace.wait();
    trace
}

fn samples(book: &Book) -> Vec<(u64, u64, bool)> {
    book.samples.iter().map(|s| (s.nvml / MIB, s.live / MIB, s.quiet)).collect()
}

/// A server that ran before tracing has the titles that it set, in the place of arguments: its ranks are told by them.
#[test]
fn a_title_from_before_tracing_is_one() {
    let mut trace = Trace::new();
    let titles: [&[&str]; 4] =
        [&["python3", "-m", "sglang.launch_server"], &["sglang::scheduler_TP0"], &["sglang::scheduler_TP1"], &["sh"]];
    for (pid, argv) in (1..).zip(titles) {
        let argv = argv.iter().map(|word| (*word).to_owned()).collect();
        trace.step(pid, Step::Attached(Image { argv, parent: 1, ..Image::default() }));
    }
    let book = trace.book();
    let axes = crate::lifecycle::Axes::new(&book);
    let labels: Vec<&str> = (0..4).map(|process| axes.rank(process)).collect();
    assert_eq!(labels, ["tokenizer 1", "TP0", "TP1", "4 sh"]);
}

#[test]
fn samples_stand_beside_the_ledger() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.memory(1, 10, 2, 100, 4 * MIB);
    trace.nvml(0, &[(1, 4 * MIB), (77, 9 * MIB)]);
    trace.wait();
    trace.nvml(0, &[(1, 4 * MIB)]);
    trace.wait();
    trace.memory(1, 10, 2, 101, 2 * MIB);
    trace.wait();
    trace.nvml(0, &[(1, 7 * MIB)]);
    let book = trace.book();
    assert_eq!(samples(&book), [(4, 4, false), (4, 4, true), (7, 6, true)]);
    assert_eq!(book.allocations.len(), 2, "what NVML has more is no allocation");
}

#[test]
fn an_event_just_after_the_query_is_not_quiet() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.memory(1, 10, 2, 100, 4 * MIB);
    trace.wait();
    trace.nvml(0, &[(1, 2 * MIB)]);
    trace.free(1, 10, 100);
    assert_eq!(samples(&trace.book()), [(2, 4, false)]);
}

#[test]
fn a_process_that_nvml_no_longer_lists_has_nothing() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.memory(1, 10, 2, 100, 4 * MIB);
    trace.wait();
    trace.nvml(0, &[(1, 4 * MIB)]);
    trace.wait();
    trace.nvml(0, &[]);
    trace.exit(1);
    trace.nvml(0, &[]);
    assert_eq!(samples(&trace.book()), [(4, 4, true), (0, 4, false)], "and no sample after its exit");
}

#[test]
fn what_an_attached_process_held_is_one_row() {
    let mut trace = attached();
    trace.nvml(0, &[(1, 100 * MIB)]);
    trace.wait();
    trace.memory(1, 10, 2, 101, 2 * MIB);
    trace.wait();
    trace.nvml(0, &[(1, 102 * MIB)]);
    trace.wait();
    trace.exit(1);
    let book = trace.book();
    let before: Vec<_> = book.allocations.iter().filter(|a| a.kind == Kind::PreAttach).collect();
    assert_eq!((before.len(), before[0].bytes), (1, 100 * MIB));
    assert_eq!(before[0].died.map(|(_, how)| how), Some(Death::Reclaimed));
    assert_eq!(samples(&book), [(100, 100, true), (102, 102, true)]);
    assert_eq!(held(&book, 1), 102 * MIB);
    assert_eq!(book.gpus.len(), 1, "its unknown device is the GPU that NVML saw it on");
}

#[test]
fn it_shrinks_by_what_nvml_shows_after_unknown_frees_only() {
    let mut trace = attached();
    trace.nvml(0, &[(1, 100 * MIB)]);
    trace.wait();
    trace.nvml(0, &[(1, 90 * MIB)]);
    trace.wait();
    let freed = trace.t;
    trace.free(1, 10, 555);
    trace.wait();
    trace.nvml(0, &[(1, 60 * MIB)]);
    trace.wait();
    trace.nvml(0, &[(1, 70 * MIB)]);
    let book = trace.book();
    assert_eq!(samples(&book), [(100, 100, true), (90, 100, true), (60, 60, true), (70, 60, true)]);
    let rows: Vec<_> = book.allocations.iter().map(|a| (a.bytes / MIB, a.died)).collect();
    assert_eq!(rows, [(100, Some((freed, Death::Adjusted))), (60, None)]);
}

#[test]
fn a_process_without_memory_at_attach_gets_no_such_row() {
    let mut trace = attached();
    trace.nvml(0, &[]);
    trace.wait();
    trace.client(1, 10);
    trace.memory(1, 10, 2, 100, 4 * MIB);
    trace.wait();
    trace.nvml(0, &[(1, 5 * MIB)]);
    let book = trace.book();
    assert!(book.allocations.iter().all(|a| a.kind != Kind::PreAttach), "a residual is shown, not hidden");
    assert_eq!(samples(&book).last(), Some(&(5, 4, true)));
}

#[test]
fn a_traced_process_gets_no_such_row() {
    let mut trace = Trace::new();
    trace.step(1, Step::Forked { parent: 0 });
    trace.wait();
    trace.nvml(0, &[(1, 5 * MIB)]);
    let book = trace.book();
    assert!(book.allocations.is_empty());
    assert_eq!(samples(&book), [(5, 0, true)]);
}

#[test]
fn what_was_there_before_outlives_the_samples_that_told_of_it() {
    let mut trace = attached();
    trace.nvml(0, &[(1, 10 * MIB)]);
    trace.wait();
    trace.nvml(0, &[(1, 10 * MIB)]);
    trace.wait();
    let fold = |trace: &mut Trace| {
        trace.wait();
        trace.wait();
        trace.ledger.fold(trace.t);
        assert!(trace.ledger.nvml.is_empty());
        held(&trace.ledger.clone().finish(), 1) / MIB
    };
    assert_eq!(fold(&mut trace), 10);
    assert_eq!(fold(&mut trace), 10, "and once more, with no sample between");
    // A handle that the ledger does not know; the sample that shows its size comes after the next fold.
    trace.free(1, 77, 78);
    assert_eq!(fold(&mut trace), 10);
    trace.nvml(0, &[(1, 6 * MIB)]);
    trace.wait();
    assert_eq!(held(&trace.ledger.clone().finish(), 1), 6 * MIB);
    assert_eq!(fold(&mut trace), 6);
    // All of it goes, and with it the process from NVML's list.
    trace.free(1, 77, 79);
    trace.wait();
    trace.nvml(0, &[]);
    trace.wait();
    assert_eq!(fold(&mut trace), 0);
}
