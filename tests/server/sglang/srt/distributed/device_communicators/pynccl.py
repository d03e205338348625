"""An eager communicator, made through ctypes."""

import logging

import torch
from simulation import truth
from torch.distributed.distributed_c10d import unique_id

from sglang.srt.distributed.device_communicators.pynccl_wrapper import NCCLLibrary

logger = logging.getLogger(__name__)


class PyNcclCommunicator:
    def __init__(self, group):
        library = NCCLLibrary()
        if group.rank == 0:
            logger.info("sglang is using nccl==2.28.9")
        with truth.phase("distributed_init.nccl"):
            self._communicator = library.ncclCommInitRank(group.size, unique_id(group), group.rank)
            # The first kernel of the process: code, and local memory for it.
            torch.zeros(4)
