/*
 * What a probe costs: calls a function that does next to nothing, from a stack some calls deep. As a library, for Python.
 *
 *     bench STEP ROUNDS                           prints nanoseconds a round; steps are in step.c
 *     bench STEP ROUNDS again                     the same for each line of its input
 *     bench storm STEP RATE SECONDS PROCESSES     prints rounds made, and seconds
 *
 * With BENCH_WAIT set it begins when its input has a line or ends, for a tracer that wants a process to attach to.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

enum { DEPTH = 30 };

/* Probes run in the thread that they stop: its own time, whatever else the machine does. */
static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static double timed(step_fn step, long rounds) {
    double begin = now();
    for (long i = 0; i < rounds; i++)
        step(i);
    return (now() - begin) / (double)rounds;
}

static __attribute__((noinline)) double deep(int depth, step_fn step, long rounds) {
    volatile char frame[64] = {0};
    double result = depth ? deep(depth - 1, step, rounds) : timed(step, rounds);
    return result + frame[0];
}

API double bench(const char *what, long rounds) {
    step_fn step = step_of(what);
    if (!step)
        exit(2);
    if (getenv("BENCH_WAIT"))
        getchar();
    deep(DEPTH, step, rounds / 10);
    /* A tracer that has just begun has other things to do. */
    usleep(100000);
    return deep(DEPTH, step, rounds);
}

static __attribute__((noinline)) int deep_storm(int depth, char **argv) {
    volatile char frame[64] = {0};
    int result = depth ? deep_storm(depth - 1, argv) : storm(argv[2], atof(argv[3]), atof(argv[4]), atoi(argv[5]));
    return result + frame[0];
}

int main(int argc, char **argv) {
    if (argc == 6 && !strcmp(argv[1], "storm"))
        return deep_storm(DEPTH, argv);
    if (argc != 3 && argc != 4)
        return 2;
    char line[64];
    while (argc == 3 || fgets(line, sizeof line, stdin)) {
        printf("%.1f\n", bench(argv[1], atol(argv[2])));
        fflush(stdout);
        if (argc == 3)
            break;
    }
    return 0;
}
