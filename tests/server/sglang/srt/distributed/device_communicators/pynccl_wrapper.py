"""libnccl by ctypes."""

import ctypes

from simulation import truth
from simulation.libraries import check, load


class NCCLLibrary:
    def ncclCommInitRank(self, world_size, unique_id, rank):
        made = ctypes.c_void_p()
        with truth.owner("nccl"):
            result = load("libnccl.so.2").ncclCommInitRank(ctypes.byref(made), world_size, unique_id, rank)
        check(result, "ncclCommInitRank")
        return made
