//! Failures: once each, with what is known.

use super::*;

fn refused(trace: &mut Trace, bytes: u64) {
    let alloc = Alloc { client: 10, parent: 2, object: 100, class: 0x40, size: Some(bytes), ..Alloc::default() };
    trace.rm(1, 0x51, Op::Alloc(alloc));
}

fn returns(trace: &mut Trace, api: &str, depth: u32, result: i64, size: Option<u64>) {
    let (t, outer) = (trace.t, trace.outer);
    let call = Call { t, start: outer, pid: 1, tid: 1, api: api.into(), depth, result, outer, size, ..Call::default() };
    trace.push(Record::Call(call));
}

#[test]
fn retries_and_nesting_are_one_failure() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.nvml(0, &[]);
    trace.calls(&["cudaMalloc", "cuMemAlloc_v2"]);
    refused(&mut trace, 4 * MIB);
    refused(&mut trace, 4 * MIB);
    returns(&mut trace, "cuMemAlloc_v2", 1, 2, Some(4 * MIB - 5));
    returns(&mut trace, "cudaMalloc", 0, 2, Some(4 * MIB - 5));
    let book = trace.book();
    let [failure] = &book.failures[..] else { panic!("{:?}", book.failures) };
    assert_eq!((failure.api.as_str(), failure.result, failure.out_of_memory), ("cudaMalloc", 2, true));
    assert_eq!((failure.requested, failure.free), (Some(4 * MIB - 5), Some(7 * MIB)));
    assert_eq!(book.oom(), Some(failure.t));
    assert!(book.allocations.is_empty());
}

#[test]
fn a_retry_that_succeeds_is_no_failure() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.calls(&["cuMemAlloc_v2"]);
    refused(&mut trace, 4 * MIB);
    returns(&mut trace, "cuMemAlloc_v2", 0, 0, Some(4 * MIB));
    assert!(trace.book().failures.is_empty());
}

#[test]
fn a_failing_call_without_any_request_counts() {
    let mut trace = Trace::new();
    trace.step(1, Step::Forked { parent: 0 });
    trace.calls(&["x"]);
    returns(&mut trace, "cudaMalloc", 0, 100, Some(MIB));
    let book = trace.book();
    assert_eq!((book.failures[0].result, book.failures[0].out_of_memory), (100, false), "no device");
    assert_eq!(book.oom(), None);
}

#[test]
fn results_that_only_tell_how_things_are_are_no_failures() {
    let mut trace = Trace::new();
    trace.step(1, Step::Forked { parent: 0 });
    let states = [("cuLibraryUnload", 4), ("cudaDeviceEnablePeerAccess", 704), ("cuModuleGetFunction", 500)];
    for (api, result) in states.into_iter().chain([("cuMemGetAddressRange_v2", 1)]) {
        trace.calls(&["x"]);
        returns(&mut trace, api, 0, result, None);
    }
    assert!(trace.book().failures.is_empty(), "nor is that of a function that nobody knows");
}

#[test]
fn a_call_that_fails_is_a_failure_whatever_it_is_for() {
    let mut trace = Trace::new();
    trace.step(1, Step::Forked { parent: 0 });
    trace.calls(&["x"]);
    returns(&mut trace, "cuMemFree_v2", 1, 1, None);
    returns(&mut trace, "cudaFree", 0, 1, None);
    trace.calls(&["y"]);
    returns(&mut trace, "cuMemUnmap", 0, 1, Some(2 * MIB));
    let book = trace.book();
    let failures: Vec<_> = book.failures.iter().map(|f| (f.api.as_str(), f.result, f.out_of_memory)).collect();
    assert_eq!(failures, [("cudaFree", 1, false), ("cuMemUnmap", 1, false)]);
}

#[test]
fn what_a_pool_asked_of_the_driver_is_told_apart() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.calls(&["cudaMallocAsync"]);
    refused(&mut trace, 32 * MIB);
    refused(&mut trace, 32 * MIB);
    returns(&mut trace, "cudaMallocAsync", 0, 2, Some(MIB));
    let book = trace.book();
    let [failure] = &book.failures[..] else { panic!("{:?}", book.failures) };
    assert_eq!((failure.requested, failure.refused), (Some(MIB), Some(32 * MIB)));
    assert_eq!((failure.result, failure.status), (2, 0x51));
}

#[test]
fn a_launch_without_a_probe_is_named_by_its_stack() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.stack(&[("train", "app"), ("cudaLaunchKernel", "libcudart.so.12"), ("cuLaunchKernel", "libcuda.so.1")]);
    refused(&mut trace, 500 * MIB);
    let book = trace.book();
    let failure = &book.failures[0];
    assert_eq!((failure.api.as_str(), failure.result, failure.status), ("cudaLaunchKernel", 0, 0x51));
    assert!(failure.out_of_memory && failure.stack.is_some());
}

#[test]
fn a_launch_that_gets_no_memory_is_named_by_its_call() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.calls(&["cuLaunchKernel"]);
    refused(&mut trace, 500 * MIB);
    returns(&mut trace, "cuLaunchKernel", 0, 701, None);
    let book = trace.book();
    let failure = &book.failures[0];
    assert_eq!((failure.api.as_str(), failure.requested), ("cuLaunchKernel", Some(500 * MIB)));
    assert!(failure.out_of_memory);
}

#[test]
fn a_request_outside_any_call_stands_for_itself() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.memory(1, 10, 2, 101, MIB);
    refused(&mut trace, 500 * MIB);
    let book = trace.book();
    let failure = &book.failures[0];
    assert_eq!((failure.result, failure.status), (0, 0x51), "no call's result, the driver's status");
    assert_eq!((failure.gpu, failure.out_of_memory), (Some(0), true));
    assert!(failure.api.contains("outside any known call"));
}

#[test]
fn a_process_killed_inside_a_failing_call_keeps_its_failure() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.calls(&["cudaMalloc", "cuMemAlloc_v2"]);
    refused(&mut trace, 4 * MIB);
    trace.exit(1);
    let book = trace.book();
    assert_eq!((book.failures.len(), book.failures[0].api.as_str()), (1, "cudaMalloc"));
}

#[test]
fn the_targets_own_reading_of_free_memory_is_used_when_nearer() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.nvml(0, &[]);
    trace.wait();
    let (t, pid) = (trace.t, 1);
    let reading = Call { t, pid, tid: 1, api: "cuMemGetInfo_v2".into(), free: Some(3 * MIB), ..Call::default() };
    trace.push(Record::Call(reading));
    trace.memory(1, 10, 2, 101, MIB);
    refused(&mut trace, 500 * MIB);
    let book = trace.book();
    assert_eq!((book.failures[0].free, book.failures[0].free_at), (Some(3 * MIB), Some(t)));
}

/// NVML lists all processes of a GPU: those that are not traced are kept by name of their pid.
#[test]
fn processes_that_are_not_traced_are_kept_apart() {
    let mut trace = Trace::new();
    trace.client(1, 10);
    trace.memory(1, 10, 2, 101, MIB);
    trace.nvml(0, &[(1, MIB), (777, 5 * MIB)]);
    trace.wait();
    trace.nvml(0, &[(777, 9 * MIB)]);
    trace.nvml(1, &[(888, MIB)]);
    let book = trace.book();
    let strangers: Vec<_> = book.strangers.iter().map(|s| (s.gpu, s.pid, s.bytes)).collect();
    assert_eq!(strangers, [(0, 777, Some(9 * MIB))], "of the GPU that nobody traced uses nothing is said");
    assert!(book.strangers[0].first < book.strangers[0].last);
}
