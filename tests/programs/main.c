/* Small CUDA programs in one: `scenario NAME`. Output and exit code of each are the same every time. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../cuda/include/sim_private.h"
#include "scenario.h"

#define ROW(name) {#name, name}
static const struct {
    const char *name;
    void (*run)(void);
} scenarios[] = {
    ROW(small), ROW(large), ROW(pitch), ROW(arrays), ROW(managed), ROW(host), ROW(wrong_arguments), ROW(out_of_memory),
    ROW(mem_info), ROW(async_pool), ROW(own_pool), ROW(pool_threshold), ROW(vmm), ROW(vmm_orders), ROW(vmm_retain),
    ROW(expandable_segments), ROW(ipc_closed_first), ROW(ipc_owner_first), ROW(ipc_owner_exits), ROW(ipc_two_importers),
    ROW(share_closed_first), ROW(share_owner_first), ROW(share_file_last), ROW(graph_capture), ROW(graph_nodes),
    ROW(local_memory), ROW(side_streams), ROW(modules), ROW(eager_modules), ROW(context_create), ROW(context_reset),
    ROW(two_gpus), ROW(threads), ROW(fork_exec), ROW(fork_idle), ROW(reopened), ROW(exec_again), ROW(killed_in_call),
    ROW(killed_in_driver), ROW(exits_with_7), ROW(ioctl_errors), ROW(slow_call), ROW(late_library), ROW(nccl), ROW(c10),
    ROW(memory_saver),
};
static const struct {
    const char *name;
    void (*run)(const char *);
} children[] = {ROW(child_ipc), ROW(child_share), ROW(child_alloc)};

int device_file(const char *name, int flags) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", getenv(SIM_DEV), name);
    return open(path, flags | O_CLOEXEC);
}

/*
 * Where marks go. Opened once, at the start: a file opened for a mark would take the place (the descriptor's number, the
 * kernel's memory) of one that the scenario has just closed.
 */
static int marks = -1;

void mark(const char *name, int gpu, uint64_t expected) {
    struct sim_mark m = {.gpu = (uint32_t)gpu, .has_expected = 1, .expected = expected};
    snprintf(m.name, sizeof m.name, "%s", name);
    printf("mark %s\n", name);
    fflush(stdout);
    OK(ioctl(marks, SIM_MARK, &m));
    /* Whoever steps through the scenario looks at the process now and lets it go on with a byte. */
    char go;
    if (getenv("VRAMTRACE_SIM_STEP") && read(STDIN_FILENO, &go, 1) != 1)
        exit(2);
}

void control(const char *format, ...) {
    char text[512];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    int fd = device_file("control", O_WRONLY);
    EXPECT(length, write(fd, text, (size_t)length));
    close(fd);
}

void *driver(const char *name) {
    static void *library;
    if (!library)
        library = dlopen("libcuda.so.1", RTLD_NOW);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) {
        printf("no %s\n", name);
        exit(1);
    }
    return found;
}

int start(const char *scenario, const char *argument, int *pid) {
    int fds[2];
    OK(pipe2(fds, O_CLOEXEC));
    fflush(stdout);
    *pid = fork();
    if (!*pid) {
        dup2(fds[0], STDIN_FILENO);
        /* Steps are the parent's. */
        unsetenv("VRAMTRACE_SIM_STEP");
        execl("/proc/self/exe", "scenario", scenario, argument, NULL);
        _exit(127);
    }
    close(fds[0]);
    return fds[1];
}

int finish(int pid) {
    int status = 0;
    EXPECT(pid, waitpid(pid, &status, 0));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

CUmemAllocationProp device_memory(int gpu, bool exportable) {
    return (CUmemAllocationProp){.type = 1, .requestedHandleTypes = exportable, .location = {1, gpu}};
}

CUmemAccessDesc read_write(int gpu) {
    return (CUmemAccessDesc){{1, gpu}, 3};
}

/* Kernels register before main, as nvcc's start-up code does. The stub's address stands for the kernel. */
static const char image[] = "a fat binary";
static const char stubs[2];
static const char *const kernel_names[2] = {"plain", "spills_local4096"};
static void **binary;

__attribute__((constructor)) static void register_kernels(void) {
    binary = __cudaRegisterFatBinary((void *)image);
    for (int i = 0; i < 2; i++)
        __cudaRegisterFunction(binary, &stubs[i], (char *)kernel_names[i], kernel_names[i], -1, NULL, NULL, NULL, NULL,
                               NULL);
}

int try_launch(const char *kernel, cudaStream_t stream) {
    int k = !strcmp(kernel, kernel_names[1]);
    return cudaLaunchKernel(&stubs[k], (dim3){1, 1, 1}, (dim3){32, 1, 1}, NULL, 0, stream);
}

void launch(const char *kernel, cudaStream_t stream) {
    OK(try_launch(kernel, stream));
}

int main(int argc, char **argv) {
    if (argc > 1)
        marks = device_file("nvidiactl", O_RDWR);
    for (size_t i = 0; argc == 2 && i < sizeof scenarios / sizeof *scenarios; i++) {
        if (strcmp(argv[1], scenarios[i].name))
            continue;
        scenarios[i].run();
        printf("done %s\n", argv[1]);
        return 0;
    }
    for (size_t i = 0; argc == 3 && i < sizeof children / sizeof *children; i++) {
        if (strcmp(argv[1], children[i].name))
            continue;
        children[i].run(argv[2]);
        return 0;
    }
    for (size_t i = 0; argc == 1 && i < sizeof scenarios / sizeof *scenarios; i++)
        puts(scenarios[i].name);
    return argc == 1 ? 0 : 64;
}
