/*
 * PyTorch's caching allocator, simulated: what c10/cuda/CUDACachingAllocator.cpp (2.9.1) does to memory, and whom it tells.
 *
 * Segments come from cudaMalloc, or (expandable) from cuMemCreate under a range reserved once; blocks are cut out of them
 * and joined again. Every block handed out or taken back is reported to libc10 with the allocator's lock held.
 */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../include/cudart_abi.h"

#define API __attribute__((visibility("default")))

#define MIB (UINT64_C(1) << 20)
/* kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc, kLargeBuffer, kRoundLarge. */
#define MIN_BLOCK UINT64_C(512)
#define SMALL_SIZE MIB
#define SMALL_BUFFER (2 * MIB)
#define MIN_LARGE (10 * MIB)
#define LARGE_BUFFER (20 * MIB)
#define ROUND_LARGE (2 * MIB)
#define DEVICES 64

enum state { FREE, USED, UNMAPPED };

/* A piece of a segment. The pieces of one segment are neighbours without a gap. */
struct block {
    struct block *next, *previous;
    struct segment *segment;
    uint64_t address, bytes;
    enum state state;
};

/* Memory that CUDA gave; with `chunk`, a reserved range of which some chunks are backed by memory. */
struct segment {
    struct segment *next;
    struct block *first;
    int device;
    bool small;
    uint64_t pool; /* 0: the default pool. */
    uint64_t bytes, chunk;
    CUmemGenericAllocationHandle *handles; /* By chunk; 0 where there is none. */
};

/* The allocator's own books, a device: they never look at what the driver did. */
struct stats {
    uint64_t allocated, reserved, blocks;
    uint64_t pool_allocated, pool_reserved; /* Of these, in private pools. */
    uint64_t retries, ooms, reports;
};

extern struct stats torch_stats[DEVICES];
extern struct segment *torch_segments;
extern bool torch_expandable;

static inline uint64_t round_up(uint64_t bytes, uint64_t to) {
    return (bytes + to - 1) / to * to;
}

/* A free block of at least `bytes` made of new memory; NULL when there is none to be had. */
struct block *segment_new(int device, bool small, uint64_t pool, uint64_t bytes);
struct block *segment_grow(int device, bool small, uint64_t pool, uint64_t bytes);
/* Gives back what no block uses; of one pool (its owner let go of it), or of all that are not in use by a graph. */
void segments_trim(void);
/* Cuts `bytes` off the front of a block; gives the front. */
struct block *block_cut(struct block *block, uint64_t bytes);
/* Joins a block with its neighbours of the same state; gives what became of it. */
struct block *block_join(struct block *block);
void pool_release(uint64_t pool);
bool pool_is_released(uint64_t pool);
