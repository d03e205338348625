/* Blocks: what a program asks for, and whom the allocator tells. */
#include <pthread.h>
#include <stdlib.h>

#include "allocator.h"

/* c10::Device: type (1 is CUDA) and index, one byte each, passed in a register. */
struct device {
    int8_t type, index;
};

void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *ptr, int64_t bytes, size_t allocated, size_t reserved,
                                                          struct device device);
void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t bytes, size_t allocated, size_t reserved,
                                                        struct device device);

struct stats torch_stats[DEVICES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
/* Pool that this thread's blocks come from while it captures a graph. */
static __thread uint64_t capturing;

static void report(struct block *block, int64_t bytes) {
    struct segment *segment = block->segment;
    struct stats *stats = &torch_stats[segment->device];
    stats->allocated += (uint64_t)bytes;
    stats->blocks += bytes < 0 ? UINT64_C(-1) : 1;
    if (segment->pool)
        stats->pool_allocated += (uint64_t)bytes;
    stats->reports++;
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((void *)(uintptr_t)block->address, bytes, stats->allocated,
                                                         stats->reserved, (struct device){1, (int8_t)segment->device});
}

/* The smallest free block that fits, of those the lowest. */
static struct block *cached(int device, bool small, uint64_t pool, uint64_t bytes) {
    struct block *best = NULL;
    for (struct segment *s = torch_segments; s; s = s->next) {
        if (s->device != device || s->small != small || s->pool != pool)
            continue;
        for (struct block *b = s->first; b; b = b->next) {
            bool better = !best || b->bytes < best->bytes || (b->bytes == best->bytes && b->address < best->address);
            if (b->state == FREE && b->bytes >= bytes && better)
                best = b;
        }
    }
    return best;
}

static struct block *new_memory(int device, bool small, uint64_t pool, uint64_t bytes) {
    return torch_expandable ? segment_grow(device, small, pool, bytes) : segment_new(device, small, pool, bytes);
}

/* should_split; expandable segments always split. */
static bool splits(const struct block *block, uint64_t bytes) {
    uint64_t rest = block->bytes - bytes;
    return block->segment->small || block->segment->chunk ? rest >= MIN_BLOCK : rest > SMALL_SIZE;
}

/* NULL stands for torch.OutOfMemoryError. */
API void *sim_torch_alloc(int device, size_t asked) {
    if (!asked || device < 0 || device >= DEVICES)
        return NULL;
    uint64_t bytes = round_up(asked, MIN_BLOCK);
    bool small = bytes <= SMALL_SIZE;
    int current;
    cudaGetDevice(&current);
    cudaSetDevice(device);
    pthread_mutex_lock(&mutex);
    struct stats *stats = &torch_stats[device];
    struct block *block = cached(device, small, capturing, bytes);
    if (!block)
        block = new_memory(device, small, capturing, bytes);
    if (!block) {
        /* What is cached goes back to CUDA, then once more. */
        stats->retries++;
        segments_trim();
        block = new_memory(device, small, capturing, bytes);
    }
    if (block) {
        if (splits(block, bytes))
            block = block_cut(block, bytes);
        block->state = USED;
        report(block, (int64_t)block->bytes);
    } else {
        stats->ooms++;
        _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE((int64_t)bytes, stats->allocated, stats->reserved,
                                                           (struct device){1, (int8_t)device});
    }
    void *address = block ? (void *)(uintptr_t)block->address : NULL;
    pthread_mutex_unlock(&mutex);
    cudaSetDevice(current);
    return address;
}

static struct block *find(uint64_t address) {
    for (struct segment *s = torch_segments; s; s = s->next) {
        if (address < s->first->address || address - s->first->address >= s->bytes)
            continue;
        for (struct block *b = s->first; b; b = b->next)
            if (b->address == address)
                return b->state == USED ? b : NULL;
    }
    return NULL;
}

/* 0, or -1 for an address that is no block. */
API int sim_torch_free(void *address) {
    pthread_mutex_lock(&mutex);
    struct block *block = find((uint64_t)(uintptr_t)address);
    if (block) {
        block->state = FREE;
        report(block, -(int64_t)block->bytes);
        block_join(block);
    }
    pthread_mutex_unlock(&mutex);
    return block ? 0 : -1;
}

API void sim_torch_empty_cache(void) {
    pthread_mutex_lock(&mutex);
    segments_trim();
    pthread_mutex_unlock(&mutex);
}

/* beginAllocateToPool, endAllocateToPool: around the capture of a stream, by the thread that captures. */
API void sim_torch_begin_pool(uint64_t pool) {
    capturing = pool;
}

API void sim_torch_end_pool(void) {
    capturing = 0;
}

/* The last graph of the pool is gone: what is free in it may go back to CUDA. */
API void sim_torch_release_pool(uint64_t pool) {
    pthread_mutex_lock(&mutex);
    pool_release(pool);
    pthread_mutex_unlock(&mutex);
}

/* PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, from here on. */
API void sim_torch_expandable(int on) {
    pthread_mutex_lock(&mutex);
    torch_expandable = on;
    pthread_mutex_unlock(&mutex);
}

/* The allocator's own figures for a device: struct stats, eight words. */
API void sim_torch_stats(int device, uint64_t out[8]) {
    pthread_mutex_lock(&mutex);
    __builtin_memcpy(out, &torch_stats[device], sizeof torch_stats[device]);
    pthread_mutex_unlock(&mutex);
}

/* Allocates and frees a block of each of `count` sizes in turn: a burst of 2 x `count` reports. */
API int sim_torch_burst(int device, size_t count) {
    for (size_t i = 0; i < count; i++) {
        void *p = sim_torch_alloc(device, MIN_BLOCK * (1 + i % 64));
        if (!p || sim_torch_free(p))
            return -1;
    }
    return 0;
}
