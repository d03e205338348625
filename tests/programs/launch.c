/* What launches allocate behind the program's back: code, local memory, channels. */
#include "scenario.h"

void local_memory(void) {
    OK(cudaFree(0));
    mark("context", 0, CONTEXT);
    launch("plain", NULL);
    mark("first launch", 0, CONTEXT + LOCAL_GROWTH + CODE);
    launch("plain", NULL);
    mark("second launch", 0, CONTEXT + LOCAL_GROWTH + CODE);
    /* 4096 bytes more a thread: 132 × 2048 threads × 6048 bytes. */
    launch("spills_local4096", NULL);
    uint64_t big = CHARGED(132ull * 2048 * 6048);
    mark("spills", 0, CONTEXT - 414 * MIB + big + CODE);
    launch("plain", NULL);
    mark("stays", 0, CONTEXT - 414 * MIB + big + CODE);
    /* A bigger stack counts at the next launch. */
    OK(cudaDeviceSetLimit(CU_LIMIT_STACK_SIZE, 8192));
    mark("limit set", 0, CONTEXT - 414 * MIB + big + CODE);
    launch("plain", NULL);
    big = CHARGED(132ull * 2048 * (1952 - 1024 + 8192));
    mark("launched with it", 0, CONTEXT - 414 * MIB + big + CODE);
    OK(cudaDeviceSetLimit(CU_LIMIT_MALLOC_HEAP_SIZE, 64 * MIB));
    mark("device heap", 0, CONTEXT - 414 * MIB + big + CODE + 64 * MIB);
}

void side_streams(void) {
    cudaStream_t a, b;
    OK(cudaStreamCreate(&a));
    OK(cudaStreamCreate(&b));
    launch("plain", NULL);
    mark("created", 0, CONTEXT + LOCAL_GROWTH + CODE);
    launch("plain", a);
    mark("first use", 0, CONTEXT + LOCAL_GROWTH + CODE + CHANNELS);
    launch("plain", b);
    OK(cudaStreamSynchronize(b));
    OK(cudaStreamDestroy(a));
    OK(cudaStreamDestroy(b));
    mark("end", 0, CONTEXT + LOCAL_GROWTH + CODE + CHANNELS);
}

static CUfunction function(CUmodule module, const char *name) {
    CUfunction f;
    OK(CU(cuModuleGetFunction)(&f, module, name));
    return f;
}

void modules(void) {
    CUmodule a, b;
    CUlibrary library;
    OK(cudaFree(0));
    OK(CU(cuModuleLoadData)(&a, "image a"));
    OK(CU(cuModuleLoadData)(&b, "image b"));
    OK(CU(cuLibraryLoadData)(&library, "image c", NULL, NULL, 0, NULL, NULL, 0));
    mark("loaded lazily", 0, CONTEXT);
    OK(CU(cuFuncLoad)(function(a, "one")));
    mark("function loaded", 0, CONTEXT + CODE);
    OK(CU(cuLaunchKernel)(function(b, "two"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    mark("launched", 0, CONTEXT + LOCAL_GROWTH + 2 * CODE);
    OK(CU(cuModuleUnload)(a));
    OK(CU(cuModuleUnload)(b));
    OK(CU(cuLibraryUnload)(library));
    mark("unloaded", 0, CONTEXT + LOCAL_GROWTH);
}

void eager_modules(void) {
    CUmodule a;
    setenv("CUDA_MODULE_LOADING", "EAGER", 1);
    OK(cudaFree(0));
    OK(CU(cuModuleLoadData)(&a, "image a"));
    mark("loaded eagerly", 0, CONTEXT + CODE);
    OK(CU(cuModuleUnload)(a));
    mark("unloaded", 0, CONTEXT);
}
