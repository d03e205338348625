/* cuMemAlloc and kin: small requests share 2 MiB, bigger ones get an object of their own. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "state.h"

#define SMALL MIB     /* requests up to this share a page */
#define GRANULE 512ull /* what cudaMalloc aligns to */

struct slab {
    struct slab *next;
    struct segment *segment;
    int used;
    uint8_t taken[PAGE / GRANULE];
};

struct allocation {
    struct allocation *next;
    struct context *ctx;
    uint64_t va, bytes;
    struct segment *segment;
    struct slab *slab;
    bool managed;
};

static struct slab *slabs;
static struct allocation *allocations;

static void note(struct context *ctx, uint64_t va, uint64_t bytes, struct segment *segment, struct slab *slab) {
    struct allocation *a = calloc(1, sizeof *a);
    *a = (struct allocation){allocations, ctx, va, bytes, segment, slab, !segment};
    allocations = a;
}

static struct allocation **find(uint64_t va) {
    struct allocation **a = &allocations;
    while (*a && (*a)->va != va)
        a = &(*a)->next;
    return a;
}

/* First run of free granules in a slab; -1: none. */
static int free_run(const struct slab *slab, int granules) {
    int run = 0;
    for (int i = 0; i < (int)(PAGE / GRANULE); i++) {
        run = slab->taken[i] ? 0 : run + 1;
        if (run == granules)
            return i + 1 - granules;
    }
    return -1;
}

static struct slab *slab_new(struct context *ctx) {
    struct segment *segment = segment_new(ctx, "cuda_malloc", CLASS_VIDMEM, ATTR_PLAIN, PAGE);
    if (!segment)
        return NULL;
    segment_register(segment, true);
    struct slab *slab = calloc(1, sizeof *slab);
    slab->next = slabs;
    slab->segment = segment;
    return slabs = slab;
}

static CUresult small_alloc(struct context *ctx, CUdeviceptr *out, uint64_t bytes) {
    int granules = (int)(ROUND_UP(bytes, GRANULE) / GRANULE), at = -1;
    struct slab *slab = slabs;
    for (; slab; slab = slab->next)
        if (slab->segment->ctx == ctx && (at = free_run(slab, granules)) >= 0)
            break;
    if (!slab) {
        slab = slab_new(ctx);
        at = 0;
    }
    if (!slab)
        return ctx->error;
    memset(slab->taken + at, 1, (size_t)granules);
    slab->used += granules;
    *out = slab->segment->va + (uint64_t)at * GRANULE;
    note(ctx, *out, bytes, slab->segment, slab);
    return CUDA_SUCCESS;
}

CUresult memory_alloc(struct context *ctx, CUdeviceptr *out, uint64_t bytes) {
    if (!out || !bytes)
        return CUDA_ERROR_INVALID_VALUE;
    if (bytes <= SMALL)
        return small_alloc(ctx, out, bytes);
    struct segment *segment = segment_new(ctx, "cuda_malloc", CLASS_VIDMEM, ATTR_PLAIN, bytes);
    if (!segment)
        return ctx->error;
    segment_register(segment, true);
    *out = segment->va;
    note(ctx, *out, bytes, segment, NULL);
    return CUDA_SUCCESS;
}

static void slab_put(struct slab *slab, const struct allocation *a) {
    int granules = (int)(ROUND_UP(a->bytes, GRANULE) / GRANULE);
    memset(slab->taken + (a->va - slab->segment->va) / GRANULE, 0, (size_t)granules);
    slab->used -= granules;
    if (slab->used)
        return;
    for (struct slab **s = &slabs; *s; s = &(*s)->next) {
        if (*s != slab)
            continue;
        *s = slab->next;
        break;
    }
    segment_register(slab->segment, false);
    segment_free(slab->segment);
    free(slab);
}

CUresult memory_free(CUdeviceptr address) {
    struct allocation **at = find(address), *a = *at;
    if (!a)
        return CUDA_ERROR_INVALID_VALUE;
    *at = a->next;
    if (a->managed) {
        munmap((void *)a->va, a->bytes);
    } else if (a->slab) {
        slab_put(a->slab, a);
    } else {
        segment_register(a->segment, false);
        segment_free(a->segment);
    }
    free(a);
    return CUDA_SUCCESS;
}

/* The memory object behind an address, the address's offset in it and the bytes asked for; NULL: not ours. */
struct segment *memory_segment(CUdeviceptr address, uint64_t *offset, uint64_t *requested) {
    for (struct allocation *a = allocations; a; a = a->next) {
        if (a->managed || address < a->va || address >= a->va + a->bytes)
            continue;
        *offset = address - a->segment->va;
        *requested = a->segment->requested;
        return a->segment;
    }
    return NULL;
}

/* The context goes: its objects are freed by the caller, the books here. */
void allocations_forget(struct context *ctx) {
    for (struct allocation **a = &allocations, *gone; *a;) {
        if ((*a)->ctx != ctx) {
            a = &(*a)->next;
            continue;
        }
        gone = *a;
        *a = gone->next;
        if (gone->managed)
            munmap((void *)gone->va, gone->bytes);
        free(gone);
    }
    for (struct slab **s = &slabs, *gone; *s;) {
        if ((*s)->segment->ctx != ctx) {
            s = &(*s)->next;
            continue;
        }
        gone = *s;
        *s = gone->next;
        free(gone);
    }
}

API CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes) {
    WITH_CONTEXT(ctx);
    return memory_alloc(ctx, out, bytes);
}

API CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned element) {
    WITH_CONTEXT(ctx);
    if (!pitch || !width || !height || (element != 4 && element != 8 && element != 16))
        return CUDA_ERROR_INVALID_VALUE;
    *pitch = ROUND_UP(width, GRANULE);
    return memory_alloc(ctx, out, *pitch * height);
}

/* Managed memory lives in UVM, not in an object of the resource manager: no bytes here. */
API CUresult cuMemAllocManaged(CUdeviceptr *out, size_t bytes, unsigned flags) {
    WITH_CONTEXT(ctx);
    if (!out || !bytes || (flags != 1 && flags != 2))
        return CUDA_ERROR_INVALID_VALUE;
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *out = (uintptr_t)p;
    note(ctx, *out, bytes, NULL, NULL);
    return CUDA_SUCCESS;
}

API CUresult cuMemFree_v2(CUdeviceptr address) {
    WITH_CONTEXT(ctx);
    (void)ctx;
    if (!address)
        return CUDA_SUCCESS;
    if (pool_owns(address))
        return pool_free(address);
    return graph_owns(address) ? graph_free(address) : memory_free(address);
}

API CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *bytes, CUdeviceptr address) {
    READY;
    for (struct allocation *a = allocations; a; a = a->next) {
        if (address < a->va || address >= a->va + a->bytes)
            continue;
        if (base)
            *base = a->va;
        if (bytes)
            *bytes = a->bytes;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

API CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    WITH_CONTEXT(ctx);
    struct nv_fb_info info = {.count = 2, .list = {{FB_HEAP_FREE, 0}, {FB_HEAP_SIZE, 0}}};
    uint32_t status = rm_control(ctx->gpu->subdevice, CTRL_FB_GET_INFO_V2, &info, sizeof info);
    if (status)
        return rm_result(status);
    *free_bytes = (size_t)info.list[0].data << 10;
    *total = (size_t)info.list[1].data << 10;
    return CUDA_SUCCESS;
}
