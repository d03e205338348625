//! What the probe table says about calls: the one source for what memory that appears inside one is for.

use std::sync::LazyLock;

use super::Kind;
use crate::probe::{self, Effect, Lib};
use crate::trace::record::{Frame, FrameKind};

/// A call's effect, for functions of the table.
pub(super) fn effect(name: &str) -> Option<Effect> {
    probe::by_symbol(name).map(|probe| probe.effect)
}

/// What memory made inside a call is for, and why, if its name alone tells.
pub(super) fn kind(name: &str) -> Option<(Kind, &'static str)> {
    Some(match effect(name)? {
        Effect::Context => (Kind::Context, "inside context creation"),
        // Otherwise a free makes nothing.
        Effect::Free => (Kind::Context, "a free that set up the context"),
        Effect::Load => (Kind::Module, "inside a code load"),
        Effect::Lookup => (Kind::Module, "inside a function look-up that loads code"),
        Effect::Stream | Effect::Peer => (Kind::Channel, "inside stream or peer set-up"),
        Effect::Physical | Effect::Managed => (Kind::CudaMalloc, "inside a device allocation"),
        Effect::Create => (Kind::Vmm, "inside cuMemCreate"),
        Effect::Suballocate | Effect::Pool => (Kind::Pool, "inside a stream-ordered allocation"),
        Effect::GraphExec => (Kind::GraphExec, "inside graph instantiation or upload"),
        Effect::Launch if name.contains("Graph") => (Kind::GraphExec, "inside a graph's launch"),
        _ => return None,
    })
}

/// True for calls that may make code, local memory and channels appear, and make nothing themselves.
pub(super) fn is_kernel_launch(name: &str) -> bool {
    effect(name) == Some(Effect::Launch) && !name.contains("Graph")
}

/// True for the driver's calls that make a context, whatever else is going on. (The runtime's select a device, too.)
pub(super) fn makes_context(name: &str) -> bool {
    probe::by_symbol(name).is_some_and(|probe| probe.library == Lib::Cuda && probe.effect == Effect::Context)
}

/// Functions of an effect. There are one or two of those that are asked for here, so that to compare names is quick.
fn functions(effect: Effect) -> Vec<&'static str> {
    probe::table().iter().filter(|probe| probe.effect == effect).map(|probe| probe.symbol).collect()
}

/// True for what is freed inside calls that pause memory.
pub(super) fn pauses(calls: &[String]) -> bool {
    static PAUSES: LazyLock<Vec<&str>> = LazyLock::new(|| functions(Effect::Pause));
    calls.iter().any(|name| PAUSES.contains(&name.as_str()))
}

/// True for what is made inside calls that resume paused memory.
pub(super) fn resumes(calls: &[String]) -> bool {
    static RESUMES: LazyLock<Vec<&str>> = LazyLock::new(|| functions(Effect::Resume));
    calls.iter().any(|name| RESUMES.contains(&name.as_str()))
}

/// True for the runtime API (`cudaMalloc`), false for the driver's (`cuMemAlloc`).
pub(super) fn is_runtime(name: &str) -> bool {
    probe::by_symbol(name).is_some_and(|probe| probe.library == Lib::Cudart)
}

/// True for a result by which the call failed.
pub(super) fn is_failure(name: &str, result: i64) -> bool {
    probe::by_symbol(name).is_some_and(|probe| probe.is_failure(result))
}

/// Functions of the table that a native stack shows inside libcuda or libcudart, outermost first: what was called where
/// no probe sits (launches are far too hot).
pub(super) fn on_stack<'a>(frames: impl Iterator<Item = &'a Frame>) -> Vec<String> {
    let of_cuda = |frame: &&Frame| {
        let file = frame.module.rsplit('/').next().unwrap_or_default();
        frame.kind == FrameKind::Native && file.starts_with("libcuda")
    };
    let known = |frame: &&Frame| probe::by_symbol(&frame.function).is_some();
    frames.filter(of_cuda).filter(known).map(|frame| frame.function.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_what_memory_is_for() {
        let kind = |name| kind(name).map(|(kind, _)| kind);
        assert_eq!(kind("cuMemAllocPitch_v2"), Some(Kind::CudaMalloc));
        assert_eq!(kind("cuMemAllocAsync_ptsz"), Some(Kind::Pool));
        assert_eq!(kind("cudaMalloc3DArray"), Some(Kind::CudaMalloc));
        assert_eq!(kind("cudaMallocFromPoolAsync"), Some(Kind::Pool));
        assert_eq!(kind("cuGraphInstantiateWithFlags"), Some(Kind::GraphExec));
        assert_eq!(kind("cudaGraphLaunch_ptsz"), Some(Kind::GraphExec));
        assert_eq!(kind("cuCtxEnablePeerAccess"), Some(Kind::Channel));
        for silent in ["cudaMemGetInfo", "ncclCommInitRank", "cuLaunchKernel", "cuMemHostAlloc", "cuCtxSetLimit", ""] {
            assert_eq!(kind(silent), None, "{silent}");
        }
        assert!(is_kernel_launch("cudaLaunchKernelExC_ptsz") && !is_kernel_launch("cuGraphLaunch"));
        assert!(
            makes_context("cuCtxCreate_v4") && !makes_context("cudaSetDevice") && !makes_context("cuCtxSetCurrent")
        );
    }

    #[test]
    fn calls_are_read_off_a_stack() {
        let frame = |function: &str, module: &str| Frame {
            function: function.into(),
            module: module.into(),
            ..Frame::default()
        };
        let frames = [
            frame("main", "/srv/app"),
            // A program's own function of that name is none of CUDA's.
            frame("cudaMalloc", "/srv/app"),
            frame("cudaGraphLaunch", "/usr/lib/libcudart.so.12"),
            frame("", "/usr/lib/libcudart.so.12"),
            frame("cuGraphLaunch", "/usr/lib/libcuda.so.580.95.05"),
            frame("cuGetExportTable", "/usr/lib/libcuda.so.580.95.05"),
            Frame { kind: FrameKind::Cut, ..frame("cuMemAlloc_v2", "/usr/lib/libcuda.so.1") },
        ];
        assert_eq!(on_stack(frames.iter()), ["cudaGraphLaunch", "cuGraphLaunch"]);
    }
}
