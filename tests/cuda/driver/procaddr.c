/* Look-up of functions by name, which is how libcudart and PyTorch reach the driver: always the exported functions. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "state.h"

enum { PER_THREAD_STREAM = 2 };

/* Where the newest version of a function is not the `_v2` that its name suggests. */
static const struct {
    const char *name, *symbol;
    int since;
} renamed[] = {
    {"cuGraphInstantiate", "cuGraphInstantiateWithFlags", 12000},
    {"cuCtxCreate", "cuCtxCreate_v4", 13000},
};

static void *self_symbol(const char *name) {
    static void *self;
    Dl_info info;
    if (!self && dladdr(&sim_gpu_count, &info))
        self = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    return self ? dlsym(self, name) : NULL;
}

static void *look_up(const char *name, int version, cuuint64_t flags) {
    char full[128];
    for (size_t i = 0; i < sizeof renamed / sizeof *renamed; i++)
        if (!strcmp(name, renamed[i].name) && version >= renamed[i].since)
            name = renamed[i].symbol;
    const char *suffixes[] = {flags & PER_THREAD_STREAM ? "_v2_ptsz" : "", flags & PER_THREAD_STREAM ? "_ptsz" : "", "_v2", ""};
    for (int i = 0; i < 4; i++) {
        snprintf(full, sizeof full, "%s%s", name, suffixes[i]);
        void *found = i < 2 && !*suffixes[i] ? NULL : self_symbol(full);
        if (found)
            return found;
    }
    return NULL;
}

API CUresult cuGetProcAddress_v2(const char *name, void **out, int version, cuuint64_t flags, int *status) {
    if (!name || !out)
        return CUDA_ERROR_INVALID_VALUE;
    *out = look_up(name, version, flags);
    if (status)
        *status = *out ? 0 : 1;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

API CUresult cuGetProcAddress(const char *name, void **out, int version, cuuint64_t flags) {
    return cuGetProcAddress_v2(name, out, version, flags, NULL);
}

/* Private tables of the real libcuda: none here. */
API CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    (void)id;
    *table = NULL;
    return CUDA_ERROR_NOT_FOUND;
}

API CUresult cuGetErrorString(CUresult result, const char **out) {
    *out = result == CUDA_SUCCESS                ? "no error"
           : result == CUDA_ERROR_INVALID_VALUE  ? "invalid argument"
           : result == CUDA_ERROR_OUT_OF_MEMORY  ? "out of memory"
           : result == CUDA_ERROR_NOT_INITIALIZED ? "initialization error"
                                                  : "unknown error";
    return CUDA_SUCCESS;
}

API CUresult cuGetErrorName(CUresult result, const char **out) {
    *out = result == CUDA_SUCCESS               ? "CUDA_SUCCESS"
           : result == CUDA_ERROR_INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE"
           : result == CUDA_ERROR_OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
                                                : "CUDA_ERROR_UNKNOWN";
    return CUDA_SUCCESS;
}
