/* Load: many threads, many processes, and ways to be born and to die that a tracer may miss. */
#define _GNU_SOURCE
#include <linux/sched.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../cuda/include/cudart_abi.h"
#include "server.h"

extern char **environ;

int churn(int total) {
    int failed = 0;
    for (int i = 0; i < total; i++) {
        void *p;
        failed += cudaMalloc(&p, 2 * MIB) || cudaFree(p);
    }
    return failed;
}

int hold(int total) {
    int failed = 0;
    for (int i = 0; i < total; i++)
        failed += !!cudaMalloc(&(void *){NULL}, 2 * MIB);
    return failed;
}

static pthread_barrier_t gate;

static void *member_of_crowd(void *number) {
    void *p = NULL;
    pthread_barrier_wait(&gate);
    long failed = cudaMalloc(&p, (2 + 2 * ((size_t)(uintptr_t)number % 8)) * MIB);
    pthread_barrier_wait(&gate);
    return (void *)(failed ? failed : cudaFree(p));
}

int crowd(int total) {
    pthread_t *list = calloc((size_t)total, sizeof *list);
    pthread_attr_t small;
    int failed = 0;
    if (!list || pthread_barrier_init(&gate, NULL, (unsigned)total))
        return -1;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 256 << 10);
    for (int i = 0; i < total; i++)
        if (pthread_create(&list[i], &small, member_of_crowd, (void *)(uintptr_t)i))
            return -1;
    for (int i = 0; i < total; i++) {
        void *error;
        failed += pthread_join(list[i], &error) || error;
    }
    free(list);
    return failed;
}

/* Children that are waited for; those that did not end well. */
static int ended(int total) {
    int status, well = 0;
    while (wait(&status) > 0)
        well += !status;
    return total - well;
}

int family(int total) {
    static const char todo[] = "alloc 3\nalloc 20\nfree\nalloc 1\n";
    int start[2];
    if (pipe(start))
        return -1;
    for (int i = 0; i < total; i++) {
        int input[2];
        if (pipe(input) || write(input[1], todo, sizeof todo - 1) != sizeof todo - 1)
            return -1;
        if (!fork()) {
            char go;
            dup2(input[0], STDIN_FILENO);
            if (!freopen("/dev/null", "w", stdout))
                _exit(126);
            close(input[0]), close(input[1]), close(start[1]);
            if (read(start[0], &go, 1) < 0)
                _exit(126);
            close(start[0]);
            execl("/proc/self/exe", "server", NULL);
            _exit(127);
        }
        close(input[0]), close(input[1]);
    }
    /* The end of this pipe is what all of them wait for. */
    close(start[0]), close(start[1]);
    return ended(total);
}

int spawned(int total) {
    char *argv[] = {(char *)"true", NULL};
    int failed = 0;
    for (int i = 0; i < total; i++)
        failed += !!posix_spawn(&(pid_t){0}, "/bin/true", NULL, NULL, argv, environ);
    return failed + ended(total - failed);
}

static __attribute__((noinline)) void vfork_one(int executes) {
    if (!vfork()) {
        if (executes)
            execl("/bin/true", "true", (char *)NULL);
        _exit(0);
    }
}

int vforked(int total) {
    for (int i = 0; i < total; i++)
        vfork_one(i % 2);
    return ended(total);
}

int orphaned(int total) {
    for (int i = 0; i < total; i++)
        if (!fork()) {
            if (!fork())
                _exit(7);
            _exit(0);
        }
    return ended(total);
}

static void *allocate(void *nothing) {
    void *p;
    cudaMalloc(&p, 100 * MIB);
    return nothing;
}

int exec_in_call(void) {
    static const char fault[] = "{\"fault\":{\"nr\":43,\"class\":64,\"delay_ms\":300}}";
    char path[512];
    pthread_t thread;
    snprintf(path, sizeof path, "%s/control", getenv("VRAMTRACE_SIM_DEV"));
    FILE *control = fopen(path, "w");
    if (!control || fputs(fault, control) < 0 || fclose(control) || pthread_create(&thread, NULL, allocate, NULL))
        return -1;
    usleep(100000);
    execl("/proc/self/exe", "server", "again", (char *)NULL);
    return -1;
}

int twin(int pid, int input) {
    pid_t wanted = pid;
    struct clone_args args = {.exit_signal = SIGCHLD, .set_tid = (uintptr_t)&wanted, .set_tid_size = 1};
    long child = syscall(SYS_clone3, &args, sizeof args);
    if (!child) {
        dup2(input, STDIN_FILENO);
        execl("/proc/self/exe", "server", "twin", (char *)NULL);
        _exit(127);
    }
    return (int)child;
}
