/*
 * libnccl as a memory user: communicators and what they take. It has its own copy of the runtime linked in, as the real one
 * does. No data moves.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nccl.h"

API ncclResult_t ncclGetVersion(int *version) {
    *version = 22809;
    return ncclSuccess;
}

API const char *ncclGetErrorString(ncclResult_t result) {
    return result ? "unhandled cuda error" : "no error";
}

API ncclResult_t ncclGetUniqueId(ncclUniqueId *out) {
    static int count;
    memset(out, 0, sizeof *out);
    snprintf(out->internal, sizeof out->internal, "nccl-%d-%d", (int)getpid(), __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED));
    return ncclSuccess;
}

API ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    if (!comm)
        return ncclInvalidArgument;
    buffers_give(comm);
    bootstrap_close(comm);
    free(comm);
    return ncclSuccess;
}

static ncclResult_t make(ncclComm_t *out, int ranks, const ncclUniqueId *id, int rank, bool alone) {
    if (!out || ranks < 1 || ranks > 64 || rank < 0 || rank >= ranks)
        return ncclInvalidArgument;
    ncclComm_t comm = calloc(1, sizeof *comm);
    comm->rank = rank;
    comm->ranks = ranks;
    comm->alone = alone || ranks == 1;
    ncclResult_t result = comm->alone ? ncclSuccess : bootstrap_connect(comm, id->internal);
    if (!result && ranks > 1)
        result = buffers_take(comm);
    if (result)
        ncclCommDestroy(comm);
    else
        *out = comm;
    return result;
}

API ncclResult_t ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int rank) {
    return make(out, ranks, &id, rank, false);
}

API ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank, void *config) {
    (void)config;
    return make(out, ranks, &id, rank, false);
}

API ncclResult_t ncclCommInitAll(ncclComm_t *out, int count, const int *devices) {
    ncclUniqueId id;
    int before;
    cudaGetDevice(&before);
    ncclGetUniqueId(&id);
    for (int i = 0; i < count; i++) {
        ncclResult_t result = cudaSetDevice(devices ? devices[i] : i) ? ncclUnhandledCudaError : ncclSuccess;
        if (!result)
            result = make(&out[i], count, &id, i, true);
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
