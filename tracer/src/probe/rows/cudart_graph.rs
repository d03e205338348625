//! libcudart: graphs, stream capture, launches.

use super::prelude::*;

#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    // cudaMemAllocNodeParams: poolProps@0 (location@8), bytesize@104, dptr@112 (written by the driver).
    row(GraphNode, Graph, "11.4", &["cudaGraphAddMemAllocNode"],
        "cudaError_t (cudaGraphNode_t *pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies, \
         size_t numDependencies, struct cudaMemAllocNodeParams *nodeParams)",
        &[handle(out(0)), more("graph", arg(1)), location(at_entry(4, 8, 8)), size(at_entry(4, 104, 8)),
          address(at_return(4, 112, 8))]),
    row(GraphNode, Graph, "11.4", &["cudaGraphAddMemFreeNode"],
        "cudaError_t (cudaGraphNode_t *pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies, \
         size_t numDependencies, void *dptr)",
        &[handle(out(0)), more("graph", arg(1)), address(arg(4))]),
    // 13.0 put an argument before the node's parameters under the same name: the driver call inside has the size.
    row(GraphNode, Graph, "12.2", &["cudaGraphAddNode"],
        "cudaError_t (cudaGraphNode_t *pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies, \
         size_t numDependencies, struct cudaGraphNodeParams *nodeParams) | \
         cudaError_t (cudaGraphNode_t *pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies, \
         const cudaGraphEdgeData *dependencyData, size_t numDependencies, struct cudaGraphNodeParams *nodeParams)",
        &[handle(out(0)), more("graph", arg(1))]),
    row(GraphNode, Graph, "12.3", &["cudaGraphAddNode_v2"],
        "cudaError_t (cudaGraphNode_t *pGraphNode, cudaGraph_t graph, const cudaGraphNode_t *pDependencies, \
         const cudaGraphEdgeData *dependencyData, size_t numDependencies, struct cudaGraphNodeParams *nodeParams)",
        &[handle(out(0)), more("graph", arg(1))]),

    // 12.0 replaced the last three arguments by one under the same name; both begin with the two read here.
    row(GraphExec, Graph, "10.0", &["cudaGraphInstantiate"],
        "cudaError_t (cudaGraphExec_t *pGraphExec, cudaGraph_t graph, cudaGraphNode_t *pErrorNode, \
         char *pLogBuffer, size_t bufferSize) | cudaError_t (cudaGraphExec_t *pGraphExec, cudaGraph_t graph, \
         unsigned long long flags)",
        &[handle(out(0)), more("graph", arg(1))]),
    row(GraphExec, Graph, "11.4", &["cudaGraphInstantiateWithFlags"],
        "cudaError_t (cudaGraphExec_t *pGraphExec, cudaGraph_t graph, unsigned long long flags)",
        &[handle(out(0)), more("graph", arg(1)), more("flags", arg(2))]),
    // cudaGraphInstantiateParams: flags@0, uploadStream@8.
    row(GraphExec, Graph, "12.0", &["cudaGraphInstantiateWithParams", "cudaGraphInstantiateWithParams_ptsz"],
        "cudaError_t (cudaGraphExec_t *pGraphExec, cudaGraph_t graph, cudaGraphInstantiateParams *instantiateParams)",
        &[handle(out(0)), more("graph", arg(1)), more("flags", at_entry(2, 0, 8)), more("stream", at_entry(2, 8, 8))]),
    row(GraphExec, Graph, "11.1", &["cudaGraphUpload", "cudaGraphUpload_ptsz"],
        "cudaError_t (cudaGraphExec_t graphExec, cudaStream_t stream)",
        &[handle(arg(0)), more("stream", arg(1))]),
    row(GraphExec, Graph, "10.2", &["cudaGraphExecUpdate"],
        "cudaError_t (cudaGraphExec_t hGraphExec, cudaGraph_t hGraph, cudaGraphNode_t *hErrorNode_out, \
         enum cudaGraphExecUpdateResult *updateResult_out) | cudaError_t (cudaGraphExec_t hGraphExec, \
         cudaGraph_t hGraph, cudaGraphExecUpdateResultInfo *resultInfo)",
        &[handle(arg(0)), more("graph", arg(1))]),
    row(GraphEnd, Graph, "10.0", &["cudaGraphExecDestroy"],
        "cudaError_t (cudaGraphExec_t graphExec)",
        &[handle(arg(0))]),
    row(GraphEnd, Graph, "10.0", &["cudaGraphDestroy"],
        "cudaError_t (cudaGraph_t graph)",
        &[more("graph", arg(0))]),
    row(PoolTrim, Graph, "11.4", &["cudaDeviceGraphMemTrim"],
        "cudaError_t (int device)",
        &[device(arg32(0))]),
    row(Reading, Group::Reading, "11.4", &["cudaDeviceGetGraphMemAttribute"],
        "cudaError_t (int device, enum cudaGraphMemAttributeType attr, void *value)",
        &[device(arg32(0)), more("attribute", arg32(1)), more("value", at_return(2, 0, 8))]),
    row(Pool, Graph, "11.4", &["cudaDeviceSetGraphMemAttribute"],
        "cudaError_t (int device, enum cudaGraphMemAttributeType attr, void *value)",
        &[device(arg32(0)), more("attribute", arg32(1)), more("value", at_entry(2, 0, 8))]),

    row(Capture, Graph, "10.0", &["cudaStreamBeginCapture", "cudaStreamBeginCapture_ptsz"],
        "cudaError_t (cudaStream_t stream, enum cudaStreamCaptureMode mode)",
        &[more("stream", arg(0)), more("mode", arg32(1))]),
    row(Capture, Graph, "12.3", &["cudaStreamBeginCaptureToGraph", "cudaStreamBeginCaptureToGraph_ptsz"],
        "cudaError_t (cudaStream_t stream, cudaGraph_t graph, const cudaGraphNode_t *dependencies, \
         const cudaGraphEdgeData *dependencyData, size_t numDependencies, enum cudaStreamCaptureMode mode)",
        &[more("stream", arg(0)), more("graph", arg(1)), more("mode", arg32(5))]),
    row(CaptureEnd, Graph, "10.0", &["cudaStreamEndCapture", "cudaStreamEndCapture_ptsz"],
        "cudaError_t (cudaStream_t stream, cudaGraph_t *pGraph)",
        &[more("stream", arg(0)), more("graph", out(1))]),

    row(Launch, Group::Launch, "10.0", &["cudaGraphLaunch", "cudaGraphLaunch_ptsz"],
        "cudaError_t (cudaGraphExec_t graphExec, cudaStream_t stream)",
        &[handle(arg(0)), more("stream", arg(1))]).quiet(),
    row(Launch, Group::Launch, "7.0", &["cudaLaunchKernel", "cudaLaunchKernel_ptsz"],
        "cudaError_t (const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem, \
         cudaStream_t stream)",
        &[handle(arg(0))]).quiet(),
    row(Launch, Group::Launch, "11.8", &["cudaLaunchKernelExC", "cudaLaunchKernelExC_ptsz"],
        "cudaError_t (const cudaLaunchConfig_t *config, const void *func, void **args)",
        &[handle(arg(1))]).quiet(),
    row(Launch, Group::Launch, "9.0", &["cudaLaunchCooperativeKernel", "cudaLaunchCooperativeKernel_ptsz"],
        "cudaError_t (const void *func, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem, \
         cudaStream_t stream)",
        &[handle(arg(0))]).quiet(),
    row(Launch, Group::Launch, "9.0", &["cudaLaunchCooperativeKernelMultiDevice"],
        "cudaError_t (struct cudaLaunchParams *launchParamsList, unsigned int numDevices, unsigned int flags)",
        &[more("count", arg32(1))]).quiet(),
    // What newer nvcc's launch stubs call instead of cudaLaunchKernel; in no header, seen in 12.9.
    row(Launch, Group::Launch, "12.9", &["__cudaLaunchKernel", "__cudaLaunchKernel_ptsz"],
        "cudaError_t (cudaKernel_t kernel, dim3 gridDim, dim3 blockDim, void **args, size_t sharedMem, \
         cudaStream_t stream)",
        &[handle(arg(0))]).quiet(),
];
