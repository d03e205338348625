//! Real `SGLang` runs on H200s: the bytes of each phase and rank must be those of the time line that was worked out by hand
//! from the server's log (`avail mem` lines, RM requests between them).
//!
//! These recordings have no Python frames: log lines and windows carry all of it. `tests/traces/raw/*.log.gz` are the lines
//! of the servers' logs that a trace would keep, each with its time on the clock of the recorded requests.

use std::collections::BTreeMap;
use std::path::Path;

use live_tests::servers::{TP1, TP2_OFF, TP2_ON, book};
use tracer::ledger::Book;
use tracer::lifecycle::{Axes, Axis, RankEvidence, Role, root};

const MIB: u64 = 1 << 20;

/// MiB allocated in all, by label, for one process.
fn allocated(axes: &Axes<'_>, pid: u32, axis: Axis, of: impl Fn(&str) -> String) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for row in &axes.book().allocations {
        if axes.book().processes[row.process].pid == pid {
            *sums.entry(of(&axes.label(axis, axes.cell(axis, row)))).or_default() += row.bytes / MIB;
        }
    }
    sums
}

fn by_phase(axes: &Axes<'_>, pid: u32) -> BTreeMap<String, u64> {
    allocated(axes, pid, Axis::Phase, str::to_owned)
}

fn by_root(axes: &Axes<'_>, pid: u32) -> BTreeMap<String, u64> {
    allocated(axes, pid, Axis::Phase, |phase| root(phase).to_owned())
}

fn expected(of: &[(&str, u64)]) -> BTreeMap<String, u64> {
    of.iter().map(|(phase, mib)| ((*phase).to_owned(), *mib)).collect()
}

#[test]
fn phases_of_sglang_tp1() {
    let book = book(&TP1);
    let axes = Axes::new(&book);
    // As the time line has it, sizes rounded as the driver rounds them.
    let phases = [
        ("cuda_context", 518),
        ("distributed_init", 510),
        // Between distributed init and the weights: channels of 32 side streams.
        ("startup", 68),
        ("weights", 326),
        ("kv_cache", 42_456),
        ("attention_backend", 228),
        ("cuda_graph.prefill", 672),
        ("cuda_graph.decode", 42),
        ("warmup", 38),
        ("serving", 64),
    ];
    assert_eq!(by_phase(&axes, 1256), expected(&phases));
}

/// Every byte of both ranks, with the all-reduce on and off.
#[test]
fn phases_of_sglang_tp2() {
    // A `cuMemCreate` of 2 MiB that was refused (fabric handles) is in the requests that the time line counts, in distributed
    // init with it on and among the decode graphs with it off; it holds nothing and is in no phase.
    for (server, distributed, weights, prefill, decode) in [(TP2_ON, 2020, 152, 488, 44), (TP2_OFF, 1918, 172, 626, 54)]
    {
        let book = book(&server);
        let axes = Axes::new(&book);
        let phases = [
            ("cuda_context", 518),
            ("distributed_init", distributed),
            ("weights", weights),
            ("kv_cache", 42_444),
            ("attention_backend", 346),
            ("cuda_graph", prefill + decode),
            // A second communicator, made by the first request.
            ("warmup", 582),
            ("serving", 104),
        ];
        for (_, pid) in server.ranks {
            assert_eq!(by_root(&axes, *pid), expected(&phases), "{} {pid}", server.name);
            let parts = by_phase(&axes, *pid);
            assert_eq!((parts["cuda_graph.prefill"], parts["cuda_graph.decode"]), (prefill, decode));
            // NCCL's peer buffers, 544 MiB, come from a thread of its own: the communicator being made tells.
            assert_eq!((parts["distributed_init.nccl"], parts["warmup.nccl"]), (648, 546));
        }
    }
}

#[test]
fn ranks_of_sglang_tp2() {
    for server in [TP2_ON, TP2_OFF] {
        let book = book(&server);
        let axes = Axes::new(&book);
        for (label, pid) in server.ranks {
            let process = book.processes.iter().position(|p| p.pid == *pid).expect("the rank");
            assert_eq!((axes.rank(process), axes.role(process)), (*label, Role::Target));
            assert_eq!(axes.ranks()[process].evidence, RankEvidence::LogPrefix);
            let owners = allocated(&axes, *pid, Axis::Owner, str::to_owned);
            // Two communicators: peer buffers of 544 MiB and 2 MiB more each.
            assert_eq!(owners["nccl"], 2 * 546, "{owners:?}");
        }
        let ranks: Vec<_> = axes.ranks().iter().map(|rank| rank.evidence).collect();
        assert_eq!(ranks.iter().filter(|evidence| **evidence == RankEvidence::None).count(), ranks.len() - 2);
    }
}

/// The server's arguments, as it printed them.
#[test]
fn arguments_of_sglang() {
    for (server, disabled) in [(TP2_ON, "False"), (TP2_OFF, "True")] {
        let book = book(&server);
        let arguments =
            book.logs.iter().find_map(|log| tracer::lifecycle::logs::arguments(&log.text)).expect("arguments");
        let get = |name: &str| arguments[name].as_str();
        assert_eq!((get("tp_size"), get("mem_fraction_static")), ("2", "0.3"));
        assert_eq!(get("disable_custom_all_reduce"), disabled);
        assert!(arguments.len() > 200, "{} arguments", arguments.len());
    }
}

/// Free memory as printed: one line for each step of each rank.
#[test]
fn printed_memory_of_sglang_tp1() {
    let book = book(&TP1);
    let printed = tracer::lifecycle::printed(&book);
    let figures: Vec<_> = printed.iter().map(|line| (line.mark.as_str(), line.centi_gib)).collect();
    let expected = [
        ("Load weight begin", 13_913),
        ("Load weight end", 13_881),
        ("Memory pool end", 9735),
        ("Capture target prefill CUDA graph begin", 9712),
        ("Capture target prefill CUDA graph end", 9672),
        ("Capture target decode CUDA graph begin", 9672),
        ("Capture target decode CUDA graph end", 9669),
        ("max_total_num_tokens", 9669),
    ];
    assert_eq!(figures, expected);
}

/// `PyTorch` with native stacks: the library of the caller tells the owner.
#[test]
fn owners_of_a_recorded_torch() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("traces/h200-torch-routes.vrt");
    let book = Book::read(&path).expect("the recorded trace");
    let axes = Axes::new(&book);
    let script = book.processes[0].pid;
    let owners = allocated(&axes, script, Axis::Owner, str::to_owned);
    assert_eq!((owners["torch"], owners["torch_graph_pool"]), (936, 52), "{owners:?}");
    assert_eq!(owners["cublas"], 130, "workspaces");
    // What the script itself asks for through ctypes: cudaMalloc (once, and 20 times 4 MiB on 8 threads), cudaMallocAsync,
    // cudaMallocPitch, cuMemCreate (kept, and shared), an array, cuMemAlloc in a second context.
    assert_eq!(owners["unattributed"], 118 + 8 * 20 * 4 + 64 + 16 + (20 + 64) + 256 + 10, "{owners:?}");
    // The private pool's segments came while the thread captured.
    assert_eq!(by_phase(&axes, script)["cuda_graph"], 52);
}
