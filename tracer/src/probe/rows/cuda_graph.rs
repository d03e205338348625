//! libcuda: graphs, stream capture, launches.

use super::prelude::*;

/// `CUgraphNodeType`: a memory allocation node.
const ALLOC: u64 = 10;
/// `CUgraphNodeType`: a memory free node.
const FREE: u64 = 11;

// CUgraphNodeParams: type@0, a union from 16 on. An allocation node holds CUDA_MEM_ALLOC_NODE_PARAMS there:
// location@24, bytesize@120, dptr@128 (written by the driver); a free node holds dptr@16.
static TYPE_5: Source = at_entry(4, 0, 4);
static TYPE_6: Source = at_entry(5, 0, 4);

#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    // CUDA_MEM_ALLOC_NODE_PARAMS: poolProps@0 (location@8), bytesize@104, dptr@112 (written by the driver).
    row(GraphNode, Graph, "11.4", &["cuGraphAddMemAllocNode"],
        "CUresult (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, \
         size_t numDependencies, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)",
        &[handle(out(0)), more("graph", arg(1)), location(at_entry(4, 8, 8)), size(at_entry(4, 104, 8)),
          address(at_return(4, 112, 8))]),
    row(GraphNode, Graph, "11.4", &["cuGraphAddMemFreeNode"],
        "CUresult (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, \
         size_t numDependencies, CUdeviceptr dptr)",
        &[handle(out(0)), more("graph", arg(1)), address(arg(4))]),
    row(GraphNode, Graph, "12.2", &["cuGraphAddNode"],
        "CUresult (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, \
         size_t numDependencies, CUgraphNodeParams *nodeParams)",
        &[handle(out(0)), more("graph", arg(1)), more("type", TYPE_5),
          size(when(&TYPE_5, ALLOC, &at_entry(4, 120, 8))), location(when(&TYPE_5, ALLOC, &at_entry(4, 24, 8))),
          address(when(&TYPE_5, ALLOC, &at_return(4, 128, 8))), address(when(&TYPE_5, FREE, &at_entry(4, 16, 8)))]),
    row(GraphNode, Graph, "12.3", &["cuGraphAddNode_v2"],
        "CUresult (CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, \
         const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)",
        &[handle(out(0)), more("graph", arg(1)), more("type", TYPE_6),
          size(when(&TYPE_6, ALLOC, &at_entry(5, 120, 8))), location(when(&TYPE_6, ALLOC, &at_entry(5, 24, 8))),
          address(when(&TYPE_6, ALLOC, &at_return(5, 128, 8))), address(when(&TYPE_6, FREE, &at_entry(5, 16, 8)))]),

    row(GraphExec, Graph, "10.0", &["cuGraphInstantiate"],
        "CUresult (CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, \
         size_t bufferSize)",
        &[handle(out(0)), more("graph", arg(1))]),
    row(GraphExec, Graph, "11.0", &["cuGraphInstantiate_v2"],
        "CUresult (CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer, \
         size_t bufferSize)",
        &[handle(out(0)), more("graph", arg(1))]),
    row(GraphExec, Graph, "11.4", &["cuGraphInstantiateWithFlags"],
        "CUresult (CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)",
        &[handle(out(0)), more("graph", arg(1)), more("flags", arg(2))]),
    // CUDA_GRAPH_INSTANTIATE_PARAMS: flags@0, hUploadStream@8.
    row(GraphExec, Graph, "12.0", &["cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz"],
        "CUresult (CUgraphExec *phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)",
        &[handle(out(0)), more("graph", arg(1)), more("flags", at_entry(2, 0, 8)), more("stream", at_entry(2, 8, 8))]),
    // Where no launch is probed, the physical memory of allocation nodes shows up at the first upload.
    row(GraphExec, Graph, "11.1", &["cuGraphUpload", "cuGraphUpload_ptsz"],
        "CUresult (CUgraphExec hGraph, CUstream hStream)",
        &[handle(arg(0)), more("stream", arg(1))]),
    row(GraphExec, Graph, "10.2", &["cuGraphExecUpdate"],
        "CUresult (CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out, \
         CUgraphExecUpdateResult *updateResult_out)",
        &[handle(arg(0)), more("graph", arg(1))]),
    row(GraphExec, Graph, "12.0", &["cuGraphExecUpdate_v2"],
        "CUresult (CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)",
        &[handle(arg(0)), more("graph", arg(1))]),
    row(GraphEnd, Graph, "10.0", &["cuGraphExecDestroy"],
        "CUresult (CUgraphExec hGraphExec)",
        &[handle(arg(0))]),
    row(GraphEnd, Graph, "10.0", &["cuGraphDestroy"],
        "CUresult (CUgraph hGraph)",
        &[more("graph", arg(0))]),
    row(PoolTrim, Graph, "11.4", &["cuDeviceGraphMemTrim"],
        "CUresult (CUdevice device)",
        &[device(arg32(0))]),
    // cuuint64_t: 0 used, 1 used high, 2 reserved, 3 reserved high.
    row(Reading, Group::Reading, "11.4", &["cuDeviceGetGraphMemAttribute"],
        "CUresult (CUdevice device, CUgraphMem_attribute attr, void *value)",
        &[device(arg32(0)), more("attribute", arg32(1)), more("value", at_return(2, 0, 8))]),
    row(Pool, Graph, "11.4", &["cuDeviceSetGraphMemAttribute"],
        "CUresult (CUdevice device, CUgraphMem_attribute attr, void *value)",
        &[device(arg32(0)), more("attribute", arg32(1)), more("value", at_entry(2, 0, 8))]),

    row(Capture, Graph, "10.0", &["cuStreamBeginCapture", "cuStreamBeginCapture_ptsz"],
        "CUresult (CUstream hStream)",
        &[more("stream", arg(0))]),
    row(Capture, Graph, "10.1", &["cuStreamBeginCapture_v2", "cuStreamBeginCapture_v2_ptsz"],
        "CUresult (CUstream hStream, CUstreamCaptureMode mode)",
        &[more("stream", arg(0)), more("mode", arg32(1))]),
    row(Capture, Graph, "12.3", &["cuStreamBeginCaptureToGraph", "cuStreamBeginCaptureToGraph_ptsz"],
        "CUresult (CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies, \
         const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode)",
        &[more("stream", arg(0)), more("graph", arg(1)), more("mode", arg32(5))]),
    row(CaptureEnd, Graph, "10.0", &["cuStreamEndCapture", "cuStreamEndCapture_ptsz"],
        "CUresult (CUstream hStream, CUgraph *phGraph)",
        &[more("stream", arg(0)), more("graph", out(1))]),

    // Thousands of calls a second in a serving process: labels for memory that appears at a first launch, no more.
    row(Launch, Group::Launch, "10.0", &["cuGraphLaunch", "cuGraphLaunch_ptsz"],
        "CUresult (CUgraphExec hGraph, CUstream hStream)",
        &[handle(arg(0)), more("stream", arg(1))]).quiet(),
    row(Launch, Group::Launch, "4.0", &["cuLaunchKernel", "cuLaunchKernel_ptsz"],
        "CUresult (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, \
         unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, \
         CUstream hStream, void **kernelParams, void **extra)",
        &[handle(arg(0))]).quiet(),
    row(Launch, Group::Launch, "11.6", &["cuLaunchKernelEx", "cuLaunchKernelEx_ptsz"],
        "CUresult (const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)",
        &[handle(arg(1))]).quiet(),
    row(Launch, Group::Launch, "9.0", &["cuLaunchCooperativeKernel", "cuLaunchCooperativeKernel_ptsz"],
        "CUresult (CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, \
         unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, \
         CUstream hStream, void **kernelParams)",
        &[handle(arg(0))]).quiet(),
    row(Launch, Group::Launch, "9.0", &["cuLaunchCooperativeKernelMultiDevice"],
        "CUresult (CUDA_LAUNCH_PARAMS *launchParamsList, unsigned int numDevices, unsigned int flags)",
        &[more("count", arg32(1))]).quiet(),
    row(Launch, Group::Launch, "2.0", &["cuLaunch"],
        "CUresult (CUfunction f)",
        &[handle(arg(0))]).quiet(),
    row(Launch, Group::Launch, "2.0", &["cuLaunchGrid"],
        "CUresult (CUfunction f, int grid_width, int grid_height)",
        &[handle(arg(0))]).quiet(),
    row(Launch, Group::Launch, "2.0", &["cuLaunchGridAsync"],
        "CUresult (CUfunction f, int grid_width, int grid_height, CUstream hStream)",
        &[handle(arg(0)), more("stream", arg(3))]).quiet(),
];
