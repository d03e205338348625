/* Memory of the runtime API: each function checks its context and calls the driver's. */
#include "runtime.h"

API cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total) {
    FORWARD(cuMemGetInfo, (size_t *, size_t *), free_bytes, total);
}

API cudaError_t cudaMalloc(void **out, size_t bytes) {
    FORWARD(cuMemAlloc, (CUdeviceptr *, size_t), (CUdeviceptr *)out, bytes);
}

API cudaError_t cudaFree(void *p) {
    /* cudaFree(0) is how programs create the context. */
    if (!p)
        return runtime_context();
    FORWARD(cuMemFree, (CUdeviceptr), (CUdeviceptr)p);
}

API cudaError_t cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height) {
    FORWARD(cuMemAllocPitch, (CUdeviceptr *, size_t *, size_t, size_t, unsigned), (CUdeviceptr *)out, pitch, width,
            height, 4);
}

API cudaError_t cudaMalloc3D(cudaPitchedPtr *out, cudaExtent e) {
    out->xsize = e.width;
    out->ysize = e.height;
    return cudaMallocPitch(&out->ptr, &out->pitch, e.width, e.height * e.depth);
}

API cudaError_t cudaMallocManaged(void **out, size_t bytes, unsigned flags) {
    FORWARD(cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned), (CUdeviceptr *)out, bytes, flags);
}

API cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned flags) {
    FORWARD(cuMemHostAlloc, (void **, size_t, unsigned), out, bytes, flags);
}

API cudaError_t cudaMallocHost(void **out, size_t bytes) {
    return cudaHostAlloc(out, bytes, 0);
}

API cudaError_t cudaFreeHost(void *p) {
    if (!p)
        return cudaSuccess;
    FORWARD(cuMemFreeHost, (void *), p);
}

API cudaError_t cudaHostRegister(void *p, size_t bytes, unsigned flags) {
    FORWARD(cuMemHostRegister, (void *, size_t, unsigned), p, bytes, flags);
}

API cudaError_t cudaHostUnregister(void *p) {
    FORWARD(cuMemHostUnregister, (void *), p);
}

/* Driver format of a channel description: 8, 16 or 32 bits a channel. */
static CUDA_ARRAY3D_DESCRIPTOR shape(const cudaChannelFormatDesc *d, cudaExtent e, unsigned flags) {
    static const int formats[3][3] = {{0x08, 0x09, 0x0a}, {0x01, 0x02, 0x03}, {0, 0x10, 0x20}};
    int bits = d->x == 8 ? 0 : d->x == 16 ? 1 : 2;
    unsigned channels = 1u + (d->y != 0) + (d->z != 0) + (d->w != 0);
    int kind = d->f >= 0 && d->f <= 2 ? d->f : 0;
    return (CUDA_ARRAY3D_DESCRIPTOR){e.width, e.height, e.depth, formats[kind][bits], channels, flags};
}

API cudaError_t cudaMalloc3DArray(cudaArray_t *out, const cudaChannelFormatDesc *d, cudaExtent e, unsigned flags) {
    CUDA_ARRAY3D_DESCRIPTOR full = shape(d, e, flags);
    FORWARD(cuArray3DCreate, (CUarray *, const CUDA_ARRAY3D_DESCRIPTOR *), out, &full);
}

API cudaError_t cudaMallocArray(cudaArray_t *out, const cudaChannelFormatDesc *d, size_t width, size_t height,
                                unsigned flags) {
    return cudaMalloc3DArray(out, d, (cudaExtent){width, height, 0}, flags);
}

API cudaError_t cudaFreeArray(cudaArray_t array) {
    FORWARD(cuArrayDestroy, (CUarray), array);
}

API cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t *out, const cudaChannelFormatDesc *d, cudaExtent e,
                                         unsigned levels, unsigned flags) {
    CUDA_ARRAY3D_DESCRIPTOR full = shape(d, e, flags);
    FORWARD(cuMipmappedArrayCreate, (CUmipmappedArray *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned), out, &full, levels);
}

API cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t array) {
    FORWARD(cuMipmappedArrayDestroy, (CUmipmappedArray), array);
}

API cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *p) {
    FORWARD(cuIpcGetMemHandle, (CUipcMemHandle *, CUdeviceptr), out, (CUdeviceptr)p);
}

API cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t handle, unsigned flags) {
    FORWARD(cuIpcOpenMemHandle, (CUdeviceptr *, CUipcMemHandle, unsigned), (CUdeviceptr *)out, handle, flags);
}

API cudaError_t cudaIpcCloseMemHandle(void *p) {
    FORWARD(cuIpcCloseMemHandle, (CUdeviceptr), (CUdeviceptr)p);
}

API cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, int kind) {
    switch (kind) {
    case 1: FORWARD(cuMemcpyHtoD, (CUdeviceptr, const void *, size_t), (CUdeviceptr)to, from, bytes);
    case 2: FORWARD(cuMemcpyDtoH, (void *, CUdeviceptr, size_t), to, (CUdeviceptr)from, bytes);
    default: FORWARD(cuMemcpyDtoD, (CUdeviceptr, CUdeviceptr, size_t), (CUdeviceptr)to, (CUdeviceptr)from, bytes);
    }
}

API cudaError_t cudaMemset(void *p, int value, size_t bytes) {
    FORWARD(cuMemsetD8, (CUdeviceptr, unsigned char, size_t), (CUdeviceptr)p, (unsigned char)value, bytes);
}
