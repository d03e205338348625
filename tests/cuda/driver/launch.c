/* Kernel launches: nothing runs, but what a launch allocates is allocated. */
#include "state.h"

#define LOCAL_AT_LAUNCH 1952 /* bytes a thread once a kernel ran: 527,695,872 in all on an H200 */
#define STACK_IN_THAT 1024   /* of which this much is the default stack */
#define SIDE_CHANNELS 32

/* The first use of any stream but the default one costs the context 32 pieces of 2 MiB. */
static CUresult open_side_streams(struct context *ctx) {
    for (int i = 0; i < SIDE_CHANNELS; i++) {
        for (int group = 0; group < 4; group++)
            uvm_range_group();
        if (!segment_new(ctx, "channel", CLASS_VIDMEM, ATTR_PLAIN, PAGE))
            return ctx->error;
    }
    ctx->side_streams = true;
    return CUDA_SUCCESS;
}

/* What a launch needs: code, then local memory for the stack limit and the kernel's spills, then the stream's channel. */
CUresult launch_prepare(struct context *ctx, CUfunction function, CUstream stream) {
    uint64_t local = 0, stack = ctx->stack_limit;
    CUresult result = function ? module_load_code(ctx, function, &local) : CUDA_SUCCESS;
    if (stack < STACK_IN_THAT)
        stack = STACK_IN_THAT;
    if (!result)
        result = context_grow_local(ctx, LOCAL_AT_LAUNCH - STACK_IN_THAT + stack + local, "local_memory");
    if (!result && (uintptr_t)stream > 2 && !ctx->side_streams)
        result = open_side_streams(ctx);
    return result;
}

API CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                            unsigned shared, CUstream stream, void **params, void **extra) {
    (void)shared, (void)params, (void)extra;
    WITH_CONTEXT(ctx);
    if (!f)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!gx || !gy || !gz || !bx || !by || !bz)
        return CUDA_ERROR_INVALID_VALUE;
    CUgraph graph = stream_capture(stream);
    CUresult result = launch_prepare(ctx, f, stream);
    if (!result && graph)
        graph_add_kernel(graph, f);
    return result;
}

API CUresult cuLaunchKernel_ptsz(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                 unsigned bz, unsigned shared, CUstream stream, void **params, void **extra) {
    return cuLaunchKernel(f, gx, gy, gz, bx, by, bz, shared, stream, params, extra);
}

API CUresult cuLaunchKernelEx(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {
    if (!c)
        return CUDA_ERROR_INVALID_VALUE;
    return cuLaunchKernel(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
                          c->sharedMemBytes, c->hStream, params, extra);
}

API CUresult cuLaunchKernelEx_ptsz(const CUlaunchConfig *c, CUfunction f, void **params, void **extra) {
    return cuLaunchKernelEx(c, f, params, extra);
}
