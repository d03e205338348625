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
