//! Decoding: one test a kind of source.

use bytemuck::Zeroable as _;
use tracer_ebpf::Call;

use super::C10;
use crate::probe::*;

/// A call with the given arguments and read values.
fn call(args: &[u64], values: &[u64]) -> Call {
    let mut call = Call::zeroed();
    call.args[..args.len()].copy_from_slice(args);
    call.values[..values.len()].copy_from_slice(values);
    call
}

fn decode(symbol: &str, call: &Call) -> Values {
    by_symbol(symbol).unwrap().decode(call)
}

#[test]
fn registers_and_out_values() {
    let values = decode("cuMemAlloc_v2", &call(&[0x7ffe_0000, 4096], &[0x7f00_0000_0000]));
    assert_eq!(values, Values { address: Some(0x7f00_0000_0000), size: Some(4096), ..Values::default() });
}

#[test]
fn a_failed_call_keeps_what_was_asked_and_no_more() {
    let mut failed = call(&[0x7ffe_0000, 4096], &[0xdead]);
    failed.ret = 0xffff_ffff_0000_0002;
    let values = decode("cudaMalloc", &failed);
    assert_eq!(values, Values { size: Some(4096), ..Values::default() });
    assert_eq!(by_symbol("cudaMalloc").unwrap().result(&failed), 2, "the upper half of rax is not part of an enum");
    failed.ret = 0xffff_ffff_0000_0000;
    assert!(!by_symbol("cudaMalloc").unwrap().failed(&failed));
}

#[test]
fn states_and_vain_lookups_are_no_failures() {
    let is_failure = |symbol: &str, result| by_symbol(symbol).unwrap().is_failure(result);
    for state in [0, 4, 600, 704, 705] {
        assert!(!is_failure("cudaFree", state) && !is_failure("cuCtxEnablePeerAccess", state), "{state}");
    }
    assert!(is_failure("cudaFree", 1) && is_failure("cuMemCreate", 800));
    assert!(!is_failure("cuModuleGetFunction", 500) && is_failure("cuMemCreate", 500));
    assert!(!is_failure("ncclCommInitRank", 7) && is_failure("ncclCommInitRank", 4));
    assert!(!is_failure(C10, 1) && !is_failure("__cudaRegisterFatBinary", 1), "these return no status");
}

#[test]
fn narrow_arguments_ignore_the_upper_half() {
    let values = decode("cuMemAlloc", &call(&[0, 0xffff_ffff_0000_1000], &[0x10_0000]));
    assert_eq!((values.size, values.address), (Some(0x1000), Some(0x10_0000)));
    let values = decode("cuMemPrefetchAsync", &call(&[0x1000, 64, 0x1234_5678_ffff_ffff, 7], &[]));
    assert_eq!((values.device, values.more["stream"]), (Some(-1), 7), "-1 is the CPU");
}

#[test]
fn unreadable_memory_is_said() {
    let mut call = call(&[0x10, 4096], &[0]);
    call.unreadable = 1;
    assert_eq!(decode("cuMemAlloc_v2", &call), Values { size: Some(4096), unreadable: true, ..Values::default() });
}

#[test]
fn pitched_size_is_the_drivers_pitch_or_the_width_asked_for() {
    let mut pitch = call(&[1, 2, 1000, 10, 4], &[0xa000, 1024]);
    assert_eq!(decode("cuMemAllocPitch_v2", &pitch).size, Some(10_240));
    pitch.ret = 2;
    assert_eq!(decode("cuMemAllocPitch_v2", &pitch).size, Some(10_000));
    let absurd = call(&[1, 2, u64::MAX, 10, 4], &[0xa000, u64::MAX]);
    assert_eq!(decode("cuMemAllocPitch_v2", &absurd).size, None, "an overflow is no size");
}

#[test]
fn structs_by_value_lie_on_the_stack() {
    // cudaMalloc3D: ptr, pitch, then height and depth of the extent, then its width.
    let values = decode("cudaMalloc3D", &call(&[1], &[0xb000, 512, 4, 3, 500]));
    assert_eq!((values.address, values.size), (Some(0xb000), Some(512 * 4 * 3)));
    let values = decode("ncclCommInitRank", &call(&[1, 8, 0xffff_ffff_0000_0003], &[0xc000, 0x1122_3344_5566_7788]));
    assert_eq!(values.handle, Some(0xc000));
    assert_eq!((values.more["rank"], values.more["nranks"], values.more["id"]), (3, 8, 0x1122_3344_5566_7788));
}

#[test]
fn locations_name_a_device_only_when_they_are_one() {
    let device = decode("cuMemCreate", &call(&[1, 2 << 20, 3, 0], &[0xd000, 3 << 32 | 1, 8]));
    assert_eq!((device.device, device.handle, device.size), (Some(3), Some(0xd000), Some(2 << 20)));
    assert_eq!(device.more["handle_types"], 8);
    let host = decode("cuMemCreate", &call(&[1, 4096, 3, 0], &[0xd000, 1 << 32 | 3, 0]));
    assert_eq!((host.device, host.more["location_type"], host.more["location_id"]), (None, 3, 1));
}

#[test]
fn unions_are_read_by_their_tag() {
    // Slots in order: node, type, bytesize, location, dptr of an allocation, dptr of a free.
    let slots = [0xe000, 10, 1 << 20, 2 << 32 | 1, 0xf000, 0xbad];
    let alloc = decode("cuGraphAddNode", &call(&[1, 0x60, 0, 0, 5], &slots));
    assert_eq!((alloc.size, alloc.address, alloc.device), (Some(1 << 20), Some(0xf000), Some(2)));
    let free = decode("cuGraphAddNode", &call(&[1, 0x60, 0, 0, 5], &[0xe000, 11, 1, 2, 3, 0xf000]));
    assert_eq!((free.size, free.address, free.device), (None, Some(0xf000), None));
    let kernel = decode("cuGraphAddNode", &call(&[1, 0x60, 0, 0, 5], &[0xe000, 0, 1, 2, 3, 4]));
    assert_eq!((kernel.size, kernel.address, kernel.more["graph"]), (None, None, 0x60));
}

#[test]
fn opaque_handles_match_across_processes() {
    let handle = [11, 22, 33, 44, 55, 66, 77];
    let exported = decode("cuIpcGetMemHandle", &call(&[1, 0xa000], &handle));
    let mut imported = [0xa100, 0, 0, 0, 0, 0, 0, 0];
    imported[1..].copy_from_slice(&handle);
    let imported = decode("cudaIpcOpenMemHandle", &call(&[1, 1], &imported));
    assert_eq!(exported.more["ipc"], imported.more["ipc"]);
    assert_eq!((exported.address, imported.address), (Some(0xa000), Some(0xa100)));
    assert_ne!(exported.more["ipc"], decode("cuIpcGetMemHandle", &call(&[1, 2], &[11, 22])).more["ipc"]);
}

#[test]
fn array_sizes_come_from_descriptors() {
    // handle, width, height, depth, format, channels, flags
    let values = decode("cuArray3DCreate_v2", &call(&[1, 2], &[0x9000, 16, 8, 4, 0x20, 2, 0]));
    assert_eq!((values.handle, values.size), (Some(0x9000), Some(16 * 8 * 4 * 8)));
    // handle, x and y bits, z and w bits, kind, extent
    let values = decode("cudaMalloc3DArray", &call(&[1, 2, 0], &[0x9000, 32 << 32 | 32, 0, 2, 16, 8, 4]));
    assert_eq!(values.size, Some(16 * 8 * 4 * 8));
}

#[test]
fn tensor_reports_are_signed_and_carry_their_device() {
    let mut report = call(&[0xa000, (-4096_i64) as u64, 1 << 20, 2 << 20, 0xffff_0301], &[]);
    report.ret = 0xdead;
    let values = decode(C10, &report);
    assert_eq!((values.address, values.device), (Some(0xa000), Some(3)));
    assert_eq!(values.more["delta"] as i64, -4096);
    assert_eq!((values.more["device_type"], values.more["reserved"]), (1, 2 << 20));
    assert_eq!(by_symbol(C10).unwrap().result(&report), 0, "a void function cannot fail");
}

#[test]
fn a_communicator_in_progress_has_not_failed() {
    let mut init = call(&[1, 8, 0], &[0xc000, 5]);
    init.ret = 7;
    assert_eq!(decode("ncclCommInitRankConfig", &init).handle, Some(0xc000));
    init.ret = 1;
    assert_eq!(decode("ncclCommInitRankConfig", &init).handle, None);
}
