/* Start-up, devices, errors, kernels. Built as libcudart.so.12 and as a static library alike. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime.h"

typedef CUresult (*look_up)(const char *, void **, int, cuuint64_t, int *);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static look_up get_address;
static __thread int device, bound = -1;
static __thread bool chosen;
static __thread cudaError_t last_error;
static CUcontext primaries[64];

void *runtime_driver(const char *name) {
    void *found = NULL;
    pthread_mutex_lock(&mutex);
    if (!get_address) {
        void *library = dlopen("libcuda.so.1", RTLD_NOW);
        get_address = library ? (look_up)dlsym(library, "cuGetProcAddress_v2") : NULL;
    }
    if (get_address && get_address(name, &found, 12000, 0, NULL))
        found = NULL;
    pthread_mutex_unlock(&mutex);
    return found;
}

cudaError_t runtime_result(CUresult result) {
    /* The numbers of the two APIs agree but for "no context" and a few that the simulation does not return. */
    cudaError_t error = result == CUDA_ERROR_INVALID_CONTEXT ? 201 : result;
    if (error)
        last_error = error;
    return error;
}

/* A thread that chose no device through this copy of the runtime works on that of its current context. */
static CUresult adopt_device(void) {
    CUdevice current;
    DRIVER(cuCtxGetDevice, CUresult(*)(CUdevice *));
    if (!chosen && !cuCtxGetDevice_(&current))
        device = current;
    return CUDA_SUCCESS;
}

cudaError_t runtime_context(void) {
    CUcontext ctx;
    if (adopt_device())
        return cudaErrorInitializationError;
    if (bound == device && primaries[device])
        return cudaSuccess;
    DRIVER(cuInit, CUresult(*)(unsigned));
    DRIVER(cuDevicePrimaryCtxRetain, CUresult(*)(CUcontext *, CUdevice));
    DRIVER(cuCtxSetCurrent, CUresult(*)(CUcontext));
    CUresult result = cuInit_(0);
    if (!result && !primaries[device]) {
        result = cuDevicePrimaryCtxRetain_(&ctx, device);
        if (!result)
            primaries[device] = ctx;
    }
    if (!result)
        result = cuCtxSetCurrent_(primaries[device]);
    if (!result)
        bound = device;
    return runtime_result(result);
}

API cudaError_t cudaGetDeviceCount(int *count) {
    DRIVER(cuInit, CUresult(*)(unsigned));
    DRIVER(cuDeviceGetCount, CUresult(*)(int *));
    CUresult result = cuInit_(0);
    return runtime_result(result ? result : cuDeviceGetCount_(count));
}

/* Since CUDA 12 this creates the primary context at once. */
API cudaError_t cudaSetDevice(int wanted) {
    int count = 0, before = device;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error)
        return error;
    if (wanted < 0 || wanted >= count)
        return runtime_result(CUDA_ERROR_INVALID_DEVICE);
    bool chose = chosen;
    device = wanted;
    chosen = true;
    error = runtime_context();
    if (error) {
        device = before;
        chosen = chose;
    }
    return error;
}

API cudaError_t cudaGetDevice(int *out) {
    CUresult result = adopt_device();
    *out = device;
    return runtime_result(result);
}

API cudaError_t cudaDeviceReset(void) {
    DRIVER(cuDevicePrimaryCtxReset_v2, CUresult(*)(CUdevice));
    primaries[device] = NULL;
    bound = -1;
    return runtime_result(cuDevicePrimaryCtxReset_v2_(device));
}

API cudaError_t cudaDeviceSynchronize(void) {
    FORWARD(cuCtxSynchronize, (void));
}

API cudaError_t cudaDeviceSetLimit(int limit, size_t value) {
    FORWARD(cuCtxSetLimit, (int, size_t), limit, value);
}

API cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

API const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaSuccess                 ? "no error"
           : error == cudaErrorInvalidValue     ? "invalid argument"
           : error == cudaErrorMemoryAllocation ? "out of memory"
                                                : "unknown error";
}

/* A fat binary that the program registers before main: loaded lazily, by the first launch of one of its kernels. */
struct binary {
    void *image;
    CUmodule module;
};

static struct kernel {
    const void *stub;
    struct binary *binary;
    const char *name;
    CUfunction function;
} kernels[256];
static int kernel_count;

API void **__cudaRegisterFatBinary(void *image) {
    struct binary *b = calloc(1, sizeof *b);
    b->image = image;
    return (void **)b;
}

API void __cudaRegisterFunction(void **module, const char *stub, char *name, const char *device_name, int limit,
                                void *tid, void *bid, void *block, void *grid, int *size) {
    (void)name, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)size;
    if (kernel_count < (int)(sizeof kernels / sizeof *kernels))
        kernels[kernel_count++] = (struct kernel){stub, (struct binary *)module, device_name, NULL};
}

API void __cudaUnregisterFatBinary(void **module) {
    free(module);
}

static CUresult resolve(struct kernel *k) {
    DRIVER(cuLibraryLoadData, CUresult(*)(CUlibrary *, const void *, int *, void **, unsigned, int *, void **, unsigned));
    DRIVER(cuLibraryGetKernel, CUresult(*)(CUkernel *, CUlibrary, const char *));
    DRIVER(cuKernelGetFunction, CUresult(*)(CUfunction *, CUkernel));
    CUresult result = CUDA_SUCCESS;
    if (!k->binary->module)
        result = cuLibraryLoadData_(&k->binary->module, k->binary->image, NULL, NULL, 0, NULL, NULL, 0);
    if (!result && !k->function)
        result = cuLibraryGetKernel_(&k->function, k->binary->module, k->name);
    return result ? result : cuKernelGetFunction_(&k->function, k->function);
}

API cudaError_t cudaLaunchKernel(const void *stub, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t stream) {
    cudaError_t error = runtime_context();
    if (error)
        return error;
    DRIVER(cuLaunchKernel, CUresult(*)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                       CUstream, void **, void **));
    for (struct kernel *k = kernels; k < kernels + kernel_count; k++) {
        if (k->stub != stub)
            continue;
        CUresult result = resolve(k);
        if (!result)
            result = cuLaunchKernel_(k->function, g.x, g.y, g.z, b.x, b.y, b.z, (unsigned)shared, stream, args, NULL);
        return runtime_result(result);
    }
    return runtime_result(98); /* cudaErrorInvalidDeviceFunction */
}
