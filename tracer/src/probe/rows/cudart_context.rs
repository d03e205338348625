//! libcudart: contexts, limits, streams, code loading.

use super::prelude::*;

#[rustfmt::skip]
pub(super) static ROWS: &[Row] = &[
    // Creates the primary context since 12.0. Some frameworks set the device around every operation: a record would be
    // one too many, but what the context allocates inside still carries the name.
    row(Context, Group::Context, "2.0", &["cudaSetDevice"],
        "cudaError_t (int device)",
        &[device(arg32(0))]).quiet(),
    row(Context, Group::Context, "12.0", &["cudaInitDevice"],
        "cudaError_t (int device, unsigned int deviceFlags, unsigned int flags)",
        &[device(arg32(0)), more("flags", arg32(1))]),
    row(ContextEnd, Group::Context, "2.0", &["cudaDeviceReset", "cudaThreadExit"],
        "cudaError_t (void)",
        &[]),
    // 0 stack, 1 printf FIFO, 2 malloc heap, 3 device runtime sync depth, 4 pending launches.
    row(Limit, Group::Context, "3.1", &["cudaDeviceSetLimit", "cudaThreadSetLimit"],
        "cudaError_t (enum cudaLimit limit, size_t value)",
        &[more("limit", arg32(0)), more("value", arg(1))]),
    row(Peer, Group::Context, "4.0", &["cudaDeviceEnablePeerAccess"],
        "cudaError_t (int peerDevice, unsigned int flags)",
        &[device(arg32(0)), more("flags", arg32(1))]),
    row(Trigger, Group::Context, "4.0", &["cudaDeviceDisablePeerAccess"],
        "cudaError_t (int peerDevice)",
        &[device(arg32(0))]),
    row(Stream, Group::Context, "2.0", &["cudaStreamCreate"],
        "cudaError_t (cudaStream_t *pStream)",
        &[handle(out(0))]),
    row(Stream, Group::Context, "5.0", &["cudaStreamCreateWithFlags"],
        "cudaError_t (cudaStream_t *pStream, unsigned int flags)",
        &[handle(out(0)), more("flags", arg32(1))]),
    row(Stream, Group::Context, "5.5", &["cudaStreamCreateWithPriority"],
        "cudaError_t (cudaStream_t *pStream, unsigned int flags, int priority)",
        &[handle(out(0)), more("flags", arg32(1))]),
    row(StreamEnd, Group::Context, "2.0", &["cudaStreamDestroy"],
        "cudaError_t (cudaStream_t stream)",
        &[handle(arg(0))]),

    row(Load, Group::Load, "12.8", &["cudaLibraryLoadData"],
        "cudaError_t (cudaLibrary_t *library, const void *code, enum cudaJitOption *jitOptions, \
         void **jitOptionsValues, unsigned int numJitOptions, enum cudaLibraryOption *libraryOptions, \
         void **libraryOptionValues, unsigned int numLibraryOptions)",
        &[handle(out(0))]),
    row(Load, Group::Load, "12.8", &["cudaLibraryLoadFromFile"],
        "cudaError_t (cudaLibrary_t *library, const char *fileName, enum cudaJitOption *jitOptions, \
         void **jitOptionsValues, unsigned int numJitOptions, enum cudaLibraryOption *libraryOptions, \
         void **libraryOptionValues, unsigned int numLibraryOptions)",
        &[handle(out(0))]),
    row(Unload, Group::Load, "12.8", &["cudaLibraryUnload"],
        "cudaError_t (cudaLibrary_t library)",
        &[handle(arg(0))]),
    row(Lookup, Group::Load, "12.8", &["cudaLibraryGetKernel"],
        "cudaError_t (cudaKernel_t *pKernel, cudaLibrary_t library, const char *name)",
        &[handle(arg(1))]).quiet(),
    row(Lookup, Group::Load, "12.8", &["cudaLibraryGetGlobal"],
        "cudaError_t (void **dptr, size_t *bytes, cudaLibrary_t library, const char *name)",
        &[handle(arg(2))]).quiet(),
    row(Lookup, Group::Load, "12.8", &["cudaLibraryGetManaged"],
        "cudaError_t (void **dptr, size_t *bytes, cudaLibrary_t library, const char *name)",
        &[handle(arg(2))]).quiet(),
    // Only notes the fat binary: its code is loaded lazily. Runs for every kernel library as it is opened.
    row(Lookup, Group::Launch, "2.0", &["__cudaRegisterFatBinary"],
        "void **(void *fatCubin)",
        &[]).quiet(),
];
