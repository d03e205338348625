/* Libraries: one that appears late from an odd place, NCCL, PyTorch's allocator hook. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

#include "scenario.h"

typedef void *comm;
typedef void (*report)(void *, int64_t, size_t, size_t, short);

/* libcuda under another name and path (VRAMTRACE_SIM_ODD_LIBCUDA), opened when the program has run for a while. */
void late_library(void) {
    CUcontext ctx;
    CUdeviceptr p;
    usleep(200000);
    void *library = dlopen(getenv("VRAMTRACE_SIM_ODD_LIBCUDA"), RTLD_NOW);
    if (!library) {
        printf("cannot open it\n");
        exit(1);
    }
#define ODD(name) ((__typeof__(&name))dlsym(library, #name))
    OK(ODD(cuInit)(0));
    OK(ODD(cuDevicePrimaryCtxRetain)(&ctx, 0));
    OK(ODD(cuCtxSetCurrent)(ctx));
    OK(ODD(cuMemAlloc_v2)(&p, 40 * MIB));
    mark("late", 0, CONTEXT + 40 * MIB);
    OK(ODD(cuMemFree_v2)(p));
    mark("freed", 0, CONTEXT);
}

void nccl(void) {
    comm comms[2];
    void *library = dlopen("libnccl.so.2", RTLD_NOW);
    if (!library) {
        printf("cannot open it\n");
        exit(1);
    }
    int (*init)(comm *, int, const int *) = (int (*)(comm *, int, const int *))dlsym(library, "ncclCommInitAll");
    int (*destroy)(comm) = (int (*)(comm))dlsym(library, "ncclCommDestroy");
    OK(init(comms, 2, NULL));
    mark("rank 0", 0, CONTEXT + 544 * MIB);
    mark("rank 1", 1, CONTEXT + 544 * MIB);
    OK(destroy(comms[0]));
    OK(destroy(comms[1]));
    mark("destroyed 0", 0, CONTEXT);
    mark("destroyed 1", 1, CONTEXT);
}

/* What PyTorch's allocator does: a 20 MiB segment, blocks reported as they come and go. */
void c10(void) {
    void *segment, *library = dlopen("libc10.so", RTLD_NOW);
    report tell = library ? (report)dlsym(library, "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE") : NULL;
    if (!tell) {
        printf("cannot open it\n");
        exit(1);
    }
    OK(cudaMalloc(&segment, 20 * MIB));
    tell(segment, 4 * MIB, 4 * MIB, 20 * MIB, 1);
    tell((char *)segment + 4 * MIB, 8 * MIB, 12 * MIB, 20 * MIB, 1);
    tell(segment, -(int64_t)(4 * MIB), 8 * MIB, 20 * MIB, 1);
    mark("segment", 0, CONTEXT + 20 * MIB);
}

void tms_set_current_tag(const char *tag);
void tms_set_interesting_region(bool is);
void *tms_torch_malloc(ptrdiff_t bytes, int device, void *stream);
void tms_torch_free(void *address, ptrdiff_t bytes, int device, void *stream);
void tms_pause(const char *tag);
void tms_resume(const char *tag);

void memory_saver(void) {
    OK(cudaFree(0));
    void *library = dlopen("torch_memory_saver_hook_mode_torch.abi3.so", RTLD_NOW);
    if (!library) {
        printf("no torch_memory_saver\n");
        exit(1);
    }
#define TMS(name) ((__typeof__(&name))dlsym(library, #name))
    TMS(tms_set_interesting_region)(true);
    TMS(tms_set_current_tag)("weights");
    void *weights = TMS(tms_torch_malloc)(30 * MIB, 0, NULL);
    TMS(tms_set_current_tag)("kv_cache");
    void *keys = TMS(tms_torch_malloc)(100 * MIB, 0, NULL), *values = TMS(tms_torch_malloc)(100 * MIB, 0, NULL);
    EXPECT(1, weights && keys && values);
    mark("allocated", 0, CONTEXT + 230 * MIB);
    TMS(tms_pause)("kv_cache");
    mark("cache paused", 0, CONTEXT + 30 * MIB);
    TMS(tms_pause)("weights");
    mark("all paused", 0, CONTEXT);
    TMS(tms_resume)("weights");
    mark("weights resumed", 0, CONTEXT + 30 * MIB);
    TMS(tms_resume)("kv_cache");
    mark("all resumed", 0, CONTEXT + 230 * MIB);
    TMS(tms_torch_free)(values, 100 * MIB, 0, NULL);
    mark("freed", 0, CONTEXT + 130 * MIB);
    TMS(tms_pause)(NULL);
    mark("paused again", 0, CONTEXT);
}
