/*
 * libnccl as a memory user: a communicator takes 49 device buffers, 544 MiB in all, as one of two ranks on H200s was
 * seen to. It has its own copy of the runtime linked in, as the real one does. No data moves.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../include/cudart_abi.h"

#define API __attribute__((visibility("default")))
#define MIB (1ull << 20)

typedef int ncclResult_t;
typedef struct {
    char internal[128];
} ncclUniqueId;

typedef struct comm {
    int rank, ranks;
    int count;
    void *buffers[64];
} *ncclComm_t;

enum { ncclSuccess = 0, ncclUnhandledCudaError = 1, ncclInvalidArgument = 4 };

API ncclResult_t ncclGetVersion(int *version) {
    *version = 22809;
    return ncclSuccess;
}

API const char *ncclGetErrorString(ncclResult_t result) {
    return result ? "unhandled cuda error" : "no error";
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId *out) {
    memset(out, 0, sizeof *out);
    snprintf(out->internal, sizeof out->internal, "sim-%d-%p", (int)getpid(), (void *)out);
    return ncclSuccess;
}

API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (!comm)
        return ncclInvalidArgument;
    while (comm->count)
        cudaFree(comm->buffers[--comm->count]);
    free(comm);
    return ncclSuccess;
}

/* 30 × 16 MiB + 18 × 2 MiB + 28 MiB. */
static ncclResult_t take_buffers(ncclComm_t comm) {
    for (int i = 0; i < 49; i++) {
        size_t bytes = i < 30 ? 16 * MIB : i < 48 ? 2 * MIB : 28 * MIB;
        if (cudaMalloc(&comm->buffers[i], bytes))
            return ncclUnhandledCudaError;
        comm->count++;
    }
    return ncclSuccess;
}

API ncclResult_t ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int rank) {
    (void)id;
    if (!out || ranks < 1 || rank < 0 || rank >= ranks)
        return ncclInvalidArgument;
    ncclComm_t comm = calloc(1, sizeof *comm);
    comm->rank = rank;
    comm->ranks = ranks;
    ncclResult_t result = ranks > 1 ? take_buffers(comm) : ncclSuccess;
    if (result)
        ncclCommDestroy(comm);
    else
        *out = comm;
    return result;
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank, void *config) {
    (void)config;
    return ncclCommInitRank(out, ranks, id, rank);
}

API ncclResult_t ncclCommInitAll(ncclComm_t *out, int count, const int *devices) {
    ncclUniqueId id;
    int before;
    cudaGetDevice(&before);
    ncclGetUniqueId(&id);
    for (int i = 0; i < count; i++) {
        ncclResult_t result = cudaSetDevice(devices ? devices[i] : i) ? ncclUnhandledCudaError : ncclSuccess;
        if (!result)
            result = ncclCommInitRank(&out[i], count, id, i);
        if (result)
            return result;
    }
    return cudaSetDevice(before) ? ncclUnhandledCudaError : ncclSuccess;
}

API ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, int type, int op, ncclComm_t comm,
                               cudaStream_t stream) {
    (void)count, (void)type, (void)op, (void)stream;
    return from && to && comm ? ncclSuccess : ncclInvalidArgument;
}
