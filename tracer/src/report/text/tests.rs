//! Whole reports.

use proptest::prelude::*;

use super::plain::columns;
use super::*;
use crate::ledger::{Kind, Reading};
use crate::lifecycle::{Axes, Axis};
use crate::report::query::{At, Query};
use crate::report::testbook::{TestBook, any_book};
use crate::trace::record::{Library, Outcome, Source};

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;

const LOAD: [(&str, &str); 6] = [
    ("_start", "/usr/bin/python3.12"),
    ("main", "/usr/bin/python3.12"),
    ("_PyEval_EvalFrameDefault", "/usr/bin/python3.12"),
    ("at::native::empty_cuda", "/opt/torch/lib/libtorch_cuda.so"),
    ("c10::cuda::CUDACachingAllocator::Native::DeviceCachingAllocator::malloc", "/opt/torch/lib/libc10_cuda.so"),
    ("cudaMalloc", "/opt/nvidia/lib/libcudart.so.12"),
];

/// One process, all of it explained.
pub(in crate::report) fn exact_run() -> TestBook {
    let mut t = TestBook::new();
    t.book.header.command = ["python3", "train.py", "--lr", "1"].map(str::to_owned).to_vec();
    let (process, gpu) = (t.process(490, ""), t.gpu(0));
    t.book.processes[process].command = t.book.header.command.clone();
    t.at(1_000_000_000).allocate_kind(process, gpu, 518 * MIB, Kind::Context);
    let stack = t.stack(&LOAD);
    for step in 0..3 {
        let row = t.at(2_000_000_000 + step).allocate(process, gpu, 118 * MIB);
        t.book.allocations[row].stack = Some(stack);
    }
    t.free(3);
    t.at(3_000_000_000).sample(process, gpu, 754 * MIB, true);
    t.pin_host(process, gpu, 70 * MIB);
    t.at(4_500_000_000).exit(process, Some(0));
    t
}

/// Two ranks, one of which asks for more than its GPU has.
pub(in crate::report) fn out_of_memory() -> TestBook {
    let mut t = TestBook::new();
    t.book.header.command = ["python3", "-m", "sglang.launch_server", "--tp", "2"].map(str::to_owned).to_vec();
    t.book.outcome = Some(Outcome::Exited { code: 1 });
    let stack = t.stack(&LOAD);
    let ranks = [t.process(4101, "sglang::scheduler_TP0"), t.process(4102, "sglang::scheduler_TP1")];
    let gpus = [t.gpu(0), t.gpu(1)];
    for (rank, gpu) in ranks.into_iter().zip(gpus) {
        t.allocate_kind(rank, gpu, 518 * MIB, Kind::Context);
        t.allocate_kind(rank, gpu, 64 * MIB, Kind::Channel);
        for _ in 0..8 {
            let row = t.allocate(rank, gpu, 9 * GIB);
            t.book.allocations[row].stack = Some(stack);
        }
    }
    t.at(20_000_000_000).sample(ranks[0], gpus[0], 72 * GIB + 582 * MIB, true);
    t.at(20_000_000_000).sample(ranks[1], gpus[1], 72 * GIB + 584 * MIB, true);
    t.at(20_500_000_000).sample(ranks[1], gpus[1], 0, false);
    t.import(ranks[1], gpus[0], 24 * MIB);
    for when in [21_000_000_000, 21_250_000_000] {
        t.at(when).fail(ranks[0], gpus[0], 18 * GIB);
        t.book.failures.last_mut().unwrap().stack = Some(stack);
    }
    t.fail(ranks[1], gpus[1], 1);
    let other = t.book.failures.last_mut().unwrap();
    (other.api, other.result, other.out_of_memory) = ("cudaIpcOpenMemHandle".to_owned(), 101, false);
    t.at(22_000_000_000).exit(ranks[0], Some(1));
    t.at(22_000_000_000).exit(ranks[1], None);
    t
}

/// Two ranks of a server that tells its phases, and its main process, which holds memory too.
fn server() -> TestBook {
    let mut t = TestBook::new();
    let main = t.process(4100, "");
    t.book.processes[main].command = ["python3", "-m", "sglang.launch_server"].map(str::to_owned).to_vec();
    let ranks = [t.process(4101, "sglang::scheduler_TP0"), t.process(4102, "sglang::scheduler_TP1")];
    let gpus = [t.gpu(0), t.gpu(1)];
    let loader = "sglang/srt/model_executor/model_runner.py: ModelRunner.load_model";
    let loading = t.python_stack(&[loader, "libc10_cuda.so"]);
    for (n, (rank, gpu)) in ranks.into_iter().zip(gpus).enumerate() {
        t.book.processes[rank].parent = Some(4100);
        let step = |t: &mut TestBook, free: u64, line: &str| {
            t.book.readings.push(Reading { t: t.book.end, process: rank, free, total: None, stack: None });
            t.log(rank, &format!("[2026-11-29 15:12:32 TP{n}] {line}"));
        };
        t.allocate_kind(rank, gpu, 518 * MIB, Kind::Context);
        step(&mut t, 80 * GIB, "Load weight begin. avail mem=80.00 GB");
        let row = t.allocate(rank, gpu, 15 * GIB);
        t.book.allocations[row].stack = Some(loading);
        step(&mut t, 65 * GIB, "Load weight end. elapsed=0.09 s, type=X, avail mem=65.00 GB, mem usage=15.00 GB.");
        t.allocate(rank, gpu, 41 * GIB);
        // The least over all ranks is printed: another's.
        step(&mut t, 25 * GIB, "Memory pool end. avail mem=24.00 GB");
        let graph = t.allocate(rank, gpu, 402 * MIB);
        t.book.allocations[graph].calls = ["cudaGraphInstantiateWithFlags".to_owned()].into();
    }
    t.log(main, "[2026-11-29 15:12:32] The server is fired up and ready to roll!");
    t.allocate(ranks[1], gpus[1], 64 * MIB);
    t.allocate_kind(main, gpus[0], 500 * MIB, Kind::Context);
    t
}

/// Everything that can be wrong with a trace is.
fn unreliable() -> TestBook {
    let mut t = TestBook::new();
    t.book.outcome = None;
    t.book.header.ledger = Source::DriverApi;
    t.book.header.command.clear();
    (t.book.header.attached, t.book.header.driver) = (true, None);
    let (process, gpu) = (t.process(77, "server"), t.gpu(0));
    t.book.gpus[gpu].index = None;
    t.allocate_kind(process, gpu, 1_234_567_890, Kind::PreAttach);
    t.at(12_000_000_000).allocate(process, gpu, 512);
    t.book.losses = [("ring_full".to_owned(), 12), ("unreadable_stack".to_owned(), 1)].into();
    t.book.unknown_records = 1;
    t.book.notices =
        vec!["NVML could not be loaded (libnvidia-ml.so.1: not found): nothing to compare with.".to_owned()];
    let failed = (0..7).map(|n| format!("cuFuture{n}, cannot be probed: first instruction is a jump")).collect();
    t.book.libraries =
        vec![Library { path: "/usr/lib/libcuda.so.1".to_owned(), failed, late: true, ..Library::default() }];
    t
}

fn report(t: &TestBook, query: &Query) -> String {
    render(&Summary::new(&t.book, query).unwrap(), "server.vrt", Style::default())
}

#[test]
fn of_an_exact_run() {
    insta::assert_snapshot!(report(&exact_run(), &Query::default()));
}

#[test]
fn of_a_run_out_of_memory() {
    insta::assert_snapshot!(report(&out_of_memory(), &Query::default()));
}

#[test]
fn of_a_server_by_rank_and_phase() {
    let t = server();
    let axes = Axes::new(&t.book);
    let summary = Summary::of(&axes, &Query::suiting(&axes, At::End)).unwrap();
    insta::assert_snapshot!(render(&summary, "server.vrt", Style::default()));
}

#[test]
fn a_trace_without_phases_is_divided_by_device_and_kind() {
    let t = out_of_memory();
    assert_eq!(Query::suiting(&Axes::new(&t.book), At::End), Query::default());
}

#[test]
fn of_an_unreliable_trace() {
    insta::assert_snapshot!(report(&unreliable(), &Query::default()));
}

#[test]
fn by_owner_and_stack_at_the_failure() {
    let query = Query { by: vec![Axis::Owner, Axis::Stack], at: At::Oom, ..Query::default() };
    insta::assert_snapshot!(report(&out_of_memory(), &query));
}

#[test]
fn of_a_trace_without_gpu_memory() {
    let mut t = TestBook::new();
    t.process(1, "true");
    insta::assert_snapshot!(report(&t, &Query::default()));
}

#[test]
fn colour_only_when_asked_for() {
    let summary = Summary::new(&out_of_memory().book, &Query::default()).unwrap();
    assert!(!render(&summary, "x", Style { color: false }).contains('\x1b'));
    assert!(render(&summary, "x", Style { color: true }).contains("\x1b[1;31mOUT OF MEMORY"));
}

#[test]
fn small_rows_become_one_and_the_total_stays() {
    let mut t = TestBook::new();
    let (process, gpu) = (t.process(1, "a"), t.gpu(0));
    for n in 1..=200_u64 {
        let row = t.allocate(process, gpu, n * MIB);
        t.book.allocations[row].stack = Some(n as u32);
    }
    let text = report(&t, &Query { by: vec![Axis::Stack], at: At::End, ..Query::default() });
    // 1 + … + 140 and 1 + … + 200 MiB.
    assert!(text.contains("(140 smaller)") && text.contains("9.64 GiB") && text.contains("19.63 GiB"), "{text}");
}

#[test]
fn a_shared_gpu_is_summed_over_its_processes() {
    let mut t = TestBook::new();
    let (first, second, gpu, other) = (t.process(1, "a"), t.process(2, "b"), t.gpu(0), t.gpu(1));
    t.allocate(first, gpu, 30 * GIB);
    t.allocate(second, gpu, 20 * GIB);
    t.allocate(second, other, GIB);
    let text = report(&t, &Query::default());
    let line =
        "GPU 0: 2 traced processes held up to 50.00 GiB of 80.00 GiB at once (at 0 ms); 50.00 GiB when the\n  last";
    assert!(text.contains(line), "{text}");
    assert!(!text.contains("GPU 1: ") && !text.contains("not end together"), "{text}");
}

#[test]
fn processes_that_end_one_after_the_other_are_not_taken_for_one_moment() {
    let mut t = TestBook::new();
    let (parent, child, gpu) = (t.process(1, "a"), t.process(2, "b"), t.gpu(0));
    let early = t.allocate(parent, gpu, 8 * GIB);
    t.allocate(child, gpu, 3 * GIB);
    t.at(1_000_000_000).exit(child, Some(0));
    t.at(2_000_000_000).free(early);
    t.allocate(parent, gpu, 5 * GIB);
    t.at(9_000_000_000).exit(parent, Some(0));
    let text = report(&t, &Query::default());
    assert!(text.contains("GPU memory at the end of each process: 8.00 GiB in 2 allocations"), "{text}");
    assert!(text.contains("The processes did not end together; most held at once: 11.00 GiB."), "{text}");
    assert!(
        text.contains("held up to 11.00 GiB of 80.00 GiB at once (at 0 ms); 5.00 GiB when the\n  last one"),
        "{text}"
    );
    let text = report(&t, &Query { at: At::Time(std::time::Duration::from_millis(500)), ..Query::default() });
    assert!(text.contains("0.5s after tracing began: 11.00 GiB") && text.contains("11.00 GiB at 500 ms"), "{text}");
}

fn fits(text: &str) -> Result<(), TestCaseError> {
    for line in text.lines() {
        prop_assert!(columns(line) <= WIDTH, "{} columns: {line}", columns(line));
        prop_assert!(!line.chars().any(char::is_control), "{line:?}");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_report_fits(
        book in any_book(),
        by in prop::sample::subsequence(Axis::ALL.to_vec(), 0..=Axis::ALL.len()),
    ) {
        let summary = Summary::new(&book, &Query { by, at: At::End, ..Query::default() }).unwrap();
        fits(&render(&summary, "server.vrt", Style::default()))?;
    }

    #[test]
    fn hostile_names_neither_widen_nor_steer_the_text(
        name in ".{0,200}|[\u{0}-\u{9f}]{0,200}|(\u{1b}\\[2J|日本|\u{202e}| ){0,80}",
        by in prop::sample::subsequence(Axis::ALL.to_vec(), 0..=Axis::ALL.len()),
    ) {
        let mut t = out_of_memory();
        let header = &mut t.book.header;
        (header.host, header.kernel, header.driver) = (name.clone(), name.clone(), Some(name.clone()));
        header.command = vec![name.clone(), name.clone()];
        t.book.notices = vec![name.clone()];
        t.book.losses = [(name.clone(), 1)].into();
        let (failed, late) = (vec![name.clone()], true);
        t.book.libraries = vec![Library { path: name.clone(), failed, late, ..Library::default() }];
        for process in &mut t.book.processes {
            (process.title, process.command) = (name.clone(), vec![name.clone()]);
        }
        for frame in &mut t.book.frames {
            (frame.function, frame.module, frame.file) = (name.clone(), name.clone(), Some(name.clone()));
        }
        for row in &mut t.book.allocations {
            (row.owner.0, row.calls) = (name.clone().into(), [name.clone()].into());
        }
        for failure in &mut t.book.failures {
            failure.api = name.clone();
        }
        for gpu in &mut t.book.gpus {
            (gpu.index, gpu.uuid) = (None, name.clone());
        }
        let summary = Summary::new(&t.book, &Query { by, at: At::End, ..Query::default() }).unwrap();
        fits(&render(&summary, &name, Style::default()))?;
    }
}
