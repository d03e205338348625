/* Virtual memory management: physical handles, address ranges, and mappings between them; handles in file descriptors. */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "state.h"

struct phys {
    struct gpu *gpu;
    uint32_t object;
    uint64_t bytes;
    int refs, maps;
};

struct mapping {
    struct mapping *next;
    uint64_t va, bytes, offset;
    struct phys *phys;
    bool accessible;
};

static struct mapping *mappings;

CUmemGenericAllocationHandle vmm_publish(struct gpu *gpu, uint32_t object, uint64_t bytes) {
    struct phys *p = malloc(sizeof *p);
    *p = (struct phys){gpu, object, bytes, 1, 0};
    return (uintptr_t)p;
}

/* The memory goes with the last of the handle's references and mappings, in whatever order they go. */
static void maybe_free(struct phys *p) {
    if (p->refs || p->maps)
        return;
    rm_free(p->gpu->device, p->object);
    free(p);
}

API CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *prop,
                         unsigned long long flags) {
    READY;
    uint64_t charged = bytes;
    uint32_t object;
    if (!out || !prop || flags || !bytes || bytes % PAGE || prop->type != 1)
        return CUDA_ERROR_INVALID_VALUE;
    bool host = prop->location.type != 1;
    int device = host ? 0 : prop->location.id;
    if (device < 0 || device >= sim_gpu_count)
        return CUDA_ERROR_INVALID_DEVICE;
    struct gpu *gpu = &sim_gpus[device];
    uint32_t attr = prop->requestedHandleTypes ? ATTR_EXPORTABLE : ATTR_PLAIN;
    rm_kind("vmm");
    uint32_t status = rm_memory(gpu, host ? CLASS_SYSMEM : CLASS_VIDMEM, host ? ATTR_SYSMEM : attr, &charged, &object);
    if (status)
        return rm_result(status);
    /* No fabric manager here: the object is made, found unfit and freed, as on a machine without one. */
    if (prop->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) {
        rm_free(gpu->device, object);
        return 800; /* CUDA_ERROR_NOT_PERMITTED */
    }
    *out = vmm_publish(gpu, object, charged);
    return CUDA_SUCCESS;
}

API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    READY;
    struct phys *p = (struct phys *)(uintptr_t)handle;
    if (!p || p->refs == 0)
        return CUDA_ERROR_INVALID_VALUE;
    p->refs--;
    maybe_free(p);
    return CUDA_SUCCESS;
}

API CUresult cuMemAddressReserve(CUdeviceptr *out, size_t bytes, size_t alignment, CUdeviceptr wanted,
                                 unsigned long long flags) {
    READY;
    (void)wanted;
    if (!out || !bytes || bytes % PAGE || alignment & (alignment - 1) || flags)
        return CUDA_ERROR_INVALID_VALUE;
    *out = va_take(bytes);
    return CUDA_SUCCESS;
}

API CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    READY;
    va_give(address, bytes);
    return CUDA_SUCCESS;
}

API CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                      unsigned long long flags) {
    READY;
    struct phys *p = (struct phys *)(uintptr_t)handle;
    uint8_t params[32] = {0};
    if (!p || !address || !bytes || bytes % PAGE || offset + bytes > p->bytes || flags)
        return CUDA_ERROR_INVALID_VALUE;
    for (struct mapping *m = mappings; m; m = m->next)
        if (address < m->va + m->bytes && m->va < address + bytes)
            return CUDA_ERROR_INVALID_VALUE;
    struct mapping *m = malloc(sizeof *m);
    *m = (struct mapping){mappings, address, bytes, offset, p, false};
    mappings = m;
    p->maps++;
    rm_control(p->gpu->p2p, CTRL_P2P_REGISTER_VA, params, sizeof params);
    return CUDA_SUCCESS;
}

API CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *desc, size_t count) {
    READY;
    bool any = false;
    if (!desc || !count)
        return CUDA_ERROR_INVALID_VALUE;
    for (struct mapping *m = mappings; m; m = m->next) {
        if (m->va < address || m->va + m->bytes > address + bytes)
            continue;
        any = true;
        if (m->accessible)
            continue;
        uvm_create(m->va, m->bytes);
        uvm_map(&sim_gpus[desc->location.id], m->va, m->bytes, m->offset, m->phys->object);
        m->accessible = true;
    }
    return any ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) {
    READY;
    bool any = false;
    uint8_t params[4] = {0};
    for (struct mapping **at = &mappings, *m; (m = *at);) {
        if (m->va < address || m->va + m->bytes > address + bytes) {
            at = &m->next;
            continue;
        }
        *at = m->next;
        any = true;
        if (m->accessible)
            uvm_free(m->va, m->bytes);
        rm_control(m->phys->gpu->p2p, CTRL_P2P_UNREGISTER_VA, params, sizeof params);
        m->phys->maps--;
        maybe_free(m->phys);
        free(m);
    }
    return any ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address) {
    READY;
    for (struct mapping *m = mappings; out && m; m = m->next) {
        if ((uintptr_t)address < m->va || (uintptr_t)address >= m->va + m->bytes)
            continue;
        m->phys->refs++;
        *out = (uintptr_t)m->phys;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop, int option) {
    (void)prop, (void)option;
    *out = PAGE;
    return CUDA_SUCCESS;
}

/* A handle in a file descriptor: a new control file that the driver ties to the object. */
API CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle handle, int type,
                                          unsigned long long flags) {
    READY;
    struct phys *p = (struct phys *)(uintptr_t)handle;
    struct nv_export e = {.max_objects = 1, .num_objects = 1};
    uint8_t gpus[128] = {0};
    if (!out || !p || flags)
        return CUDA_ERROR_INVALID_VALUE;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_NOT_SUPPORTED;
    int fd = rm_open_device("nvidiactl");
    if (fd < 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    memcpy(gpus, &p->gpu->gpu_id, 4);
    rm_ioctl(fd, NV_ATTACH_GPUS, gpus, sizeof gpus);
    e.fd = fd;
    e.device = p->gpu->device;
    e.objects[0] = p->object;
    memcpy(e.metadata, &p->bytes, sizeof p->bytes);
    uint32_t status = rm_control(rm_client(), CTRL_EXPORT_OBJECTS_TO_FD, &e, sizeof e);
    if (status) {
        close(fd);
        return rm_result(status);
    }
    *(int *)out = fd;
    return CUDA_SUCCESS;
}

API CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *os_handle, int type) {
    READY;
    struct nv_export_info info = {.fd = (int)(intptr_t)os_handle};
    struct nv_import i = {.fd = (int)(intptr_t)os_handle, .num_objects = 1};
    struct gpu *gpu = NULL;
    uint64_t bytes;
    if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    if (rm_control(rm_client(), CTRL_GET_EXPORT_OBJECT_INFO, &info, sizeof info))
        return CUDA_ERROR_INVALID_VALUE;
    for (int g = 0; g < sim_gpu_count; g++)
        if (sim_gpus[g].instance == info.device_instance)
            gpu = &sim_gpus[g];
    if (!gpu)
        return CUDA_ERROR_INVALID_DEVICE;
    i.parent = gpu->device;
    i.objects[0] = rm_handle();
    uint32_t status = rm_control(rm_client(), CTRL_IMPORT_OBJECTS_FROM_FD, &i, sizeof i);
    if (status)
        return rm_result(status);
    memcpy(&bytes, info.metadata, sizeof bytes);
    *out = vmm_publish(gpu, i.objects[0], bytes);
    return CUDA_SUCCESS;
}
