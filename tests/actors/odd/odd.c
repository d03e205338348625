/* Functions named like CUDA's that are left in odd ways. Traced with `--lib` this very program. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

enum { RETURN, JUMP, EXIT };

static jmp_buf before;

#define API __attribute__((visibility("default"), noinline))

API int cudaMalloc(void **out, size_t how) {
    *out = (void *)0x1000;
    if (how == JUMP)
        longjmp(before, 1);
    if (how == EXIT)
        pthread_exit(NULL);
    return 0;
}

API int cudaMallocHost(void **out, size_t how) {
    int error = cudaMalloc(out, how);
    /* Not a tail call. */
    __asm__ volatile("" ::: "memory");
    return error;
}

static __attribute__((noinline)) void call(void) {
    void *p;
    cudaMallocHost(&p, RETURN);
}

/* From further down the stack than the call that was left: its place there is written over. */
static __attribute__((noinline)) void call_deep(void) {
    char room[4096];
    memset(room, 1, sizeof room);
    __asm__ volatile("" ::"r"(room) : "memory");
    call();
    __asm__ volatile("" ::"r"(room) : "memory");
}

static void *leave(void *nothing) {
    void *p;
    cudaMallocHost(&p, EXIT);
    return nothing;
}

int main(int argc, char **argv) {
    void *p;
    pthread_t thread;
    if (argc != 2)
        return 64;
    call();
    if (!strcmp(argv[1], "jump")) {
        if (!setjmp(before))
            cudaMallocHost(&p, JUMP);
        call();
    } else if (!strcmp(argv[1], "jump_deep")) {
        if (!setjmp(before))
            cudaMallocHost(&p, JUMP);
        call_deep();
    } else if (!strcmp(argv[1], "exit")) {
        if (pthread_create(&thread, NULL, leave, NULL) || pthread_join(thread, NULL))
            return 1;
        call();
    }
    puts("done");
    return 0;
}
