/* Where segments come from and go to. */
#include <stdlib.h>

#include "../include/vmm.h"
#include "allocator.h"

struct segment *torch_segments;
bool torch_expandable;

/* Private pools whose graphs are gone. */
static uint64_t released[4096];
static size_t released_count;

void pool_release(uint64_t pool) {
    if (released_count < sizeof released / sizeof *released)
        released[released_count++] = pool;
}

bool pool_is_released(uint64_t pool) {
    for (size_t i = 0; i < released_count; i++)
        if (released[i] == pool)
            return true;
    return false;
}

static void count(const struct segment *segment, int64_t bytes) {
    struct stats *stats = &torch_stats[segment->device];
    stats->reserved += (uint64_t)bytes;
    if (segment->pool)
        stats->pool_reserved += (uint64_t)bytes;
}

static struct block *piece(struct segment *segment, uint64_t address, uint64_t bytes, enum state state) {
    struct block *block = calloc(1, sizeof *block);
    *block = (struct block){NULL, NULL, segment, address, bytes, state};
    return block;
}

static struct segment *add(int device, bool small, uint64_t pool, uint64_t address, uint64_t bytes, uint64_t chunk) {
    struct segment *segment = calloc(1, sizeof *segment);
    *segment = (struct segment){torch_segments, NULL, device, small, pool, bytes, chunk, NULL};
    segment->first = piece(segment, address, bytes, chunk ? UNMAPPED : FREE);
    if (chunk)
        segment->handles = calloc(bytes / chunk, sizeof *segment->handles);
    return torch_segments = segment;
}

struct block *block_cut(struct block *block, uint64_t bytes) {
    if (bytes == block->bytes)
        return block;
    struct block *rest = piece(block->segment, block->address + bytes, block->bytes - bytes, block->state);
    rest->previous = block;
    rest->next = block->next;
    if (rest->next)
        rest->next->previous = rest;
    block->next = rest;
    block->bytes = bytes;
    return block;
}

struct block *block_join(struct block *block) {
    while (block->previous && block->previous->state == block->state)
        block = block->previous;
    while (block->next && block->next->state == block->state) {
        struct block *gone = block->next;
        block->bytes += gone->bytes;
        block->next = gone->next;
        if (gone->next)
            gone->next->previous = block;
        free(gone);
    }
    return block;
}

/* get_allocation_size */
static uint64_t segment_bytes(uint64_t bytes) {
    if (bytes <= SMALL_SIZE)
        return SMALL_BUFFER;
    return bytes < MIN_LARGE ? LARGE_BUFFER : round_up(bytes, ROUND_LARGE);
}

struct block *segment_new(int device, bool small, uint64_t pool, uint64_t bytes) {
    void *address;
    uint64_t wanted = segment_bytes(bytes);
    if (cudaMalloc(&address, wanted)) {
        cudaGetLastError();
        return NULL;
    }
    struct segment *segment = add(device, small, pool, (uint64_t)(uintptr_t)address, wanted, 0);
    count(segment, (int64_t)wanted);
    return segment->first;
}

/* The reserved range of a pool: 1 1/8 times the GPU, addresses only. */
static struct segment *range(int device, bool small, uint64_t pool) {
    for (struct segment *s = torch_segments; s; s = s->next)
        if (s->chunk && s->device == device && s->small == small && s->pool == pool)
            return s;
    size_t unused, total;
    CUdeviceptr address;
    uint64_t chunk = small ? SMALL_BUFFER : LARGE_BUFFER;
    if (cudaMemGetInfo(&unused, &total))
        return NULL;
    uint64_t bytes = round_up(total + total / 8, chunk);
    if (CU(cuMemAddressReserve)(&address, bytes, 0, 0, 0))
        return NULL;
    return add(device, small, pool, address, bytes, chunk);
}

static bool back(struct segment *segment, uint64_t address) {
    CUmemAllocationProp prop = {.type = 1, .location = {1, segment->device}};
    CUmemAccessDesc access = {{1, segment->device}, 3};
    CUmemGenericAllocationHandle handle;
    if (CU(cuMemCreate)(&handle, segment->chunk, &prop, 0))
        return false;
    if (CU(cuMemMap)(address, segment->chunk, 0, handle, 0) ||
        CU(cuMemSetAccess)(address, segment->chunk, &access, 1)) {
        CU(cuMemRelease)(handle);
        return false;
    }
    segment->handles[(address - segment->first->address) / segment->chunk] = handle;
    count(segment, (int64_t)segment->chunk);
    return true;
}

static void unback(struct segment *segment, uint64_t address) {
    CUmemGenericAllocationHandle *handle = &segment->handles[(address - segment->first->address) / segment->chunk];
    CU(cuMemUnmap)(address, segment->chunk);
    CU(cuMemRelease)(*handle);
    *handle = 0;
    count(segment, -(int64_t)segment->chunk);
}

struct block *segment_grow(int device, bool small, uint64_t pool, uint64_t bytes) {
    struct segment *segment = range(device, small, pool);
    if (!segment)
        return NULL;
    for (struct block *hole = segment->first; hole; hole = hole->next) {
        uint64_t before = hole->previous && hole->previous->state == FREE ? hole->previous->bytes : 0;
        if (hole->state != UNMAPPED || before + hole->bytes < bytes)
            continue;
        uint64_t more = round_up(bytes - before, segment->chunk), done = 0;
        while (done < more && back(segment, hole->address + done))
            done += segment->chunk;
        /* All or nothing (ExpandableSegment::map). */
        if (done < more) {
            while (done)
                unback(segment, hole->address + (done -= segment->chunk));
            return NULL;
        }
        hole = block_cut(hole, more);
        hole->state = FREE;
        return block_join(hole);
    }
    return NULL;
}

/* Takes the memory from behind the whole chunks of a free block. */
static struct block *unmap(struct block *block) {
    struct segment *segment = block->segment;
    uint64_t base = segment->first->address, end = block->address + block->bytes;
    uint64_t from = base + round_up(block->address - base, segment->chunk);
    uint64_t to = base + (end - base) / segment->chunk * segment->chunk;
    if (from >= to)
        return block;
    for (uint64_t at = from; at < to; at += segment->chunk)
        unback(segment, at);
    if (from > block->address)
        block = block_cut(block, from - block->address)->next;
    block = block_cut(block, to - from);
    block->state = UNMAPPED;
    return block_join(block);
}

void segments_trim(void) {
    struct segment **at = &torch_segments;
    while (*at) {
        struct segment *segment = *at;
        bool kept = segment->pool && !pool_is_released(segment->pool);
        bool whole = segment->first->state == FREE && !segment->first->next;
        if (!kept && segment->chunk)
            for (struct block *block = segment->first; block; block = block->next)
                block = block->state == FREE ? unmap(block) : block;
        if (kept || segment->chunk || !whole) {
            at = &segment->next;
            continue;
        }
        cudaFree((void *)(uintptr_t)segment->first->address);
        count(segment, -(int64_t)segment->bytes);
        *at = segment->next;
        free(segment->first);
        free(segment);
    }
}
