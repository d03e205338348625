/* A CUDA process that does what it is told, a line at a time, and answers each with a line. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../cuda/include/cudart_abi.h"
#include "server.h"

static void *kept[64];
static int count;

static void say(const char *word, int number) {
    printf("%s %d\n", word, number);
    fflush(stdout);
}

static int keep(size_t bytes) {
    void *p;
    int error = cudaMalloc(&p, bytes);
    if (!error && count < 64)
        kept[count++] = p;
    return error;
}

/* Past stdio, which the signal may have interrupted. */
static void say_in_handler(const char *word, int number) {
    char line[32];
    int length = snprintf(line, sizeof line, "%s %d\n", word, number);
    if (write(STDOUT_FILENO, line, (size_t)length) != length)
        _exit(1);
}

static void on_signal(int signal) {
    say_in_handler("signal", signal);
}

/* Ends as a server does: it says so, and takes its time. */
static void on_end(int signal) {
    (void)signal;
    usleep(20000);
    say_in_handler("ending", 0);
    _exit(5);
}

static void *allocate_and_free(void *nothing) {
    void *p;
    long failed = cudaMalloc(&p, 3 * MIB);
    (void)nothing;
    return (void *)(failed ? failed : cudaFree(p));
}

/* Threads that live for one allocation, a few at a time. */
static int threads(int total) {
    int failed = 0;
    for (int begun = 0; begun < total; begun += 8) {
        pthread_t list[8];
        for (int i = 0; i < 8; i++)
            failed += !!pthread_create(&list[i], NULL, allocate_and_free, NULL);
        for (int i = 0; i < 8; i++) {
            void *error;
            failed += pthread_join(list[i], &error) || error;
        }
    }
    return failed;
}

/* Children that end at once. */
static int storm(int total) {
    int ended = 0;
    for (int i = 0; i < total; i++)
        if (!fork())
            _exit(i & 63);
    while (wait(NULL) > 0)
        ended++;
    return total - ended;
}

/*
 * Another one of these as a child, which answers on our standard output; its input is the returned stream. It gets the
 * process id asked for, if one is.
 */
static FILE *child(int *pid, int wanted) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC))
        return NULL;
    if (wanted) {
        *pid = twin(wanted, fds[0]);
        close(fds[0]);
        return *pid < 0 ? NULL : fdopen(fds[1], "w");
    }
    *pid = fork();
    if (!*pid) {
        dup2(fds[0], STDIN_FILENO);
        close(fds[1]);
        execl("/proc/self/exe", "server", NULL);
        _exit(127);
    }
    close(fds[0]);
    return fdopen(fds[1], "w");
}

/* Allocates and frees without end: the calling thread answers meanwhile. */
static void *busy(void *nothing) {
    for (;;) {
        allocate_and_free(nothing);
        usleep(500);
    }
    return NULL;
}

static void *open_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        fprintf(stderr, "%s\n", dlerror());
    return library;
}

/* One allocation through a libcuda of its own: by whatever name it has. */
static int driver(const char *path, size_t bytes) {
    void *library = open_library(path), *ctx = NULL;
    CUdeviceptr p;
    if (!library)
        return -1;
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    int (*retain)(void **, int) = (int (*)(void **, int))dlsym(library, "cuDevicePrimaryCtxRetain");
    int (*current)(void *) = (int (*)(void *))dlsym(library, "cuCtxSetCurrent");
    int (*alloc)(CUdeviceptr *, size_t) = (int (*)(CUdeviceptr *, size_t))dlsym(library, "cuMemAlloc_v2");
    return init(0) || retain(&ctx, 0) || current(ctx) || alloc(&p, bytes);
}

/* One allocation through a libcudart of its own. */
static int runtime(const char *path, size_t bytes) {
    void *library = open_library(path), *p;
    int (*alloc)(void **, size_t) = library ? (int (*)(void **, size_t))dlsym(library, "cudaMalloc") : NULL;
    return alloc ? alloc(&p, bytes) : -1;
}

int main(int argc, char **argv) {
    char line[8192], word[32];
    FILE *below = NULL;
    int below_pid = 0;
    pthread_t thread;
    /* Whoever runs the tests may have it ignored, as a shell has for what it starts in the background. */
    signal(SIGINT, SIG_DFL);
    say(argc > 1 ? argv[1] : "ready", (int)getpid());
    while (fgets(line, sizeof line, stdin)) {
        int number = 0, at = 0;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "%31s %n%d", word, &at, &number) < 1)
            continue;
        /* A newline in a path comes as a bell. */
        for (char *c = line; *c; c++)
            *c = *c == '\a' ? '\n' : *c;
        if (!strcmp(word, "alloc"))
            say("alloc", keep((size_t)number * MIB));
        else if (!strcmp(word, "free"))
            say("free", count ? cudaFree(kept[--count]) : -1);
        else if (!strcmp(word, "driver"))
            say("driver", driver(line + at, 6 * MIB));
        else if (!strcmp(word, "runtime"))
            say("runtime", runtime(line + at, 6 * MIB));
        else if (!strcmp(word, "threads"))
            say("threads", threads(number));
        else if (!strcmp(word, "storm"))
            say("storm", storm(number));
        else if (!strcmp(word, "churn"))
            say("churn", churn(number));
        else if (!strcmp(word, "hold"))
            say("hold", hold(number));
        else if (!strcmp(word, "crowd"))
            say("crowd", crowd(number));
        else if (!strcmp(word, "family"))
            say("family", family(number));
        else if (!strcmp(word, "spawned"))
            say("spawned", spawned(number));
        else if (!strcmp(word, "vforked"))
            say("vforked", vforked(number));
        else if (!strcmp(word, "orphaned"))
            say("orphaned", orphaned(number));
        else if (!strcmp(word, "exec_in_call"))
            say("exec_in_call", exec_in_call());
        else if (!strcmp(word, "busy"))
            say("busy", pthread_create(&thread, NULL, busy, NULL));
        else if (!strcmp(word, "child"))
            below = child(&below_pid, 0); /* it answers */
        else if (!strcmp(word, "twin")) {
            if (!(below = child(&below_pid, number))) /* else it answers */
                say("twin", -1);
        }
        else if (!strcmp(word, "bury") && below)
            say("bury", fclose(below) || waitpid(below_pid, NULL, 0) < 0), below = NULL;
        else if (!strcmp(word, "below") && below)
            fprintf(below, "%s\n", line + at), fflush(below); /* so here */
        else if (!strcmp(word, "exec"))
            execl("/proc/self/exe", "server", "again", NULL);
        else if (!strcmp(word, "report"))
            say("report", signal(number, on_signal) == SIG_ERR);
        else if (!strcmp(word, "ending"))
            say("ending", signal(number, on_end) == SIG_ERR);
        else if (!strcmp(word, "raise"))
            raise(number), say("raised", number);
        else if (!strcmp(word, "chdir"))
            say("chdir", chdir(line + at));
        else if (!strcmp(word, "leave"))
            say("leave", setpgid(0, 0));
        else if (!strcmp(word, "crash"))
            *(volatile int *)(uintptr_t)number = 0;
        else if (!strcmp(word, "exit"))
            exit(number);
        else
            say("what?", 0);
    }
    return 0;
}
