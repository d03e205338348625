/*
 * What a probe costs: calls a probed function that does nothing, from a stack some calls deep. `bench call|block ROUNDS`
 * prints nanoseconds a call; as a library, for Python.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define API __attribute__((visibility("default")))

struct device {
    int8_t type, index;
};
/* libc10.so */
void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *, int64_t, size_t, size_t, struct device);
void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t, size_t, size_t, struct device);

enum { DEPTH = 30 };

/* Probes run in the thread that they stop: its own time, whatever else the machine does. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static double timed(int block, long rounds) {
    const struct device device = {1, 0};
    double begin = now();
    for (long i = 0; i < rounds; i++) {
        if (block)
            _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE((void *)(uintptr_t)(4096 + 512 * i), 512, 512, 4096,
                                                                 device);
        else
            _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(512, 512, 4096, device);
    }
    return (now() - begin) / (double)rounds;
}

static __attribute__((noinline)) double deep(int depth, int block, long rounds) {
    volatile char frame[64] = {0};
    double result = depth ? deep(depth - 1, block, rounds) : timed(block, rounds);
    return result + frame[0];
}

API double bench(const char *what, long rounds) {
    int block = !strcmp(what, "block");
    deep(DEPTH, block, rounds / 10);
    /* A tracer that has just begun has other things to do. */
    usleep(100000);
    return deep(DEPTH, block, rounds);
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    printf("%.1f\n", bench(argv[1], atol(argv[2])));
    return 0;
}
