//! What NVIDIA exports and the table has not, with the reason.

use std::collections::BTreeSet;

use regex::Regex;
use tracer::probe;

/// Functions that might concern memory, by name.
const CANDIDATES: &str = "^(__)?cu.*(Alloc|Free|Create|Import|Export|Map|Ipc|Pool|Graph.*Mem|Load|Register|Retain|\
                          Instantiate|Upload|Launch|Limit|Checkpoint|Ctx|Reset|Multicast|Capture|Destroy)";

/// Candidates left out, and why.
const LEFT_OUT: &[(&str, &str)] = &[
    ("^cu.*Get(Limit|Flags|Device|CacheConfig|SharedMem|ApiVersion|StreamPriority|Exec|Id|State|Current|Ctx)", "asks"),
    ("^cu.*Get(Params|Access|Allocation|Granularity|LoadingMode|CaptureInfo|GreenCtx|DevRes|RestoreThread)", "asks"),
    ("FuncIsLoaded|ArrayGet|GetMipmapped", "asks"),
    ("Mem(cpy|set).*Node|BatchMemOpNode", "a node that moves bytes and owns none"),
    ("^cu(da)?GraphCreate$", "a graph is host memory until it is instantiated"),
    ("GraphDestroyNode|GraphConditionalHandle|UserObject", "host bookkeeping"),
    ("^cu(da)?Graphics|^cu(da)?GL|VDPAU|EGL", "graphics interoperability: the memory is the graphics API's"),
    ("Semaphore|IpcGetEventHandle|IpcOpenEventHandle", "synchronisation, no memory"),
    ("^cu(da)?Event(Create|Destroy)", "hot; events come from pools whose growth the ioctls show"),
    ("Tex(ture)?(Obj|Ref)|Surf(ace)?(Obj|Ref)|TensorMap|ChannelDesc|cudaBind", "a descriptor of memory that is there"),
    ("^cuLink", "the linker works in host memory; its output goes through cuModuleLoad* or cuLibraryLoad*"),
    ("^cudbg", "the debugger's interface"),
    ("ExportTable", "hands out private function tables"),
    ("PersistingL2|^cuCtx(Set(Flags|CacheConfig|SharedMem)|Synchronize|Attach|FromGreen|Record|Wait)", "no memory"),
    ("^cuGreenCtx(RecordEvent|WaitEvent)", "no memory"),
    ("AsyncNotification|LogsRegister|LaunchHostFunc", "callbacks"),
    ("ThreadExchangeStreamCaptureMode|UpdateCaptureDependencies", "capture goes on"),
    ("^__cudaRegister[^F]|^__cudaRegisterF(atBinaryEnd|unction)", "part of __cudaRegisterFatBinary, loaded lazily"),
];

#[test]
#[ignore = "needs VRAMTRACE_REAL_LIBS"]
fn whatever_might_concern_memory_has_a_row_or_a_reason() {
    let candidates = Regex::new(CANDIDATES).unwrap();
    let reasons: Vec<Regex> = LEFT_OUT.iter().map(|(names, _)| Regex::new(names).unwrap()).collect();
    let mut names: BTreeSet<String> = super::LIBRARIES.iter().flat_map(|(path, _)| super::exports(path)).collect();
    // Headers are ahead of the one driver library at hand.
    names.extend(super::headers::VERSIONS.iter().flat_map(|version| super::headers::prototypes(version).into_keys()));
    let unexplained: Vec<_> = names
        .iter()
        .filter(|name| candidates.is_match(name) && probe::by_symbol(name).is_none())
        .filter(|name| !reasons.iter().any(|reason| reason.is_match(name)))
        .collect();
    assert!(unexplained.is_empty(), "in no row, and without a reason: {unexplained:#?}");
    for (reason, (names_left_out, _)) in reasons.iter().zip(LEFT_OUT) {
        let applies = |name: &&String| candidates.is_match(name) && reason.is_match(name);
        assert!(names.iter().any(|name| applies(&name)), "the reason for {names_left_out} explains nothing");
    }
    let contradicted: Vec<_> = probe::table().iter().filter(|p| reasons.iter().any(|r| r.is_match(p.symbol))).collect();
    assert!(contradicted.is_empty(), "{contradicted:?} have rows and a reason not to");
}

#[test]
#[ignore = "needs VRAMTRACE_REAL_LIBS"]
fn every_row_is_exported_or_declared_somewhere() {
    let mut names: BTreeSet<String> = super::LIBRARIES.iter().flat_map(|(path, _)| super::exports(path)).collect();
    names.extend(super::headers::VERSIONS.iter().flat_map(|version| super::headers::prototypes(version).into_keys()));
    for probe in probe::of(probe::Lib::Cuda).chain(probe::of(probe::Lib::Cudart)).map(|(_, probe)| probe) {
        let declared = probe.symbol.trim_end_matches("_ptsz");
        assert!(names.contains(probe.symbol) || names.contains(declared), "nobody exports {}", probe.symbol);
    }
}
