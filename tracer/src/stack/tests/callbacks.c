/* main -> a library -> a callback -> recursion -> qsort -> a realigned stack with a variable array -> a signal handler. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int library_call(int (*callback)(int), int argument);
void library_wait(void);

static void handler(int signal) {
    (void)signal;
    library_wait();
}

__attribute__((noinline)) int realigned(int n) {
    /* Over-aligned and of unknown size: the compiler keeps the caller's stack pointer on the stack itself. */
    volatile double lanes[8] __attribute__((aligned(64)));
    volatile char array[n];
    memset((void *)array, n, n);
    lanes[n & 7] = n;
    raise(SIGUSR1);
    return array[n - 1] + (int)lanes[n & 7];
}

static int waited;

static int compare(const void *left, const void *right) {
    if (!waited) {
        waited = realigned(24);
    }
    return *(const int *)left - *(const int *)right;
}

__attribute__((noinline)) int descend(int depth) {
    if (depth == 0) {
        int numbers[] = {3, 1, 2};
        qsort(numbers, 3, sizeof *numbers, compare);
        return numbers[0];
    }
    return descend(depth - 1) + depth;
}

int main(void) {
    signal(SIGUSR1, handler);
    return library_call(descend, 40) == 0;
}
