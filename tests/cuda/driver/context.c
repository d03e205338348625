/* Contexts: what an H200 was seen to allocate for one, limits, teardown. */
#include <stdlib.h>

#include "state.h"

/* Local memory is one piece for every thread that fits on the GPU: 132 multiprocessors × 2048 threads. */
#define LOCAL_THREADS (132ull * 2048)
#define LOCAL_AT_START 1600 /* bytes a thread: 432,537,600 in all */
#define STACK_DEFAULT 1024

enum step_kind { VIDMEM, SYSMEM, PINNED, GROUP, CTXSHARE, COMPUTE, COPY };

/*
 * Context creation on an H200 (driver 580.159.04), in order: 17 pieces of video memory (513.4 MiB asked, 518 MiB
 * charged, with the local memory that comes last), 26 of pinned host memory, 4 channel groups with 20 channels.
 */
static const struct step {
    enum step_kind kind;
    int times;
    uint64_t bytes;
} steps[] = {
    {VIDMEM, 1, 0x420000}, {VIDMEM, 3, PAGE},       {GROUP, 1, 0},    {CTXSHARE, 1, 0},  {VIDMEM, 1, PAGE},
    {SYSMEM, 1, 0x3800000}, {COMPUTE, 1, 0},        {SYSMEM, 1, PAGE}, {COMPUTE, 7, 0},  {GROUP, 1, 0},
    {COPY, 4, 0},          {GROUP, 1, 0},           {COPY, 4, 0},     {GROUP, 1, 0},     {COPY, 4, 0},
    {SYSMEM, 1, PAGE},     {VIDMEM, 2, PAGE},       {SYSMEM, 1, PAGE}, {PINNED, 1, PAGE}, {VIDMEM, 2, PAGE},
    {PINNED, 1, PAGE},     {VIDMEM, 1, PAGE},       {PINNED, 1, PAGE}, {VIDMEM, 3, PAGE}, {SYSMEM, 1, PAGE},
    {VIDMEM, 1, PAGE},     {PINNED, 1, PAGE},       {SYSMEM, 1, 0x5ea410}, {VIDMEM, 1, 0x44c6880}, {VIDMEM, 1, PAGE},
};

static CUresult keep(struct context *ctx, uint32_t status, uint32_t object) {
    if (!status)
        ctx->objects[ctx->object_count++] = object;
    return rm_result(status);
}

static CUresult object(struct context *ctx, uint32_t parent, uint32_t class_, uint32_t *made) {
    uint32_t status = rm_alloc(parent, class_, made, NULL, 0);
    return keep(ctx, status, *made);
}

static CUresult memory(struct context *ctx, uint32_t class_, uint64_t bytes) {
    uint32_t attr = class_ == CLASS_VIDMEM ? ATTR_PLAIN : ATTR_SYSMEM;
    return segment_new(ctx, "context", class_, attr, bytes) ? CUDA_SUCCESS : ctx->error;
}

/* A channel: a notifier page, the channel below its group, its engines below the channel. */
static CUresult channel(struct context *ctx, uint32_t group, bool compute) {
    uint32_t made = 0, engine = 0;
    CUresult result = memory(ctx, CLASS_SYSMEM, 4096);
    if (!result)
        result = object(ctx, group, CLASS_CHANNEL, &made);
    if (!result && compute)
        result = object(ctx, made, CLASS_COMPUTE, &engine);
    return result ? result : object(ctx, made, CLASS_COPY, &engine);
}

static CUresult run_step(struct context *ctx, const struct step *step, uint32_t *group) {
    uint32_t made = 0, status;
    switch (step->kind) {
    case VIDMEM: return memory(ctx, CLASS_VIDMEM, step->bytes);
    case SYSMEM: return memory(ctx, CLASS_SYSMEM, step->bytes);
    case PINNED: status = rm_os_descriptor(ctx->gpu, step->bytes, &made); return keep(ctx, status, made);
    case GROUP: return object(ctx, ctx->gpu->device, CLASS_CHANNEL_GROUP, group);
    case CTXSHARE: return object(ctx, *group, CLASS_CTXSHARE, &made);
    case COMPUTE: return channel(ctx, *group, true);
    case COPY: return channel(ctx, *group, false);
    }
    return CUDA_SUCCESS;
}

static void tear_down(struct context *ctx) {
    pools_forget(ctx);
    allocations_forget(ctx);
    modules_forget(ctx);
    graphs_forget(ctx);
    while (ctx->segments)
        segment_free(ctx->segments);
    /* A parent takes its children along, so a failure here only says that one is gone already. */
    while (ctx->object_count)
        rm_free(ctx->gpu->device, ctx->objects[--ctx->object_count]);
    ctx->dead = true;
}

static CUresult create(struct gpu *gpu, struct context **out) {
    struct context *ctx = calloc(1, sizeof *ctx);
    uint32_t group = 0;
    CUresult result = CUDA_SUCCESS;
    ctx->gpu = gpu;
    ctx->stack_limit = STACK_DEFAULT;
    uvm_register_vaspace(gpu);
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !result; i++)
        for (int n = 0; n < steps[i].times && !result; n++)
            result = run_step(ctx, &steps[i], &group);
    if (!result)
        result = context_grow_local(ctx, LOCAL_AT_START, "context");
    if (result) {
        tear_down(ctx);
        return result;
    }
    *out = ctx;
    return CUDA_SUCCESS;
}

/* Makes local memory big enough. The old piece goes first, as libcuda does it: a failure leaves none. */
CUresult context_grow_local(struct context *ctx, uint64_t per_thread, const char *kind) {
    if (per_thread <= ctx->local_per_thread)
        return CUDA_SUCCESS;
    if (ctx->local_memory)
        segment_free(ctx->local_memory);
    ctx->local_per_thread = 0;
    ctx->local_memory = segment_new(ctx, kind, CLASS_VIDMEM, ATTR_PLAIN, LOCAL_THREADS * ROUND_UP(per_thread, 32));
    if (!ctx->local_memory)
        return ctx->error;
    ctx->local_per_thread = per_thread;
    return CUDA_SUCCESS;
}

CUresult context_primary(struct gpu *gpu, struct context **ctx) {
    if (!gpu->primary) {
        CUresult result = create(gpu, &gpu->primary);
        if (result)
            return result;
        gpu->primary->primary = true;
    }
    *ctx = gpu->primary;
    return CUDA_SUCCESS;
}

static void reset_primary(struct gpu *gpu) {
    if (gpu->primary)
        tear_down(gpu->primary);
    gpu->primary = NULL;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device) {
    READY;
    if (device < 0 || device >= sim_gpu_count)
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult result = context_primary(&sim_gpus[device], ctx);
    sim_gpus[device].primary_refs += !result;
    return result;
}

API CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    READY;
    if (device < 0 || device >= sim_gpu_count || !sim_gpus[device].primary_refs)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!--sim_gpus[device].primary_refs)
        reset_primary(&sim_gpus[device]);
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) {
    READY;
    if (device < 0 || device >= sim_gpu_count)
        return CUDA_ERROR_INVALID_DEVICE;
    reset_primary(&sim_gpus[device]);
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice device, unsigned flags) {
    (void)device, (void)flags;
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned *flags, int *active) {
    READY;
    if (device < 0 || device >= sim_gpu_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = sim_gpus[device].primary != NULL;
    return CUDA_SUCCESS;
}

API CUresult cuCtxPushCurrent_v2(CUcontext ctx);

API CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device) {
    (void)flags;
    {
        READY;
        if (device < 0 || device >= sim_gpu_count)
            return CUDA_ERROR_INVALID_DEVICE;
        CUresult result = create(&sim_gpus[device], ctx);
        if (result)
            return result;
    }
    return cuCtxPushCurrent_v2(*ctx);
}

API CUresult cuCtxCreate_v3(CUcontext *ctx, void *affinity, int count, unsigned flags, CUdevice device) {
    (void)affinity, (void)count;
    return cuCtxCreate_v2(ctx, flags, device);
}

API CUresult cuCtxCreate_v4(CUcontext *ctx, void *params, unsigned flags, CUdevice device) {
    (void)params;
    return cuCtxCreate_v2(ctx, flags, device);
}

API CUresult cuCtxDestroy_v2(CUcontext ctx) {
    READY;
    if (!ctx || ctx->dead || ctx->primary)
        return CUDA_ERROR_INVALID_CONTEXT;
    tear_down(ctx);
    return CUDA_SUCCESS;
}

API CUresult cuCtxSynchronize(void) {
    WITH_CONTEXT(ctx);
    pools_sync(ctx);
    return CUDA_SUCCESS;
}

/* A bigger stack takes effect at the next launch; the device heap is allocated at once. */
API CUresult cuCtxSetLimit(int limit, size_t value) {
    WITH_CONTEXT(ctx);
    if (limit == CU_LIMIT_STACK_SIZE)
        ctx->stack_limit = value;
    else if (limit == CU_LIMIT_MALLOC_HEAP_SIZE && value > 8 * MIB)
        return memory(ctx, CLASS_VIDMEM, value);
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetLimit(size_t *value, int limit) {
    WITH_CONTEXT(ctx);
    *value = limit == CU_LIMIT_STACK_SIZE ? ctx->stack_limit : 8 * MIB;
    return CUDA_SUCCESS;
}

API CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned flags) {
    WITH_CONTEXT(ctx);
    return !peer || peer == ctx || flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

API CUresult cuCtxDisablePeerAccess(CUcontext peer) {
    WITH_CONTEXT(ctx);
    return !peer || peer == ctx ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}
