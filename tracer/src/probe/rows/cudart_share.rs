//! libcudart: sharing between processes.

use super::prelude::*;

#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    row(Export, Memory, "4.1", &["cudaIpcGetMemHandle"],
        "cudaError_t (cudaIpcMemHandle_t *handle, void *devPtr)",
        &[address(arg(1)), more("ipc", digest(&IPC_WRITTEN))]),
    row(Import, Memory, "4.1", &["cudaIpcOpenMemHandle"],
        "cudaError_t (void **devPtr, cudaIpcMemHandle_t handle, unsigned int flags)",
        &[address(out(0)), more("ipc", digest(&IPC_PASSED)), more("flags", arg32(1))]),
    row(Unmap, Memory, "4.1", &["cudaIpcCloseMemHandle"],
        "cudaError_t (void *devPtr)",
        &[address(arg(0))]),
    // cudaExternalMemoryHandleDesc: type@0, handle@8, size@24, flags@32.
    row(Import, Memory, "10.0", &["cudaImportExternalMemory"],
        "cudaError_t (cudaExternalMemory_t *extMem_out, const struct cudaExternalMemoryHandleDesc *memHandleDesc)",
        &[handle(out(0)), size(at_entry(1, 24, 8)), more("type", at_entry(1, 0, 4)),
          more("flags", at_entry(1, 32, 4))]),
    row(Map, Memory, "10.0", &["cudaExternalMemoryGetMappedBuffer"],
        "cudaError_t (void **devPtr, cudaExternalMemory_t extMem, \
         const struct cudaExternalMemoryBufferDesc *bufferDesc)",
        &[address(out(0)), handle(arg(1)), more("offset", at_entry(2, 0, 8)), size(at_entry(2, 8, 8))]),
    row(Map, Memory, "10.0", &["cudaExternalMemoryGetMappedMipmappedArray"],
        "cudaError_t (cudaMipmappedArray_t *mipmap, cudaExternalMemory_t extMem, \
         const struct cudaExternalMemoryMipmappedArrayDesc *mipmapDesc)",
        &[more("array", out(0)), handle(arg(1))]),
    row(Unmap, Memory, "10.0", &["cudaDestroyExternalMemory"],
        "cudaError_t (cudaExternalMemory_t extMem)",
        &[handle(arg(0))]),
    row(Export, Memory, "11.2", &["cudaMemPoolExportToShareableHandle"],
        "cudaError_t (void *shareableHandle, cudaMemPool_t memPool, enum cudaMemAllocationHandleType handleType, \
         unsigned int flags)",
        &[handle(arg(1)), more("type", arg32(2)), more("shareable", out32(0))]),
    row(Import, Memory, "11.2", &["cudaMemPoolImportFromShareableHandle"],
        "cudaError_t (cudaMemPool_t *memPool, void *shareableHandle, enum cudaMemAllocationHandleType handleType, \
         unsigned int flags)",
        &[handle(out(0)), more("shareable", arg(1)), more("type", arg32(2))]),
    row(Export, Memory, "11.2", &["cudaMemPoolExportPointer"],
        "cudaError_t (struct cudaMemPoolPtrExportData *exportData, void *ptr)",
        &[address(arg(1))]),
    row(Import, Memory, "11.2", &["cudaMemPoolImportPointer"],
        "cudaError_t (void **ptr, cudaMemPool_t memPool, struct cudaMemPoolPtrExportData *exportData)",
        &[address(out(0)), handle(arg(1))]),
];
