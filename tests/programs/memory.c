/* cudaMalloc and kin, and how they fail. */
#include "scenario.h"

/* 5,000 allocations of 512 bytes fill two pages of 2 MiB. */
void small(void) {
    static void *p[5000];
    OK(cudaFree(0));
    mark("context", 0, CONTEXT);
    for (int i = 0; i < 5000; i++)
        OK(cudaMalloc(&p[i], 512));
    mark("allocated", 0, CONTEXT + 4 * MIB);
    /* Every other one: no page is empty, nothing goes. */
    for (int i = 0; i < 5000; i += 2)
        OK(cudaFree(p[i]));
    mark("half freed", 0, CONTEXT + 4 * MIB);
    for (int i = 1; i < 5000; i += 2)
        OK(cudaFree(p[i]));
    mark("freed", 0, CONTEXT);
}

void large(void) {
    const size_t sizes[] = {1 * MIB, 1 * MIB + 1, 2 * MIB, 3 * MIB, 123456789, 64 * MIB};
    enum { N = sizeof sizes / sizeof *sizes };
    void *p[N];
    uint64_t live = CONTEXT;
    for (int i = 0; i < N; i++) {
        OK(cudaMalloc(&p[i], sizes[i]));
        live += CHARGED(sizes[i]);
    }
    mark("allocated", 0, live);
    OK(cudaMemset(p[4], 0, sizes[4]));
    for (int i = N - 1; i >= 0; i--) {
        OK(cudaFree(p[i]));
        live -= CHARGED(sizes[i]);
        if (i == 3)
            mark("two freed", 0, live);
    }
    /* The first address comes back: a new life of an old address. */
    void *again;
    OK(cudaMalloc(&again, 64 * MIB));
    EXPECT(1, again == p[5]);
    mark("again", 0, live + 64 * MIB);
}

void pitch(void) {
    void *p;
    size_t row;
    cudaPitchedPtr cube;
    OK(cudaMallocPitch(&p, &row, 1000, 5000));
    EXPECT(1024, row);
    mark("pitch", 0, CONTEXT + CHARGED(1024 * 5000));
    OK(cudaMalloc3D(&cube, (cudaExtent){1000, 100, 100}));
    mark("cube", 0, CONTEXT + CHARGED(1024 * 5000) + CHARGED(1024 * 100 * 100));
    OK(cudaFree(p));
    OK(cudaFree(cube.ptr));
    mark("freed", 0, CONTEXT);
}

void arrays(void) {
    cudaChannelFormatDesc float4 = {32, 32, 32, 32, 2};
    cudaArray_t flat, deep, deferred;
    cudaMipmappedArray_t mip;
    OK(cudaMallocArray(&flat, &float4, 1024, 1024, 0));
    mark("array", 0, CONTEXT + 16 * MIB);
    OK(cudaMalloc3DArray(&deep, &float4, (cudaExtent){256, 256, 33}, 0));
    mark("3d array", 0, CONTEXT + 16 * MIB + CHARGED(256 * 256 * 33 * 16));
    OK(cudaMallocMipmappedArray(&mip, &float4, (cudaExtent){1024, 1024, 0}, 3, 0));
    mark("mipmapped", 0, CONTEXT + 16 * MIB + CHARGED(256 * 256 * 33 * 16) + CHARGED(21 * MIB));
    /* A deferred array has no memory of its own. */
    OK(cudaMalloc3DArray(&deferred, &float4, (cudaExtent){1024, 1024, 0}, 0x80));
    OK(cudaFreeArray(flat));
    OK(cudaFreeArray(deep));
    OK(cudaFreeMipmappedArray(mip));
    OK(cudaFreeArray(deferred));
    mark("freed", 0, CONTEXT);
}

void managed(void) {
    char *p;
    OK(cudaMallocManaged((void **)&p, 64 * MIB, 1));
    memset(p, 1, 4 * MIB);
    mark("managed", 0, CONTEXT);
    OK(cudaFree(p));
    mark("freed", 0, CONTEXT);
}

void host(void) {
    static char own[1 << 20];
    void *p;
    OK(cudaHostAlloc(&p, 10 * MIB, 0));
    OK(cudaHostRegister(own, sizeof own, 0));
    memset(p, 1, 10 * MIB);
    mark("pinned", 0, CONTEXT);
    OK(cudaHostUnregister(own));
    OK(cudaFreeHost(p));
    EXPECT(cudaErrorInvalidValue, cudaFreeHost(own));
    mark("freed", 0, CONTEXT);
}

void wrong_arguments(void) {
    void *p = NULL;
    CUmemAllocationProp prop = device_memory(0, false);
    CUmemGenericAllocationHandle handle;
    OK(cudaFree(0));
    EXPECT(cudaErrorInvalidValue, cudaMalloc(NULL, 1));
    EXPECT(cudaErrorInvalidValue, cudaMalloc(&p, 0));
    EXPECT(cudaErrorInvalidValue, cudaFree((void *)0x1234));
    EXPECT(cudaErrorInvalidValue, cudaMallocManaged(&p, MIB, 77));
    EXPECT(CUDA_ERROR_INVALID_VALUE, CU(cuMemCreate)(&handle, 1000, &prop, 0));
    prop.location.id = 5000;
    EXPECT(CUDA_ERROR_INVALID_DEVICE, CU(cuMemCreate)(&handle, 2 * MIB, &prop, 0));
    EXPECT(CUDA_ERROR_INVALID_VALUE, CU(cuMemUnmap)(0x5000, 2 * MIB));
    mark("nothing", 0, CONTEXT);
}

/* On a GPU cut down to 1 GiB there is room for a context and five pieces of 100 MiB. */
void out_of_memory(void) {
    void *p[8], *q;
    int n = 0;
    control("{\"limit\":{\"gpu\":0,\"bytes\":%llu}}", GIB);
    OK(cudaFree(0));
    EXPECT(cudaErrorMemoryAllocation, cudaMalloc(&q, 4096 * GIB));
    mark("too much", 0, CONTEXT);
    while (n < 8 && !cudaMalloc(&p[n], 100 * MIB))
        n++;
    printf("%d pieces\n", n);
    mark("full", 0, CONTEXT + 500 * MIB);
    EXPECT(cudaErrorMemoryAllocation, cudaMallocAsync(&q, 50 * MIB, NULL));
    EXPECT(cudaErrorMemoryAllocation, try_launch("spills_local4096", NULL));
    /* Local memory was given up for a bigger piece that could not be had; the code of the kernel stayed. */
    mark("launch failed", 0, CONTEXT + 500 * MIB - 414 * MIB + CODE);
    OK(cudaFree(p[0]));
    OK(cudaMalloc(&q, 50 * MIB));
    mark("goes on", 0, CONTEXT + 450 * MIB - 414 * MIB + CODE);
}

void mem_info(void) {
    size_t before, after, total;
    void *p;
    OK(cudaMemGetInfo(&before, &total));
    OK(cudaMalloc(&p, 100 * MIB));
    OK(cudaMemGetInfo(&after, &total));
    EXPECT(100, (before - after) / MIB);
    EXPECT(1, total > before);
    mark("read", 0, CONTEXT + 100 * MIB);
}
