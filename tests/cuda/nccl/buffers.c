/*
 * Buffers of a communicator. They are made by the proxy's service thread, which is native from end to end, and opened by the
 * two neighbours in the ring. NCCL_CUMEM_ENABLE=1 takes them from cuMemCreate, whose granularity every little piece of
 * bookkeeping pays for; then they are not exchanged here.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../include/sim_private.h"
#include "nccl.h"

struct work {
    ncclComm_t comm;
    pid_t caller;
    ncclResult_t result;
};

/* What this thread allocates is on behalf of the one that makes the communicator: for the driver's truth log. */
static void label_like(pid_t thread) {
    char path[512], text[64];
    const char *dir = getenv(SIM_DEV);
    snprintf(path, sizeof path, "%s/control", dir ? dir : "/dev");
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    int length = snprintf(text, sizeof text, "{\"label_like\":{\"tid\":%d}}", (int)thread);
    if (fd >= 0 && write(fd, text, (size_t)length) != length)
        perror("libnccl: no label");
    if (fd >= 0)
        close(fd);
}

static cudaError_t create(struct buffer *buffer, size_t bytes, int device) {
    CUmemAllocationProp prop = {.type = 1, .requestedHandleTypes = 1, .location = {1, device}};
    CUmemAccessDesc access = {{1, device}, 3};
    CUdeviceptr address;
    cudaError_t error = runtime_context();
    if (error)
        return error;
    DRIVER(cuMemCreate, CUresult(*)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long));
    DRIVER(cuMemAddressReserve, CUresult(*)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long));
    DRIVER(cuMemMap, CUresult(*)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long));
    DRIVER(cuMemSetAccess, CUresult(*)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t));
    CUresult result = cuMemCreate_(&buffer->handle, bytes, &prop, 0);
    if (!result)
        result = cuMemAddressReserve_(&address, bytes, 0, 0, 0);
    if (!result)
        result = cuMemMap_(address, bytes, 0, buffer->handle, 0);
    if (!result)
        result = cuMemSetAccess_(address, bytes, &access, 1);
    buffer->address = (void *)(uintptr_t)address;
    return result;
}

static cudaError_t destroy(struct buffer *buffer, size_t bytes) {
    if (!buffer->handle)
        return cudaFree(buffer->address);
    DRIVER(cuMemUnmap, CUresult(*)(CUdeviceptr, size_t));
    DRIVER(cuMemRelease, CUresult(*)(CUmemGenericAllocationHandle));
    CUresult result = cuMemUnmap_((CUdeviceptr)buffer->address, bytes);
    return result ? result : cuMemRelease_(buffer->handle);
}

static size_t size_of(int i) {
    return i < 30 ? 16 * MIB : i < PEER_BUFFERS ? 2 * MIB : i < BUFFERS ? 28 * MIB : 2 * MIB;
}

static void *proxy(void *argument) {
    struct work *work = argument;
    ncclComm_t comm = work->comm;
    label_like(work->caller);
    pthread_setname_np(pthread_self(), "NCCL Service");
    work->result = cudaSetDevice(comm->device) ? ncclUnhandledCudaError : ncclSuccess;
    int count = comm->cumem ? BUFFERS + SCRATCH : BUFFERS;
    while (!work->result && comm->count < count) {
        struct buffer *buffer = &comm->buffers[comm->count];
        size_t bytes = size_of(comm->count);
        if (comm->cumem ? create(buffer, bytes, comm->device) : cudaMalloc(&buffer->address, bytes))
            work->result = ncclUnhandledCudaError;
        else
            comm->count++;
    }
    return NULL;
}

/* The even buffers are for the next rank in the ring, the odd ones for the one before. */
static ncclResult_t exchange(ncclComm_t comm) {
    size_t bytes = PEER_BUFFERS * sizeof(cudaIpcMemHandle_t);
    cudaIpcMemHandle_t mine[PEER_BUFFERS], *all = malloc(bytes * (size_t)comm->ranks);
    ncclResult_t result = all ? ncclSuccess : ncclSystemError;
    for (int i = 0; i < PEER_BUFFERS && !result; i++)
        if (cudaIpcGetMemHandle(&mine[i], comm->buffers[i].address))
            result = ncclUnhandledCudaError;
    if (!result)
        result = bootstrap_gather(comm, mine, bytes, all);
    for (int i = 0; i < PEER_BUFFERS && !result; i++) {
        int peer = (comm->rank + (i % 2 ? 1 : comm->ranks - 1)) % comm->ranks;
        if (cudaIpcOpenMemHandle(&comm->opened[i], all[peer * PEER_BUFFERS + i], 1))
            result = ncclUnhandledCudaError;
        else
            comm->opened_count++;
    }
    free(all);
    return result;
}

ncclResult_t buffers_take(ncclComm_t comm) {
    struct work work = {comm, gettid(), ncclSystemError};
    pthread_t thread;
    const char *cumem = getenv("NCCL_CUMEM_ENABLE");
    comm->cumem = cumem && !strcmp(cumem, "1");
    if (cudaGetDevice(&comm->device) || pthread_create(&thread, NULL, proxy, &work))
        return ncclSystemError;
    pthread_join(thread, NULL);
    if (!work.result && !comm->alone && !comm->cumem)
        work.result = exchange(comm);
    return work.result;
}

void buffers_give(ncclComm_t comm) {
    while (comm->opened_count)
        cudaIpcCloseMemHandle(comm->opened[--comm->opened_count]);
    while (comm->count) {
        comm->count--;
        destroy(&comm->buffers[comm->count], size_of(comm->count));
    }
}
