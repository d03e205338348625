/* A thread of its own, whose stack ends where the C library started it. */
#include <pthread.h>
#include <stddef.h>

void library_wait(void);

__attribute__((noinline)) static void *work(void *argument) {
    library_wait();
    return argument;
}

int main(void) {
    pthread_t thread;
    pthread_create(&thread, NULL, work, NULL);
    return pthread_join(thread, NULL);
}
