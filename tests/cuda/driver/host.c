/* Pinned host memory: class 0x3e when the driver allocates it, class 0x71 when it wraps the program's own pages. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/mman.h>

#include "state.h"

struct host {
    struct host *next;
    struct context *ctx;
    void *address;
    size_t bytes;
    uint32_t object;
    bool registered;
};

static struct host *hosts;

static void note(struct context *ctx, void *address, size_t bytes, uint32_t object, bool registered) {
    struct host *h = malloc(sizeof *h);
    *h = (struct host){hosts, ctx, address, bytes, object, registered};
    hosts = h;
}

API CUresult cuMemHostAlloc(void **out, size_t bytes, unsigned flags) {
    WITH_CONTEXT(ctx);
    uint64_t charged = bytes;
    uint32_t object;
    if (!out || !bytes || flags > 7)
        return CUDA_ERROR_INVALID_VALUE;
    rm_kind("host");
    uint32_t status = rm_memory(ctx->gpu, CLASS_SYSMEM, ATTR_SYSMEM, &charged, &object);
    if (status)
        return rm_result(status);
    void *p = mmap(NULL, charged, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        rm_free(ctx->gpu->device, object);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    uvm_create((uintptr_t)p, charged);
    uvm_map(ctx->gpu, (uintptr_t)p, charged, 0, object);
    note(ctx, p, charged, object, false);
    *out = p;
    return CUDA_SUCCESS;
}

API CUresult cuMemAllocHost_v2(void **out, size_t bytes) {
    return cuMemHostAlloc(out, bytes, 0);
}

static CUresult drop(void *address, bool registered) {
    READY;
    for (struct host **h = &hosts, *gone; *h; h = &(*h)->next) {
        if ((*h)->address != address || (*h)->registered != registered)
            continue;
        gone = *h;
        *h = gone->next;
        uvm_free((uintptr_t)gone->address, gone->bytes);
        rm_free(gone->ctx->gpu->device, gone->object);
        if (!registered)
            munmap(gone->address, gone->bytes);
        free(gone);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemFreeHost(void *address) {
    return drop(address, false);
}

API CUresult cuMemHostRegister_v2(void *address, size_t bytes, unsigned flags) {
    WITH_CONTEXT(ctx);
    uint32_t object;
    if (!address || !bytes || flags > 15)
        return CUDA_ERROR_INVALID_VALUE;
    uint32_t status = rm_os_descriptor(ctx->gpu, bytes, &object);
    if (status)
        return rm_result(status);
    uvm_create((uintptr_t)address, bytes);
    uvm_map(ctx->gpu, (uintptr_t)address, bytes, 0, object);
    note(ctx, address, bytes, object, true);
    return CUDA_SUCCESS;
}

API CUresult cuMemHostUnregister(void *address) {
    return drop(address, true);
}
