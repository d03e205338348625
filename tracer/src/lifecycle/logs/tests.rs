use proptest::prelude::*;

use super::*;

fn rank(line: &str) -> String {
    let parts: Vec<_> = parse(line).rank.iter().map(|(dim, n)| format!("{dim}{n}")).collect();
    parts.join(" ")
}

#[test]
fn prefixes_of_sglang() {
    let line = "[2026-11-29 15:12:32 TP1] Load weight begin. avail mem=138.21 GB";
    assert_eq!((rank(line).as_str(), parse(line).message), ("TP1", "Load weight begin. avail mem=138.21 GB"));
    assert_eq!(
        rank("[2026-11-29 15:12:32.123 DP0 PP1 ATTN_CP0 MOE_DP1 TP3 EP3] x"),
        "DP0 PP1 ATTN_CP0 MOE_DP1 TP3 EP3"
    );
    let one = "[2026-11-29 14:56:34] Init torch distributed begin.";
    assert_eq!((rank(one).as_str(), parse(one).message), ("", "Init torch distributed begin."));
}

#[test]
fn prefixes_of_vllm() {
    let line = "(Worker_DP1_TP0 pid=812) INFO 03-08 16:44:28 [gpu_worker.py:456] Starting to load model x...";
    assert_eq!((rank(line).as_str(), parse(line).message), ("DP1 TP0", "Starting to load model x..."));
    let old = "(VllmWorker rank=3 pid=7) INFO 04-28 09:12:01 [model_runner.py:1108] Starting to load model x...";
    assert_eq!(rank(old), "TP3");
    let alone = "INFO 04-28 09:12:01 [core.py:58] Initializing a V1 LLM engine (v0.8.5) with config: model='x'";
    assert_eq!((rank(alone).as_str(), parse(alone).message.starts_with("Initializing")), ("", true));
    assert_eq!(rank("(EngineCore_DP0 pid=1) INFO 03-08 16:44:28 [core.py:1] x"), "DP0");
}

#[test]
fn other_lines_are_all_message() {
    for line in ["", "x", "[2026] x", "[rank0]:[W1129 14:56:48 ProcessGroupNCCL.cpp:1575] Warning", "(a pid=1) b"] {
        assert_eq!(parse(line), Line { rank: Vec::new(), message: line });
    }
}

#[test]
fn lines_worth_keeping() {
    let kept = [
        "[2026-11-29 14:56:34] Init torch distributed begin.",
        "[2026-11-29 14:56:37 TP3] Load weight begin. avail mem=139.13 GB",
        "[2026-11-29 14:56:42] The server is fired up and ready to roll!",
        "[2026-11-29 14:56:16] server_args=ServerArgs(model_path='x')",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 448.00 MiB.",
        "torch.cuda.OutOfMemoryError: Allocation on device",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        "host:7:9 [0] NCCL WARN Failed to CUDA calloc 536870912 bytes",
        "\rCapturing CUDA graphs:   0%|          | 0/67 [00:00<?, ?it/s]\rCapturing CUDA graphs:   1%|",
        "(Worker_TP0 pid=8) INFO 03-08 16:44:28 [gpu_worker.py:456] Available KV cache memory: 55.10 GiB",
    ];
    for line in kept {
        assert!(interesting(line), "{line}");
    }
    for line in ["", "[2026-11-29 14:56:41] INFO:     Application startup complete.", "hello", "\r\r"] {
        assert!(!interesting(line), "{line}");
    }
}

#[test]
fn a_line_may_begin_a_phase() {
    let phase = |line| Rules::standard().phase_of_line(line);
    assert_eq!(phase("[2026-11-29 14:56:42] The server is fired up and ready to roll!"), Some("serving"));
    assert_eq!(phase("[2026-11-29 14:56:42 TP0] Memory pool end. avail mem=96.62 GB"), Some("attention_backend"));
    assert_eq!(phase("[2026-11-29 14:56:42 TP0] Prefill batch, #new-seq: 1"), None);
    assert_eq!(phase("He said: The server is fired up and ready to roll!"), None);
}

#[test]
fn memory_is_printed_in_hundredths() {
    assert_eq!(printed_memory("Load weight begin. avail mem=139.13 GB"), Some(13_913));
    assert_eq!(printed_memory("max_total_num_tokens=2711314, available_gpu_mem=96.69 GB"), Some(9_669));
    assert_eq!(printed_memory("avail mem=nan GB"), None);
}

#[test]
fn arguments_are_read_from_what_the_server_prints() {
    let line = "[2026-11-29 14:56:16] server_args=ServerArgs(model_path='/m, (x)', tp_size=2, mem_fraction_static=0.3, \
                served='it\\'s', lora_paths=None, cuda_graph_bs=[1, 2, 4], extra={'a': (1, 2)}, host=\"h\")";
    let args = arguments(line).unwrap();
    let get = |name: &str| args[name].as_str();
    assert_eq!((get("model_path"), get("tp_size"), get("mem_fraction_static")), ("/m, (x)", "2", "0.3"));
    assert_eq!((get("cuda_graph_bs"), get("extra"), get("host")), ("[1, 2, 4]", "{'a': (1, 2)}", "h"));
    assert_eq!((get("served"), args.len()), ("it\\'s", 8));

    let vllm = "(APIServer pid=7) INFO 09-01 10:00:00 [utils.py:328] non-default args: {'model': 'm', 'tensor_parallel_size': 2}";
    assert_eq!(arguments(vllm).unwrap()["tensor_parallel_size"], "2");
    let config = "(EngineCore_DP0 pid=9) INFO 09-01 10:00:00 [core.py:75] Initializing a V1 LLM engine (v0.10.2) with config: \
                  model='m', speculative_config=None, tensor_parallel_size=2.";
    let args = arguments(config).unwrap();
    assert_eq!((args["vllm_version"].as_str(), args["tensor_parallel_size"].as_str()), ("0.10.2", "2"));
    assert_eq!(arguments("server_args=other"), None);
    // Cut short: the last value is not whole.
    assert_eq!(arguments("server_args=ServerArgs(a=1, b='unfini").unwrap().len(), 1);
}

#[test]
fn lines_are_kept_without_secrets_and_within_bounds() {
    let line = "server_args=ServerArgs(api_key='sesame', tokenizer_mode='auto', max_total_tokens=5)";
    assert_eq!(clean(line), "server_args=ServerArgs(api_key=***, tokenizer_mode='auto', max_total_tokens=5)");
    assert_eq!(clean("a\x1b[31;1mb\x1b[0m\x07\x1b["), "ab[");
    let cut = clean(&"é".repeat(MAX_LINE));
    assert!(cut.len() <= MAX_LINE && cut.ends_with("é…"), "{}", cut.len());
    assert_eq!(clean(&"x".repeat(MAX_LINE)).len(), MAX_LINE);
}

proptest! {
    #[test]
    fn any_line_is_survived(line: String) {
        let _ = parse(&line);
        let _ = interesting(&line);
        let _ = printed_memory(&line);
        let _ = arguments(&format!("server_args=ServerArgs({line}"));
        let _ = clean(&line);
    }

    #[test]
    fn arguments_come_back(names in prop::collection::btree_set("[a-z_]{1,12}", 1..8), value in "[a-zA-Z0-9 ,()\\[\\]{}=:/]{0,20}") {
        let text: Vec<_> = names.iter().map(|name| format!("{name}='{value}'")).collect();
        let args = arguments(&format!("server_args=ServerArgs({})", text.join(", "))).unwrap();
        prop_assert_eq!(args, names.into_iter().map(|name| (name, value.clone())).collect());
    }
}
