//! Attribution of hand-made ledgers.

use proptest::prelude::*;

use super::*;
use crate::ledger::{Capture, Communicator};
use crate::report::testbook::{TestBook, any_book};

mod communicators;
mod servers;

#[test]
fn every_kind_has_its_cell() {
    for (n, kind) in KINDS.iter().enumerate() {
        assert_eq!(*kind as usize, n, "{kind:?}: KINDS must list every kind in order");
    }
}

#[test]
fn a_pid_that_came_back_is_another_process() {
    let mut book = TestBook::new();
    let first = book.process(7, "server");
    let second = book.process(7, "server");
    let axes = Axes::new(&book.book);
    assert_eq!(axes.rank(first), "7 server");
    assert_eq!(axes.rank(second), "7#2 server");
}

#[test]
fn what_no_rule_explains_is_a_cell() {
    let mut book = TestBook::new();
    let process = book.process(7, "server");
    let gpu = book.gpu(0);
    book.allocate(process, gpu, 2 << 20);
    let axes = Axes::new(&book.book);
    let row = &book.book.allocations[0];
    let labels: Vec<_> = Axis::ALL.iter().map(|a| axes.label(*a, axes.cell(*a, row)).into_owned()).collect();
    let expected =
        ["unattributed", "7 server", "cuda_malloc", "torch", "other", "GPU 0", "[no stack]", "7 server", "cudaMalloc"];
    assert_eq!(labels, expected);
    assert!(!axes.has_phases());
}

/// A server's scheduler with one allocation from each of the stacks, and what is known of each.
pub(super) struct Scene {
    pub(super) t: TestBook,
    pub(super) process: usize,
    gpu: usize,
}

impl Scene {
    pub(super) fn new(title: &str) -> Self {
        let mut t = TestBook::new();
        let (process, gpu) = (t.process(7, title), t.gpu(0));
        Self { t, process, gpu }
    }

    pub(super) fn log(&mut self, message: &str) -> &mut Self {
        self.t.log(self.process, &format!("[2026-11-29 15:12:32 TP0] {message}"));
        self
    }

    /// Allocates from a stack; gives the row.
    pub(super) fn allocate(&mut self, stack: &[&str]) -> usize {
        let stack = (!stack.is_empty()).then(|| self.t.python_stack(stack));
        let row = self.t.allocate(self.process, self.gpu, 2 << 20);
        let allocation = &mut self.t.book.allocations[row];
        (allocation.stack, allocation.owner) = (stack, crate::ledger::Owner("unknown".into()));
        row
    }

    /// Label of a row on an axis.
    pub(super) fn label(&self, row: usize, axis: Axis) -> String {
        let axes = Axes::new(&self.t.book);
        axes.label(axis, axes.cell(axis, &self.t.book.allocations[row])).into_owned()
    }

    pub(super) fn phase(&self, row: usize) -> String {
        self.label(row, Axis::Phase)
    }

    /// A communicator that is made from now for `long`.
    fn communicator(&mut self, tid: u32, long: u64) {
        self.communicator_from(tid, long, None);
    }

    /// The same, from a stack.
    fn communicator_from(&mut self, tid: u32, long: u64, stack: Option<u32>) {
        let start = self.t.book.end;
        self.t.book.communicators.push(Communicator {
            start,
            end: start + long,
            process: self.process,
            tid,
            api: "ncclCommInitRank".to_owned(),
            result: 0,
            id: None,
            size: None,
            rank: None,
            stack,
        });
    }
}

const LOOP: &str = "sglang/srt/managers/scheduler.py: Scheduler.event_loop_overlap";
const RUN: &str = "sglang/srt/managers/scheduler.py: run_scheduler_process";
const LOAD: &str = "sglang/srt/model_executor/model_runner.py: ModelRunner.load_model";

#[test]
fn a_frame_counts_more_than_a_window_and_a_window_more_than_a_line() {
    let mut scene = Scene::new("sglang::scheduler_TP0");
    scene.log("Memory pool end. avail mem=1.00 GB");
    let by_line = scene.allocate(&[]);
    let by_window = scene.allocate(&["app.py: main"]);
    scene.t.book.allocations[by_window].calls = ["ncclCommInitRank".to_owned(), "cuMemAlloc_v2".to_owned()].into();
    let by_frame = scene.allocate(&[RUN, LOAD, "app.py: main"]);
    scene.t.book.allocations[by_frame].calls = ["ncclCommInitRank".to_owned()].into();
    assert_eq!(scene.phase(by_line), "attention_backend");
    assert_eq!(scene.phase(by_window), "distributed_init.nccl");
    assert_eq!(scene.phase(by_frame), "weights");
}

#[test]
fn the_innermost_frame_counts() {
    let mut scene = Scene::new("sglang::scheduler_TP0");
    let pool = "sglang/srt/mem_cache/memory_pool.py: MHATokenToKVPool._create_buffers";
    let inner = scene.allocate(&[RUN, LOAD, pool, "torch/_ops.py: __call__"]);
    let outer = scene.allocate(&[RUN, pool, LOAD]);
    assert_eq!((scene.phase(inner), scene.phase(outer)), ("kv_cache".to_owned(), "weights".to_owned()));
    // What stands on every stack of the process says nothing against a line.
    let anywhere = scene.allocate(&[RUN]);
    assert_eq!(scene.phase(anywhere), "startup");
    scene.log("Load weight begin. avail mem=1.00 GB");
    let later = scene.allocate(&[RUN]);
    assert_eq!(scene.phase(later), "weights");
}

#[test]
fn weaker_evidence_may_name_the_part() {
    let mut scene = Scene::new("sglang::scheduler_TP0");
    scene.log("Capture target prefill CUDA graph begin. backend=breakable, avail mem=1.00 GB");
    let graph = scene.allocate(&[]);
    scene.t.book.allocations[graph].calls = ["cudaGraphInstantiateWithFlags".to_owned()].into();
    assert_eq!(scene.phase(graph), "cuda_graph.prefill");
    scene.log("The server is fired up and ready to roll!");
    let lazily = scene.allocate(&[RUN, LOOP]);
    scene.t.book.allocations[lazily].calls = ["ncclCommInitRankConfig".to_owned()].into();
    assert_eq!(scene.phase(lazily), "serving.nccl");
}

#[test]
fn the_event_loop_warms_up_until_the_server_is_ready() {
    let mut scene = Scene::new("sglang::scheduler_TP0");
    let before = scene.allocate(&[RUN, LOOP]);
    scene.log("Capture target decode CUDA graph end. elapsed=0.88 s");
    let warming = scene.allocate(&[RUN, LOOP]);
    scene.log("The server is fired up and ready to roll!");
    let serving = scene.allocate(&[RUN, LOOP]);
    // Without lines nothing is known of a warm-up.
    assert_eq!([before, warming, serving].map(|row| scene.phase(row)), ["serving", "warmup", "serving"]);
}

#[test]
fn owners_are_told_by_the_caller() {
    let cases: &[(&[&str], Kind, &str)] = &[
        (
            &["app.py: f", "libtorch_python.so", "libc10_cuda.so", "libcudart.so.12", "libcuda.so.1"],
            Kind::CudaMalloc,
            "torch",
        ),
        (&["app.py: f", "libcublasLt.so.12", "libcuda.so.1"], Kind::CudaMalloc, "cublas"),
        (&["libnvshmem_host.so.3"], Kind::CudaMalloc, "nvshmem"),
        (&["torch_memory_saver_hook_mode_preload.abi3.so"], Kind::Vmm, "tms"),
        (&["python3.12/site-packages/vllm/_C.abi3.so"], Kind::CudaMalloc, "custom_allreduce"),
        (&["python3.12/site-packages/sgl_kernel/sm90/common_ops.abi3.so"], Kind::CudaMalloc, "custom_allreduce"),
        (&["cumem_allocator.abi3.so"], Kind::Vmm, "vllm_cumem"),
        // What the driver makes for itself is its own, whoever launched.
        (&["app.py: f", "libnccl.so.2"], Kind::LocalMemory, "driver"),
        (&["app.py: f", "libunknown.so"], Kind::CudaMalloc, "unattributed"),
        (
            &[
                "sglang/srt/distributed/device_communicators/custom_all_reduce.py: CustomAllreduce.create_shared_buffer",
                "_ctypes.so",
                "libffi.so.8",
            ],
            Kind::CudaMalloc,
            "custom_allreduce",
        ),
        (
            &[
                "sglang/srt/distributed/device_communicators/custom_all_reduce.py: CustomAllreduce.__init__",
                "libc10_cuda.so",
            ],
            Kind::CudaMalloc,
            "torch",
        ),
        (
            &["vllm/distributed/device_communicators/custom_all_reduce_v2.py: _init_workspace", "libtorch_cuda.so"],
            Kind::Vmm,
            "custom_allreduce",
        ),
    ];
    for (stack, kind, owner) in cases {
        let mut scene = Scene::new("server");
        let row = scene.allocate(stack);
        scene.t.book.allocations[row].kind = *kind;
        assert_eq!(scene.label(row, Axis::Owner), *owner, "{stack:?}");
    }
}

/// Who resumes memory says nothing of what it is for.
#[test]
fn what_is_resumed_is_for_what_it_was() {
    let mut scene = Scene::new("sglang::scheduler_TP0");
    let weights = scene.allocate(&[RUN, LOAD]);
    scene.t.pause(weights);
    let resumed = scene.t.resume(weights);
    scene.t.pause(resumed);
    let again = scene.t.resume(resumed);
    assert_eq!([weights, resumed, again].map(|row| scene.phase(row)), ["weights"; 3]);
    let apis = [weights, again].map(|row| scene.label(row, Axis::Api));
    assert_eq!(apis, ["cudaMalloc", "tms_resume"]);
}

#[test]
fn a_capture_makes_the_pool_the_graphs() {
    let mut scene = Scene::new("server");
    let stack = ["app.py: f", "libc10_cuda.so", "libcudart.so.12"];
    let before = scene.allocate(&stack);
    let start = scene.t.book.end + 1;
    scene.t.book.captures.push(Capture { start, end: start + 15, process: scene.process, tid: 7 });
    let within = scene.allocate(&stack);
    let after = scene.allocate(&stack);
    let owners = [before, within, after].map(|row| scene.label(row, Axis::Owner));
    assert_eq!(owners, ["torch", "torch_graph_pool", "torch"]);
    assert_eq!(scene.phase(within), "cuda_graph");
    // Another thread's memory is not the graph's.
    scene.t.book.allocations[within].tid = 8;
    assert_eq!(scene.label(within, Axis::Owner), "torch");
}

#[test]
fn states_hold_for_the_whole_server_where_the_main_process_tells() {
    let mut t = TestBook::new();
    let (main, controller, rank, stranger) = (t.process(1, ""), t.process(2, ""), t.process(3, ""), t.process(4, ""));
    (t.book.processes[controller].parent, t.book.processes[rank].parent) = (Some(1), Some(2));
    let gpu = t.gpu(0);
    t.log(rank, "[2026-11-29 15:12:32 TP0] LoRA adapter loading starts: x");
    t.log(main, "[2026-11-29 15:12:32] The server is fired up and ready to roll!");
    let lora = t.allocate(rank, gpu, 1);
    t.log(rank, "[2026-11-29 15:12:32 TP0] LoRA adapter loading completes: x");
    let served = t.allocate(rank, gpu, 1);
    let other = t.allocate(stranger, gpu, 1);
    let axes = Axes::new(&t.book);
    let phase = |row: usize| axes.label(Axis::Phase, axes.cell(Axis::Phase, &t.book.allocations[row])).into_owned();
    assert_eq!([lora, served, other].map(phase), ["lora", "serving", UNATTRIBUTED]);
}

#[test]
fn lines_of_a_server_that_already_served_are_the_last_resort() {
    let mut scene = Scene::new("sglang::scheduler_TP0");
    scene.log("Decode batch, #running-req: 1");
    let attached = scene.allocate(&[]);
    scene.log("Load weight begin. avail mem=1.00 GB");
    scene.log("Decode batch, #running-req: 1");
    let told = scene.allocate(&[]);
    assert_eq!([attached, told].map(|row| scene.phase(row)), ["serving", "weights"]);
}

#[test]
fn failures_have_a_phase() {
    let mut scene = Scene::new("sglang::scheduler_TP0");
    scene.log("Load weight end. elapsed=0.09 s");
    scene.t.fail(scene.process, scene.gpu, 1);
    assert_eq!(Axes::new(&scene.t.book).failure_phase(&scene.t.book.failures[0]), "kv_cache");
    scene.t.book.failures[0].stack = Some(scene.t.python_stack(&[RUN, LOAD]));
    assert_eq!(Axes::new(&scene.t.book).failure_phase(&scene.t.book.failures[0]), "weights");
}

#[test]
fn what_decided_is_kept() {
    let mut scene = Scene::new("sglang::scheduler_TP0");
    scene.allocate(&[RUN, LOAD, "libc10_cuda.so"]);
    scene.log("Load weight begin. avail mem=1.00 GB");
    scene.allocate(&[]);
    let axes = Axes::new(&scene.t.book);
    let decided = axes.decided();
    let phases: Vec<_> = decided.iter().filter(|d| d.axis == "phase").collect();
    let seen: Vec<_> =
        phases.iter().map(|d| (d.cell.as_str(), d.evidence, d.rule.as_deref().unwrap(), d.count)).collect();
    assert_eq!(
        seen,
        [
            ("weights", Evidence::PythonFrame, "sglang/weights", 1),
            ("weights", Evidence::LogLine, "sglang/log-weights-begin", 1)
        ]
    );
    let unknown = decided.iter().find(|d| d.axis == "owner" && d.evidence == Evidence::None).unwrap();
    assert_eq!((unknown.cell.as_str(), unknown.count), (UNATTRIBUTED, 1));
}

#[test]
fn hostile_frames_are_inert() {
    let mut scene = Scene::new("server");
    let name = "*".repeat(1000);
    let frames = [format!("{name}.py: {name}"), "a.py: ".to_owned(), ": ".to_owned(), "../../x.py: .".to_owned()];
    let row = scene.allocate(&frames.each_ref().map(String::as_str));
    assert_eq!(scene.phase(row), UNATTRIBUTED);
}

proptest! {
    /// Each byte lies in exactly one cell of each axis, whose label the axis knows, and is there again when asked anew.
    #[test]
    fn every_byte_has_one_cell_on_each_axis(book in any_book()) {
        let (axes, again) = (Axes::new(&book), Axes::new(&book));
        for row in &book.allocations {
            let stranger = row.clone();
            for axis in Axis::ALL {
                let cell = axes.cell(axis, row);
                prop_assert_eq!(cell, again.cell(axis, row));
                prop_assert_eq!(cell, axes.cell(axis, &stranger), "the table of decisions is no other than deciding");
                prop_assert!(!axes.label(axis, cell).is_empty());
            }
        }
        for axis in [Axis::Phase, Axis::Role, Axis::Owner] {
            let decided = axes.decided();
            let of_axis = decided.iter().filter(|d| d.axis == axis.name());
            let total: u64 = book.allocations.iter().map(|row| row.bytes).sum();
            prop_assert_eq!(of_axis.map(|d| d.allocated_bytes).sum::<u64>(), total);
        }
    }

    #[test]
    fn labels_of_ranks_are_all_different(titles in prop::collection::vec("(sglang::scheduler_TP[01]|VLLM::Worker_TP[01]|x)", 0..8)) {
        let mut t = TestBook::new();
        for (n, title) in titles.iter().enumerate() {
            t.process(n as u32 / 2, title);
        }
        let axes = Axes::new(&t.book);
        let labels: std::collections::BTreeSet<_> = axes.ranks().iter().map(|rank| &rank.label).collect();
        prop_assert_eq!(labels.len(), titles.len());
    }
}
