/* What the scenarios share. A scenario ends the program with its exit code; 0 means that all went as it must. */
#pragma once
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../cuda/include/cudart_abi.h"

#define MIB (1ull << 20)
#define GIB (1ull << 30)
/* What the driver charges for an object. */
#define CHARGED(bytes) (((uint64_t)(bytes) + 2 * MIB - 1) / (2 * MIB) * (2 * MIB))
/* A context (H200): 17 objects. */
#define CONTEXT (518 * MIB)
/* What the first launch adds: local memory from 414 to 504 MiB, and a page of code. */
#define LOCAL_GROWTH (90 * MIB)
#define CODE (2 * MIB)
#define CHANNELS (64 * MIB)

/* Fails the scenario when a call does not return what it must. */
#define EXPECT(want, call)                                                                                             \
    do {                                                                                                               \
        int got_ = (int)(call);                                                                                        \
        if (got_ != (want)) {                                                                                          \
            printf("%s:%d: %s = %d, not %d\n", __FILE__, __LINE__, #call, got_, (int)(want));                          \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)
#define OK(call) EXPECT(0, call)

/*
 * Says that a named point is reached and, by the scenario's own arithmetic, how many bytes of a GPU this process has now.
 */
void mark(const char *name, int gpu, uint64_t expected);
/* Opens one of the simulated driver's files. */
int device_file(const char *name, int flags);
/* Writes a line to the simulated driver's control file. */
void control(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Address of a driver function, through the libcuda that the runtime would open; ends the program without one. */
void *driver(const char *name);
#define CU(name) ((__typeof__(&name))driver(#name))
/* Starts this program again with another scenario and an argument; its standard input is the returned descriptor. */
int start(const char *scenario, const char *argument, int *pid);
/* Waits for a process; its exit code, or 128 + signal. */
int finish(int pid);
/* A kernel of this program, launched through the runtime. */
void launch(const char *kernel, cudaStream_t stream);
int try_launch(const char *kernel, cudaStream_t stream);

CUresult cuInit(unsigned flags);
CUresult cuDeviceGet(CUdevice *device, int ordinal);
CUresult cuDevicePrimaryCtxRetain(CUcontext *ctx, CUdevice device);
CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device);
CUresult cuDevicePrimaryCtxReset_v2(CUdevice device);
CUresult cuCtxCreate_v2(CUcontext *ctx, unsigned flags, CUdevice device);
CUresult cuCtxDestroy_v2(CUcontext ctx);
CUresult cuCtxSetCurrent(CUcontext ctx);
CUresult cuCtxSetLimit(int limit, size_t value);
CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t bytes);
CUresult cuMemFree_v2(CUdeviceptr address);
CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                     unsigned long long flags);
CUresult cuMemRelease(CUmemGenericAllocationHandle handle);
CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address);
CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wanted,
                             unsigned long long flags);
CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes);
CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long flags);
CUresult cuMemUnmap(CUdeviceptr address, size_t bytes);
CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t count);
CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type, unsigned long long flags);
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *os_handle, int type);
CUresult cuModuleLoadData(CUmodule *out, const void *image);
CUresult cuModuleUnload(CUmodule module);
CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name);
CUresult cuFuncLoad(CUfunction function);
CUresult cuLibraryLoadData(CUlibrary *out, const void *code, int *jit, void **jit_values, unsigned jit_count,
                           int *options, void **values, unsigned count);
CUresult cuLibraryUnload(CUlibrary library);
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream stream, void **params, void **extra);
CUresult cuGraphCreate(CUgraph *out, unsigned flags);
CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t count,
                                CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *deps, size_t count,
                               CUdeviceptr address);

/* Memory on a GPU as cuMemCreate wants it described, and access to it. */
CUmemAllocationProp device_memory(int gpu, bool exportable);
CUmemAccessDesc read_write(int gpu);

/* scenario functions, by file */
void small(void), large(void), pitch(void), arrays(void), managed(void), host(void), wrong_arguments(void),
    out_of_memory(void), mem_info(void);                                                             /* memory.c */
void async_pool(void), own_pool(void), pool_threshold(void);                                         /* pool.c */
void vmm(void), vmm_orders(void), vmm_retain(void), expandable_segments(void);                       /* vmm.c */
void ipc_closed_first(void), ipc_owner_first(void), ipc_owner_exits(void), ipc_two_importers(void);  /* ipc.c */
void share_closed_first(void), share_owner_first(void), share_file_last(void);                       /* share.c */
void graph_capture(void), graph_nodes(void);                                                         /* graph.c */
void local_memory(void), side_streams(void), modules(void), eager_modules(void);                     /* launch.c */
void context_create(void), context_reset(void), two_gpus(void);                                      /* context.c */
void threads(void), fork_exec(void), fork_idle(void), reopened(void), exec_again(void);                              /* process.c */
void killed_in_call(void), killed_in_driver(void), exits_with_7(void);                               /* process.c */
void ioctl_errors(void), slow_call(void);                                                            /* faults.c */
void late_library(void), nccl(void), c10(void), memory_saver(void);                                  /* libraries.c */
void child_ipc(const char *argument), child_share(const char *argument), child_alloc(const char *argument);
