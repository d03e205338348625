/* Calls functions of a library, each in a child of its own: `call-all LIBRARY FUNCTION…`. Arguments are zeros; where that
 * crashes, pointers to zeros. Says of each how it ended: `FUNCTION returned N`, `FUNCTION signal N`, `FUNCTION absent`. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Six in registers, the rest on the stack: structures passed by value are zeros too. */
typedef int (*function)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *, void *);

static char zeros[12][4096];

static int call(const char *library_name, const char *name, int pointers) {
    void *library = dlopen(library_name, RTLD_NOW), *a[12] = {0};
    function f = library ? (function)dlsym(library, name) : NULL;
    if (!f)
        return printf("%s absent\n", name);
    for (int i = 0; pointers && i < 12; i++)
        a[i] = zeros[i];
    alarm(20); /* for one that waits */
    int result = f(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
    return printf("%s returned %d\n", name, result);
}

int main(int argc, char **argv) {
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    for (int i = 2; i < argc; i++) {
        int status = 0;
        for (int pointers = 0; pointers < 2; pointers++) {
            pid_t pid = fork();
            if (!pid) {
                call(argv[1], argv[i], pointers);
                fflush(stdout);
                /* Not exit(): what a library does at exit is not asked for. */
                _exit(0);
            }
            if (pid < 0 || waitpid(pid, &status, 0) != pid)
                return 1;
            if (!WIFSIGNALED(status))
                break;
        }
        if (WIFSIGNALED(status)) {
            printf("%s signal %d\n", argv[i], WTERMSIG(status));
            fflush(stdout);
        }
    }
    return 0;
}
