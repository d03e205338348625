/* libcublas as a memory user: a handle takes a workspace, through the runtime that is linked into the library. */
#include <stdlib.h>

#include "../runtime/runtime.h"

#define MIB ((size_t)1 << 20)

struct handle {
    void *workspace, *state;
};

typedef struct handle *cublasHandle_t;

enum { CUBLAS_STATUS_SUCCESS = 0, CUBLAS_STATUS_ALLOC_FAILED = 3 };

__attribute__((visibility("default"))) int cublasDestroy_v2(cublasHandle_t handle) {
    cudaFree(handle->workspace);
    cudaFree(handle->state);
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

/* 64 MiB and a little more: 66 in all, as an H200 was seen to give. */
__attribute__((visibility("default"))) int cublasCreate_v2(cublasHandle_t *out) {
    struct handle *handle = calloc(1, sizeof *handle);
    if (!handle || cudaMalloc(&handle->workspace, 64 * MIB))
        return CUBLAS_STATUS_ALLOC_FAILED;
    if (cudaMalloc(&handle->state, MIB / 2))
        return CUBLAS_STATUS_ALLOC_FAILED;
    *out = handle;
    return CUBLAS_STATUS_SUCCESS;
}
