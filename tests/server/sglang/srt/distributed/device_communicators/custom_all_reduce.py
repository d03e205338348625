"""Custom all-reduce v1: buffers from cudaMalloc, opened by all ranks through IPC handles."""

import ctypes

import torch
from simulation import truth
from simulation.libraries import check, cudart, load

MAX_SIZE = 8 << 20
META_SIZE = 3456
HANDLE_BYTES = 64


class IpcHandle(ctypes.Structure):
    """cudaIpcMemHandle_t, passed by value."""

    _fields_ = [("reserved", ctypes.c_char * HANDLE_BYTES)]


class CustomAllreduce:
    def __init__(self, group):
        self._group, self._graph_inputs = group, []
        self.meta_ptrs = self.create_shared_buffer(META_SIZE + MAX_SIZE)
        self.buffer_ptrs = self.create_shared_buffer(MAX_SIZE)
        self.rank_data = torch.empty(8 << 20)

    def create_shared_buffer(self, size_in_bytes):
        """The same number of bytes on each rank: addresses of all of them here."""
        pointer = ctypes.c_void_p()
        with truth.owner("custom_allreduce"):
            check(cudart().cudaMalloc(ctypes.byref(pointer), size_in_bytes), "cudaMalloc")
        return self._open([pointer.value])

    def register(self, tensor):
        """Notes an input of a captured graph."""
        self._graph_inputs.append(tensor.data_ptr())

    def register_graph_buffers(self):
        """Opens what the other ranks' graphs read from. Memory that is mapped page by page cannot be shared so."""
        if not torch.cuda.uses_expandable_segments():
            with truth.phase("cuda_graph.ipc_register"):
                self._open(self._graph_inputs)

    def _open(self, pointers):
        mine = [self._handle(pointer) for pointer in pointers]
        opened, seen = [], set()
        for rank, handles in enumerate(self._group.all_gather(mine)):
            for handle in handles if rank != self._group.rank else []:
                if handle not in seen:
                    seen.add(handle)
                    opened.append(self._open_handle(handle))
        return opened

    @staticmethod
    def _handle(pointer):
        handle = IpcHandle()
        check(cudart().cudaIpcGetMemHandle(ctypes.byref(handle), pointer), "cudaIpcGetMemHandle")
        return bytes(handle)

    @staticmethod
    def _open_handle(handle):
        pointer = ctypes.c_void_p()
        by_value = IpcHandle.from_buffer_copy(handle)
        result = load("libcudart.so.12").cudaIpcOpenMemHandle(ctypes.byref(pointer), by_value, 1)
        check(result, "cudaIpcOpenMemHandle")
        return pointer.value
