/* Threads, forks, execs, and deaths at bad moments. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "scenario.h"

static void *work(void *argument) {
    size_t bytes = (size_t)(uintptr_t)argument * MIB;
    void *keep, *p;
    OK(cudaMalloc(&keep, bytes));
    for (int i = 0; i < 20; i++) {
        OK(cudaMalloc(&p, bytes));
        OK(cudaFree(p));
    }
    return NULL;
}

void threads(void) {
    enum { N = 8 };
    pthread_t list[N];
    uint64_t kept = 0;
    OK(cudaFree(0));
    for (uintptr_t i = 0; i < N; i++) {
        OK(pthread_create(&list[i], NULL, work, (void *)(4 + 2 * i)));
        kept += (4 + 2 * i) * MIB;
    }
    for (int i = 0; i < N; i++)
        OK(pthread_join(list[i], NULL));
    mark("joined", 0, CONTEXT + kept);
}

void child_alloc(const char *argument) {
    void *p;
    OK(cudaMalloc(&p, (size_t)atoi(argument) * MIB));
    mark("child", 0, CONTEXT + CHARGED(atoi(argument) * MIB));
}

void fork_exec(void) {
    void *p;
    int first, second;
    start("child_alloc", "20", &first);
    OK(finish(first));
    OK(cudaMalloc(&p, 10 * MIB));
    start("child_alloc", "30", &second);
    OK(finish(second));
    mark("parent", 0, CONTEXT + 10 * MIB);
}

/* A forked child that uses nothing but holds its parent's driver files, past the parent's end. */
void fork_idle(void) {
    void *p;
    OK(cudaMalloc(&p, 10 * MIB));
    mark("parent", 0, CONTEXT + 10 * MIB);
    pid_t parent = getpid();
    if (!fork()) {
        /* CUDA does not work after a fork. */
        EXPECT(CUDA_ERROR_NOT_INITIALIZED, CU(cuMemFree_v2)((CUdeviceptr)p));
        while (getppid() == parent)
            usleep(1000);
        _exit(0);
    }
}

/*
 * The driver's file under one number, then another file, then the driver's again: the kernel puts it in the same memory as the
 * first. Kept until the tracer has looked at open files, which it does once a second.
 */
void reopened(void) {
    void *p;
    uint32_t none[4] = {0};
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    OK(sched_setaffinity(0, sizeof one, &one));
    driver("cuInit"); /* what loading it opens comes before */
    int first = device_file("nvidiactl", O_RDWR);
    ioctl(first, _IOWR('F', 0x29, uint32_t[4]), none); /* a free of nothing */
    close(first);
    int other = open("/dev/null", O_RDWR);
    EXPECT(first, other);
    usleep(200 * 1000);
    close(other);
    OK(cudaMalloc(&p, 10 * MIB));
    mark("allocated", 0, CONTEXT + 10 * MIB);
    usleep(2500 * 1000);
    mark("kept", 0, CONTEXT + 10 * MIB);
    OK(cudaFree(p));
    mark("freed", 0, CONTEXT);
}

/* The same process becomes another program: what it had goes, under the same pid. */
void exec_again(void) {
    void *p;
    OK(cudaMalloc(&p, 50 * MIB));
    mark("before", 0, CONTEXT + 50 * MIB);
    execl("/proc/self/exe", "scenario", "child_alloc", "70", NULL);
    exit(1);
}

/* SIGKILL in the middle of a context creation: after the ninth piece of video memory. */
void killed_in_call(void) {
    OK(CU(cuInit)(0));
    mark("initialised", 0, 0);
    control("{\"fault\":{\"nr\":43,\"class\":64,\"skip\":8,\"kill\":true}}");
    cudaFree(0);
    exit(1);
}

static void *kill_soon(void *nothing) {
    usleep(50000);
    raise(SIGKILL);
    return nothing;
}

/* SIGKILL while the driver works on an allocation that it then grants. */
void killed_in_driver(void) {
    pthread_t killer;
    void *p;
    OK(cudaFree(0));
    mark("context", 0, CONTEXT);
    control("{\"fault\":{\"nr\":43,\"class\":64,\"delay_ms\":200}}");
    OK(pthread_create(&killer, NULL, kill_soon, NULL));
    cudaMalloc(&p, 100 * MIB);
    exit(1);
}

void exits_with_7(void) {
    void *p;
    OK(cudaMalloc(&p, 10 * MIB));
    mark("allocated", 0, CONTEXT + 10 * MIB);
    fprintf(stderr, "on stderr\n");
    exit(7);
}
