/* The two functions of PyTorch's libc10 that a memory profiler listens to. */
#include <stddef.h>
#include <stdint.h>

/* c10::Device: type (1 is CUDA) and index, one byte each, passed in a register. */
struct device {
    int8_t type, index;
};

#define API __attribute__((visibility("default"), noinline))

/*
 * c10::reportMemoryUsageToProfiler(void* ptr, int64_t alloc_size, size_t total_allocated, size_t total_reserved,
 * c10::Device device). A negative size is a free.
 */
API void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *ptr, int64_t size, size_t allocated,
                                                              size_t reserved, struct device device) {
    /* Keeps the arguments and the body alive under optimisation. */
    __asm__ volatile("" ::"r"(ptr), "r"(size), "r"(allocated), "r"(reserved), "r"((int)device.index) : "memory");
}

/*
 * c10::reportOutOfMemoryToProfiler(int64_t alloc_size, size_t total_allocated, size_t total_reserved, c10::Device device):
 * called just before torch.OutOfMemoryError is raised.
 */
API void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t size, size_t allocated, size_t reserved,
                                                            struct device device) {
    __asm__ volatile("" ::"r"(size), "r"(allocated), "r"(reserved), "r"((int)device.index) : "memory");
}
