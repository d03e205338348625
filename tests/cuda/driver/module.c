/* Modules and libraries. Loading is lazy: code takes memory when its first function is loaded or launched. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "state.h"

struct module {
    struct module *next;
    struct context *ctx; /* where its code is */
    struct segment *code;
    struct function *functions;
};

struct function {
    struct function *next;
    struct module *module;
    char name[64];
};

static struct module *modules;

static CUresult load_code(struct context *ctx, struct module *module) {
    if (module->code)
        return CUDA_SUCCESS;
    module->code = segment_new(ctx, "module", CLASS_VIDMEM, ATTR_PLAIN, PAGE);
    module->ctx = ctx;
    return module->code ? CUDA_SUCCESS : ctx->error;
}

/* Loads a function's code; a kernel named `…_localN` needs N bytes of local memory a thread. */
CUresult module_load_code(struct context *ctx, CUfunction function, uint64_t *local_bytes) {
    const char *local = strstr(function->name, "_local");
    *local_bytes = local ? strtoull(local + strlen("_local"), NULL, 10) : 0;
    return load_code(ctx, function->module);
}

void modules_forget(struct context *ctx) {
    for (struct module *m = modules; m; m = m->next)
        if (m->ctx == ctx) {
            m->ctx = NULL;
            m->code = NULL;
        }
}

static CUresult load(struct module **out, const void *image) {
    struct context *ctx = sim_current();
    const char *loading = getenv("CUDA_MODULE_LOADING");
    if (!out || !image)
        return CUDA_ERROR_INVALID_VALUE;
    struct module *m = calloc(1, sizeof *m);
    if (ctx && loading && !strcmp(loading, "EAGER")) {
        CUresult result = load_code(ctx, m);
        if (result) {
            free(m);
            return result;
        }
    }
    m->next = modules;
    *out = modules = m;
    return CUDA_SUCCESS;
}

API CUresult cuModuleLoadData(CUmodule *out, const void *image) {
    WITH_CONTEXT(ctx);
    (void)ctx;
    return load(out, image);
}

API CUresult cuModuleLoadDataEx(CUmodule *out, const void *image, unsigned n, int *options, void **values) {
    (void)n, (void)options, (void)values;
    return cuModuleLoadData(out, image);
}

API CUresult cuModuleLoadFatBinary(CUmodule *out, const void *image) {
    return cuModuleLoadData(out, image);
}

API CUresult cuModuleLoad(CUmodule *out, const char *name) {
    return cuModuleLoadData(out, name);
}

API CUresult cuModuleUnload(CUmodule module) {
    READY;
    for (struct module **at = &modules; module && *at; at = &(*at)->next) {
        if (*at != module)
            continue;
        *at = module->next;
        if (module->code)
            segment_free(module->code);
        while (module->functions) {
            struct function *f = module->functions;
            module->functions = f->next;
            free(f);
        }
        free(module);
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuModuleGetFunction(CUfunction *out, CUmodule module, const char *name) {
    READY;
    if (!out || !module || !name)
        return CUDA_ERROR_INVALID_VALUE;
    struct function *f = calloc(1, sizeof *f);
    f->module = module;
    snprintf(f->name, sizeof f->name, "%s", name);
    f->next = module->functions;
    *out = module->functions = f;
    return CUDA_SUCCESS;
}

API CUresult cuModuleGetGlobal_v2(CUdeviceptr *out, size_t *bytes, CUmodule module, const char *name) {
    WITH_CONTEXT(ctx);
    if (!module || !name)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = load_code(ctx, module);
    if (!result && out)
        *out = module->code->va;
    if (!result && bytes)
        *bytes = 4;
    return result;
}

API CUresult cuFuncLoad(CUfunction function) {
    WITH_CONTEXT(ctx);
    uint64_t local;
    return function ? module_load_code(ctx, function, &local) : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    (void)attribute, (void)value;
    return function ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

API CUresult cuLibraryLoadData(CUlibrary *out, const void *code, int *jit, void **jit_values, unsigned jit_count,
                               int *options, void **values, unsigned count) {
    (void)jit, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    READY;
    return load(out, code);
}

API CUresult cuLibraryLoadFromFile(CUlibrary *out, const char *name, int *jit, void **jit_values, unsigned jit_count,
                                   int *options, void **values, unsigned count) {
    return cuLibraryLoadData(out, name, jit, jit_values, jit_count, options, values, count);
}

API CUresult cuLibraryUnload(CUlibrary library) {
    return cuModuleUnload(library);
}

API CUresult cuLibraryGetKernel(CUkernel *out, CUlibrary library, const char *name) {
    return cuModuleGetFunction(out, library, name);
}

API CUresult cuLibraryGetGlobal(CUdeviceptr *out, size_t *bytes, CUlibrary library, const char *name) {
    return cuModuleGetGlobal_v2(out, bytes, library, name);
}

API CUresult cuKernelGetFunction(CUfunction *out, CUkernel kernel) {
    *out = kernel;
    return kernel ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
