"""Groups of ranks and their communicators."""

import logging
import os

from simulation import truth
from simulation.group import Group
from torch.distributed.distributed_c10d import ProcessGroupNCCL

from sglang.srt.distributed.device_communicators.pynccl import PyNcclCommunicator

logger = logging.getLogger(__name__)


class Place:
    """Where a rank stands."""

    def __init__(self, server_args, tp_rank, pp_rank, dp_rank):
        self.tp_rank, self.pp_rank = tp_rank, pp_rank
        self.tp_size, self.pp_size = server_args.tp_size, server_args.pp_size
        self.rank, self.size = pp_rank * self.tp_size + tp_rank, self.pp_size * self.tp_size
        self.name = f"{os.environ['SGLANG_RUN_ID']}-{dp_rank}"
        parts = [("DP", dp_rank, dp_rank is not None), ("PP", pp_rank, self.pp_size > 1), ("TP", tp_rank, self.tp_size > 1)]
        self.prefix = "".join(f" {name}{number}" for name, number, shown in parts if shown)


class GroupCoordinator:
    """Ranks that work together: a lazy communicator of torch's, an eager one of SGLang's, custom all-reduce."""

    def __init__(self, name, rank, size, server_args, use_custom_allreduce):
        self.cpu_group = Group(name, rank, size)
        self.device_group = ProcessGroupNCCL(self.cpu_group)
        self.pynccl_comm = PyNcclCommunicator(self.cpu_group) if size > 1 else None
        self.ca_comm = None
        if size > 1 and use_custom_allreduce:
            self.ca_comm = _custom_all_reduce(self.cpu_group, server_args)
        if size > 1 and server_args.sim_lazy_nccl == "off":
            with truth.phase("distributed_init.nccl"):
                self.device_group.all_reduce()


def _custom_all_reduce(group, server_args):
    if group.size > 2 and os.environ.get("SGLANG_FORCE_CUSTOM_AR_PCIE") != "1":
        logger.warning(
            "Custom allreduce is disabled because it's not supported on more than two PCIe-only GPUs. To silence this "
            "warning, specify disable_custom_all_reduce=True explicitly."
        )
        return None
    with truth.phase("custom_allreduce"):
        if server_args.uses_all_reduce_v2():
            from sglang.srt.distributed.device_communicators.custom_all_reduce_v2 import CustomAllReduceV2

            return CustomAllReduceV2(group)
        from sglang.srt.distributed.device_communicators.custom_all_reduce import CustomAllreduce

        return CustomAllreduce(group)


class Groups:
    """All groups of a rank."""

    def __init__(self, place, server_args):
        self.world = Group(f"{place.name}-world", place.rank, place.size)
        use_custom = not server_args.disable_custom_all_reduce
        tp_name, pp_name = f"{place.name}-tp-{place.pp_rank}", f"{place.name}-pp-{place.tp_rank}"
        self.tp = GroupCoordinator(tp_name, place.tp_rank, place.tp_size, server_args, use_custom)
        self.pp = GroupCoordinator(pp_name, place.pp_rank, place.pp_size, server_args, False)


_GROUPS = None


def initialize_model_parallel(place, server_args):
    """Makes the groups, once a process."""
    global _GROUPS
    if _GROUPS is None:
        _GROUPS = Groups(place, server_args)
    return _GROUPS
