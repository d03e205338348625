/* A driver that fails or dawdles. */
#include "scenario.h"

void ioctl_errors(void) {
    void *p;
    OK(cudaFree(0));
    /* The system call fails (EIO). */
    control("{\"fault\":{\"nr\":43,\"class\":64,\"errno\":5}}");
    EXPECT(CUDA_ERROR_OPERATING_SYSTEM, cudaMalloc(&p, 10 * MIB));
    mark("errno", 0, CONTEXT);
    /* The call succeeds and reports a failure in its struct (NV_ERR_INVALID_ARGUMENT). */
    control("{\"fault\":{\"nr\":43,\"class\":64,\"status\":31}}");
    EXPECT(CUDA_ERROR_UNKNOWN, cudaMalloc(&p, 10 * MIB));
    mark("status", 0, CONTEXT);
    /* No memory once: the second try succeeds. */
    control("{\"fault\":{\"nr\":43,\"class\":64,\"status\":81}}");
    OK(cudaMalloc(&p, 10 * MIB));
    mark("retried", 0, CONTEXT + 10 * MIB);
    OK(cudaFree(p));
    /* A free that fails leaves the memory where it was. */
    OK(cudaMalloc(&p, 10 * MIB));
    control("{\"fault\":{\"nr\":41,\"status\":31}}");
    OK(cudaFree(p));
    mark("free failed", 0, CONTEXT + 10 * MIB);
}

void slow_call(void) {
    void *p;
    OK(cudaFree(0));
    control("{\"fault\":{\"nr\":43,\"class\":64,\"delay_ms\":300}}");
    OK(cudaMalloc(&p, 10 * MIB));
    mark("slow", 0, CONTEXT + 10 * MIB);
}
