/* One process opens another's memory: nothing for the importer, until the owner gives it up. */
#include <signal.h>
#include <unistd.h>

#include "scenario.h"

/* Handle as text on a command line. */
static void to_text(const cudaIpcMemHandle_t *handle, char text[129]) {
    for (int i = 0; i < 64; i++)
        sprintf(text + 2 * i, "%02x", (unsigned char)handle->reserved[i]);
}

static cudaIpcMemHandle_t from_text(const char *text) {
    cudaIpcMemHandle_t handle;
    for (int i = 0; i < 64; i++) {
        unsigned byte;
        EXPECT(1, sscanf(text + 2 * i, "%2x", &byte));
        handle.reserved[i] = (char)byte;
    }
    return handle;
}

/* Waits for the parent's next step: a byte ('.' and its death). */
static char wait_byte(pid_t parent) {
    char byte = 0;
    if (read(STDIN_FILENO, &byte, 1) == 1)
        return byte;
    /* The input closes early in an exit; when the process has a new parent, its driver files are closed, too. */
    while (getppid() == parent)
        usleep(1000);
    return '.';
}

static void say(const char *what) {
    printf("%s\n", what);
    fflush(stdout);
}

/* The importer. Its argument: what it waits for (c: close on the parent's word; k: keep), then the handle. */
void child_ipc(const char *argument) {
    void *p;
    cudaIpcMemHandle_t handle = from_text(argument + 1);
    OK(cudaFree(0));
    OK(cudaIpcOpenMemHandle(&p, handle, 1));
    mark("child opened", 0, CONTEXT);
    pid_t parent = getppid();
    kill(parent, SIGUSR1);
    char word = wait_byte(parent);
    if (*argument == 'k') {
        mark("child inherited", 0, CONTEXT + 100 * MIB);
        if (word == '.')
            say("the owner is gone");
    }
    OK(cudaIpcCloseMemHandle(p));
    mark("child closed", 0, CONTEXT);
}

/* The owner: blocks SIGUSR1 before it starts importers and waits for one signal each. */
static void *owner(void **p, char text[130], char what) {
    cudaIpcMemHandle_t handle;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    OK(cudaMalloc(p, 100 * MIB));
    OK(cudaIpcGetMemHandle(&handle, *p));
    text[0] = what;
    to_text(&handle, text + 1);
    EXPECT(201, cudaIpcOpenMemHandle(p, handle, 1));
    mark("owner", 0, CONTEXT + 100 * MIB);
    return *p;
}

static void wait_signal(void) {
    sigset_t set;
    int signal;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    OK(sigwait(&set, &signal));
}

void ipc_closed_first(void) {
    char text[130];
    void *p;
    int pid;
    owner(&p, text, 'c');
    int word = start("child_ipc", text, &pid);
    wait_signal();
    EXPECT(1, write(word, "c", 1));
    OK(finish(pid));
    mark("importer gone", 0, CONTEXT + 100 * MIB);
    OK(cudaFree(p));
    mark("freed", 0, CONTEXT);
}

void ipc_owner_first(void) {
    char text[130];
    void *p;
    int pid;
    owner(&p, text, 'k');
    int word = start("child_ipc", text, &pid);
    wait_signal();
    OK(cudaFree(p));
    mark("freed while open elsewhere", 0, CONTEXT);
    EXPECT(1, write(word, "k", 1));
    OK(finish(pid));
    mark("end", 0, CONTEXT);
}

/* The owner exits with everything still allocated; the importer lives on and inherits. */
void ipc_owner_exits(void) {
    char text[130];
    void *p;
    int importer;
    owner(&p, text, 'k');
    start("child_ipc", text, &importer);
    wait_signal();
    /* The importer's input ends with this process. */
    _exit(3);
}

void ipc_two_importers(void) {
    char text[130];
    void *p;
    int first, second;
    owner(&p, text, 'c');
    int word = start("child_ipc", text, &first);
    wait_signal();
    text[0] = 'k';
    int other = start("child_ipc", text, &second);
    wait_signal();
    /* The younger duplicate inherits. */
    OK(cudaFree(p));
    mark("freed", 0, CONTEXT);
    EXPECT(1, write(word, "c", 1));
    OK(finish(first));
    EXPECT(1, write(other, "k", 1));
    OK(finish(second));
    mark("end", 0, CONTEXT);
}
