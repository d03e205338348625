"""torch.cuda: device, memory figures, streams, kernels."""

import ctypes
import os

from simulation import truth
from simulation.libraries import check, cudart, load

_device = 0
_capturing = None


def device_count():
    count = ctypes.c_int()
    check(cudart().cudaGetDeviceCount(ctypes.byref(count)), "cudaGetDeviceCount")
    return count.value


def set_device(device):
    """Selects a device, which creates its context."""
    global _device
    with truth.phase("cuda_context"), truth.owner("driver"):
        check(cudart().cudaSetDevice(device), "cudaSetDevice")
    _device = device
    load("libc10_cuda.so").sim_torch_expandable(uses_expandable_segments())


def uses_expandable_segments():
    return "expandable_segments:True" in os.environ.get("PYTORCH_CUDA_ALLOC_CONF", "")


def _lazy_init():
    """The context of a thread that selected no device."""
    with truth.phase("cuda_context"), truth.owner("driver"):
        check(cudart().cudaFree(None), "cudaFree")


def current_device():
    return _device


def mem_get_info():
    """Free and total bytes of the current device."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    check(cudart().cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)), "cudaMemGetInfo")
    return free.value, total.value


def empty_cache():
    load("libc10_cuda.so").sim_torch_empty_cache()


def _stats():
    words = (ctypes.c_uint64 * 8)()
    load("libc10_cuda.so").sim_torch_stats(_device, words)
    return words


def memory_allocated():
    return _stats()[0]


def memory_reserved():
    return _stats()[1]


class Stream:
    """A side stream."""

    def __init__(self):
        self.handle = ctypes.c_void_p()
        check(cudart().cudaStreamCreate(ctypes.byref(self.handle)), "cudaStreamCreate")


def launch(kernel, stream=None):
    """Runs a kernel; what that takes beside its operands is the driver's."""
    stream = stream or _capturing
    with truth.owner("driver"):
        check(load("libtorch_cuda.so").sim_torch_launch(kernel.encode(), stream and stream.handle), kernel)


def is_current_stream_capturing():
    return _capturing is not None


def cublas_handle():
    """The handle of the current device, which takes its workspace."""
    handle = ctypes.c_void_p()
    with truth.owner("cublas"):
        check(load("libcublas.so.12").cublasCreate_v2(ctypes.byref(handle)), "cublasCreate")
    return handle
