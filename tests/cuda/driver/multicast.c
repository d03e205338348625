/* Multicast objects: addresses that reach the memory of several GPUs at once. They own no memory. */
#include "state.h"

typedef struct {
    unsigned devices;
    size_t bytes;
    unsigned long long types, flags;
} CUmulticastObjectProp;

API CUresult cuMulticastCreate(CUmemGenericAllocationHandle *out, const CUmulticastObjectProp *prop) {
    WITH_CONTEXT(ctx);
    uint32_t object;
    if (!out || !prop || !prop->devices || !prop->bytes || prop->bytes % PAGE || prop->flags)
        return CUDA_ERROR_INVALID_VALUE;
    uint32_t status = rm_alloc(ctx->gpu->device, CLASS_MULTICAST, &object, NULL, 0);
    if (status)
        return rm_result(status);
    *out = vmm_publish(ctx->gpu, object, prop->bytes);
    return CUDA_SUCCESS;
}

API CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle multicast, CUdevice device) {
    READY;
    return multicast && device >= 0 && device < sim_gpu_count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMulticastBindMem(CUmemGenericAllocationHandle multicast, size_t at, CUmemGenericAllocationHandle memory,
                                size_t offset, size_t bytes, unsigned long long flags) {
    READY;
    if (!multicast || !memory || at % PAGE || offset % PAGE || !bytes || bytes % PAGE || flags)
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
