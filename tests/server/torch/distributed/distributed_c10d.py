"""torch.distributed: a group's communicator is made by its first collective."""

import ctypes

from simulation import truth
from simulation.libraries import check, load


class UniqueId(ctypes.Structure):
    """ncclUniqueId, 128 bytes by value."""

    _fields_ = [("internal", ctypes.c_char * 128)]


def unique_id(group):
    """Made by the first rank of the group, known to all."""
    name = UniqueId()
    if group.rank == 0:
        check(load("libnccl.so.2").ncclGetUniqueId(ctypes.byref(name)), "ncclGetUniqueId")
    return UniqueId.from_buffer_copy(group.broadcast(bytes(name)))


class ProcessGroupNCCL:
    """Lazy, as PyTorch's."""

    def __init__(self, group):
        self._group, self._communicator = group, None

    def all_reduce(self):
        if self._communicator is None and self._group.size > 1:
            self._communicator = self._init_communicator(unique_id(self._group))

    def _init_communicator(self, name):
        made = ctypes.c_void_p()
        init = load("libnccl.so.2").ncclCommInitRankConfig
        with truth.owner("nccl"):
            result = init(ctypes.byref(made), self._group.size, name, self._group.rank, None)
        check(result, "ncclCommInitRankConfig")
        return made
