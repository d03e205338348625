/*
 * The least that can be done about a call: a function in front of it (LD_PRELOAD) that counts, and passes it on. Prints the count
 * at the end.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct device {
    int8_t type, index;
};
typedef void (*real_fn)(int64_t, size_t, size_t, struct device);

#define CALL _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE
#define TEXT_(name) #name
#define TEXT(name) TEXT_(name)

static atomic_long calls, bytes;
static _Atomic(real_fn) real;

__attribute__((visibility("default"))) void CALL(int64_t size, size_t allocated, size_t reserved, struct device device) {
    real_fn next = atomic_load_explicit(&real, memory_order_relaxed);
    if (!next) {
        next = (real_fn)dlsym(RTLD_NEXT, TEXT(CALL));
        atomic_store_explicit(&real, next, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&bytes, size, memory_order_relaxed);
    next(size, allocated, reserved, device);
}

__attribute__((destructor)) static void tell(void) { fprintf(stderr, "counted %ld calls, %ld bytes\n", calls, bytes); }
