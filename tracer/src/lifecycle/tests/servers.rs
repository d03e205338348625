//! Stacks of real servers: old and new `SGLang`, vLLM V0 and V1, plain `PyTorch`.

use super::*;
use crate::ledger::torch::Block;

/// Phase and role of an allocation from each stack.
fn check(title: &str, cases: &[(&str, &str, &[&str])]) {
    for (phase, role, stack) in cases {
        let mut scene = Scene::new(title);
        let row = scene.allocate(stack);
        assert_eq!((scene.phase(row).as_str(), scene.label(row, Axis::Role).as_str()), (*phase, *role), "{stack:?}");
    }
}

#[test]
fn sglang_0_4_6() {
    let worker = "sglang/srt/managers/tp_worker.py: TpModelWorker.__init__";
    let runner = |name: &str| format!("sglang/srt/model_executor/model_runner.py: ModelRunner.{name}");
    let eagle = "sglang/srt/speculative/eagle_worker.py: EAGLEWorker.__init__";
    let (dist, load, pool, graphs) = (
        runner("init_torch_distributed"),
        runner("load_model"),
        runner("init_memory_pool"),
        runner("init_cuda_graphs"),
    );
    let runner_capture = "sglang/srt/model_executor/cuda_graph_runner.py: CudaGraphRunner.capture_one_batch_size";
    let draft_capture = "sglang/srt/speculative/eagle_draft_cuda_graph_runner.py: EAGLEDraftCudaGraphRunner.capture";
    let buffers = "sglang/srt/mem_cache/memory_pool.py: MHATokenToKVPool._create_buffers";
    let allreduce =
        "sglang/srt/distributed/device_communicators/custom_all_reduce.py: CustomAllreduce.create_shared_buffer";
    let nccl = "sglang/srt/distributed/device_communicators/pynccl_wrapper.py: NCCLLibrary.ncclCommInitRank";
    check(
        "sglang::scheduler_TP0",
        &[
            ("distributed_init", "target", &[RUN, worker, &dist]),
            ("cuda_context", "target", &[RUN, worker, &dist, "torch/cuda/__init__.py: set_device"]),
            ("distributed_init.nccl", "target", &[RUN, worker, &dist, nccl]),
            ("custom_allreduce", "target", &[RUN, worker, &dist, allreduce]),
            ("weights", "target", &[RUN, worker, &load, "torch/nn/modules/linear.py: Linear.__init__"]),
            (
                "weights.postprocess",
                "target",
                &[RUN, &load, "sglang/srt/layers/quantization/fp8.py: process_weights_after_loading"],
            ),
            ("kv_cache", "target", &[RUN, worker, &pool, buffers]),
            ("attention_backend", "target", &[RUN, &runner("init_attention_backend")]),
            ("cuda_graph.decode", "target", &[RUN, worker, &graphs, runner_capture]),
            ("weights", "draft", &[RUN, eagle, worker, &load]),
            ("kv_cache", "draft", &[RUN, eagle, worker, &pool, buffers]),
            ("cuda_graph.draft", "draft", &[RUN, eagle, draft_capture]),
            // The target model verifies inside the draft worker.
            (
                "serving",
                "target",
                &[
                    RUN,
                    LOOP,
                    "sglang/srt/speculative/eagle_worker.py: EAGLEWorker.verify",
                    "sglang/srt/managers/tp_worker.py: TpModelWorker.forward_batch_generation",
                ],
            ),
            ("serving", "draft", &[RUN, LOOP, "sglang/srt/speculative/eagle_worker.py: EAGLEWorker.draft"]),
        ],
    );
}

#[test]
fn sglang_0_5_23() {
    let components = "sglang/srt/model_executor/model_runner_components";
    let prefill = format!("{components}/cuda_graph_setup.py: capture_prefill_graph");
    let decode =
        "sglang/srt/model_executor/runner/decode_cuda_graph_runner.py: DecodeCudaGraphRunner._capture_one_stream";
    let v2 = "sglang/srt/distributed/device_communicators/custom_all_reduce_v2.py: CustomAllReduceV2._allocate_symmetric_memory";
    let draft = "sglang/srt/managers/scheduler.py: Scheduler.maybe_init_draft_worker";
    check(
        "sglang::scheduler_PP0_TP0",
        &[
            ("distributed_init", "target", &[RUN, "sglang/srt/distributed/bootstrap.py: init_parallel_runtime"]),
            ("custom_allreduce", "target", &[RUN, "sglang/srt/distributed/bootstrap.py: _init_parallel_groups", v2]),
            ("weights", "draft", &[RUN, draft, LOAD]),
            (
                "kv_cache",
                "target",
                &[RUN, "sglang/srt/mem_cache/kv_cache_configurator.py: KVCacheConfigurator.configure"],
            ),
            (
                "kv_cache.post_capture",
                "target",
                &[RUN, "sglang/srt/mem_cache/kv_vmm_backing.py: KvVmmArena.commit_range"],
            ),
            (
                "attention_backend",
                "target",
                &[RUN, &format!("{components}/attention_backend_setup.py: build_attention_backends")],
            ),
            (
                "kernel_warmup",
                "target",
                &[RUN, "sglang/srt/model_executor/runner/eager_runner.py: EagerRunner.__init__"],
            ),
            (
                "cuda_graph.prefill",
                "target",
                &[RUN, &format!("{components}/cuda_graph_setup.py: capture_cuda_graphs"), &prefill],
            ),
            // `torch.cuda.graph` stands inside the runner, and says less.
            ("cuda_graph.decode", "target", &[RUN, decode, "torch/cuda/graphs.py: graph.__enter__"]),
            (
                "cuda_graph.ipc_register",
                "target",
                &[
                    RUN,
                    decode,
                    "sglang/srt/distributed/device_communicators/custom_all_reduce_v2.py: _register_graph_inputs",
                ],
            ),
            (
                "weights.update",
                "target",
                &[RUN, LOOP, &format!("{components}/weight_updater.py: WeightUpdater.update_weights_from_disk")],
            ),
            ("serving", "encoder", &[RUN, LOOP, "sglang/srt/models/qwen3_vl.py: Qwen3VL.get_image_feature"]),
        ],
    );
    let processor = "sglang/srt/multimodal/processors/qwen_vl.py: QwenVLImageProcessor.process_mm_data_async";
    check("sglang::tokenizer_worker:77", &[("serving.multimodal", "tokenizer", &[processor])]);
}

#[test]
fn vllm_v0_and_v1() {
    let v0 = |name: &str| format!("vllm/worker/worker.py: Worker.{name}");
    let (init, load, profile, cache) =
        (v0("init_device"), v0("load_model"), v0("determine_num_available_blocks"), v0("initialize_cache"));
    check(
        "",
        &[
            ("distributed_init", "target", &[&init, "vllm/distributed/parallel_state.py: initialize_model_parallel"]),
            (
                "weights",
                "target",
                &[&load, "vllm/model_executor/model_loader/loader.py: DefaultModelLoader.load_model"],
            ),
            ("warmup.profile", "target", &[&profile, "vllm/worker/model_runner.py: GPUModelRunnerBase.profile_run"]),
            ("kv_cache", "target", &[&cache, "vllm/worker/cache_engine.py: CacheEngine._allocate_kv_cache"]),
            ("cuda_graph", "target", &[&cache, &v0("_warm_up_model"), "vllm/worker/model_runner.py: capture_model"]),
        ],
    );
    let main = "vllm/v1/executor/multiproc_executor.py: WorkerProc.worker_main";
    let v1 = |name: &str| format!("vllm/v1/worker/gpu_worker.py: Worker.{name}");
    let runner = |name: &str| format!("vllm/v1/worker/gpu_model_runner.py: GPUModelRunner.{name}");
    let (profile, config, warm) =
        (v1("determine_available_memory"), v1("initialize_from_config"), v1("compile_or_warm_up_model"));
    let (tensors, capture, dummy) =
        (runner("_allocate_kv_cache_tensors"), runner("capture_model"), runner("_dummy_run"));
    check(
        "VLLM::Worker_TP0",
        &[
            ("startup", "target", &[main]),
            ("distributed_init", "target", &[main, &v1("init_device")]),
            ("weights", "target", &[main, &v1("load_model"), &runner("load_model")]),
            ("warmup.profile", "target", &[main, &profile, &runner("profile_run"), &dummy]),
            ("cuda_graph.profile", "target", &[main, &profile, &runner("profile_cudagraph_memory"), &dummy]),
            ("kv_cache", "target", &[main, &config, &tensors]),
            ("cuda_graph", "target", &[main, &warm, &capture, &dummy]),
            ("warmup.sampler", "target", &[main, &warm, &runner("_dummy_sampler_run")]),
            ("serving", "target", &[main, &runner("execute_model")]),
            (
                "serving",
                "draft",
                &[main, &runner("execute_model"), "vllm/v1/spec_decode/eagle.py: EagleProposer.propose"],
            ),
            ("serving", "encoder", &[main, &runner("execute_model"), &runner("_execute_mm_encoder")]),
        ],
    );
}

#[test]
fn lines_of_vllm() {
    let mut t = TestBook::new();
    let (engine, worker, gpu) = (t.process(1, "VLLM::EngineCore"), t.process(2, "VLLM::Worker_TP0"), t.gpu(0));
    t.book.processes[worker].parent = Some(1);
    let steps = [
        (worker, "vLLM is using nccl==2.27.3", "distributed_init"),
        (worker, "Starting to load model meta-llama/Llama-3.1-8B...", "weights"),
        (worker, "Model loading took 14.9889 GiB and 3.1 seconds", "warmup.profile"),
        (worker, "Available KV cache memory: 55.10 GiB", "kv_cache"),
        (worker, "\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|", "cuda_graph"),
        (worker, "Graph capturing finished in 3 secs, took 0.55 GiB", "warmup"),
        (engine, "init engine (profile, create kv cache, warmup model) took 20.1 seconds", "serving"),
    ];
    for (process, line, phase) in steps {
        let prefix =
            if line.starts_with('\r') { "" } else { "(Worker_TP0 pid=2) INFO 03-08 16:44:28 [gpu_worker.py:456] " };
        t.log(process, &format!("{prefix}{line}"));
        let row = t.allocate(worker, gpu, 1);
        let axes = Axes::new(&t.book);
        assert_eq!(axes.label(Axis::Phase, axes.cell(Axis::Phase, &t.book.allocations[row])), phase, "{line}");
    }
}

#[test]
fn plain_pytorch() {
    let module = |name: &str| format!("torch/nn/modules/module.py: Module.{name}");
    let (to, call) = (module("to"), module("_call_impl"));
    check(
        "python train.py",
        &[
            ("cuda_context", "other", &["train.py: main", &to, "torch/cuda/__init__.py: _lazy_init"]),
            ("weights", "other", &["train.py: main", &to, &module("_apply")]),
            (
                "distributed_init",
                "other",
                &["train.py: main", "torch/distributed/distributed_c10d.py: init_process_group"],
            ),
            ("serving.forward", "other", &["train.py: main", &call, "model.py: Net.forward", &call]),
            (
                "distributed_init.ddp",
                "other",
                &[
                    "train.py: main",
                    "torch/nn/parallel/distributed.py: DistributedDataParallel.__init__",
                    "torch/distributed/utils.py: _verify_param_shape_across_processes",
                ],
            ),
            (
                "weights",
                "other",
                &["train.py: main", "torch/distributed/fsdp/_fully_shard/_fully_shard.py: fully_shard"],
            ),
            (
                "serving.backward",
                "other",
                &[
                    "train.py: main",
                    "torch/_tensor.py: Tensor.backward",
                    "torch/autograd/graph.py: _engine_run_backward",
                ],
            ),
            ("serving.optimizer", "other", &["train.py: main", "torch/optim/adamw.py: AdamW.step"]),
            ("cuda_graph", "other", &["train.py: main", "torch/cuda/graphs.py: CUDAGraph.capture_end"]),
            ("unattributed", "other", &["train.py: main"]),
        ],
    );
    // The engine's threads run no Python but for hooks and functions of the program's own.
    let engine =
        ("torch::autograd::Engine::thread_main(std::shared_ptr<GraphTask> const&)", "/torch/lib/libtorch_cpu.so");
    let mut scene = Scene::new("python train.py");
    let row = scene.allocate(&[]);
    let stack = scene.t.stack(&[engine, ("at::empty_cuda", "/torch/lib/libtorch_cuda.so")]);
    scene.t.book.allocations[row].stack = Some(stack);
    assert_eq!(scene.phase(row), "serving.backward");
    // Blocks bring no native frames: their thread tells.
    let (born, process) = (scene.t.book.end, scene.process);
    let tid = scene.t.book.allocations[row].tid;
    let phase = |tid: u32| {
        let block =
            Block { born, died: None, bytes: 512, address: 0, device: 0, tid, stack: None, in_graph_pool: false };
        Axes::new(&scene.t.book).block_phase(process, &block).to_owned()
    };
    assert_eq!([phase(tid), phase(tid + 1)], ["serving.backward", "unattributed"]);
    // A context has its own phase where no frame tells another.
    let mut scene = Scene::new("python train.py");
    let row = scene.allocate(&["train.py: main"]);
    scene.t.book.allocations[row].kind = Kind::Context;
    assert_eq!(scene.phase(row), "cuda_context");
}
