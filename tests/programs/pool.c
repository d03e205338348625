/* Stream-ordered allocation. */
#include "scenario.h"

void async_pool(void) {
    void *p, *q;
    cudaMemPool_t pool;
    OK(cudaMallocAsync(&p, 50 * MIB, NULL));
    mark("50 in two chunks", 0, CONTEXT + 64 * MIB);
    OK(cudaMallocAsync(&q, 10 * MIB, NULL));
    mark("10 more inside", 0, CONTEXT + 64 * MIB);
    OK(cudaFreeAsync(p, NULL));
    mark("freed, not yet back", 0, CONTEXT + 64 * MIB);
    /* q sits in the second chunk: the first one goes at the next synchronisation. */
    OK(cudaStreamSynchronize(NULL));
    mark("first chunk back", 0, CONTEXT + 32 * MIB);
    OK(cudaMallocAsync(&p, 100 * MIB, NULL));
    OK(cudaDeviceGetDefaultMemPool(&pool, 0));
    OK(cudaFreeAsync(p, NULL));
    OK(cudaMemPoolTrimTo(pool, 0));
    mark("trimmed", 0, CONTEXT + 32 * MIB);
    OK(cudaFreeAsync(q, NULL));
    OK(cudaDeviceSynchronize());
    mark("empty", 0, CONTEXT);
}

void own_pool(void) {
    cudaMemPoolProps props = {.allocType = 1, .location = {1, 0}};
    cudaMemPool_t pool;
    void *p, *q;
    OK(cudaMemPoolCreate(&pool, &props));
    mark("pool", 0, CONTEXT);
    OK(cudaMallocFromPoolAsync(&p, 33 * MIB, pool, NULL));
    OK(cudaDeviceSetMemPool(0, pool));
    OK(cudaMallocAsync(&q, 31 * MIB, NULL));
    mark("two chunks", 0, CONTEXT + 64 * MIB);
    OK(cudaFreeAsync(p, NULL));
    OK(cudaFree(q));
    OK(cudaMemPoolDestroy(pool));
    mark("destroyed", 0, CONTEXT);
}

void pool_threshold(void) {
    uint64_t keep = 64 * MIB, reserved, used;
    cudaMemPool_t pool;
    void *p;
    OK(cudaDeviceGetMemPool(&pool, 0));
    OK(cudaMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep));
    OK(cudaMallocAsync(&p, 120 * MIB, NULL));
    mark("four chunks", 0, CONTEXT + 128 * MIB);
    OK(cudaFreeAsync(p, NULL));
    OK(cudaStreamSynchronize(NULL));
    mark("kept", 0, CONTEXT + 64 * MIB);
    OK(cudaMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved));
    OK(cudaMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used));
    printf("reserved %d used %d\n", (int)(reserved / MIB), (int)used);
}
