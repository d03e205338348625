/*
 * The functions that bcc's memleak probes, by its names, for a library that nothing is linked with: memleak knows no others. They
 * do as little as the ones of libc10 that it is compared with, and like these begin with an instruction that a uprobe has
 * to step over.
 */
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default"), noinline))

static uintptr_t next = 4096;

API void *malloc(size_t size) {
    __asm__ volatile("sar $8, %%cx" ::"D"(size) : "cx", "cc");
    return (void *)(next += 512);
}

API void *calloc(size_t count, size_t size) { return (void *)(count * size); }
API void *realloc(void *old, size_t size) { return (char *)old + size; }
API void *mmap(void *at, size_t size) { return (char *)at + size; }
API void *memalign(size_t to, size_t size) { return (void *)(to * size); }
API int posix_memalign(void **made, size_t to, size_t size) { return *made = (void *)(to * size), 0; }
API void free(void *old) { __asm__ volatile("" ::"D"(old)); }
API int munmap(void *old, size_t size) { return old && size; }
