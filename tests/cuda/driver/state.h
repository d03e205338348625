/* What the parts of the simulated libcuda share. One lock guards all of it. */
#pragma once
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "../include/cuda_abi.h"
#include "../include/nv_abi.h"

#define API __attribute__((visibility("default")))
#define MAX_GPUS 16
#define MIB (1ull << 20)
#define PAGE (2 * MIB)
#define ROUND_UP(n, to) (((n) + (to)-1) / (to) * (to))

struct gpu {
    int ordinal, fd;
    uint32_t instance, gpu_id, pci_bus;
    uint8_t uuid[16];
    uint32_t device, subdevice, va_space, reserve, p2p;
    struct context *primary;
    int primary_refs;
    struct pool *default_pool, *current_pool;
};

/* One memory object of the resource manager and where the GPU sees it. */
struct segment {
    struct segment *next;
    struct context *ctx;
    uint32_t handle;
    uint64_t va, bytes, requested;
};

struct context {
    struct gpu *gpu;
    bool primary, dead;
    CUresult error; /* why the last segment_new failed */
    struct segment *segments;
    uint32_t objects[128]; /* channels and the like, freed in reverse */
    int object_count;
    struct segment *local_memory;
    uint64_t local_per_thread, stack_limit;
    bool side_streams;
    struct graph_piece *graph_pieces; /* memory behind the memory nodes of graphs */
    uint64_t graph_bytes;
};

extern struct gpu sim_gpus[MAX_GPUS];
extern int sim_gpu_count;

/* init.c */
int sim_lock(void);
void sim_unlock(int *locked);
CUresult sim_ready(void);
struct context *sim_current(void);
void sim_forget_current(struct context *ctx);
#define LOCKED int locked_ __attribute__((cleanup(sim_unlock))) = sim_lock()
/* Locks and refuses a process that has not called cuInit (or was forked from one that has). */
#define READY                                                                                                          \
    LOCKED;                                                                                                            \
    CUresult ready_ = sim_ready();                                                                                     \
    (void)locked_;                                                                                                     \
    if (ready_)                                                                                                        \
    return ready_
/* The same, and takes the thread's context. */
#define WITH_CONTEXT(ctx)                                                                                              \
    READY;                                                                                                             \
    struct context *ctx = sim_current();                                                                               \
    if (!ctx)                                                                                                          \
    return CUDA_ERROR_INVALID_CONTEXT

/* rm.c: functions that make a request return its NV_STATUS */
uint32_t rm_open(void);
uint32_t rm_handle(void);
uint32_t rm_client(void);
int rm_ctl_fd(void);
uint32_t rm_alloc(uint32_t parent, uint32_t class_, uint32_t *object, void *params, uint32_t size);
uint32_t rm_free(uint32_t parent, uint32_t object);
uint32_t rm_memory(struct gpu *gpu, uint32_t class_, uint32_t attr, uint64_t *bytes, uint32_t *object);
uint32_t rm_os_descriptor(struct gpu *gpu, uint64_t bytes, uint32_t *object);
uint32_t rm_control(uint32_t object, uint32_t cmd, void *params, uint32_t size);
uint32_t rm_dup(uint32_t parent, uint32_t *object, uint32_t source_client, uint32_t source_object);
uint32_t rm_share(uint32_t object);
int rm_open_device(const char *name);
int rm_ioctl(int fd, unsigned number, void *arg, size_t size);
void rm_kind(const char *kind);
CUresult rm_result(uint32_t status);

/* uvm.c */
void uvm_initialize(void);
void uvm_register_gpu(struct gpu *gpu);
void uvm_register_vaspace(struct gpu *gpu);
void uvm_range_group(void);
void uvm_create(uint64_t base, uint64_t length);
void uvm_map(struct gpu *gpu, uint64_t base, uint64_t length, uint64_t offset, uint32_t memory);
void uvm_unmap(struct gpu *gpu, uint64_t base, uint64_t length);
void uvm_free(uint64_t base, uint64_t length);
uint64_t va_take(uint64_t bytes);
void va_give(uint64_t base, uint64_t bytes);

/* segment.c */
struct segment *segment_new(struct context *ctx, const char *kind, uint32_t class_, uint32_t attr, uint64_t bytes);
void segment_free(struct segment *segment);
void segment_register(struct segment *segment, bool in);

/* context.c */
CUresult context_grow_local(struct context *ctx, uint64_t per_thread, const char *kind);
void pools_forget(struct context *ctx);       /* pool.c */
void allocations_forget(struct context *ctx); /* vmm.c: a handle for an object of the resource manager */
CUmemGenericAllocationHandle vmm_publish(struct gpu *gpu, uint32_t object, uint64_t bytes);

/* memory.c */
void modules_forget(struct context *ctx);     /* module.c */
void graphs_forget(struct context *ctx);      /* graph.c */
CUresult context_primary(struct gpu *gpu, struct context **ctx);

/* memory.c */
CUresult memory_alloc(struct context *ctx, CUdeviceptr *out, uint64_t bytes);
CUresult memory_free(CUdeviceptr address);
struct segment *memory_segment(CUdeviceptr address, uint64_t *offset, uint64_t *requested);

/* pool.c, graph.c, stream.c, launch.c, module.c */
bool pool_owns(CUdeviceptr address);
CUresult pool_free(CUdeviceptr address);
void pools_sync(struct context *ctx);
CUgraph stream_capture(CUstream stream);
CUresult graph_add_alloc(CUgraph graph, CUdeviceptr *out, uint64_t bytes);
CUresult graph_add_free(CUgraph graph, CUdeviceptr address);
void graph_add_kernel(CUgraph graph, CUfunction function);
bool graph_owns(CUdeviceptr address);
CUresult graph_free(CUdeviceptr address);
CUresult launch_prepare(struct context *ctx, CUfunction function, CUstream stream);
CUresult module_load_code(struct context *ctx, CUfunction function, uint64_t *local_bytes);
