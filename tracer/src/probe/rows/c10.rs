//! libc10: `PyTorch`'s caching allocators report every block here. `since` is `PyTorch`'s version.

use super::prelude::*;

#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    // void c10::reportMemoryUsageToProfiler(…). `delta` is two's complement: negative when a block is given back.
    // c10::Device is two int8_t (type, index; type 1 is CUDA) in one register. Nine of ten calls of a server's start-up
    // are this one: its program reads the registers at entry and nothing else.
    row(Tensor, Tensors, "1.7", &["_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"],
        "void (void *ptr, int64_t alloc_size, size_t total_allocated, size_t total_reserved, c10::Device device)",
        &[address(arg(0)), more("delta", arg(1)), more("allocated", arg(2)), more("reserved", arg(3)),
          more("device_type", arg_bits(4, 0, 8)), device(arg_bits(4, 8, 8))]),
    // void c10::reportOutOfMemoryToProfiler(…), just before torch.OutOfMemoryError is raised.
    row(TensorFailure, Tensors, "1.13", &["_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"],
        "void (int64_t alloc_size, size_t total_allocated, size_t total_reserved, c10::Device device)",
        &[size(arg(0)), more("allocated", arg(1)), more("reserved", arg(2)),
          more("device_type", arg_bits(3, 0, 8)), device(arg_bits(3, 8, 8))]),
];
