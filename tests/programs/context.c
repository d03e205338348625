/* Contexts: more than one, destroyed, released, reset; more than one GPU. */
#include "scenario.h"

void context_create(void) {
    CUcontext first, second;
    CUdeviceptr p;
    OK(CU(cuInit)(0));
    mark("initialised", 0, 0);
    OK(CU(cuCtxCreate_v2)(&first, 0, 0));
    mark("first", 0, CONTEXT);
    OK(CU(cuMemAlloc_v2)(&p, 10 * MIB));
    OK(CU(cuCtxCreate_v2)(&second, 0, 0));
    OK(CU(cuMemAlloc_v2)(&p, 20 * MIB));
    mark("second", 0, 2 * CONTEXT + 30 * MIB);
    /* A context takes what was allocated in it along. */
    OK(CU(cuCtxDestroy_v2)(first));
    mark("first destroyed", 0, CONTEXT + 20 * MIB);
    OK(CU(cuCtxDestroy_v2)(second));
    mark("both destroyed", 0, 0);
    EXPECT(CUDA_ERROR_INVALID_CONTEXT, CU(cuCtxDestroy_v2)(second));
}

void context_reset(void) {
    CUcontext ctx;
    void *p;
    cudaStream_t stream;
    OK(cudaMalloc(&p, 10 * MIB));
    OK(cudaMallocAsync(&p, 10 * MIB, NULL));
    OK(cudaStreamCreate(&stream));
    launch("plain", NULL);
    launch("plain", stream);
    mark("busy", 0, CONTEXT + LOCAL_GROWTH + CODE + CHANNELS + 42 * MIB);
    OK(cudaDeviceReset());
    mark("reset", 0, 0);
    OK(cudaMalloc(&p, 4 * MIB));
    mark("again", 0, CONTEXT + 4 * MIB);
    OK(cudaDeviceReset());
    /* The driver's own references: the context goes with the last one. */
    OK(CU(cuDevicePrimaryCtxRetain)(&ctx, 0));
    mark("retained", 0, CONTEXT);
    int releases = 0;
    while (!CU(cuDevicePrimaryCtxRelease_v2)(0))
        releases++;
    printf("%d releases\n", releases);
    mark("released", 0, 0);
}

void two_gpus(void) {
    void *p, *q;
    OK(cudaSetDevice(1));
    OK(cudaMalloc(&p, 100 * MIB));
    mark("second first", 1, CONTEXT + 100 * MIB);
    mark("first untouched", 0, 0);
    OK(cudaSetDevice(0));
    OK(cudaMalloc(&q, 30 * MIB));
    mark("first", 0, CONTEXT + 30 * MIB);
    OK(cudaFree(q));
    mark("first freed", 0, CONTEXT);
    mark("second stays", 1, CONTEXT + 100 * MIB);
    OK(cudaSetDevice(1));
    OK(cudaDeviceReset());
    mark("second reset", 1, 0);
    mark("first stays", 0, CONTEXT);
}
