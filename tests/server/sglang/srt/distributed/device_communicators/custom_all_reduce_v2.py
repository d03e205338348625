"""Custom all-reduce v2: symmetric memory, mapped by all ranks through file descriptors, and a multicast object over it."""

import ctypes
import logging
import os

import torch
from simulation import truth
from simulation.libraries import check, load

from sglang.srt.distributed.device_communicators.custom_all_reduce import CustomAllreduce

MIB = 1 << 20
MAX_PUSH, MAX_PULL, SEMAPHORES = 4 * MIB, 64 * MIB, 2 * MIB

logger = logging.getLogger(__name__)


class CustomAllReduceV2(CustomAllreduce):
    def __init__(self, group):
        self._group, self._graph_inputs = group, []
        self.graph_params = torch.empty(8 * MIB)
        self._init_workspace()

    def _init_workspace(self):
        nbytes = 2 * self._group.size * MAX_PUSH + MAX_PULL + SEMAPHORES
        multicast = os.environ.get("TORCH_SYMM_MEM_DISABLE_MULTICAST") != "1"
        with truth.owner("custom_allreduce"):
            self._allocate_symmetric_memory(nbytes, multicast)
        if self._group.rank == 0:
            logger.info(
                f"All Reduce config: symmetric_memory = {nbytes / MIB:.2f} MB, local_buffer = 8.00 MB, {multicast = }, "
                f"pull = {MAX_PULL / MIB:.2f} MB"
            )

    def _allocate_symmetric_memory(self, nbytes, multicast):
        library, device = load("libtorch_cuda.so"), torch.cuda.current_device()
        handle, fd = ctypes.c_uint64(), ctypes.c_int()
        allocate = library._ZN4c10d16symmetric_memory28CUDASymmetricMemoryAllocator5allocEmi
        check(allocate(nbytes, device, ctypes.byref(handle)), "CUDASymmetricMemoryAllocator::alloc")
        check(library.sim_symmetric_export(handle, ctypes.byref(fd)), "export")
        for file in self._group.all_gather_files(fd.value):
            if file is not None:
                check(library.sim_symmetric_import(file, nbytes, device), "import")
                os.close(file)
        os.close(fd.value)
        if multicast:
            self._rendezvous(library, handle, nbytes, device)

    def _rendezvous(self, library, memory, nbytes, device):
        made, fd = ctypes.c_uint64(), ctypes.c_int(-1)
        if self._group.rank == 0:
            check(library.sim_multicast_create(nbytes, self._group.size, ctypes.byref(made)), "multicast")
            check(library.sim_symmetric_export(made, ctypes.byref(fd)), "export")
        file = self._group.broadcast_file(fd.value)
        if self._group.rank:
            check(library.sim_multicast_import(file, ctypes.byref(made)), "import")
        os.close(file)
        check(library.sim_multicast_bind(made, memory, nbytes, device), "bind")

    def register_graph_buffers(self):
        self._register_graph_inputs()

    def _register_graph_inputs(self):
        super().register_graph_buffers()
