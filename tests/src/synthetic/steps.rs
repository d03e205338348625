//! What the server does, and the names it has.

/// What a rank allocates before it serves: when (ms), phase, MiB, call, and its Python stack.
pub const STEPS: [(u64, &str, u64, &str, &[&str]); 8] = [
    (2_000, "cuda_context", 518, "cudaSetDevice", &[RUN, "torch/cuda/__init__.py: set_device"]),
    (
        3_000,
        "distributed_init.nccl",
        646,
        "cudaMalloc",
        &[RUN, "sglang/srt/distributed/device_communicators/pynccl_wrapper.py: NCCLLibrary.ncclCommInitRank"],
    ),
    (
        4_000,
        "custom_allreduce",
        24,
        "cudaMalloc",
        &[
            RUN,
            "sglang/srt/distributed/device_communicators/custom_all_reduce.py: CustomAllreduce.create_shared_buffer",
        ],
    ),
    (
        6_000,
        "weights",
        40_000,
        "cudaMalloc",
        &[
            RUN,
            "sglang/srt/model_executor/model_runner.py: ModelRunner.load_model",
            "torch/nn/modules/linear.py: Linear.__init__",
        ],
    ),
    (
        20_000,
        "kv_cache",
        30_000,
        "cudaMalloc",
        &[
            RUN,
            "sglang/srt/model_executor/model_runner.py: ModelRunner.init_memory_pool",
            "sglang/srt/mem_cache/memory_pool.py: MHATokenToKVPool._create_buffers",
        ],
    ),
    (
        24_000,
        "attention_backend",
        256,
        "cudaMalloc",
        &[RUN, "sglang/srt/model_executor/model_runner.py: ModelRunner.init_attention_backend"],
    ),
    (
        30_000,
        "cuda_graph.decode",
        1_200,
        "cudaMalloc",
        &[RUN, "sglang/srt/model_executor/cuda_graph_runner.py: CudaGraphRunner.capture_one_batch_size"],
    ),
    (
        36_000,
        "kernel_warmup",
        300,
        "cudaMalloc",
        &[RUN, "sglang/srt/model_executor/model_runner.py: ModelRunner.kernel_warmup"],
    ),
];

pub(super) const RUN: &str = "sglang/srt/managers/scheduler.py: run_scheduler_process";
/// What a rank's memory while serving comes by.
pub(super) const SERVE: [&str; 2] = [RUN, "sglang/srt/managers/scheduler.py: Scheduler.event_loop_overlap"];

/// Names that a page must show as they are, and nothing more.
pub const HOSTILE: [&str; 4] = [
    "</script><script>window.owned=1</script>",
    "\u{202e}gnp.exe\u{2066} <img src=x onerror=window.owned=1>",
    "{{data}} ${window.owned=1} `';--><!--",
    "a\u{0}b\u{1b}[31m\u{feff}\u{2028}c",
];
