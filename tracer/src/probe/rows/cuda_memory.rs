//! libcuda: device memory, arrays, managed memory, pinned host memory.

use super::prelude::*;

const ARRAY: [Value; 6] = [
    handle(out(0)),
    more("width", at_entry(1, 0, 8)),
    more("height", at_entry(1, 8, 8)),
    more("format", at_entry(1, 16, 4)),
    more("channels", at_entry(1, 20, 4)),
    size(TEXELS),
];

const ARRAY_3D: [Value; 8] = [
    handle(out(0)),
    more("width", at_entry(1, 0, 8)),
    more("height", at_entry(1, 8, 8)),
    more("depth", at_entry(1, 16, 8)),
    more("format", at_entry(1, 24, 4)),
    more("channels", at_entry(1, 28, 4)),
    more("flags", at_entry(1, 32, 4)),
    size(TEXELS),
];

const MIPMAPPED: [Value; 9] = [
    handle(out(0)),
    more("width", at_entry(1, 0, 8)),
    more("height", at_entry(1, 8, 8)),
    more("depth", at_entry(1, 16, 8)),
    more("format", at_entry(1, 24, 4)),
    more("channels", at_entry(1, 28, 4)),
    more("flags", at_entry(1, 32, 4)),
    more("levels", arg32(2)),
    size(TEXELS),
];

// The descriptors of the 32-bit API: every field is four bytes wide.
const ARRAY_V1: [Value; 6] = [
    handle(out(0)),
    more("width", at_entry(1, 0, 4)),
    more("height", at_entry(1, 4, 4)),
    more("format", at_entry(1, 8, 4)),
    more("channels", at_entry(1, 12, 4)),
    size(TEXELS),
];

const ARRAY_3D_V1: [Value; 8] = [
    handle(out(0)),
    more("width", at_entry(1, 0, 4)),
    more("height", at_entry(1, 4, 4)),
    more("depth", at_entry(1, 8, 4)),
    more("format", at_entry(1, 12, 4)),
    more("channels", at_entry(1, 16, 4)),
    more("flags", at_entry(1, 20, 4)),
    size(TEXELS),
];

#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    row(Physical, Memory, "3.2", &["cuMemAlloc_v2"],
        "CUresult (CUdeviceptr *dptr, size_t bytesize)",
        &[address(out(0)), size(arg(1))]),
    row(Physical, Memory, "2.0", &["cuMemAlloc"],
        "CUresult (CUdeviceptr_v1 *dptr, unsigned int bytesize)",
        &[address(out32(0)), size(arg32(1))]),
    // The pitch is the driver's choice: on failure all that is known is the width asked for.
    row(Physical, Memory, "3.2", &["cuMemAllocPitch_v2"],
        "CUresult (CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height, \
         unsigned int ElementSizeBytes)",
        &[address(out(0)), size(product(&[out(1), arg(3)])), size(product(&[arg(2), arg(3)]))]),
    row(Physical, Memory, "2.0", &["cuMemAllocPitch"],
        "CUresult (CUdeviceptr_v1 *dptr, unsigned int *pPitch, unsigned int WidthInBytes, unsigned int Height, \
         unsigned int ElementSizeBytes)",
        &[address(out32(0)), size(product(&[out32(1), arg32(3)])), size(product(&[arg32(2), arg32(3)]))]),
    row(Managed, Memory, "6.0", &["cuMemAllocManaged"],
        "CUresult (CUdeviceptr *dptr, size_t bytesize, unsigned int flags)",
        &[address(out(0)), size(arg(1)), more("flags", arg32(2))]),
    row(Free, Memory, "3.2", &["cuMemFree_v2"],
        "CUresult (CUdeviceptr dptr)",
        &[address(arg(0))]),
    row(Free, Memory, "2.0", &["cuMemFree"],
        "CUresult (CUdeviceptr_v1 dptr)",
        &[address(arg32(0))]),
    row(Physical, Memory, "3.2", &["cuArrayCreate_v2"],
        "CUresult (CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)",
        &ARRAY),
    row(Physical, Memory, "2.0", &["cuArrayCreate"],
        "CUresult (CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR_v1 *pAllocateArray)",
        &ARRAY_V1),
    row(Physical, Memory, "3.2", &["cuArray3DCreate_v2"],
        "CUresult (CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)",
        &ARRAY_3D),
    row(Physical, Memory, "2.0", &["cuArray3DCreate"],
        "CUresult (CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR_v1 *pAllocateArray)",
        &ARRAY_3D_V1),
    row(Free, Memory, "2.0", &["cuArrayDestroy"],
        "CUresult (CUarray hArray)",
        &[handle(arg(0))]),
    row(Physical, Memory, "5.0", &["cuMipmappedArrayCreate"],
        "CUresult (CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc, \
         unsigned int numMipmapLevels)",
        &MIPMAPPED),
    row(Free, Memory, "5.0", &["cuMipmappedArrayDestroy"],
        "CUresult (CUmipmappedArray hMipmappedArray)",
        &[handle(arg(0))]),

    row(Host, Memory, "3.2", &["cuMemAllocHost_v2"],
        "CUresult (void **pp, size_t bytesize)",
        &[address(out(0)), size(arg(1))]),
    row(Host, Memory, "2.0", &["cuMemAllocHost"],
        "CUresult (void **pp, unsigned int bytesize)",
        &[address(out(0)), size(arg32(1))]),
    row(Host, Memory, "2.2", &["cuMemHostAlloc"],
        "CUresult (void **pp, size_t bytesize, unsigned int Flags)",
        &[address(out(0)), size(arg(1)), more("flags", arg32(2))]),
    row(HostFree, Memory, "2.0", &["cuMemFreeHost"],
        "CUresult (void *p)",
        &[address(arg(0))]),
    row(HostPin, Memory, "6.5", &["cuMemHostRegister_v2"],
        "CUresult (void *p, size_t bytesize, unsigned int Flags)",
        &[address(arg(0)), size(arg(1)), more("flags", arg32(2))]),
    row(HostPin, Memory, "4.0", &["cuMemHostRegister"],
        "CUresult (void *p, size_t bytesize, unsigned int Flags)",
        &[address(arg(0)), size(arg(1)), more("flags", arg32(2))]),
    row(HostUnpin, Memory, "4.0", &["cuMemHostUnregister"],
        "CUresult (void *p)",
        &[address(arg(0))]),

    row(Reading, Group::Reading, "3.2", &["cuMemGetInfo_v2"],
        "CUresult (size_t *free, size_t *total)",
        &[free(out(0)), total(out(1))]),
    row(Reading, Group::Reading, "2.0", &["cuMemGetInfo"],
        "CUresult (unsigned int *free, unsigned int *total)",
        &[free(out32(0)), total(out32(1))]),

    // Managed memory moves; its pages are the UVM driver's, which charges no process.
    row(Residency, Group::Residency, "8.0", &["cuMemPrefetchAsync", "cuMemPrefetchAsync_ptsz"],
        "CUresult (CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)",
        &[address(arg(0)), size(arg(1)), device(arg32(2)), more("stream", arg(3))]),
    row(Residency, Group::Residency, "12.2", &["cuMemPrefetchAsync_v2", "cuMemPrefetchAsync_v2_ptsz"],
        "CUresult (CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream)",
        &[address(arg(0)), size(arg(1)), location(arg(2)), more("flags", arg32(3)), more("stream", arg(4))]),
    row(Residency, Group::Residency, "13.0", &["cuMemPrefetchBatchAsync", "cuMemPrefetchBatchAsync_ptsz"],
        "CUresult (CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs, \
         size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)",
        &[more("count", arg(2))]),
    row(Residency, Group::Residency, "13.0", &["cuMemDiscardBatchAsync", "cuMemDiscardBatchAsync_ptsz"],
        "CUresult (CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags, CUstream hStream)",
        &[more("count", arg(2))]),
    row(Residency, Group::Residency, "13.0",
        &["cuMemDiscardAndPrefetchBatchAsync", "cuMemDiscardAndPrefetchBatchAsync_ptsz"],
        "CUresult (CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs, \
         size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)",
        &[more("count", arg(2))]),
    row(Residency, Group::Residency, "8.0", &["cuMemAdvise"],
        "CUresult (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)",
        &[address(arg(0)), size(arg(1)), more("advice", arg32(2)), device(arg32(3))]),
    row(Residency, Group::Residency, "12.2", &["cuMemAdvise_v2"],
        "CUresult (CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)",
        &[address(arg(0)), size(arg(1)), more("advice", arg32(2)), location(arg(3))]),
    row(Residency, Group::Residency, "6.0", &["cuStreamAttachMemAsync", "cuStreamAttachMemAsync_ptsz"],
        "CUresult (CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)",
        &[more("stream", arg(0)), address(arg(1)), size(arg(2)), more("flags", arg32(3))]),
];
