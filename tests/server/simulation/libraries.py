"""The simulated CUDA libraries, loaded when first used."""

import ctypes
import functools
from ctypes import POINTER, c_char_p, c_int, c_size_t, c_uint64, c_void_p

FUNCTIONS = {
    "libcudart.so.12": {
        "cudaGetDeviceCount": [POINTER(c_int)],
        "cudaSetDevice": [c_int],
        "cudaMalloc": [POINTER(c_void_p), c_size_t],
        "cudaFree": [c_void_p],
        "cudaMemGetInfo": [POINTER(c_size_t), POINTER(c_size_t)],
        "cudaIpcGetMemHandle": [c_void_p, c_void_p],
        "cudaStreamCreate": [POINTER(c_void_p)],
        "cudaStreamBeginCapture": [c_void_p, c_int],
        "cudaStreamEndCapture": [c_void_p, POINTER(c_void_p)],
        "cudaGraphInstantiate": [POINTER(c_void_p), c_void_p, c_uint64],
        "cudaGraphLaunch": [c_void_p, c_void_p],
        "cudaGraphDestroy": [c_void_p],
    },
    "libc10_cuda.so": {
        "sim_torch_alloc": [c_int, c_size_t],
        "sim_torch_free": [c_void_p],
        "sim_torch_empty_cache": [],
        "sim_torch_begin_pool": [c_uint64],
        "sim_torch_end_pool": [],
        "sim_torch_expandable": [c_int],
        "sim_torch_stats": [c_int, POINTER(c_uint64)],
    },
    "libtorch_cuda.so": {
        "sim_torch_launch": [c_char_p, c_void_p],
        "_ZN4c10d16symmetric_memory28CUDASymmetricMemoryAllocator5allocEmi": [c_size_t, c_int, POINTER(c_uint64)],
        "sim_symmetric_export": [c_uint64, POINTER(c_int)],
        "sim_symmetric_import": [c_int, c_size_t, c_int],
        "sim_multicast_create": [c_size_t, c_int, POINTER(c_uint64)],
        "sim_multicast_import": [c_int, POINTER(c_uint64)],
        "sim_multicast_bind": [c_uint64, c_uint64, c_size_t, c_int],
    },
    "libcublas.so.12": {"cublasCreate_v2": [POINTER(c_void_p)]},
    "libnccl.so.2": {"ncclGetUniqueId": [c_void_p]},
}


class CudaError(RuntimeError):
    """A call of one of the libraries failed."""


@functools.cache
def load(name):
    """A library with the argument types of the functions above."""
    library = ctypes.CDLL(name)
    for function, types in FUNCTIONS.get(name, {}).items():
        getattr(library, function).argtypes = types
    if name == "libc10_cuda.so":
        library.sim_torch_alloc.restype = c_void_p
    return library


def cudart():
    return load("libcudart.so.12")


def check(result, what):
    """Raises unless a call succeeded."""
    if result != 0:
        raise CudaError(f"{what}: error {result}")
