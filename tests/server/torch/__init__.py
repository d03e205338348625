"""A stand-in for PyTorch: tensors that are blocks of the simulated caching allocator, with nothing in them."""

from simulation import truth
from simulation.libraries import load

from . import cuda

GIB = 1 << 30


class OutOfMemoryError(RuntimeError):
    """As PyTorch's."""


class Tensor:
    """A block of memory; it goes back to the allocator with its last reference."""

    def __init__(self, address, nbytes):
        self._address, self.nbytes = address, nbytes

    def data_ptr(self):
        return self._address

    def __del__(self, free=load("libc10_cuda.so").sim_torch_free):
        free(self._address)


def empty(nbytes):
    """Memory of this size on the current device."""
    with truth.owner("torch_graph_pool" if cuda.is_current_stream_capturing() else "torch"):
        address = load("libc10_cuda.so").sim_torch_alloc(cuda.current_device(), nbytes)
    if not address:
        raise OutOfMemoryError(_out_of_memory(nbytes))
    return Tensor(address, nbytes)


def zeros(nbytes):
    """The same, filled by a kernel."""
    tensor = empty(nbytes)
    cuda.launch("fill")
    return tensor


def _out_of_memory(nbytes):
    free, total = cuda.mem_get_info()
    allocated, reserved = cuda.memory_allocated(), cuda.memory_reserved()
    return (
        f"CUDA out of memory. Tried to allocate {nbytes / GIB:.2f} GiB. GPU {cuda.current_device()} has a total capacity of "
        f"{total / GIB:.2f} GiB of which {free / GIB:.2f} GiB is free. Of the allocated memory {allocated / GIB:.2f} GiB is "
        f"allocated by PyTorch, and {(reserved - allocated) / GIB:.2f} GiB is reserved by PyTorch but unallocated."
    )
