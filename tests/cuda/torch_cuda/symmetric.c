/*
 * c10d::symmetric_memory: memory that the other ranks map too, and a multicast object over all of it where GPUs can
 * (CUDASymmetricMemory.cu of torch 2.9). The ranks' file descriptors are carried by the caller.
 */
#include <stddef.h>
#include <stdint.h>

#include "../include/vmm.h"

#define API __attribute__((visibility("default")))
#define PAGE ((size_t)2 << 20)

typedef struct {
    unsigned devices;
    size_t bytes;
    unsigned long long types, flags;
} CUmulticastObjectProp;

CUresult cuMemExportToShareableHandle(void *, CUmemGenericAllocationHandle, int, unsigned long long);
CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *, void *, int);
CUresult cuMulticastCreate(CUmemGenericAllocationHandle *, const CUmulticastObjectProp *);
CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle, CUdevice);
CUresult cuMulticastBindMem(CUmemGenericAllocationHandle, size_t, CUmemGenericAllocationHandle, size_t, size_t,
                            unsigned long long);

static CUresult map(CUmemGenericAllocationHandle handle, size_t bytes, int device) {
    CUmemAccessDesc access = {{1, device}, 3};
    CUdeviceptr address;
    CUresult result = CU(cuMemAddressReserve)(&address, bytes, 0, 0, 0);
    if (!result)
        result = CU(cuMemMap)(address, bytes, 0, handle, 0);
    return result ? result : CU(cuMemSetAccess)(address, bytes, &access, 1);
}

/* CUDASymmetricMemoryAllocator::alloc(unsigned long, int, …); the handle is left where the test program finds it. */
API CUresult symmetric_alloc(size_t bytes, int device, CUmemGenericAllocationHandle *out)
    __asm__("_ZN4c10d16symmetric_memory28CUDASymmetricMemoryAllocator5allocEmi");
CUresult symmetric_alloc(size_t bytes, int device, CUmemGenericAllocationHandle *out) {
    CUmemAllocationProp prop = {.type = 1, .requestedHandleTypes = 1, .location = {1, device}};
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    CUresult result = CU(cuMemCreate)(out, whole, &prop, 0);
    return result ? result : map(*out, whole, device);
}

API int sim_symmetric_export(CUmemGenericAllocationHandle handle, int *fd) {
    return CU(cuMemExportToShareableHandle)(fd, handle, 1, 0);
}

API int sim_symmetric_import(int fd, size_t bytes, int device) {
    CUmemGenericAllocationHandle handle;
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    CUresult result = CU(cuMemImportFromShareableHandle)(&handle, (void *)(intptr_t)fd, 1);
    return result ? result : map(handle, whole, device);
}

/* The object over all ranks' memory: made by one rank, imported by the others. */
API int sim_multicast_create(size_t bytes, int ranks, CUmemGenericAllocationHandle *out) {
    CUmulticastObjectProp prop = {(unsigned)ranks, (bytes + PAGE - 1) / PAGE * PAGE, 1, 0};
    return CU(cuMulticastCreate)(out, &prop);
}

API int sim_multicast_import(int fd, CUmemGenericAllocationHandle *out) {
    return CU(cuMemImportFromShareableHandle)(out, (void *)(intptr_t)fd, 1);
}

API int sim_multicast_bind(CUmemGenericAllocationHandle multicast, CUmemGenericAllocationHandle memory, size_t bytes,
                           int device) {
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    CUresult result = CU(cuMulticastAddDevice)(multicast, device);
    if (!result)
        result = CU(cuMulticastBindMem)(multicast, 0, memory, 0, whole, 0);
    return result ? result : map(multicast, whole, device);
}
