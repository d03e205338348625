/* One round of each kind of work. */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bench.h"

struct device {
    int8_t type, index;
};
/* libc10.so */
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *, int64_t, size_t, size_t, struct device);
void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t, size_t, size_t, struct device);

static const struct device gpu = {1, 0};

/* A probed call: its event brings stacks, as an allocation's does. */
static void call(long round) {
    (void)round;
    _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(512, 512, 4096, gpu);
}

/* A block of PyTorch's allocator. */
static void block(long round) {
    _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((void *)(uintptr_t)(4096 + 512 * round), 512, 512, 4096, gpu);
}

static void *(*allocate)(size_t);

/* A function of the name that memleak probes, in a library of its own: see actors/malloc. */
static void fake_malloc(long round) {
    (void)round;
    allocate(512);
}

static void system_call(long round) {
    (void)round;
    syscall(SYS_getppid);
}

/* A request that is no driver's, through libc. */
static void request(long round) {
    int unread;
    (void)round;
    ioctl(STDIN_FILENO, FIONREAD, &unread);
}

/* Requests with the numbers of the NVIDIA driver's, of a file that refuses them: what a hook looks at, without a driver's time. */
static void driver_request(unsigned number, uint32_t class) {
    /* NVOS21_PARAMETERS, NVOS54_PARAMETERS: the class of RM_ALLOC is the fourth word. */
    uint32_t arg[12] = {1, 2, 3, class};
    ioctl(STDIN_FILENO, _IOC(_IOC_READ | _IOC_WRITE, 'F', number, sizeof arg), arg);
}

static void control(long round) {
    (void)round;
    driver_request(0x2a, 0);
}

static void allocation(long round) {
    (void)round;
    driver_request(0x2b, 0x40);
}

static const struct {
    const char *name;
    step_fn step;
} STEPS[] = {
    {"call", call},     {"block", block},     {"malloc", fake_malloc},   {"syscall", system_call},
    {"ioctl", request}, {"control", control}, {"allocation", allocation},
};

step_fn step_of(const char *what) {
    if (!strcmp(what, "malloc")) {
        void *library = dlopen("libbench-malloc.so", RTLD_NOW | RTLD_LOCAL);
        allocate = library ? (void *(*)(size_t))dlsym(library, "malloc") : NULL;
        if (!allocate) {
            fprintf(stderr, "%s\n", dlerror());
            return NULL;
        }
    }
    for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++)
        if (!strcmp(STEPS[i].name, what))
            return STEPS[i].step;
    return NULL;
}
