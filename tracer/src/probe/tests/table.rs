//! The table as a whole.

use std::collections::HashSet;
use std::fmt::Write as _;

use tracer_ebpf::{AT_ENTRY, AT_RETURN, BASE_STACK, PROBES, READS, Read};

use super::{C10, C10_OOM};
use crate::probe::*;

/// Functions of the driver API that allocate, free, map, share, create contexts, load code or run graphs.
const DRIVER: &str = "
    cuMemAlloc_v2 cuMemAlloc cuMemAllocPitch_v2 cuMemAllocManaged cuMemFree_v2 cuMemAllocHost_v2 cuMemHostAlloc
    cuMemFreeHost cuMemHostRegister_v2 cuMemHostUnregister cuArrayCreate_v2 cuArray3DCreate_v2 cuArrayDestroy
    cuMipmappedArrayCreate cuMipmappedArrayDestroy cuMemCreate cuMemRelease cuMemRetainAllocationHandle
    cuMemAddressReserve cuMemAddressFree cuMemMap cuMemUnmap cuMemSetAccess cuMemMapArrayAsync
    cuMemMapArrayAsync_ptsz cuMemExportToShareableHandle cuMemImportFromShareableHandle
    cuMemGetHandleForAddressRange cuMulticastCreate cuMulticastAddDevice cuMulticastBindMem cuMulticastBindAddr
    cuMulticastUnbind cuMemAllocAsync cuMemAllocAsync_ptsz cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz
    cuMemFreeAsync cuMemFreeAsync_ptsz cuMemPoolCreate cuMemPoolDestroy cuMemPoolTrimTo cuMemPoolSetAttribute
    cuMemPoolGetAttribute cuMemPoolSetAccess cuMemPoolExportToShareableHandle cuMemPoolImportFromShareableHandle
    cuMemPoolExportPointer cuMemPoolImportPointer cuDeviceGetDefaultMemPool cuDeviceGetMemPool cuDeviceSetMemPool
    cuMemGetDefaultMemPool cuMemGetMemPool cuMemSetMemPool cuIpcGetMemHandle cuIpcOpenMemHandle_v2
    cuIpcOpenMemHandle cuIpcCloseMemHandle cuImportExternalMemory cuExternalMemoryGetMappedBuffer
    cuExternalMemoryGetMappedMipmappedArray cuDestroyExternalMemory cuGraphAddMemAllocNode cuGraphAddNode
    cuGraphAddNode_v2 cuGraphAddMemFreeNode cuGraphInstantiate cuGraphInstantiate_v2 cuGraphInstantiateWithFlags
    cuGraphInstantiateWithParams cuGraphInstantiateWithParams_ptsz cuGraphUpload cuGraphUpload_ptsz cuGraphLaunch
    cuGraphLaunch_ptsz cuGraphExecUpdate cuGraphExecUpdate_v2 cuGraphExecDestroy cuGraphDestroy cuDeviceGraphMemTrim
    cuDeviceGetGraphMemAttribute cuDeviceSetGraphMemAttribute cuStreamBeginCapture_v2 cuStreamBeginCapture_v2_ptsz
    cuStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph_ptsz cuStreamEndCapture cuStreamEndCapture_ptsz
    cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuModuleUnload cuLibraryLoadData
    cuLibraryLoadFromFile cuLibraryUnload cuFuncLoad cuKernelGetFunction cuModuleGetFunction cuModuleGetGlobal_v2
    cuLibraryGetGlobal cuLaunchKernel cuLaunchKernel_ptsz cuLaunchKernelEx cuLaunchKernelEx_ptsz cuCtxCreate
    cuCtxCreate_v2 cuCtxCreate_v3 cuCtxCreate_v4 cuCtxDestroy_v2 cuDevicePrimaryCtxRetain
    cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxReset_v2 cuDevicePrimaryCtxSetFlags_v2 cuCtxSetLimit
    cuCtxEnablePeerAccess cuCtxDisablePeerAccess cuStreamCreate cuStreamCreateWithPriority cuGreenCtxCreate
    cuGreenCtxStreamCreate cuMemPrefetchAsync cuMemPrefetchAsync_ptsz cuMemPrefetchAsync_v2
    cuMemPrefetchAsync_v2_ptsz cuMemPrefetchBatchAsync cuMemDiscardBatchAsync cuMemDiscardAndPrefetchBatchAsync
    cuMemAdvise cuMemAdvise_v2 cuStreamAttachMemAsync cuMemGetInfo_v2 cuCtxSetCurrent cuCtxPushCurrent_v2
    cuCtxPopCurrent_v2 cuCheckpointProcessLock cuCheckpointProcessCheckpoint cuCheckpointProcessRestore
    cuCheckpointProcessUnlock";

/// The same of the runtime API.
const RUNTIME: &str = "
    cudaMalloc cudaMallocPitch cudaMalloc3D cudaFree cudaMallocManaged cudaMallocHost cudaHostAlloc cudaFreeHost
    cudaHostRegister cudaHostUnregister cudaMallocArray cudaMalloc3DArray cudaMallocMipmappedArray cudaFreeArray
    cudaFreeMipmappedArray cudaMallocAsync cudaMallocAsync_ptsz cudaMallocFromPoolAsync cudaMallocFromPoolAsync_ptsz
    cudaFreeAsync cudaFreeAsync_ptsz cudaMemPoolCreate cudaMemPoolDestroy cudaMemPoolTrimTo cudaMemPoolSetAttribute
    cudaMemPoolGetAttribute cudaMemPoolSetAccess cudaMemPoolExportToShareableHandle
    cudaMemPoolImportFromShareableHandle cudaMemPoolExportPointer cudaMemPoolImportPointer
    cudaDeviceGetDefaultMemPool cudaDeviceGetMemPool cudaDeviceSetMemPool cudaMemGetDefaultMemPool cudaMemGetMemPool
    cudaMemSetMemPool cudaIpcGetMemHandle cudaIpcOpenMemHandle cudaIpcCloseMemHandle cudaImportExternalMemory
    cudaExternalMemoryGetMappedBuffer cudaExternalMemoryGetMappedMipmappedArray cudaDestroyExternalMemory
    cudaGraphAddMemAllocNode cudaGraphAddMemFreeNode cudaGraphAddNode cudaGraphAddNode_v2 cudaGraphInstantiate
    cudaGraphInstantiateWithFlags cudaGraphInstantiateWithParams cudaGraphInstantiateWithParams_ptsz cudaGraphUpload
    cudaGraphUpload_ptsz cudaGraphLaunch cudaGraphLaunch_ptsz cudaGraphExecDestroy cudaDeviceGraphMemTrim
    cudaStreamBeginCapture cudaStreamBeginCapture_ptsz cudaStreamBeginCaptureToGraph cudaStreamEndCapture
    cudaSetDevice cudaInitDevice cudaDeviceReset cudaDeviceSetLimit cudaDeviceEnablePeerAccess
    __cudaRegisterFatBinary cudaLibraryLoadData cudaLibraryLoadFromFile cudaLaunchKernel cudaLaunchKernelExC
    cudaMemGetInfo";

const OTHERS: &str = "
    ncclCommInitRank ncclCommInitRankConfig ncclCommInitRankScalable ncclCommInitAll ncclCommDestroy ncclCommAbort
    ncclCommSplit _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE";

#[test]
fn every_function_of_the_reference_has_a_row() {
    for (library, symbols) in [(Lib::Cuda, DRIVER), (Lib::Cudart, RUNTIME)] {
        for symbol in symbols.split_whitespace() {
            assert_eq!(by_symbol(symbol).map(|probe| probe.library), Some(library), "{symbol}");
        }
    }
    assert!(OTHERS.split_whitespace().all(|symbol| by_symbol(symbol).is_some()));
    // Listed by other tools, exported by none: a row would be reported missing for ever.
    assert!(by_symbol("cuMemAllocAsync_v2").is_none());
}

#[test]
fn table_fits_the_kernel_side() {
    assert!(table().len() < PROBES as usize);
    let mut symbols = HashSet::new();
    for probe in table() {
        assert!(symbols.insert(probe.symbol), "{} has two rows", probe.symbol);
        assert!(probe.reads.len() <= READS, "{} reads too much", probe.symbol);
        for read in &probe.reads {
            assert!(matches!(read.when, AT_ENTRY | AT_RETURN) && (1..=8).contains(&read.len), "{}", probe.symbol);
            assert!(read.base == BASE_STACK || read.base < 6, "{}", probe.symbol);
        }
        assert!(
            probe.returns_status()
                || probe.library == Lib::MemorySaver
                || ["__cudaRegisterFatBinary", C10, C10_OOM].contains(&probe.symbol),
            "{}",
            probe.symbol
        );
    }
}

/// Argument registers a prototype fills: one for each parameter but structs passed in memory.
fn registers(signature: &str) -> usize {
    let parameters = signature.split_once('(').unwrap().1.trim_end_matches(')');
    let in_memory = |p: &&str| ["ncclUniqueId ", "struct cudaExtent "].iter().any(|t| p.starts_with(t)) || is_ipc(p);
    let is_dim3 = |p: &&str| p.starts_with("dim3 ");
    let all: Vec<&str> = parameters.split(", ").filter(|p| *p != "void").collect();
    all.iter().filter(|p| !in_memory(p)).count() + all.iter().filter(|p| is_dim3(p)).count()
}

fn is_ipc(parameter: &str) -> bool {
    ["CUipcMemHandle handle", "cudaIpcMemHandle_t handle"].contains(&parameter)
}

#[test]
fn values_come_from_arguments_that_exist() {
    for probe in table() {
        let registers = probe.signature.split(" | ").map(registers).min().unwrap();
        let on_stack = ["ncclUniqueId ", "cudaExtent ", "CUipcMemHandle handle", "cudaIpcMemHandle_t handle"]
            .iter()
            .any(|t| probe.signature.contains(t));
        let mut check = |base: u8| match base {
            BASE_STACK => assert!(on_stack, "{} has nothing on the stack", probe.symbol),
            n => assert!(usize::from(n) < registers, "{} has no argument {n}", probe.symbol),
        };
        for value in probe.values {
            words(&value.source, &mut check);
        }
    }
}

fn words(source: &Source, found: &mut impl FnMut(u8)) {
    match source {
        Source::Bits { word: Word::Arg(n), .. } => found(*n),
        Source::Bits { word: Word::Memory(read), .. } => found(read.base),
        Source::Product(parts) | Source::Digest(parts) => parts.iter().for_each(|part| words(part, found)),
        Source::When { tag, value, .. } => {
            words(tag, found);
            words(value, found);
        }
        Source::Texels => {}
    }
}

#[test]
fn what_owns_bytes_says_how_many_and_what_frees_says_what() {
    for probe in table() {
        let has = |role| probe.values.iter().any(|value| value.role == role);
        if probe.effect.owns_bytes() || matches!(probe.effect, Effect::Suballocate | Effect::Managed | Effect::Host) {
            assert!(has(Role::Size) && (has(Role::Address) || has(Role::Handle)), "{}", probe.symbol);
        }
        if matches!(probe.effect, Effect::Free | Effect::Release | Effect::Subfree | Effect::HostFree) {
            assert!(has(Role::Address) || has(Role::Handle), "{}", probe.symbol);
        }
    }
}

#[test]
fn specs_follow_effects() {
    use tracer_ebpf::{SPEC_QUIET, SPEC_STACK, SPEC_STACK_ON_FAILURE};
    let flags = |symbol: &str| by_symbol(symbol).unwrap().spec().flags;
    assert_eq!(flags("cuMemAlloc_v2"), SPEC_STACK_ON_FAILURE);
    assert_eq!(flags("cuMemFree_v2"), 0);
    assert_eq!(flags("cudaFree"), SPEC_STACK_ON_FAILURE, "cudaFree(0) creates the context");
    assert_eq!(flags("cudaMemGetInfo"), SPEC_STACK_ON_FAILURE | SPEC_STACK);
    assert_eq!(flags("cuModuleGetFunction"), SPEC_STACK_ON_FAILURE | SPEC_QUIET);
    assert_eq!(flags(C10), 0);
    assert_eq!(flags(C10_OOM), SPEC_STACK);
    assert_eq!(
        by_symbol("cuMemAlloc_v2").unwrap().spec().reads[0],
        Read { when: AT_RETURN, base: 0, len: 8, pad: 0, offset: 0 }
    );
    for probe in table().iter().filter(|probe| !probe.group.by_default()) {
        assert!(matches!(
            probe.effect,
            Effect::Launch
                | Effect::Current
                | Effect::Residency
                | Effect::Tensor
                | Effect::TensorFailure
                | Effect::Lookup
        ));
    }
}

#[test]
fn ids_and_symbols_lead_to_the_same_row() {
    for (id, probe) in Lib::ALL.into_iter().flat_map(of) {
        assert_eq!(by_id(id).unwrap().symbol, probe.symbol);
        assert_eq!(by_symbol(probe.symbol).unwrap().symbol, probe.symbol);
    }
    assert_eq!(Lib::ALL.into_iter().flat_map(of).count(), table().len());
    assert!(by_id(u32::MAX).is_none() && by_symbol("").is_none());
}

#[test]
fn listing() {
    let mut text = String::new();
    for probe in table() {
        let flags = if probe.quiet { " quiet" } else { "" };
        writeln!(text, "{} {} {:?}/{:?}{flags}", probe.library, probe.symbol, probe.group, probe.effect).unwrap();
        for value in probe.values {
            writeln!(text, "    {:?} = {}", value.role, show(&value.source)).unwrap();
        }
    }
    insta::assert_snapshot!(text);
}

fn show(source: &Source) -> String {
    let list = |parts: &[Source], by: &str| parts.iter().map(show).collect::<Vec<_>>().join(by);
    match source {
        Source::Bits { word, shift, bits } => {
            let word = match word {
                Word::Arg(n) => format!("a{n}"),
                Word::Memory(read) => {
                    let base = if read.base == BASE_STACK { "rsp".into() } else { format!("a{}", read.base) };
                    format!("{}[{base}+{}]", if read.when == AT_ENTRY { "entry" } else { "return" }, read.offset)
                }
            };
            format!("{word}:{shift}+{bits}")
        }
        Source::Product(factors) => list(factors, " * "),
        Source::Digest(parts) => format!("digest({})", list(parts, ", ")),
        Source::When { tag, is, value } => format!("{} if {} == {is}", show(value), show(tag)),
        Source::Texels => "texels".into(),
    }
}
