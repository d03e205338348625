//! Traces of unmodified servers on real GPUs (H200, driver 580.159.04, SGLang 0.5.17, torch 2.11): what `nvidia-smi` said, what the
//! servers printed, and what is known to be the cause of each difference.
//!
//! `NAME.vrt` is the trace, `NAME.txt` has `mark NAME t=NS pid=PID smi=MIB` lines: `nvidia-smi`'s figure of a process at a time.

use std::time::Duration;

use live_tests::recorded::{field, path, samples_agree};
use tracer::ledger::{Allocation, Book, Kind};
use tracer::lifecycle::{Axes, Axis, UNATTRIBUTED};
use tracer::report::diff::{Diff, Question, Run};
use tracer::report::paused::paused;
use tracer::report::query::Moments;
use tracer::report::{At, Query, Summary};
use tracer::trace::record::FrameKind;

const MIB: u64 = 1 << 20;

/// Servers that came up, with the ranks that `SGLang` gave them and the marks set.
const SERVERS: [(&str, &[&str], usize); 10] = [
    ("h200-sglang-tp1-base", &["TP0"], 2),
    ("h200-sglang-tp1-fraction", &["TP0"], 2),
    ("h200-sglang-tp1-graphs64", &["TP0"], 2),
    ("h200-sglang-tp1-nographs", &["TP0"], 2),
    ("h200-sglang-tp1-expandable", &["TP0"], 2),
    ("h200-sglang-tp2-on", &["TP0", "TP1"], 4),
    ("h200-sglang-tp2-off", &["TP0", "TP1"], 4),
    ("h200-sglang-tp2-v1", &["TP0", "TP1"], 4),
    ("h200-sglang-pp2", &["PP0", "PP1"], 4),
    ("h200-sglang-dp2", &["DP0", "DP1"], 4),
];

fn book(name: &str) -> Book {
    Book::read(&path(&format!("{name}.vrt"))).unwrap()
}

/// Time, process id and bytes of each mark.
fn marks(name: &str) -> Vec<(u64, u32, u64)> {
    let text = std::fs::read_to_string(path(&format!("{name}.txt"))).unwrap();
    let field = |line: &str, name: &str| field(line, name).unwrap_or_else(|| panic!("{name} in {line:?}"));
    let mark = |line: &str| (field(line, "t"), field(line, "pid") as u32, field(line, "smi") * MIB);
    text.lines().filter(|line| line.starts_with("mark ")).map(mark).collect()
}

/// At each mark, and in each quiet sample, the ledger holds what the driver said; nothing was lost.
fn is_exact(name: &str, book: &Book, expected: usize) {
    let marks = marks(name);
    assert_eq!(marks.len(), expected, "{name}");
    for (t, pid, bytes) in marks {
        let live = book.live_at(t, |row| book.processes[row.process].pid == pid);
        assert_eq!(live, bytes, "{name}: process {pid} holds {} MiB", live / MIB);
    }
    // A child that is gone before its writes are probed may have written a line: no bytes.
    assert!(book.losses.keys().all(|why| why == "unfollowed"), "{name}: {:?}", book.losses);
    samples_agree(name, book, 31);
}

#[test]
fn servers_hold_what_nvidia_smi_says() {
    for (name, ranks, marks) in SERVERS {
        let book = book(name);
        is_exact(name, &book, marks);
        let summary = Summary::new(&book, &Query::suiting(&Axes::new(&book), At::End)).unwrap();
        let with_memory =
            summary.processes.iter().filter(|process| process.devices.iter().any(|d| d.bytes.live_bytes > 0));
        let found: Vec<_> = with_memory.map(|process| process.rank.as_str()).collect();
        assert_eq!(found, ranks, "{name}");
        let (mut all, mut unknown) = (0, 0);
        for cell in summary.processes.iter().flat_map(|process| &process.devices).flat_map(|device| &device.cells) {
            all += cell.bytes.live_bytes;
            unknown += if cell.labels.values().any(|label| label == UNATTRIBUTED) { cell.bytes.live_bytes } else { 0 };
        }
        assert!(all > 40 << 30 && unknown * 100 < all, "{name}: {unknown} of {all} bytes are {UNATTRIBUTED}");
        // SGLang prints free memory at the edges of its phases: each figure is a reading that the trace has.
        let printed = &summary.printed_memory;
        assert!(printed.len() >= 4 * ranks.len(), "{name}: {} lines", printed.len());
        let odd: Vec<_> = printed.iter().filter(|line| line.agrees == Some(false)).collect();
        assert!(odd.is_empty(), "{name}: {odd:?}");
    }
}

/// `--enable-memory-saver`: `/release_memory_occupation` of the KV cache, then of the weights, and `/resume_memory_occupation` of
/// both. What is paused is told from what is freed, and what is resumed is what it was.
#[test]
fn released_memory_is_paused_and_resumed() {
    let name = "h200-sglang-tp1-saver";
    let book = book(name);
    is_exact(name, &book, 7);
    let axes = Axes::new(&book);
    let held = |t: u64, phase: &str| {
        let is_of = |row: &Allocation| axes.label(Axis::Phase, axes.cell(Axis::Phase, row)) == phase;
        let paused = paused(&axes, &Moments::new(&axes, At::Time(Duration::from_nanos(t - book.header.t))).unwrap());
        let of_phase: Vec<_> = paused.iter().filter(|paused| paused.phase == phase).collect();
        assert!(of_phase.iter().all(|paused| paused.rank == "TP0"));
        (book.live_at(t, is_of) / MIB, of_phase.iter().map(|paused| paused.bytes / MIB).sum::<u64>())
    };
    let steps = |phase| marks(name).iter().map(|(t, ..)| held(*t, phase)).collect::<Vec<_>>();
    // A release also empties PyTorch's cache: 22 MiB are freed.
    let (whole, released, resumed) = ((42456, 0), (0, 42434), (42434, 0));
    assert_eq!(steps("kv_cache"), [whole, whole, released, released, released, resumed, resumed]);
    let (whole, released) = ((348, 0), (20, 328));
    assert_eq!(steps("weights"), [whole, whole, whole, released, whole, whole, whole]);
}

#[test]
fn data_parallel_training_is_exact() {
    let book = book("h200-torch-ddp");
    is_exact("h200-torch-ddp", &book, 2);
    let axes = Axes::new(&book);
    let held = |process: usize| book.allocations.iter().any(|row| row.process == process);
    let ranks: Vec<_> = (0..book.processes.len()).filter(|n| held(*n)).map(|n| axes.rank(n)).collect();
    assert_eq!(ranks, ["rank 0", "rank 1"]);
}

/// NCCL's second communicator comes with the warm-up request: its buffers, made by NCCL's own threads, belong to the line of
/// Python that asked for it. Whoever maps another's buffers pays nothing.
#[test]
fn a_late_communicator_is_told_by_who_made_it() {
    for name in ["h200-sglang-tp2-on", "h200-sglang-tp2-off"] {
        let book = book(name);
        let axes = Axes::new(&book);
        let ready = marks(name)[0].0;
        let late: Vec<_> = book.communicators.iter().filter(|made| made.api == "ncclCommInitRankConfig").collect();
        assert_eq!(late.len(), 2, "{name}");
        for made in late {
            let frames = book.stacks[made.stack.expect("a stack") as usize].iter().map(|n| &book.frames[*n as usize]);
            let python: Vec<_> = frames.filter(|f| f.kind == FrameKind::Python).map(|f| f.function.as_str()).collect();
            assert!(python.iter().any(|function| function.ends_with("all_gather_into_tensor")), "{python:?}");
            let held = book.live_at(ready, |row| {
                row.process == made.process
                    && axes.label(Axis::Phase, axes.cell(Axis::Phase, row)) == "warmup.nccl"
                    && axes.label(Axis::Owner, axes.cell(Axis::Owner, row)) == "nccl"
            });
            assert_eq!(held, 544 * MIB, "{name}");
        }
        assert!(!book.imports.is_empty(), "{name}: ranks map each other's buffers");
        assert_eq!(book.live_at(ready, |row| row.kind == Kind::IpcImport), 0, "{name}");
    }
}

/// Kind and summary of what is said first of two runs.
fn verdict(base: &str, other: &str) -> (String, String) {
    let books = [book(base), book(other)];
    let axes = books.each_ref().map(Axes::new);
    let run = |n: usize| Run { name: [base, other][n], axes: &axes[n] };
    let verdict = Diff::new(&run(0), &run(1), &Question::default()).expect("a comparison").verdict;
    (verdict.suspects[0].kind.to_owned(), verdict.summary)
}

/// The sum of a comparison is the change of `nvidia-smi`'s figures (read last after the requests; nothing came after).
#[test]
fn differences_are_those_of_nvidia_smi() {
    let base = "h200-sglang-tp1-base";
    for (base, other) in [
        ("h200-sglang-tp2-off", "h200-sglang-tp2-on"),
        ("h200-sglang-tp2-v1", "h200-sglang-tp2-on"),
        (base, "h200-sglang-tp1-expandable"),
        (base, "h200-sglang-tp1-fraction"),
        (base, "h200-sglang-tp1-nographs"),
    ] {
        let smi = |name: &str| -> i64 {
            let marks = marks(name);
            let last = marks.last().map(|mark| mark.0);
            marks.iter().filter(|mark| Some(mark.0) == last).map(|mark| mark.2.cast_signed()).sum()
        };
        let books = [book(base), book(other)];
        let axes = books.each_ref().map(Axes::new);
        let run = |n: usize| Run { name: [base, other][n], axes: &axes[n] };
        let diff = Diff::new(&run(0), &run(1), &Question::default()).expect("a comparison");
        assert_eq!(diff.bytes.delta_bytes, smi(other) - smi(base), "{base} → {other}");
    }
}

#[test]
fn known_causes_are_named_first() {
    let base = "h200-sglang-tp1-base";
    let cases = [
        (
            "h200-sglang-tp2-off",
            "h200-sglang-tp2-on",
            ["Custom all-reduce: +102.0 MiB a rank", "0 B for the buffers of other ranks"],
        ),
        (base, "h200-sglang-tp1-fraction", ["budget of the KV pool differs by +27.84 GiB", "the fraction (0.3 → 0.5)"]),
        (base, "h200-sglang-tp1-graphs64", ["CUDA graphs: +26.0 MiB", "--cuda-graph-max-bs-decode 8 → 64"]),
        (base, "h200-sglang-tp1-nographs", ["CUDA graphs: -444.0 MiB", "--disable-cuda-graph False → True"]),
        (
            base,
            "h200-sglang-tp1-expandable",
            ["PYTORCH_CUDA_ALLOC_CONF not set → expandable_segments:True", "cuMemCreate"],
        ),
        (base, "h200-sglang-tp1-toolow", ["KV pool cannot be sized", "138.81 GiB free after the weights"]),
    ];
    for (base, other, parts) in cases {
        let (kind, summary) = verdict(base, other);
        for part in parts {
            assert!(summary.contains(part), "{base} → {other} ({kind}): {part:?} is not in {summary:?}");
        }
    }
}
