/* What the parts of the simulated libnccl share. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

#include "../runtime/runtime.h"

#undef API
#define API __attribute__((visibility("default")))
#define MIB (1ull << 20)

typedef int ncclResult_t;
typedef struct {
    char internal[128];
} ncclUniqueId;

enum { ncclSuccess = 0, ncclUnhandledCudaError = 1, ncclSystemError = 2, ncclInvalidArgument = 4 };

/* Device buffers of a communicator: 30 × 16 MiB + 18 × 2 MiB + 28 MiB, as one of two ranks on H200s was seen to take. */
enum { BUFFERS = 49, PEER_BUFFERS = 48, SCRATCH = 32 };

struct buffer {
    void *address;
    CUmemGenericAllocationHandle handle; /* 0: from cudaMalloc */
};

typedef struct comm {
    int rank, ranks, device;
    bool alone; /* all ranks are in this process: nothing is exchanged */
    bool cumem;
    /* To rank 0; rank 0 has one connection to each of the others. */
    int sockets[64];
    struct buffer buffers[BUFFERS + SCRATCH];
    int count;
    void *opened[PEER_BUFFERS];
    int opened_count;
} *ncclComm_t;

/* bootstrap.c: connections by the unique id's name; each rank's `bytes` to all. */
ncclResult_t bootstrap_connect(ncclComm_t comm, const char *name);
ncclResult_t bootstrap_gather(ncclComm_t comm, const void *mine, size_t bytes, void *all);
void bootstrap_close(ncclComm_t comm);

/* buffers.c */
ncclResult_t buffers_take(ncclComm_t comm);
void buffers_give(ncclComm_t comm);
