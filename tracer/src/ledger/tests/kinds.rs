//! What memory is for, from the calls around it or from structure.

use super::*;

fn start() -> Trace {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace
}

fn kinds(trace: Trace) -> Vec<Kind> {
    let book = trace.book();
    assert!(book.allocations.iter().all(|a| !a.evidence.is_empty()));
    for Allocation { kind, owner, .. } in &book.allocations {
        let driver = matches!(kind, Kind::Context | Kind::Module | Kind::LocalMemory | Kind::Channel);
        assert_eq!(owner.0, if driver { "driver" } else { "unknown" });
    }
    book.allocations.iter().map(|a| a.kind).collect()
}

#[test]
fn the_innermost_call_that_tells_decides() {
    let mut trace = start();
    let cases: [(&[&str], Kind); 9] = [
        (&["cudaMemGetInfo", "cuDevicePrimaryCtxRetain"], Kind::Context),
        (&["cudaMalloc", "cuMemAlloc_v2"], Kind::CudaMalloc),
        (&["ncclCommInitRank", "cudaMalloc", "cuMemAlloc_v2"], Kind::CudaMalloc),
        (&["cuMemCreate"], Kind::Vmm),
        (&["cudaMallocAsync", "cuMemAllocAsync"], Kind::Pool),
        (&["cudaGraphInstantiate", "cuGraphInstantiateWithFlags"], Kind::GraphExec),
        (&["cuModuleLoadData"], Kind::Module),
        (&["cuStreamCreateWithPriority"], Kind::Channel),
        (&["cudaMallocArray", "cuArray3DCreate_v2"], Kind::CudaMalloc),
    ];
    for (object, (calls, _)) in (100..).zip(&cases) {
        trace.calls(calls).memory(1, 10, 2, object, 4 * MIB);
    }
    assert_eq!(kinds(trace), cases.map(|(_, kind)| kind));
}

#[test]
fn which_limit_was_changed_decides() {
    for (limit, kind) in [(0, Kind::LocalMemory), (2, Kind::Context)] {
        let mut trace = start();
        trace.calls(&["cudaDeviceSetLimit", "cuCtxSetLimit"]).memory(1, 10, 2, 100, 4 * MIB);
        let (t, outer) = (trace.t, trace.outer);
        let more = [("limit".to_owned(), limit)].into();
        let call = Call {
            t,
            start: outer,
            pid: 1,
            tid: 1,
            api: "cuCtxSetLimit".into(),
            depth: 1,
            outer,
            more,
            ..Call::default()
        };
        trace.push(Record::Call(call));
        // No return was seen of the second: what it was for is not known.
        trace.calls(&["cuCtxSetLimit"]).memory(1, 10, 2, 101, 8 * MIB);
        assert_eq!(kinds(trace), [kind, Kind::Other]);
    }
}

#[test]
fn a_limit_that_is_changed_without_end_inside_one_call_counts_a_few_times() {
    let mut trace = start();
    trace.calls(&["cudaDeviceSetLimit", "cuCtxSetLimit"]).memory(1, 10, 2, 100, 4 * MIB);
    let (start, outer) = (trace.outer, trace.outer);
    let changed = |trace: &mut Trace, limit: u64| {
        let (t, api, more) = (trace.t, "cuCtxSetLimit".into(), [("limit".to_owned(), limit)].into());
        trace.push(Record::Call(Call { t, start, pid: 1, tid: 1, api, depth: 1, outer, more, ..Call::default() }));
    };
    (0..100).for_each(|n| changed(&mut trace, u64::from(n > 50)));
    assert_eq!(kinds(trace), [Kind::LocalMemory]);
}

/// Frames of a launch in an unprobed call; the innermost tells places in libcuda apart.
fn launch(trace: &mut Trace, api: [&str; 2], place: &str) {
    trace.stack(&[("main", "app"), (api[0], "libcudart.so.12"), (api[1], "libcuda.so.1"), (place, "libcuda.so.1")]);
}

#[test]
fn stacks_tell_calls_that_are_not_probed() {
    let mut trace = start();
    trace.memory(1, 10, 2, 99, 2 * MIB);
    launch(&mut trace, ["cudaGraphLaunch", "cuGraphLaunch"], "");
    trace.memory(1, 10, 2, 100, 40 * MIB);
    launch(&mut trace, ["", "cuDevicePrimaryCtxRetain"], "");
    trace.memory(1, 10, 2, 101, 6 * MIB);
    trace.object(1, 10, 2, 200, 0xa06c);
    let book = trace.ledger.finish();
    let seen: Vec<_> = book.allocations[1..].iter().map(|a| (a.kind, a.calls.join(" "))).collect();
    assert_eq!(seen[0], (Kind::GraphExec, "cudaGraphLaunch cuGraphLaunch".to_owned()));
    assert_eq!(seen[1], (Kind::Context, "cuDevicePrimaryCtxRetain".to_owned()), "for all its channels");
}

#[test]
fn a_streams_channels_come_from_one_place_and_code_from_another() {
    let mut trace = start();
    let api = ["cudaLaunchKernel", "cuLaunchKernel"];
    launch(&mut trace, api, "load");
    trace.memory(1, 10, 2, 100, 2 * MIB);
    launch(&mut trace, api, "open");
    for object in 200..232 {
        trace.memory(1, 10, 2, object, 2 * MIB);
        // Once, the thread does not get on.
        trace.t += if object == 202 { 90_000_000 } else { 0 };
    }
    launch(&mut trace, api, "load more");
    trace.memory(1, 10, 2, 101, 2 * MIB);
    let kinds = kinds(trace);
    assert_eq!((kinds[0], kinds[33]), (Kind::Module, Kind::Module));
    assert!(kinds[1..33].iter().all(|&kind| kind == Kind::Channel));
}

#[test]
fn the_first_runtime_call_makes_the_context() {
    // A runtime that creates it through private entry points: no cuDevicePrimaryCtxRetain to see.
    let mut trace = start();
    trace.calls(&["cudaMalloc"]).memory(1, 10, 2, 100, 400 * MIB);
    trace.calls = vec!["cudaMalloc".into(), "cuMemAlloc_v2".into()];
    trace.memory(1, 10, 2, 101, 2 * MIB);
    trace.calls(&["cudaMalloc"]).memory(1, 10, 2, 102, 2 * MIB);
    assert_eq!(kinds(trace), [Kind::Context, Kind::CudaMalloc, Kind::CudaMalloc]);

    let mut trace = start();
    trace.calls(&["cudaFree"]).memory(1, 10, 2, 100, 400 * MIB);
    assert_eq!(kinds(trace), [Kind::Context]);

    let mut trace = Trace::new();
    trace.step(1, Step::Attached(Image::default()));
    trace.calls(&["cudaMalloc"]).memory(1, 10, 2, 100, 400 * MIB);
    assert_eq!(kinds(trace), [Kind::CudaMalloc], "its first call was before tracing began");
}

#[test]
fn a_larger_pool_replaces_local_memory() {
    let look_up = ["ncclCommInitRankConfig", "cuKernelGetFunction"];
    for launch in [&[][..], &["cuLaunchKernel"], &["cudaGraphLaunch", "cuGraphLaunch"], &look_up, &["cuModuleLoadData"]]
    {
        let mut trace = start();
        trace.calls(&["cuCtxCreate_v2"]).memory(1, 10, 2, 99, 2 * MIB);
        trace.memory(1, 10, 2, 100, 414 * MIB);
        trace.calls(launch).free(1, 10, 100);
        trace.memory(1, 10, 2, 100, 504 * MIB);
        trace.free(1, 10, 100);
        trace.memory(1, 10, 2, 101, 690 * MIB);
        let expected = [Kind::Context, Kind::Context, Kind::LocalMemory, Kind::LocalMemory];
        assert_eq!(kinds(trace), expected, "{launch:?}");
    }
}

#[test]
fn code_beside_a_replaced_pool_is_code() {
    let mut trace = start();
    trace.calls(&["cuCtxCreate_v2"]).memory(1, 10, 2, 98, MIB);
    trace.memory(1, 10, 2, 99, 2 * MIB);
    trace.memory(1, 10, 2, 100, 414 * MIB);
    trace.calls(&["cuModuleLoadData"]).free(1, 10, 98);
    trace.memory(1, 10, 2, 101, MIB);
    trace.free(1, 10, 100);
    trace.memory(1, 10, 2, 102, 504 * MIB);
    let expected = [Kind::Context, Kind::Context, Kind::Context, Kind::Module, Kind::LocalMemory];
    assert_eq!(kinds(trace), expected);
}

#[test]
fn an_allocation_after_a_free_is_no_local_memory() {
    let mut trace = start();
    trace.calls(&["cuCtxCreate_v2"]).memory(1, 10, 2, 100, 414 * MIB);
    trace.calls(&[]).free(1, 10, 100);
    trace.calls(&["cuMemAlloc_v2"]).memory(1, 10, 2, 100, 504 * MIB);
    trace.calls(&["cuMemFree_v2"]).free(1, 10, 100);
    trace.calls(&[]).memory(1, 10, 2, 101, 690 * MIB);
    trace.wait();
    assert_eq!(kinds(trace)[1], Kind::CudaMalloc);
}

#[test]
fn few_smallest_objects_are_code_many_are_channels() {
    let mut trace = start();
    trace.calls(&["cuMemAlloc_v2"]).memory(1, 10, 2, 99, 64 * MIB);
    trace.calls(&[]);
    trace.memory(1, 10, 2, 100, 2 * MIB);
    trace.wait();
    for object in 200..232 {
        trace.memory(1, 10, 2, object, 2 * MIB);
    }
    trace.wait();
    trace.memory(1, 10, 2, 101, 2 * MIB);
    trace.wait();
    trace.memory(1, 10, 2, 102, 32 * MIB);
    let kinds = kinds(trace);
    assert_eq!(kinds[..3], [Kind::CudaMalloc, Kind::Module, Kind::Channel]);
    assert!(kinds[2..34].iter().all(|&kind| kind == Kind::Channel));
    assert_eq!(kinds[34..], [Kind::Module, Kind::Other], "large, no pattern: no guess");
}

/// On a busy machine there is time between all of them: one place in the driver tells that they belong together.
#[test]
fn slow_channels_from_one_place_are_channels() {
    for (from_one_place, kind) in [(true, Kind::Channel), (false, Kind::Module)] {
        let mut trace = start();
        if from_one_place {
            launch(&mut trace, ["cudaLaunchKernel", "cuLaunchKernel"], "open");
        }
        for object in 200..232 {
            trace.memory(1, 10, 2, object, 2 * MIB);
            trace.wait();
        }
        assert!(kinds(trace).iter().all(|&seen| seen == kind), "{kind:?}");
    }
}

#[test]
fn memory_beside_a_channel_object_is_the_channels() {
    let mut trace = start();
    trace.calls(&["cuMemAlloc_v2"]).memory(1, 10, 2, 99, 2 * MIB);
    trace.calls(&[]).memory(1, 10, 2, 100, 8 * MIB);
    trace.object(1, 10, 2, 101, 0xa06c);
    trace.object(1, 10, 101, 102, 0xc86f);
    trace.wait();
    trace.memory(1, 10, 2, 103, 8 * MIB);
    assert_eq!(kinds(trace), [Kind::CudaMalloc, Kind::Channel, Kind::Other]);
}

#[test]
fn smallest_objects_inside_other_calls_are_code() {
    let mut trace = start();
    for object in 100..150 {
        trace.calls(&["ncclCommInitRank"]).memory(1, 10, 2, object, 2 * MIB);
    }
    assert!(kinds(trace).iter().all(|&kind| kind == Kind::Module));
}

#[test]
fn smallest_objects_during_capture_are_the_graphs() {
    let mut trace = start();
    let capture = |trace: &mut Trace, api: &str, result| {
        let t = trace.t;
        trace.push(Record::Call(Call { t, pid: 1, tid: 1, api: api.into(), result, ..Call::default() }));
    };
    capture(&mut trace, "cudaStreamBeginCapture", 0);
    trace.memory(1, 10, 2, 100, 2 * MIB);
    capture(&mut trace, "cudaStreamEndCapture", 0);
    trace.memory(1, 10, 2, 101, 2 * MIB);
    capture(&mut trace, "cuStreamBeginCapture_v2", 900);
    trace.memory(1, 10, 2, 102, 2 * MIB);
    assert_eq!(kinds(trace), [Kind::GraphExec, Kind::Module, Kind::Module]);
}

#[test]
fn channel_classes() {
    for class in [0xa06c, 0xc36f, 0xc46f, 0xc56f, 0xc86f, 0xc96f] {
        assert!(kind::is_channel(class), "{class:#x}");
    }
    for class in [0x40, 0x6f, 0xc8b5, 0x9067, 0xcbc0] {
        assert!(!kind::is_channel(class), "{class:#x}");
    }
}
