/* Memory of one process opened in another: RM_SHARE by the owner, RM_DUP_OBJECT by the other. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state.h"

/* What the 64 bytes of a CUipcMemHandle hold here. */
struct ticket {
    uint32_t magic, pid, client, object, instance, pad;
    uint64_t bytes, offset;
};
_Static_assert(sizeof(struct ticket) <= sizeof(CUipcMemHandle), "ticket");
#define MAGIC 0x56495043

struct opened {
    struct opened *next;
    struct gpu *gpu;
    struct ticket ticket;
    uint32_t object;
    uint64_t va;
    int refs;
};

static struct opened *opened;

API CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr address) {
    READY;
    struct ticket t = {.magic = MAGIC, .pid = (uint32_t)getpid(), .client = rm_client()};
    struct segment *segment = memory_segment(address, &t.offset, &t.bytes);
    if (!out || !segment)
        return CUDA_ERROR_INVALID_VALUE;
    uint32_t status = rm_share(segment->handle);
    if (status)
        return rm_result(status);
    t.object = segment->handle;
    t.instance = segment->ctx->gpu->instance;
    memset(out, 0, sizeof *out);
    memcpy(out, &t, sizeof t);
    return CUDA_SUCCESS;
}

static struct gpu *gpu_of(uint32_t instance) {
    for (int g = 0; g < sim_gpu_count; g++)
        if (sim_gpus[g].instance == instance)
            return &sim_gpus[g];
    return NULL;
}

API CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags) {
    WITH_CONTEXT(ctx);
    (void)ctx;
    struct ticket t;
    memcpy(&t, &handle, sizeof t);
    if (!out || t.magic != MAGIC || flags > 1)
        return CUDA_ERROR_INVALID_VALUE;
    /* A process cannot open its own handle. */
    if (t.pid == (uint32_t)getpid())
        return CUDA_ERROR_INVALID_CONTEXT;
    struct gpu *gpu = gpu_of(t.instance);
    if (!gpu)
        return CUDA_ERROR_INVALID_DEVICE;
    struct opened *o = opened;
    while (o && (o->ticket.client != t.client || o->ticket.object != t.object))
        o = o->next;
    if (!o) {
        uint32_t object;
        uint32_t status = rm_dup(gpu->device, &object, t.client, t.object);
        if (status)
            return status == NV_ERR_NO_MEMORY ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_INVALID_VALUE;
        uint64_t bytes = ROUND_UP(t.bytes, 4096);
        o = malloc(sizeof *o);
        *o = (struct opened){opened, gpu, t, object, va_take(bytes), 0};
        opened = o;
        uvm_create(o->va, bytes);
        uvm_map(gpu, o->va, bytes, 0, object);
    }
    o->refs++;
    *out = o->va + t.offset;
    return CUDA_SUCCESS;
}

/* The form of CUDA 4 to 10. */
API CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags) {
    return cuIpcOpenMemHandle_v2(out, handle, flags);
}

API CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
    READY;
    for (struct opened **at = &opened, *o; (o = *at); at = &o->next) {
        uint64_t bytes = ROUND_UP(o->ticket.bytes, 4096);
        if (address < o->va || address >= o->va + bytes)
            continue;
        if (--o->refs)
            return CUDA_SUCCESS;
        *at = o->next;
        uvm_free(o->va, bytes);
        rm_free(o->gpu->device, o->object);
        va_give(o->va, bytes);
        free(o);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}
