/* Copies and fills: the simulated GPU has no contents, so they only check their arguments. */
#include "state.h"

API CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
    (void)bytes;
    return to && from ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
    (void)bytes;
    return to && from ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
    (void)bytes;
    return to && from ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

API CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t bytes) {
    (void)value, (void)bytes;
    return to ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
