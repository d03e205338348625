/* Stream-ordered pools: one wide range of addresses each, backed by chunks of 32 MiB as needed. */
#include <stdlib.h>
#include <string.h>

#include "state.h"

#define CHUNK (32 * MIB)
#define CHUNKS 2048
#define SPAN (CHUNK * CHUNKS)
#define ALIGNMENT 512ull

struct block {
    struct block *next; /* by address */
    uint64_t offset, bytes;
};

struct pool {
    struct pool *next;
    struct context *ctx;
    uint64_t base, threshold, reserved, used;
    uint32_t chunks[CHUNKS]; /* object handles, 0: not backed */
    uint32_t scratch;        /* the pool's page of host memory */
    struct block *blocks;
};

static struct pool *pools;

static struct pool *pool_new(struct context *ctx) {
    struct pool *p = calloc(1, sizeof *p);
    uint64_t bytes = PAGE;
    p->ctx = ctx;
    p->base = va_take(SPAN);
    uvm_create(p->base, SPAN);
    rm_kind("pool");
    if (rm_memory(ctx->gpu, CLASS_SYSMEM, ATTR_SYSMEM, &bytes, &p->scratch))
        p->scratch = 0;
    p->next = pools;
    return pools = p;
}

static struct pool *default_pool(struct context *ctx) {
    struct gpu *gpu = ctx->gpu;
    if (!gpu->default_pool)
        gpu->default_pool = pool_new(ctx);
    return gpu->default_pool;
}

static struct pool *current_pool(struct context *ctx) {
    return ctx->gpu->current_pool ? ctx->gpu->current_pool : default_pool(ctx);
}

static void chunk_free(struct pool *p, int chunk) {
    uvm_unmap(p->ctx->gpu, p->base + (uint64_t)chunk * CHUNK, CHUNK);
    rm_free(p->ctx->gpu->device, p->chunks[chunk]);
    p->chunks[chunk] = 0;
    p->reserved -= CHUNK;
}

/* Backs every chunk that [offset, offset + bytes) touches; takes back what it took when one cannot be had. */
static CUresult back(struct pool *p, uint64_t offset, uint64_t bytes) {
    int first = (int)(offset / CHUNK), last = (int)((offset + bytes - 1) / CHUNK), made[CHUNKS], count = 0;
    for (int c = first; c <= last; c++) {
        uint64_t charged = CHUNK;
        if (p->chunks[c])
            continue;
        rm_kind("pool");
        uint32_t status = rm_memory(p->ctx->gpu, CLASS_VIDMEM, ATTR_EXPORTABLE, &charged, &p->chunks[c]);
        if (status) {
            p->chunks[c] = 0;
            while (count)
                chunk_free(p, made[--count]);
            return rm_result(status);
        }
        p->reserved += CHUNK;
        made[count++] = c;
    }
    for (int i = 0; i < count; i++)
        uvm_map(p->ctx->gpu, p->base + (uint64_t)made[i] * CHUNK, CHUNK, 0, p->chunks[made[i]]);
    return CUDA_SUCCESS;
}

/* Frees chunks that no block uses, highest first, down to `keep` bytes. */
static void trim(struct pool *p, uint64_t keep) {
    for (int c = CHUNKS - 1; c >= 0 && p->reserved > keep; c--) {
        uint64_t from = (uint64_t)c * CHUNK;
        bool busy = false;
        for (struct block *b = p->blocks; b && !busy; b = b->next)
            busy = b->offset < from + CHUNK && from < b->offset + b->bytes;
        if (p->chunks[c] && !busy)
            chunk_free(p, c);
    }
}

static CUresult pool_alloc(struct pool *p, CUdeviceptr *out, uint64_t bytes) {
    uint64_t offset = 0, size = ROUND_UP(bytes, ALIGNMENT);
    struct block **at = &p->blocks;
    /* First gap that fits. */
    for (; *at && (*at)->offset - offset < size; at = &(*at)->next)
        offset = (*at)->offset + (*at)->bytes;
    if (offset + size > SPAN)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = back(p, offset, size);
    if (result)
        return result;
    struct block *b = malloc(sizeof *b);
    *b = (struct block){*at, offset, size};
    *at = b;
    p->used += size;
    *out = p->base + offset;
    return CUDA_SUCCESS;
}

static struct pool *pool_of(CUdeviceptr address) {
    struct pool *p = pools;
    while (p && (address < p->base || address >= p->base + SPAN))
        p = p->next;
    return p;
}

bool pool_owns(CUdeviceptr address) {
    return pool_of(address) != NULL;
}

CUresult pool_free(CUdeviceptr address) {
    struct pool *p = pool_of(address);
    for (struct block **at = &p->blocks, *b; (b = *at); at = &b->next) {
        if (p->base + b->offset != address)
            continue;
        *at = b->next;
        p->used -= b->bytes;
        free(b);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* At a synchronisation unused chunks above the release threshold go back to the driver. */
void pools_sync(struct context *ctx) {
    for (struct pool *p = pools; p; p = p->next)
        if (p->ctx == ctx)
            trim(p, p->threshold);
}

static void destroy(struct pool *pool) {
    struct gpu *gpu = pool->ctx->gpu;
    for (struct pool **at = &pools; *at; at = &(*at)->next) {
        if (*at != pool)
            continue;
        *at = pool->next;
        break;
    }
    while (pool->blocks) {
        struct block *b = pool->blocks;
        pool->blocks = b->next;
        free(b);
    }
    trim(pool, 0);
    if (pool->scratch)
        rm_free(gpu->device, pool->scratch);
    uvm_free(pool->base, SPAN);
    va_give(pool->base, SPAN);
    if (gpu->current_pool == pool)
        gpu->current_pool = NULL;
    if (gpu->default_pool == pool)
        gpu->default_pool = NULL;
    free(pool);
}

void pools_forget(struct context *ctx) {
    for (struct pool *p = pools, *next; p; p = next) {
        next = p->next;
        if (p->ctx == ctx)
            destroy(p);
    }
}

API CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream) {
    WITH_CONTEXT(ctx);
    if (!out || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraph graph = stream_capture(stream);
    if (graph)
        return graph_add_alloc(graph, out, bytes);
    return pool_alloc(pool ? pool : current_pool(ctx), out, bytes);
}

API CUresult cuMemAllocAsync(CUdeviceptr *out, size_t bytes, CUstream stream) {
    WITH_CONTEXT(ctx);
    if (!out || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraph graph = stream_capture(stream);
    return graph ? graph_add_alloc(graph, out, bytes) : pool_alloc(current_pool(ctx), out, bytes);
}

API CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) {
    WITH_CONTEXT(ctx);
    (void)ctx;
    CUgraph graph = stream_capture(stream);
    if (graph)
        return graph_add_free(graph, address);
    if (pool_owns(address))
        return pool_free(address);
    return graph_owns(address) ? graph_free(address) : memory_free(address);
}

API CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t bytes, CUstream stream) {
    return cuMemAllocAsync(out, bytes, stream);
}

API CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream) {
    return cuMemAllocFromPoolAsync(out, bytes, pool, stream);
}

API CUresult cuMemFreeAsync_ptsz(CUdeviceptr address, CUstream stream) {
    return cuMemFreeAsync(address, stream);
}

API CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props) {
    READY;
    struct context *ctx;
    if (!out || !props || props->location.type != 1 || props->location.id < 0 || props->location.id >= sim_gpu_count)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = context_primary(&sim_gpus[props->location.id], &ctx);
    if (!result)
        *out = pool_new(ctx);
    return result;
}

API CUresult cuMemPoolDestroy(CUmemoryPool pool) {
    READY;
    if (!pool || pool == pool->ctx->gpu->default_pool)
        return CUDA_ERROR_INVALID_VALUE;
    destroy(pool);
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) {
    READY;
    if (!pool)
        return CUDA_ERROR_INVALID_VALUE;
    trim(pool, keep);
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolSetAttribute(CUmemoryPool pool, int attribute, void *value) {
    READY;
    if (attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD)
        memcpy(&pool->threshold, value, sizeof pool->threshold);
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolGetAttribute(CUmemoryPool pool, int attribute, void *value) {
    READY;
    uint64_t v = attribute == CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT ? pool->reserved
                 : attribute == CU_MEMPOOL_ATTR_USED_MEM_CURRENT   ? pool->used
                 : attribute == CU_MEMPOOL_ATTR_RELEASE_THRESHOLD  ? pool->threshold
                                                                   : 0;
    memcpy(value, &v, attribute < CU_MEMPOOL_ATTR_RELEASE_THRESHOLD ? sizeof(int) : sizeof v);
    return CUDA_SUCCESS;
}

API CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *list, size_t count) {
    (void)list, (void)count;
    return pool ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult device_pool(CUmemoryPool *out, CUdevice device, bool current) {
    READY;
    struct context *ctx;
    if (device < 0 || device >= sim_gpu_count)
        return CUDA_ERROR_INVALID_DEVICE;
    CUresult result = context_primary(&sim_gpus[device], &ctx);
    if (!result)
        *out = current ? current_pool(ctx) : default_pool(ctx);
    return result;
}

API CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice device) {
    return device_pool(out, device, false);
}

API CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice device) {
    return device_pool(out, device, true);
}

API CUresult cuDeviceSetMemPool(CUdevice device, CUmemoryPool pool) {
    READY;
    if (device < 0 || device >= sim_gpu_count || !pool)
        return CUDA_ERROR_INVALID_VALUE;
    sim_gpus[device].current_pool = pool;
    return CUDA_SUCCESS;
}
