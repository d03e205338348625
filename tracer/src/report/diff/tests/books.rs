//! Servers to compare.

use proptest::prelude::*;

use crate::ledger::{Book, Kind, Reading};
use crate::lifecycle::Axes;
use crate::report::diff::{Diff, Error, Question, Run, When};
use crate::report::testbook::TestBook;
use crate::trace::record::Outcome;

pub(super) const MIB: u64 = 1 << 20;
pub(super) const GIB: u64 = 1 << 30;

/// Steps of a server, with a frame that the rules know of each; the last has none.
pub(super) const STEPS: [(&str, &str); 5] = [
    ("distributed_init", "sglang/srt/model_executor/model_runner.py: ModelRunner.init_torch_distributed"),
    ("weights", "sglang/srt/model_executor/model_runner.py: ModelRunner.load_model"),
    ("kv_cache", "sglang/srt/model_executor/model_runner.py: ModelRunner.init_memory_pool"),
    ("cuda_graph", "sglang/srt/model_executor/model_runner.py: ModelRunner.init_cuda_graphs"),
    ("serving", "sglang/srt/managers/scheduler.py: Scheduler.event_loop_normal"),
];

pub(super) fn stack_of(t: &mut TestBook, step: usize) -> u32 {
    t.python_stack(&["sglang/srt/managers/scheduler.py: run_scheduler_process", STEPS[step].1, "libc10_cuda.so"])
}

/// A server of `ranks` ranks that goes through the first `steps` steps, with as many MiB in each as `sizes` says.
pub(super) fn server(ranks: usize, steps: usize, sizes: [u64; 5]) -> TestBook {
    let mut t = TestBook::new();
    t.book.header.command = ["python3", "-m", "sglang.launch_server"].map(str::to_owned).to_vec();
    let main = t.process(100, "");
    t.book.processes[main].command = t.book.header.command.clone();
    let processes: Vec<usize> =
        (0..ranks).map(|n| t.process(101 + n as u32, &format!("sglang::scheduler_TP{n}"))).collect();
    let gpus: Vec<usize> = (0..ranks).map(|n| t.gpu(n as u32)).collect();
    for (process, gpu) in processes.iter().zip(&gpus) {
        t.book.processes[*process].parent = Some(100);
        t.allocate_kind(*process, *gpu, 518 * MIB, Kind::Context);
    }
    for (step, mib) in sizes.into_iter().enumerate().take(steps) {
        goes_through(&mut t, ranks, step, mib);
    }
    t
}

/// Every rank allocates in a step.
pub(super) fn goes_through(t: &mut TestBook, ranks: usize, step: usize, mib: u64) {
    let stack = stack_of(t, step);
    for rank in 0..ranks {
        let row = t.allocate(1 + rank, rank, mib * MIB);
        t.book.allocations[row].stack = Some(stack);
    }
}

/// Its process `rank` fails to get 18 GiB in a step, then all exit.
pub(super) fn dies_of_memory(t: &mut TestBook, rank: usize, step: usize) {
    let stack = stack_of(t, step);
    t.fail(1 + rank, rank, 18 * GIB);
    t.book.failures.last_mut().unwrap().stack = Some(stack);
    dies(t);
}

/// It reads free memory in a step and gives up without having asked for any.
pub(super) fn gives_up(t: &mut TestBook, step: usize) {
    let stack = Some(stack_of(t, step));
    t.book.readings.push(Reading { t: t.book.end + 10, process: 1, free: GIB, total: None, stack });
    t.at(t.book.end + 20);
    dies(t);
}

fn dies(t: &mut TestBook) {
    for process in 0..t.book.processes.len() {
        t.exit(process, Some(1));
    }
    t.book.outcome = Some(Outcome::Exited { code: 1 });
}

pub(super) fn try_compare(base: &Book, other: &Book, question: &Question) -> Result<Diff, Error> {
    let (base, other) = (Axes::new(base), Axes::new(other));
    Diff::new(&Run { name: "a.vrt", axes: &base }, &Run { name: "b.vrt", axes: &other }, question)
}

pub(super) fn compare(base: &Book, other: &Book) -> Diff {
    try_compare(base, other, &Question::default()).unwrap()
}

pub(super) fn compare_at(base: &Book, other: &Book, when: When) -> Diff {
    try_compare(base, other, &Question { when, ..Question::default() }).unwrap()
}

/// Any server of one to four ranks, at any step, well or not, with memory that comes and goes and some outside every step.
pub(super) fn any_server() -> impl Strategy<Value = Book> {
    let allocation = (0..7_usize, 0..4_usize, 1..5000_u64, any::<bool>());
    let end = (0..3_u8, 0..4_usize, 0..5_usize);
    let sizes = [1..900_u64, 1..900, 1..900, 1..900, 1..900];
    (1..5_usize, 0..6_usize, sizes, prop::collection::vec(allocation, 0..20), end).prop_map(
        |(ranks, steps, sizes, more, (end, rank, step))| {
            let mut t = server(ranks, steps, sizes);
            for (step, rank, mib, is_freed) in more {
                let stack = (step < STEPS.len()).then(|| stack_of(&mut t, step));
                let row = t.allocate(1 + rank % ranks, rank % ranks, mib * MIB);
                t.book.allocations[row].stack = stack;
                if is_freed {
                    t.free(row);
                }
            }
            match end {
                0 => dies_of_memory(&mut t, rank % ranks, step),
                1 => gives_up(&mut t, step),
                _ => {}
            }
            t.book
        },
    )
}
