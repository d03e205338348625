/* Many processes that call at a given rate. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* What is due is made, then it sleeps a little: at any rate a process wakes some hundred times a second. */
static long make(step_fn step, double rate, double seconds) {
    long made = 0;
    for (double begin = now(), passed = 0; passed < seconds; passed = now() - begin) {
        long due = (long)(rate * passed);
        /* Not for ever, where it cannot keep up. */
        for (int i = 0; made < due && i < 1000; i++, made++)
            step(made);
        if (made >= due)
            usleep(2000);
    }
    return made;
}

int storm(const char *what, double rate, double seconds, int processes) {
    step_fn step = step_of(what);
    long *made = mmap(NULL, sizeof(long) * (size_t)processes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (!step || made == MAP_FAILED)
        return 2;
    /* The tracer looks at the libraries of each process when it is new. */
    usleep(300000);
    for (int i = 0; i < processes; i++) {
        if (fork() == 0) {
            usleep(500000);
            made[i] = make(step, rate / processes, seconds);
            _exit(0);
        }
    }
    double begin = now() + 0.5;
    int failed = 0, status;
    while (wait(&status) > 0)
        failed |= status;
    long sum = 0;
    for (int i = 0; i < processes; i++)
        sum += made[i];
    printf("%ld %.3f\n", sum, now() - begin);
    return failed != 0;
}
