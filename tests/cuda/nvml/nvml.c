/* libnvidia-ml as a monitor needs it: what the simulated driver says about its GPUs and processes. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../include/sim_private.h"

#define API __attribute__((visibility("default")))

typedef int nvmlReturn_t;
typedef struct device {
    unsigned index;
} *nvmlDevice_t;

enum { OK = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9 };

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

static int ctl = -1;
static struct device devices[64];

API nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    char path[512];
    const char *dir = getenv(SIM_DEV);
    (void)flags;
    snprintf(path, sizeof path, "%s/nvidiactl", dir ? dir : "/dev");
    if (ctl < 0)
        ctl = open(path, O_RDWR | O_CLOEXEC);
    return ctl < 0 ? DRIVER_NOT_LOADED : OK;
}

API nvmlReturn_t nvmlInit_v2(void) {
    return nvmlInitWithFlags(0);
}

API nvmlReturn_t nvmlShutdown(void) {
    if (ctl < 0)
        return UNINITIALIZED;
    close(ctl);
    ctl = -1;
    return OK;
}

API const char *nvmlErrorString(nvmlReturn_t result) {
    return result == OK ? "Success" : "Simulated failure";
}

static nvmlReturn_t text(char *out, unsigned length, const char *value) {
    return snprintf(out, length, "%s", value) < (int)length ? OK : INSUFFICIENT_SIZE;
}

API nvmlReturn_t nvmlSystemGetDriverVersion(char *out, unsigned length) {
    return text(out, length, "580.159.04");
}

API nvmlReturn_t nvmlSystemGetNVMLVersion(char *out, unsigned length) {
    return text(out, length, "13.580.159.04");
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    *version = 13000;
    return OK;
}

static nvmlReturn_t ask(unsigned index, struct sim_gpu *gpu) {
    memset(gpu, 0, sizeof *gpu);
    gpu->index = index;
    if (ctl < 0)
        return UNINITIALIZED;
    return ioctl(ctl, SIM_GPU, gpu) ? INVALID_ARGUMENT : OK;
}

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    struct sim_gpu gpu;
    nvmlReturn_t result = ask(0, &gpu);
    *count = gpu.count;
    return result;
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out) {
    struct sim_gpu gpu;
    nvmlReturn_t result = ask(index, &gpu);
    if (result || index >= sizeof devices / sizeof *devices)
        return result ? result : INVALID_ARGUMENT;
    devices[index].index = index;
    *out = &devices[index];
    return OK;
}

static void uuid_text(const struct sim_gpu *gpu, char out[64]) {
    const uint8_t *u = gpu->uuid;
    snprintf(out, 64, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", u[0], u[1], u[2],
             u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
}

API nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *out, unsigned length) {
    struct sim_gpu gpu;
    char full[64];
    nvmlReturn_t result = ask(device->index, &gpu);
    uuid_text(&gpu, full);
    return result ? result : text(out, length, full);
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *out) {
    struct sim_gpu gpu;
    char full[64];
    for (unsigned i = 0; !ask(i, &gpu); i++) {
        uuid_text(&gpu, full);
        if (!strcmp(full, uuid))
            return nvmlDeviceGetHandleByIndex_v2(i, out);
    }
    return NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    *index = device->index;
    return OK;
}

API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor) {
    *minor = device->index;
    return OK;
}

API nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *out, unsigned length) {
    (void)device;
    return text(out, length, "Simulated H200");
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out) {
    struct sim_gpu gpu;
    nvmlReturn_t result = ask(device->index, &gpu);
    memset(out, 0, sizeof *out);
    out->bus = gpu.pci_bus;
    out->pciDeviceId = 0x233510de;
    snprintf(out->busId, sizeof out->busId, "00000000:%02X:00.0", gpu.pci_bus);
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "0000:%02X:00.0", gpu.pci_bus);
    return result;
}

/* Version 2: total = reserved + used + free. */
API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out) {
    struct sim_gpu gpu;
    nvmlReturn_t result = ask(device->index, &gpu);
    out->total = gpu.total;
    out->reserved = gpu.reserved;
    out->free = gpu.free;
    out->used = gpu.total - gpu.reserved - gpu.free;
    return result;
}

/* Version 1: used has the reserved part in it. */
API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out) {
    struct sim_gpu gpu;
    nvmlReturn_t result = ask(device->index, &gpu);
    *out = (nvmlMemory_t){gpu.total, gpu.free, gpu.total - gpu.free};
    return result;
}

API nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *count, nvmlProcessInfo_t *out) {
    struct sim_processes p = {.index = device->index};
    if (ctl < 0)
        return UNINITIALIZED;
    if (ioctl(ctl, SIM_PROCESSES, &p))
        return INVALID_ARGUMENT;
    unsigned room = *count;
    *count = p.count;
    if (room < p.count)
        return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < p.count; i++)
        out[i] = (nvmlProcessInfo_t){p.list[i].pid, p.list[i].bytes, ~0u, ~0u};
    return OK;
}

API nvmlReturn_t nvmlDeviceGetGraphicsRunningProcesses_v3(nvmlDevice_t d, unsigned *count, nvmlProcessInfo_t *out) {
    (void)d, (void)out;
    *count = 0;
    return OK;
}

API nvmlReturn_t nvmlDeviceGetMPSComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *count, nvmlProcessInfo_t *out) {
    return nvmlDeviceGetGraphicsRunningProcesses_v3(d, count, out);
}
