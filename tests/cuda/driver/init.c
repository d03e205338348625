/* Start-up: the client, the GPUs, the lock, the thread's context. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../include/sim_private.h"
#include "state.h"

struct gpu sim_gpus[MAX_GPUS];
int sim_gpu_count;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pid_t owner;
static __thread struct context *stack[16];
static __thread int depth;

int sim_lock(void) {
    pthread_mutex_lock(&mutex);
    return 1;
}

void sim_unlock(int *locked) {
    (void)locked;
    pthread_mutex_unlock(&mutex);
}

/* CUDA does not survive a fork: the child is told that nothing is initialised. */
CUresult sim_ready(void) {
    return owner == getpid() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

struct context *sim_current(void) {
    return depth && !stack[depth - 1]->dead ? stack[depth - 1] : NULL;
}

static bool make_objects(struct gpu *gpu) {
    struct nv_gpu_info info = {.gpu_id = gpu->gpu_id};
    struct nv_device device = {.device_id = gpu->instance};
    struct nv_memory reserve = {.flags = 0x8c415, .size = 0xfb000000};
    char name[16];
    snprintf(name, sizeof name, "nvidia%d", gpu->ordinal);
    if (rm_control(rm_client(), CTRL_GPU_GET_ID_INFO_V2, &info, sizeof info) || info.device_instance != gpu->instance)
        return false;
    gpu->fd = rm_open_device(name);
    return gpu->fd >= 0 && !rm_alloc(rm_client(), CLASS_DEVICE, &gpu->device, &device, sizeof device) &&
           !rm_alloc(gpu->device, CLASS_SUBDEVICE, &gpu->subdevice, NULL, 0) &&
           !rm_alloc(gpu->device, CLASS_VASPACE, &gpu->va_space, NULL, 0) &&
           (uvm_register_gpu(gpu), !rm_alloc(gpu->device, CLASS_VIRTUAL, &gpu->reserve, &reserve, sizeof reserve)) &&
           !rm_alloc(gpu->subdevice, CLASS_P2P, &gpu->p2p, NULL, 0);
}

/* GPUs in the order of CUDA_VISIBLE_DEVICES (indices only). */
static CUresult find_gpus(void) {
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char list[256];
    snprintf(list, sizeof list, "%s", visible ? visible : "0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15");
    for (char *rest = list, *item; (item = strsep(&rest, ",")) && *item && sim_gpu_count < MAX_GPUS;) {
        struct sim_gpu found = {.index = (uint32_t)atoi(item)};
        if (ioctl(rm_ctl_fd(), SIM_GPU, &found))
            break;
        struct gpu *gpu = &sim_gpus[sim_gpu_count];
        *gpu = (struct gpu){.ordinal = (int)found.index, .instance = found.instance, .gpu_id = found.gpu_id};
        gpu->pci_bus = found.pci_bus;
        memcpy(gpu->uuid, found.uuid, sizeof gpu->uuid);
        if (!make_objects(gpu))
            return CUDA_ERROR_UNKNOWN;
        sim_gpu_count++;
    }
    return sim_gpu_count ? CUDA_SUCCESS : CUDA_ERROR_NO_DEVICE;
}

API CUresult cuInit(unsigned flags) {
    static pid_t tried;
    static CUresult result;
    LOCKED;
    if (flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (tried)
        return tried == getpid() ? result : CUDA_ERROR_NOT_INITIALIZED;
    if (rm_open())
        return CUDA_ERROR_NO_DEVICE;
    tried = getpid();
    uvm_initialize();
    result = find_gpus();
    owner = result ? 0 : tried;
    return result;
}

API CUresult cuDriverGetVersion(int *version) {
    *version = 13000;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetCount(int *count) {
    READY;
    *count = sim_gpu_count;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    READY;
    if (ordinal < 0 || ordinal >= sim_gpu_count)
        return CUDA_ERROR_INVALID_DEVICE;
    *device = ordinal;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetName(char *name, int len, CUdevice device) {
    (void)device;
    snprintf(name, (size_t)len, "Simulated H200");
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice device) {
    READY;
    if (device < 0 || device >= sim_gpu_count)
        return CUDA_ERROR_INVALID_DEVICE;
    memcpy(uuid->bytes, sim_gpus[device].uuid, 16);
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice device) {
    return cuDeviceGetUuid_v2(uuid, device);
}

API CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice device) {
    READY;
    if (device < 0 || device >= sim_gpu_count)
        return CUDA_ERROR_INVALID_DEVICE;
    snprintf(id, (size_t)len, "0000:%02X:00.0", sim_gpus[device].pci_bus);
    return CUDA_SUCCESS;
}

/* Attributes that programs ask for: compute capability 9.0, 132 multiprocessors, unified and managed memory, VMM. */
API CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device) {
    (void)device;
    switch (attribute) {
    case 75: *value = 9; break;
    case 76: *value = 0; break;
    case 16: *value = 132; break;
    case 10: *value = 32; break;
    case 39: *value = 2048; break;
    default: *value = 1;
    }
    return CUDA_SUCCESS;
}

API CUresult cuCtxSetCurrent(CUcontext ctx) {
    READY;
    if (depth)
        depth--;
    if (ctx)
        stack[depth++] = ctx;
    return CUDA_SUCCESS;
}

API CUresult cuCtxPushCurrent_v2(CUcontext ctx) {
    READY;
    if (!ctx || depth == sizeof stack / sizeof *stack)
        return CUDA_ERROR_INVALID_CONTEXT;
    stack[depth++] = ctx;
    return CUDA_SUCCESS;
}

API CUresult cuCtxPopCurrent_v2(CUcontext *ctx) {
    READY;
    if (!depth)
        return CUDA_ERROR_INVALID_CONTEXT;
    depth--;
    if (ctx)
        *ctx = stack[depth];
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext *ctx) {
    READY;
    *ctx = sim_current();
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetDevice(CUdevice *device) {
    WITH_CONTEXT(ctx);
    *device = (CUdevice)(ctx->gpu - sim_gpus);
    return CUDA_SUCCESS;
}
