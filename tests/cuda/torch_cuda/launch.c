/* libtorch_cuda as a launcher: the kernels of this library, by name, through the shared runtime. */
#include <pthread.h>
#include <string.h>

#include "../include/cudart_abi.h"

#define KERNELS 64

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char names[KERNELS][64];
static int count;
static void **binary;

/* The place of a name stands for the kernel, as the address of a stub does. NULL: too many, or too long. */
static const void *kernel(const char *name) {
    const void *found = NULL;
    pthread_mutex_lock(&mutex);
    for (int i = 0; i < count && !found; i++)
        if (!strcmp(names[i], name))
            found = names[i];
    if (!found && count < KERNELS && strlen(name) < sizeof names[0]) {
        if (!binary)
            binary = __cudaRegisterFatBinary((void *)"libtorch_cuda's kernels");
        char *made = strcpy(names[count++], name);
        __cudaRegisterFunction(binary, made, made, made, -1, NULL, NULL, NULL, NULL, NULL);
        found = made;
    }
    pthread_mutex_unlock(&mutex);
    return found;
}

__attribute__((visibility("default"))) int sim_torch_launch(const char *name, cudaStream_t stream) {
    const void *stub = kernel(name);
    return stub ? cudaLaunchKernel(stub, (dim3){1, 1, 1}, (dim3){128, 1, 1}, NULL, 0, stream) : cudaErrorInvalidValue;
}
