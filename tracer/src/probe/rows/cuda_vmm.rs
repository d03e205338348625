//! libcuda: virtual memory management, multicast, sharing between processes.

use super::prelude::*;

#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    // CUmemAllocationProp: type@0, requestedHandleTypes@4, location@8.
    row(Create, Memory, "10.2", &["cuMemCreate"],
        "CUresult (CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, \
         unsigned long long flags)",
        &[handle(out(0)), size(arg(1)), location(at_entry(2, 8, 8)), more("handle_types", at_entry(2, 4, 4)),
          more("flags", arg(3))]),
    row(Release, Memory, "10.2", &["cuMemRelease"],
        "CUresult (CUmemGenericAllocationHandle handle)",
        &[handle(arg(0))]),
    row(Retain, Memory, "11.0", &["cuMemRetainAllocationHandle"],
        "CUresult (CUmemGenericAllocationHandle *handle, void *addr)",
        &[handle(out(0)), address(arg(1))]),
    row(Reserve, Memory, "10.2", &["cuMemAddressReserve"],
        "CUresult (CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags)",
        &[address(out(0)), size(arg(1))]),
    row(Unreserve, Memory, "10.2", &["cuMemAddressFree"],
        "CUresult (CUdeviceptr ptr, size_t size)",
        &[address(arg(0)), size(arg(1))]),
    row(Map, Memory, "10.2", &["cuMemMap"],
        "CUresult (CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, \
         unsigned long long flags)",
        &[address(arg(0)), size(arg(1)), more("offset", arg(2)), handle(arg(3)), more("flags", arg(4))]),
    row(Unmap, Memory, "10.2", &["cuMemUnmap"],
        "CUresult (CUdeviceptr ptr, size_t size)",
        &[address(arg(0)), size(arg(1))]),
    // CUmemAccessDesc: location@0, flags@8. Of several descriptors the first is shown.
    row(Access, Memory, "10.2", &["cuMemSetAccess"],
        "CUresult (CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)",
        &[address(arg(0)), size(arg(1)), location(at_entry(2, 0, 8)), more("count", arg(3))]),
    row(Map, Memory, "11.1", &["cuMemMapArrayAsync", "cuMemMapArrayAsync_ptsz"],
        "CUresult (CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)",
        &[more("count", arg32(1)), more("stream", arg(2))]),
    // The shareable handle is a file descriptor for type 1, POSIX; for fabric handles these are its first bytes.
    row(Export, Memory, "10.2", &["cuMemExportToShareableHandle"],
        "CUresult (void *shareableHandle, CUmemGenericAllocationHandle handle, \
         CUmemAllocationHandleType handleType, unsigned long long flags)",
        &[handle(arg(1)), more("type", arg32(2)), more("shareable", out32(0)), more("flags", arg(3))]),
    row(Import, Memory, "10.2", &["cuMemImportFromShareableHandle"],
        "CUresult (CUmemGenericAllocationHandle *handle, void *osHandle, CUmemAllocationHandleType shHandleType)",
        &[handle(out(0)), more("shareable", arg(1)), more("type", arg32(2))]),
    row(Export, Memory, "11.7", &["cuMemGetHandleForAddressRange"],
        "CUresult (void *handle, CUdeviceptr dptr, size_t size, CUmemRangeHandleType handleType, \
         unsigned long long flags)",
        &[address(arg(1)), size(arg(2)), more("type", arg32(3)), more("shareable", out32(0)), more("flags", arg(4))]),

    // CUmulticastObjectProp: numDevices@0, size@8.
    row(Multicast, Memory, "12.1", &["cuMulticastCreate"],
        "CUresult (CUmemGenericAllocationHandle *mcHandle, const CUmulticastObjectProp *prop)",
        &[handle(out(0)), size(at_entry(1, 8, 8)), more("devices", at_entry(1, 0, 4))]),
    row(Multicast, Memory, "12.1", &["cuMulticastAddDevice"],
        "CUresult (CUmemGenericAllocationHandle mcHandle, CUdevice dev)",
        &[handle(arg(0)), device(arg32(1))]),
    row(Multicast, Memory, "12.1", &["cuMulticastBindMem"],
        "CUresult (CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUmemGenericAllocationHandle memHandle, \
         size_t memOffset, size_t size, unsigned long long flags)",
        &[handle(arg(0)), more("offset", arg(1)), more("memory", arg(2)), more("memory_offset", arg(3)), size(arg(4))]),
    row(Multicast, Memory, "12.1", &["cuMulticastBindAddr"],
        "CUresult (CUmemGenericAllocationHandle mcHandle, size_t mcOffset, CUdeviceptr memptr, size_t size, \
         unsigned long long flags)",
        &[handle(arg(0)), more("offset", arg(1)), address(arg(2)), size(arg(3))]),
    row(Multicast, Memory, "12.1", &["cuMulticastUnbind"],
        "CUresult (CUmemGenericAllocationHandle mcHandle, CUdevice dev, size_t mcOffset, size_t size)",
        &[handle(arg(0)), device(arg32(1)), more("offset", arg(2)), size(arg(3))]),

    // The handle's 64 bytes are opaque. A digest of the first 56 (as many reads as there are) joins both sides.
    row(Export, Memory, "4.1", &["cuIpcGetMemHandle"],
        "CUresult (CUipcMemHandle *pHandle, CUdeviceptr dptr)",
        &[address(arg(1)), more("ipc", digest(&IPC_WRITTEN))]),
    row(Import, Memory, "11.0", &["cuIpcOpenMemHandle_v2"],
        "CUresult (CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)",
        &[address(out(0)), more("ipc", digest(&IPC_PASSED)), more("flags", arg32(1))]),
    row(Import, Memory, "4.1", &["cuIpcOpenMemHandle"],
        "CUresult (CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)",
        &[address(out(0)), more("ipc", digest(&IPC_PASSED)), more("flags", arg32(1))]),
    row(Unmap, Memory, "4.1", &["cuIpcCloseMemHandle"],
        "CUresult (CUdeviceptr dptr)",
        &[address(arg(0))]),
    // CUDA_EXTERNAL_MEMORY_HANDLE_DESC: type@0, handle@8, size@24, flags@32.
    row(Import, Memory, "10.0", &["cuImportExternalMemory"],
        "CUresult (CUexternalMemory *extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc)",
        &[handle(out(0)), size(at_entry(1, 24, 8)), more("type", at_entry(1, 0, 4)),
          more("flags", at_entry(1, 32, 4))]),
    row(Map, Memory, "10.0", &["cuExternalMemoryGetMappedBuffer"],
        "CUresult (CUdeviceptr *devPtr, CUexternalMemory extMem, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc)",
        &[address(out(0)), handle(arg(1)), more("offset", at_entry(2, 0, 8)), size(at_entry(2, 8, 8))]),
    row(Map, Memory, "10.0", &["cuExternalMemoryGetMappedMipmappedArray"],
        "CUresult (CUmipmappedArray *mipmap, CUexternalMemory extMem, \
         const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *mipmapDesc)",
        &[more("array", out(0)), handle(arg(1))]),
    row(Unmap, Memory, "10.0", &["cuDestroyExternalMemory"],
        "CUresult (CUexternalMemory extMem)",
        &[handle(arg(0))]),
];
