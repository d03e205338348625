/* What the parts of the simulated libcudart share. */
#pragma once
#include "../include/cudart_abi.h"

/* A static copy (in a program, in libnccl) keeps its functions to itself. */
#ifdef STATIC_RUNTIME
#define API
#else
#define API __attribute__((visibility("default")))
#endif

/* Looks a driver function up once, as libcudart does: dlopen, cuGetProcAddress_v2, and the pointer from then on. */
void *runtime_driver(const char *name);
#define DRIVER(name, type)                                                                                            \
    static __typeof__(type) name##_;                                                                       \
    if (!name##_)                                                                                                      \
        name##_ = (type)runtime_driver(#name);                                                                         \
    if (!name##_)                                                                                                      \
    return 999

/* Retains the primary context of the thread's device on its first use. */
cudaError_t runtime_context(void);
cudaError_t runtime_result(CUresult result);

/*
 * The body of a runtime function that only forwards: driver function, its parameter types, the arguments.
 */
#define FORWARD(driver, types, ...)                                                                                    \
    do {                                                                                                               \
        cudaError_t ready_ = runtime_context();                                                                        \
        if (ready_)                                                                                                    \
            return ready_;                                                                                             \
        DRIVER(driver, CUresult(*) types);                                                                             \
        return runtime_result(driver##_(__VA_ARGS__));                                                                 \
    } while (0)
