/* Calls functions of a library, each in a child of its own and with zeros for arguments: `call-all LIBRARY FUNCTION…`.
 * Says of each how it ended: `FUNCTION returned N`, `FUNCTION signal N`, `FUNCTION absent`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Six in registers, the rest on the stack: structures passed by value are zeros too. */
typedef int (*function)(long, long, long, long, long, long, long, long, long, long, long, long, long, long, long, long,
                        long, long, long, long, long, long, long, long);

static void call(const char *library_name, const char *name) {
    void *library = dlopen(library_name, RTLD_NOW);
    function f = library ? (function)dlsym(library, name) : NULL;
    if (!f) {
        printf("%s absent\n", name);
        return;
    }
    alarm(20); /* for one that waits */
    int result = f(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    printf("%s returned %d\n", name, result);
}

int main(int argc, char **argv) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    for (int i = 2; i < argc; i++) {
        int status;
        pid_t pid = fork();
        if (!pid) {
            call(argv[1], argv[i]);
            fflush(stdout);
            /* Not exit(): what a library does at exit is not asked for. */
            _exit(0);
        }
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
            return 1;
        if (WIFSIGNALED(status)) {
            printf("%s signal %d\n", argv[i], WTERMSIG(status));
            fflush(stdout);
        }
    }
    return 0;
}
