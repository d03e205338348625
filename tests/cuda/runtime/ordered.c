/* Streams, stream-ordered memory and graphs of the runtime API. */
#include "runtime.h"

API cudaError_t cudaMallocAsync(void **out, size_t bytes, cudaStream_t stream) {
    FORWARD(cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream), (CUdeviceptr *)out, bytes, stream);
}

API cudaError_t cudaMallocAsync_ptsz(void **out, size_t bytes, cudaStream_t stream) {
    FORWARD(cuMemAllocAsync_ptsz, (CUdeviceptr *, size_t, CUstream), (CUdeviceptr *)out, bytes, stream);
}

API cudaError_t cudaMallocFromPoolAsync(void **out, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
    FORWARD(cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemoryPool, CUstream), (CUdeviceptr *)out, bytes, pool,
            stream);
}

API cudaError_t cudaFreeAsync(void *p, cudaStream_t stream) {
    FORWARD(cuMemFreeAsync, (CUdeviceptr, CUstream), (CUdeviceptr)p, stream);
}

API cudaError_t cudaFreeAsync_ptsz(void *p, cudaStream_t stream) {
    FORWARD(cuMemFreeAsync_ptsz, (CUdeviceptr, CUstream), (CUdeviceptr)p, stream);
}

API cudaError_t cudaMemPoolCreate(cudaMemPool_t *out, const cudaMemPoolProps *props) {
    FORWARD(cuMemPoolCreate, (CUmemoryPool *, const CUmemPoolProps *), out, props);
}

API cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
    FORWARD(cuMemPoolDestroy, (CUmemoryPool), pool);
}

API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) {
    FORWARD(cuMemPoolTrimTo, (CUmemoryPool, size_t), pool, keep);
}

API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, int attribute, void *value) {
    FORWARD(cuMemPoolSetAttribute, (CUmemoryPool, int, void *), pool, attribute, value);
}

API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, int attribute, void *value) {
    FORWARD(cuMemPoolGetAttribute, (CUmemoryPool, int, void *), pool, attribute, value);
}

API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *out, int device) {
    FORWARD(cuDeviceGetDefaultMemPool, (CUmemoryPool *, CUdevice), out, device);
}

API cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *out, int device) {
    FORWARD(cuDeviceGetMemPool, (CUmemoryPool *, CUdevice), out, device);
}

API cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
    FORWARD(cuDeviceSetMemPool, (CUdevice, CUmemoryPool), device, pool);
}

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags) {
    FORWARD(cuStreamCreate, (CUstream *, unsigned), out, flags);
}

API cudaError_t cudaStreamCreate(cudaStream_t *out) {
    return cudaStreamCreateWithFlags(out, 0);
}

API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    FORWARD(cuStreamDestroy, (CUstream), stream);
}

API cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    FORWARD(cuStreamSynchronize, (CUstream), stream);
}

API cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode) {
    FORWARD(cuStreamBeginCapture, (CUstream, int), stream, mode);
}

API cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    FORWARD(cuStreamEndCapture, (CUstream, CUgraph *), stream, graph);
}

API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
    FORWARD(cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long), out, graph, flags);
}

API cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags) {
    FORWARD(cuGraphInstantiate, (CUgraphExec *, CUgraph, unsigned long long), out, graph, flags);
}

API cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
    FORWARD(cuGraphUpload, (CUgraphExec, CUstream), exec, stream);
}

API cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
    FORWARD(cuGraphLaunch, (CUgraphExec, CUstream), exec, stream);
}

API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    FORWARD(cuGraphExecDestroy, (CUgraphExec), exec);
}

API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    FORWARD(cuGraphDestroy, (CUgraph), graph);
}

API cudaError_t cudaDeviceGraphMemTrim(int device) {
    FORWARD(cuDeviceGraphMemTrim, (CUdevice), device);
}
