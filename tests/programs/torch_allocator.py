"""The simulated PyTorch caching allocator (tests/cuda/c10_cuda), as a Python program uses it."""

import contextlib
import ctypes
import json
import time
from ctypes import c_int, c_size_t, c_uint64, c_void_p

_lib = ctypes.CDLL("libc10_cuda.so")
_runtime = ctypes.CDLL("libcudart.so.12")
_lib.sim_torch_alloc.argtypes = [c_int, c_size_t]
_lib.sim_torch_alloc.restype = c_void_p
_lib.sim_torch_free.argtypes = [c_void_p]
_lib.sim_torch_begin_pool.argtypes = _lib.sim_torch_release_pool.argtypes = [c_uint64]
_lib.sim_torch_begin_pool.restype = _lib.sim_torch_end_pool.restype = None
_lib.sim_torch_burst.argtypes = [c_int, c_size_t]

FIELDS = ("allocated", "reserved", "blocks", "pool_allocated", "pool_reserved", "retries", "ooms", "reports")


class OutOfMemoryError(RuntimeError):
    """What torch raises when even an emptied cache does not help."""


def alloc(size, device=0):
    """A block of at least `size` bytes; its address."""
    address = _lib.sim_torch_alloc(device, size)
    if not address:
        raise OutOfMemoryError(f"Tried to allocate {size} bytes.")
    return address


def free(address):
    """Gives a block back, from any thread."""
    assert _lib.sim_torch_free(address) == 0, hex(address)


def empty_cache():
    """torch.cuda.empty_cache()"""
    _lib.sim_torch_empty_cache()


def expandable(on):
    """PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True for what is allocated from here on."""
    _lib.sim_torch_expandable(int(on))


def burst(count, device=0):
    """Allocates and frees `count` blocks without leaving C: twice as many reports."""
    assert _lib.sim_torch_burst(device, count) == 0


def stats(device=0):
    """The allocator's own figures."""
    words = (c_uint64 * len(FIELDS))()
    _lib.sim_torch_stats(device, words)
    return dict(zip(FIELDS, words))


def mark(name, device=0):
    """One line of JSON: the moment (CLOCK_MONOTONIC) and the allocator's own figures."""
    print(json.dumps({"mark": name, "t": time.monotonic_ns(), "device": device, **stats(device)}), flush=True)


@contextlib.contextmanager
def graph(pool):
    """torch.cuda.graph(…, pool=): blocks come from the private pool while the stream is captured. Gives the stream."""
    stream, captured = c_void_p(), c_void_p()
    assert _runtime.cudaStreamCreate(ctypes.byref(stream)) == 0
    _lib.sim_torch_begin_pool(pool)
    assert _runtime.cudaStreamBeginCapture(stream, 0) == 0
    try:
        yield stream
    finally:
        assert _runtime.cudaStreamEndCapture(stream, ctypes.byref(captured)) == 0
        _lib.sim_torch_end_pool()


def release_pool(pool):
    """The last graph of the pool is gone."""
    _lib.sim_torch_release_pool(pool)
