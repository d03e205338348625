//! Each cause: a run that has it, and one that has not.

mod properties;

use super::*;
use crate::ledger::torch::OutOfMemory;
use crate::ledger::{Communicator, Kind, Owner, Stranger};
use crate::lifecycle::Axes;
use crate::report::diff::{Diff, Question, Run};
use crate::report::explain::tests::{GIB, MIB, Start};
use crate::report::query::{At, Query};
use crate::report::summary::Summary;
use crate::report::testbook::TestBook;
use crate::report::text::{self, Style};
use crate::trace::record::Outcome;

const DECODE: &str = "sglang/srt/model_executor/cuda_graph_runner.py: CudaGraphRunner.capture";
const LOOP: &str = "sglang/srt/managers/scheduler.py: Scheduler.event_loop_overlap";
const DRAFT: &str = "sglang/srt/speculative/eagle_worker.py: EAGLEWorker.__init__";
const PYNCCL: &str = "sglang/srt/distributed/device_communicators/pynccl.py: PyNcclCommunicator.__init__";
const MODEL: &str = "sglang/srt/model_executor/model_runner.py: ModelRunner.load_model";

/// Rank and GPU `n` of a book made by [`Start`]: the main process is the first.
fn rank(n: usize) -> (usize, usize) {
    (n + 1, n)
}

/// A server of two ranks that starts, captures graphs, warms up and serves.
fn server(start: &Start) -> TestBook {
    let mut t = start.book();
    t.book.processes[0].command = ["python3", "-m", "sglang.launch_server"].map(str::to_owned).to_vec();
    for (process, gpu) in (0..start.ranks as usize).map(rank) {
        t.allocate_by(process, gpu, 300 * MIB, &[DECODE]);
        t.allocate_by(process, gpu, 36 * MIB, &[LOOP]);
    }
    t.at(1_000_000).log(0, "[2026-11-29 15:12:32] The server is fired up and ready to roll!");
    for (process, gpu) in (0..start.ranks as usize).map(rank) {
        t.allocate_by(process, gpu, 64 * MIB, &[LOOP]);
    }
    t.book.outcome = Some(Outcome::Running { why: "interrupted".to_owned() });
    t.at(9_000_000).log(0, "[2026-11-29 15:12:40] Decode batch");
    t
}

fn on_each_rank(t: &mut TestBook, change: impl Fn(&mut TestBook, usize, usize)) {
    (0..2).map(rank).for_each(|(process, gpu)| change(t, process, gpu));
}

fn of_nccl(t: &mut TestBook, process: usize, gpu: usize, bytes: u64, frames: &[&str]) -> usize {
    let row = t.allocate_by(process, gpu, bytes, frames);
    t.book.allocations[row].owner = Owner("nccl".into());
    row
}

fn set(t: &mut TestBook, setting: &str) {
    t.book.processes.iter_mut().for_each(|process| process.env.push(setting.to_owned()));
}

fn compare(base: &TestBook, other: &TestBook) -> Diff {
    let (base, other) = (Axes::new(&base.book), Axes::new(&other.book));
    let [base, other] = [("off.vrt", &base), ("on.vrt", &other)].map(|(name, axes)| Run { name, axes });
    Diff::new(&base, &other, &Question::default()).unwrap()
}

fn judge(t: &TestBook) -> Verdict {
    Summary::new(&t.book, &Query::default()).unwrap().verdict
}

/// A server that dies of what its arguments leave for the KV pool.
fn fails(start: &Start) -> TestBook {
    let mut t = Start { pool: None, ..*start }.book();
    t.book.outcome = Some(Outcome::Exited { code: 1 });
    t
}

#[test]
fn the_founding_case() {
    let off = server(&Start { ranks: 8, ..Start::default() });
    let (before, after) = Start::default().free;
    let free = (before - 24 * MIB, after - 24 * MIB);
    let mut on = fails(&Start { ranks: 8, fraction: "0.55", free, allreduce: 24 * MIB, ..Start::default() });
    set(&mut on, "SGLANG_FORCE_CUSTOM_AR_PCIE=1");
    set(&mut on, "SGLANG_CUSTOM_ALLREDUCE_ALGO=1stage");
    let diff = compare(&off, &on);
    let first = &diff.verdict.suspects[0];
    assert_eq!((first.kind, first.weight, first.ranks.len()), ("kv_budget", Weight::Cause, 8));
    insta::assert_snapshot!(text::verdict::verdict(&diff.verdict, Style::default()));
    assert!(diff.verdict.summary.contains("Not the cause: custom all-reduce adds 24.0 MiB a rank"));
    // The other way round it is BASE that finds no room.
    let back = compare(&on, &off).verdict;
    assert_eq!(back.suspects[0].kind, "kv_budget");
    assert!(back.summary.starts_with("off.vrt: KV pool cannot be sized"), "{}", back.summary);
    // One trace of the failed start tells it as well.
    let alone = judge(&on);
    assert_eq!(alone.suspects[0].kind, "kv_budget");
    insta::assert_snapshot!(text::verdict::verdict(&alone, Style::default()));
    assert!(judge(&off).summary.is_empty(), "{:?}", judge(&off));
}

#[test]
fn the_report_of_a_failed_start_begins_with_it() {
    let on = fails(&Start { fraction: "0.55", ..Start::default() });
    let summary = Summary::new(&on.book, &Query::default()).unwrap();
    let report = text::render(&summary, "on.vrt", Style::default());
    let first_screen: String = report.lines().take(24).collect::<Vec<_>>().join("\n");
    assert!(first_screen.contains("KV pool cannot be sized: 21.70 GiB"), "{first_screen}");
    assert!(first_screen.contains("0.78 or more leaves room"), "{first_screen}");
}

/// What all-reduce costs where it is all that differs.
#[test]
fn custom_allreduce_alone() {
    let off = server(&Start::default());
    let (before, after) = Start::default().free;
    let start = Start { free: (before - 24 * MIB, after - 24 * MIB), allreduce: 24 * MIB, ..Start::default() };
    let mut on = server(&start);
    set(&mut on, "SGLANG_FORCE_CUSTOM_AR_PCIE=1");
    // It saves work of NCCL in capture.
    let graphs: Vec<usize> =
        (0..on.book.allocations.len()).filter(|n| on.book.allocations[*n].bytes == 300 * MIB).collect();
    graphs.iter().for_each(|row| on.book.allocations[*row].bytes = 120 * MIB);
    let verdict = compare(&off, &on).verdict;
    assert_eq!(verdict.suspects[0].kind, "custom_allreduce");
    assert_eq!(verdict.suspects[0].bytes, Some(48 << 20));
    let expected = "Custom all-reduce: +24.0 MiB a rank (2 ranks, +48.0 MiB in all), none before with \
                    SGLANG_FORCE_CUSTOM_AR_PCIE not set → 1; CUDA graphs -180.0 MiB a rank (2 ranks, -360.0 MiB in all); in \
                    all -312.0 MiB";
    assert_eq!(verdict.suspects[0].text, expected);
    assert!(!verdict.ruled_out.iter().any(|not| not.kind == "custom_allreduce"));
}

type Change = fn(&mut TestBook);

/// What is added to a server that is well, and the cause that must be named first.
const CAUSES: [(&str, Change); 10] = [
    ("nccl", |t| {
        set(t, "NCCL_CUMEM_ENABLE=1");
        on_each_rank(t, |t, process, gpu| _ = of_nccl(t, process, gpu, 600 * MIB, &[PYNCCL]));
        // What it brings about elsewhere is more, but no setting decides about that.
        on_each_rank(t, |t, process, gpu| _ = t.allocate_kind(process, gpu, 700 * MIB, Kind::LocalMemory));
    }),
    ("cuda_graphs", |t| {
        t.book.processes[0].command.extend(["--cuda-graph-max-bs", "512"].map(str::to_owned));
        on_each_rank(t, |t, process, gpu| _ = t.allocate_by(process, gpu, 2 * GIB, &[DECODE]));
    }),
    ("draft_model", |t| {
        t.book.processes[0].command.extend(["--speculative-algorithm", "EAGLE"].map(str::to_owned));
        on_each_rank(t, |t, process, gpu| _ = t.allocate_by(process, gpu, GIB, &[DRAFT, MODEL]));
    }),
    ("expandable_segments", |t| {
        set(t, "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
        let is_segment = |kind: Kind| kind == Kind::CudaMalloc;
        t.book.allocations.iter_mut().filter(|row| is_segment(row.kind)).for_each(|row| row.kind = Kind::Vmm);
    }),
    ("late_communicator", |t| {
        on_each_rank(t, |t, process, gpu| {
            let row = of_nccl(t, process, gpu, 546 * MIB, &[LOOP]);
            let born = t.book.allocations[row].born;
            let stack = t.python_stack(&["torch/distributed/distributed_c10d.py: all_gather"]);
            t.book.communicators.push(Communicator {
                start: born,
                end: born + 1,
                process,
                tid: 1,
                api: "ncclCommInitRankConfig".to_owned(),
                result: 0,
                id: Some(7),
                size: Some(2),
                rank: Some(0),
                stack: Some(stack),
            });
        });
    }),
    ("extra_context", |t| {
        let ((process, _), (_, gpu)) = (rank(1), rank(0));
        t.allocate_kind(process, gpu, 518 * MIB, Kind::Context);
    }),
    ("foreign_process", |t| {
        t.book.strangers.push(Stranger { gpu: 0, pid: 777, first: 0, last: t.book.end, bytes: Some(20 * GIB) });
    }),
    ("killed", |t| {
        on_each_rank(t, |t, process, _| {
            t.exit(process, None);
            t.book.processes[process].exit_signal = Some(9);
        });
    }),
    ("paused", |t| {
        on_each_rank(t, |t, process, _| {
            let rows = t.book.allocations.iter().enumerate().filter(|(_, row)| row.process == process);
            let largest = rows.max_by_key(|(_, row)| row.bytes).map(|(n, _)| n);
            t.pause(largest.expect("a rank with memory"));
        });
    }),
    ("weights", |t| on_each_rank(t, |t, process, gpu| _ = t.allocate_by(process, gpu, 3 * GIB, &[MODEL]))),
];

#[test]
fn each_cause_is_named_first_and_only_where_it_is() {
    let base = server(&Start::default());
    for (kind, change) in CAUSES {
        let mut other = base.clone();
        change(&mut other);
        let diff = compare(&base, &other);
        let kinds: Vec<_> = diff.verdict.suspects.iter().map(|suspect| suspect.kind).collect();
        assert_eq!(kinds.first(), Some(&kind), "{kinds:?}: {}", diff.verdict.summary);
        assert!(!diff.verdict.summary.is_empty());
        // Of two runs that both have it nothing is said, and the others' causes are not seen here.
        assert!(compare(&other, &other).verdict.suspects.is_empty(), "{kind}");
        for (not, _) in CAUSES.iter().filter(|(not, _)| *not != kind) {
            assert!(!kinds.contains(not), "{not} among {kinds:?} of {kind}");
        }
    }
    assert!(compare(&base, &base).verdict.is_empty());
}

#[test]
fn another_fraction_is_named_before_the_pool_that_follows_from_it() {
    let (base, other) = (Start { fraction: "0.85", ..Start::default() }, Start { fraction: "0.8", ..Start::default() });
    let verdict = compare(&server(&base), &server(&Start { pool: Some(6 * GIB), ..other })).verdict;
    assert_eq!(verdict.suspects[0].kind, "kv_budget");
    let text = &verdict.suspects[0].text;
    assert!(text.contains("by the fraction (0.85 → 0.8)") && text.contains("-4.74 GiB"), "{text}");
    assert_eq!(verdict.suspects.last().map(|s| (s.kind, s.weight)), Some(("kv_cache", Weight::Notable)));
}

/// Who took the memory is the cause, not the arithmetic that found none.
#[test]
fn a_foreign_process_that_leaves_no_room() {
    let base = server(&Start::default());
    let (before, after) = Start::default().free;
    let mut other = fails(&Start { free: (before - 20 * GIB, after - 20 * GIB), ..Start::default() });
    for gpu in 0..2 {
        other.book.strangers.push(Stranger { gpu, pid: 777, first: 0, last: other.book.end, bytes: Some(20 * GIB) });
    }
    let verdict = compare(&base, &other).verdict;
    let kinds: Vec<_> = verdict.suspects.iter().map(|suspect| (suspect.kind, suspect.weight)).collect();
    assert_eq!(kinds[..2], [("foreign_process", Weight::Cause), ("kv_budget", Weight::Failure)]);
    assert!(verdict.summary.contains("pid 777") && verdict.summary.contains("cannot be sized"), "{}", verdict.summary);
}

/// Causes that one trace tells.
#[test]
fn one_trace_tells_what_needs_no_other() {
    let well = server(&Start::default());
    let kinds = |t: &TestBook| judge(t).suspects.iter().map(|suspect| suspect.kind).collect::<Vec<_>>();
    assert!(kinds(&well).is_empty(), "{:?}", judge(&well));
    for (kind, change) in CAUSES {
        let mut t = well.clone();
        change(&mut t);
        let needs_no_other = matches!(kind, "late_communicator" | "extra_context" | "foreign_process" | "killed");
        if kind == "late_communicator" {
            assert!(judge(&t).summary.ends_with("by all_gather (distributed_c10d.py:7)"), "{}", judge(&t).summary);
        }
        assert_eq!(kinds(&t), if needs_no_other { vec![kind] } else { vec![] }, "{kind}");
    }
}

#[test]
fn growth_while_serving_is_a_leak_and_a_plateau_is_none() {
    for (steps, leaks) in [(16_u64, true), (6, false)] {
        let mut t = server(&Start::default());
        let (process, gpu) = rank(0);
        for step in 0..steps {
            t.at(2_000_000 + step * 400_000).allocate_by(process, gpu, 10 * MIB, &[LOOP, "sglang/x.py: cache_image"]);
        }
        // One stack, as a tracer interns it.
        let first = t.book.allocations.iter().rev().nth(steps as usize - 1).and_then(|row| row.stack);
        t.book.allocations.iter_mut().rev().take(steps as usize).for_each(|row| row.stack = first);
        let found = judge(&t).suspects;
        assert_eq!(found.iter().any(|suspect| suspect.kind == "serving_growth"), leaks, "{found:?}");
        if leaks {
            assert!(found[0].text.contains("cache_image"), "{}", found[0].text);
        }
    }
}

#[test]
fn a_rank_with_less_than_the_others_stands_out() {
    let mut t = server(&Start { ranks: 4, ..Start::default() });
    assert!(judge(&t).suspects.is_empty());
    let (process, gpu) = rank(3);
    t.at(800_000).allocate_by(process, gpu, 20 * GIB, &[MODEL]);
    let suspect = judge(&t).suspects.remove(0);
    assert_eq!((suspect.kind, suspect.ranks), ("rank_imbalance", vec!["TP3".to_owned()]));
}

#[test]
fn out_of_memory_in_capture_says_what_took_the_reserve() {
    let mut t = server(&Start::default());
    let (process, gpu) = rank(0);
    t.allocate_by(process, gpu, 11 * GIB, &[DECODE]);
    let stack = t.python_stack(&[DECODE]);
    t.fail(process, gpu, 2 * GIB);
    t.book.failures[0].stack = Some(stack);
    t.exit(process, Some(1));
    t.book.outcome = Some(Outcome::Exited { code: 1 });
    let verdict = judge(&t);
    let first = &verdict.suspects[0];
    assert_eq!((first.kind, first.weight), ("out_of_memory", Weight::Cause));
    assert!(
        first.text.contains("leaves 11.39 GiB beside weights and KV pool, of which cuda_graph 11.29 GiB"),
        "{}",
        first.text
    );
}

#[test]
fn memory_that_torch_could_not_use() {
    let line = |slack: &str| {
        format!(
            "torch.OutOfMemoryError: CUDA out of memory. Of the allocated memory 70.00 GiB is allocated by PyTorch, and {slack} is reserved by PyTorch but unallocated."
        )
    };
    for (slack, is_fragmented) in [("6.00 GiB", true), ("80.00 MiB", false)] {
        let is_found = |t: &TestBook| judge(t).suspects.iter().any(|suspect| suspect.kind == "fragmentation");
        let mut t = server(&Start::default());
        t.log(rank(0).0, &line(slack));
        assert_eq!(is_found(&t), is_fragmented);
        let mut t = server(&Start::default());
        let (requested, allocated) = (GIB, 70 * GIB);
        let reserved = allocated + if is_fragmented { 6 * GIB } else { 80 * MIB };
        let (process, _) = rank(0);
        t.book.torch.failures.push(OutOfMemory {
            t: 5,
            process,
            ordinal: 0,
            requested,
            allocated,
            reserved,
            stack: None,
        });
        assert_eq!(is_found(&t), is_fragmented);
    }
}
