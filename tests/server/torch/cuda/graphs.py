"""torch.cuda.CUDAGraph: captured in a private pool of the caching allocator."""

import ctypes

from simulation import truth
from simulation.libraries import check, cudart, load

from torch import cuda


class CUDAGraph:
    """A captured graph."""

    def capture_begin(self, pool, stream):
        load("libc10_cuda.so").sim_torch_begin_pool(pool)
        check(cudart().cudaStreamBeginCapture(stream.handle, 0), "cudaStreamBeginCapture")
        cuda._capturing = stream

    def capture_end(self):
        graph, self._graph = ctypes.c_void_p(), ctypes.c_void_p()
        stream, cuda._capturing = cuda._capturing, None
        check(cudart().cudaStreamEndCapture(stream.handle, ctypes.byref(graph)), "cudaStreamEndCapture")
        load("libc10_cuda.so").sim_torch_end_pool()
        with truth.owner("driver"):
            check(cudart().cudaGraphInstantiate(ctypes.byref(self._graph), graph, 0), "cudaGraphInstantiate")
        check(cudart().cudaGraphDestroy(graph), "cudaGraphDestroy")

    def replay(self, stream):
        with truth.owner("driver"):
            check(cudart().cudaGraphLaunch(self._graph, stream.handle), "cudaGraphLaunch")


class graph:
    """`with graph(g, pool, stream):` captures what is done inside."""

    def __init__(self, cuda_graph, pool, stream):
        self._graph, self._pool, self._stream = cuda_graph, pool, stream

    def __enter__(self):
        self._graph.capture_begin(self._pool, self._stream)

    def __exit__(self, *error):
        self._graph.capture_end()
