//! What an API call's name says about memory that appears inside it.

use super::Kind;

/// What a call does to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Api {
    /// What memory made inside it is for; `None`: anything.
    pub(super) kind: Option<Kind>,
    /// Its failure is a failure to get memory.
    pub(super) allocates: bool,
    /// In a few words.
    pub(super) evidence: &'static str,
}

const fn api(kind: Option<Kind>, allocates: bool, evidence: &'static str) -> Api {
    Api { kind, allocates, evidence }
}

const CONTEXT: Api = api(Some(Kind::Context), true, "inside context creation");
const LAZY: Api = api(Some(Kind::Context), false, "a free that set up the context");
const CODE: Api = api(Some(Kind::Module), true, "inside a code load");
const LOOKUP: Api = api(Some(Kind::Module), false, "inside a function look-up that loads code");
const LIMIT: Api = api(Some(Kind::LocalMemory), false, "inside a change of limits");
const STREAM: Api = api(Some(Kind::Channel), false, "inside stream or peer set-up");
const DEVICE: Api = api(Some(Kind::CudaMalloc), true, "inside a device allocation");
const VMM: Api = api(Some(Kind::Vmm), true, "inside cuMemCreate");
const POOL: Api = api(Some(Kind::Pool), true, "inside a stream-ordered allocation");
const GRAPH: Api = api(Some(Kind::GraphExec), true, "inside graph instantiation, upload or launch");
const HOST: Api = api(Some(Kind::Host), true, "inside a host allocation");

/// By beginning of the name, so that `_v2` and `_ptsz` forms are the same; the longest that fits counts.
const APIS: &[(&str, Api)] = &[
    ("cuArray3DCreate", DEVICE),
    ("cuArrayCreate", DEVICE),
    ("cuCtxCreate", CONTEXT),
    ("cuCtxEnablePeerAccess", STREAM),
    ("cuCtxSetLimit", LIMIT),
    ("cuDevicePrimaryCtxRetain", CONTEXT),
    ("cuFuncGetAttribute", LOOKUP),
    ("cuFuncLoad", LOOKUP),
    ("cuFuncSet", LOOKUP),
    ("cuGraphExecUpdate", GRAPH),
    ("cuGraphInstantiate", GRAPH),
    ("cuGraphLaunch", GRAPH),
    ("cuGraphUpload", GRAPH),
    ("cuGreenCtxCreate", CONTEXT),
    ("cuGreenCtxStreamCreate", STREAM),
    ("cuKernelGet", LOOKUP),
    ("cuKernelSet", LOOKUP),
    ("cuLibraryGet", LOOKUP),
    ("cuLibraryLoad", CODE),
    ("cuMemAlloc", DEVICE),
    ("cuMemAllocAsync", POOL),
    ("cuMemAllocFromPoolAsync", POOL),
    ("cuMemAllocHost", HOST),
    ("cuMemCreate", VMM),
    ("cuMemFree", LAZY),
    ("cuMemHostAlloc", HOST),
    ("cuMemPool", POOL),
    ("cuMipmappedArrayCreate", DEVICE),
    ("cuModuleGet", LOOKUP),
    ("cuModuleLoad", CODE),
    ("cuOccupancy", LOOKUP),
    ("cuStreamCreate", STREAM),
    ("cudaDeviceEnablePeerAccess", STREAM),
    ("cudaDeviceSetLimit", LIMIT),
    ("cudaFree", LAZY),
    ("cudaFuncGetAttributes", LOOKUP),
    ("cudaFuncSet", LOOKUP),
    ("cudaGetSymbol", LOOKUP),
    ("cudaGraphExecUpdate", GRAPH),
    ("cudaGraphInstantiate", GRAPH),
    ("cudaGraphLaunch", GRAPH),
    ("cudaGraphUpload", GRAPH),
    ("cudaHostAlloc", HOST),
    ("cudaInitDevice", CONTEXT),
    ("cudaLibraryGet", LOOKUP),
    ("cudaLibraryLoad", CODE),
    ("cudaMalloc", DEVICE),
    ("cudaMallocAsync", POOL),
    ("cudaMallocFromPoolAsync", POOL),
    ("cudaMallocHost", HOST),
    ("cudaMemPool", POOL),
    ("cudaOccupancy", LOOKUP),
    ("cudaSetDevice", CONTEXT),
    ("cudaStreamCreate", STREAM),
];

/// What is known of a function.
pub(super) fn find(name: &str) -> Option<&'static Api> {
    // Sorted: what fits stands at or before the name, longer beginnings later.
    let end = APIS.partition_point(|&(start, _)| start <= name);
    APIS[..end]
        .iter()
        .rev()
        .take_while(|(start, _)| start.get(..4) == name.get(..4))
        .find_map(|(start, api)| name.starts_with(start).then_some(api))
}

/// True for calls that make a context, whatever else is going on.
pub(super) fn makes_context(name: &str) -> bool {
    ["cuDevicePrimaryCtxRetain", "cuCtxCreate", "cuGreenCtxCreate"].iter().any(|start| name.starts_with(start))
}

/// Whether a call begins or ends the capture of a stream, if it does either.
pub(super) fn capture(name: &str) -> Option<bool> {
    let stream = name.strip_prefix("cuStream").or_else(|| name.strip_prefix("cudaStream"))?;
    match (stream.starts_with("BeginCapture"), stream.starts_with("EndCapture")) {
        (false, false) => None,
        (begins, _) => Some(begins),
    }
}

/// True for the runtime API (`cudaMalloc`), false for the driver's (`cuMemAlloc`).
pub(super) fn is_runtime(name: &str) -> bool {
    name.starts_with("cuda")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(APIS.is_sorted_by(|a, b| a.0 < b.0));
    }

    #[test]
    fn the_longest_beginning_counts() {
        let kind = |name| find(name).and_then(|api| api.kind);
        assert_eq!(kind("cuMemAlloc_v2"), Some(Kind::CudaMalloc));
        assert_eq!(kind("cuMemAllocPitch_v2"), Some(Kind::CudaMalloc));
        assert_eq!(kind("cuMemAllocAsync_ptsz"), Some(Kind::Pool));
        assert_eq!(kind("cuMemAllocHost_v2"), Some(Kind::Host));
        assert_eq!(kind("cudaMalloc3DArray"), Some(Kind::CudaMalloc));
        assert_eq!(kind("cudaMallocFromPoolAsync"), Some(Kind::Pool));
        assert_eq!(kind("cuGraphInstantiateWithFlags"), Some(Kind::GraphExec));
        assert_eq!(kind("cuDevicePrimaryCtxRetain"), Some(Kind::Context));
        assert_eq!(kind("cudaMemGetInfo"), None);
        assert_eq!(kind("ncclCommInitRank"), None);
        assert_eq!(kind("cuLaunchKernel"), None);
        assert_eq!(kind(""), None);
    }

    #[test]
    fn captures() {
        assert_eq!(capture("cuStreamBeginCaptureToGraph_ptsz"), Some(true));
        assert_eq!(capture("cudaStreamEndCapture"), Some(false));
        assert_eq!(capture("cudaStreamCreate"), None);
        assert_eq!(capture("cuGraphLaunch"), None);
    }

    #[test]
    fn what_fails_for_memory() {
        for name in
            ["cudaMalloc", "cuMemCreate", "cuGraphLaunch", "cuModuleLoadData", "cuLibraryLoadData", "cudaSetDevice"]
        {
            assert!(find(name).is_some_and(|api| api.allocates), "{name}");
        }
        for name in ["cudaFree", "cuMemFree_v2", "cuStreamCreate", "cuFuncLoad", "cudaMemcpy"] {
            assert!(!find(name).is_some_and(|api| api.allocates), "{name}");
        }
    }
}
