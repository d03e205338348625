/* Graphs: 2 MiB for each instance, memory nodes physical from their first launch or upload on. */
#include "scenario.h"

void graph_capture(void) {
    cudaStream_t stream;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    void *p, *q;
    OK(cudaStreamCreate(&stream));
    OK(cudaStreamBeginCapture(stream, 0));
    OK(cudaMallocAsync(&p, 30 * MIB, stream));
    OK(cudaMallocAsync(&q, 10 * MIB, stream));
    OK(cudaFreeAsync(p, stream));
    OK(cudaFreeAsync(q, stream));
    OK(cudaStreamEndCapture(stream, &graph));
    mark("captured", 0, CONTEXT);
    OK(cudaGraphInstantiate(&exec, graph, 0));
    mark("instantiated", 0, CONTEXT + 2 * MIB);
    OK(cudaGraphLaunch(exec, stream));
    mark("launched", 0, CONTEXT + 42 * MIB);
    OK(cudaGraphLaunch(exec, stream));
    OK(cudaStreamSynchronize(stream));
    mark("launched again", 0, CONTEXT + 42 * MIB);
    OK(cudaGraphExecDestroy(exec));
    mark("destroyed", 0, CONTEXT + 40 * MIB);
    OK(cudaDeviceGraphMemTrim(0));
    mark("trimmed", 0, CONTEXT);
    OK(cudaGraphDestroy(graph));
    OK(cudaStreamDestroy(stream));
}

/* Nodes made by hand, uploaded, with an allocation that outlives the launch. */
void graph_nodes(void) {
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = {.allocType = 1, .location = {1, 0}}, .bytesize = 64 * MIB};
    CUgraphNode node;
    CUgraph graph;
    cudaGraphExec_t exec, other;
    OK(cudaFree(0));
    OK(CU(cuGraphCreate)(&graph, 0));
    OK(CU(cuGraphAddMemAllocNode)(&node, graph, NULL, 0, &params));
    mark("node", 0, CONTEXT);
    OK(cudaGraphInstantiateWithFlags(&exec, graph, 0));
    OK(cudaGraphUpload(exec, NULL));
    mark("uploaded", 0, CONTEXT + 66 * MIB);
    OK(cudaGraphLaunch(exec, NULL));
    OK(cudaDeviceGraphMemTrim(0));
    mark("in use: not trimmed", 0, CONTEXT + 66 * MIB);
    OK(cudaFree((void *)params.dptr));
    mark("freed", 0, CONTEXT + 66 * MIB);
    /* The next graph uses the same memory. */
    OK(cudaGraphInstantiateWithFlags(&other, graph, CU_GRAPH_INSTANTIATE_UPLOAD));
    mark("second instance", 0, CONTEXT + 68 * MIB);
    OK(cudaDeviceGraphMemTrim(0));
    OK(cudaGraphExecDestroy(exec));
    OK(cudaGraphExecDestroy(other));
    mark("end", 0, CONTEXT);
}
