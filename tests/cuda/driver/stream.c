/* Streams, events, capture. */
#include <stdlib.h>

#include "state.h"

struct stream {
    struct context *ctx;
    CUgraph graph; /* being captured */
};

/* 0 is the default stream; 1 and 2 name the legacy and the per-thread one. */
static bool is_default(CUstream stream) {
    return (uintptr_t)stream <= 2;
}

CUgraph stream_capture(CUstream stream) {
    return is_default(stream) ? NULL : stream->graph;
}

API CUresult cuGraphCreate(CUgraph *graph, unsigned flags);

API CUresult cuStreamCreate(CUstream *out, unsigned flags) {
    WITH_CONTEXT(ctx);
    (void)flags;
    *out = calloc(1, sizeof **out);
    (*out)->ctx = ctx;
    return CUDA_SUCCESS;
}

API CUresult cuStreamCreateWithPriority(CUstream *out, unsigned flags, int priority) {
    (void)priority;
    return cuStreamCreate(out, flags);
}

API CUresult cuStreamDestroy_v2(CUstream stream) {
    READY;
    if (is_default(stream))
        return CUDA_ERROR_INVALID_HANDLE;
    free(stream);
    return CUDA_SUCCESS;
}

API CUresult cuStreamSynchronize(CUstream stream) {
    WITH_CONTEXT(ctx);
    if (stream_capture(stream))
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    pools_sync(ctx);
    return CUDA_SUCCESS;
}

API CUresult cuStreamSynchronize_ptsz(CUstream stream) {
    return cuStreamSynchronize(stream);
}

API CUresult cuStreamBeginCapture_v2(CUstream stream, int mode) {
    if (is_default(stream) || mode < 0 || mode > 2)
        return CUDA_ERROR_INVALID_VALUE;
    return cuGraphCreate(&stream->graph, 0);
}

API CUresult cuStreamBeginCapture_v2_ptsz(CUstream stream, int mode) {
    return cuStreamBeginCapture_v2(stream, mode);
}

API CUresult cuStreamEndCapture(CUstream stream, CUgraph *graph) {
    READY;
    if (!stream_capture(stream))
        return CUDA_ERROR_INVALID_VALUE;
    *graph = stream->graph;
    stream->graph = NULL;
    return CUDA_SUCCESS;
}

API CUresult cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph) {
    return cuStreamEndCapture(stream, graph);
}

API CUresult cuStreamIsCapturing(CUstream stream, int *status) {
    READY;
    *status = stream_capture(stream) != NULL;
    return CUDA_SUCCESS;
}

API CUresult cuEventCreate(CUevent *out, unsigned flags) {
    READY;
    (void)flags;
    *out = malloc(1);
    return CUDA_SUCCESS;
}

API CUresult cuEventDestroy_v2(CUevent event) {
    free(event);
    return CUDA_SUCCESS;
}

API CUresult cuEventRecord(CUevent event, CUstream stream) {
    (void)event, (void)stream;
    return CUDA_SUCCESS;
}

API CUresult cuEventSynchronize(CUevent event) {
    (void)event;
    WITH_CONTEXT(ctx);
    pools_sync(ctx);
    return CUDA_SUCCESS;
}
