"""The server's arguments.

Environment that counts, as in SGLang, PyTorch and NCCL:
  SGLANG_FORCE_CUSTOM_AR_PCIE=1            custom all-reduce on more than two GPUs, though they are on PCIe
  SGLANG_CUSTOM_ALLREDUCE_ALGO=1stage      printed; changes no memory
  SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2=0|1  which all-reduce; default by version (v2 from 0.5.12)
  TORCH_SYMM_MEM_DISABLE_MULTICAST=1       v2 without a multicast object
  NCCL_CUMEM_ENABLE=0|1                    NCCL's buffers from cudaMalloc or cuMemCreate; default 0
  PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
"""

import argparse
import os
from dataclasses import dataclass, fields

from simulation.models import MODELS


@dataclass
class ServerArgs:
    """Printed at start."""

    model_path: str = "sim/small"
    tp_size: int = 1
    dp_size: int = 1
    pp_size: int = 1
    base_gpu_id: int = 0
    mem_fraction_static: float = 0.88
    chunked_prefill_size: int = 8192
    cuda_graph_max_bs: int = 8
    disable_cuda_graph: bool = False
    disable_custom_all_reduce: bool = False
    speculative_algorithm: str = None
    speculative_draft_model_path: str = None
    # Which SGLang to be: order of start-up, files, log lines.
    sim_version: str = "0.5.9"
    # Requests after the one for warm-up.
    sim_requests: int = 2
    # sigterm: the server ends itself after them as by SIGTERM; wait: it serves until the signal comes.
    sim_end: str = "sigterm"
    # off: ranks have the second communicator from the start, on: made by the first request.
    sim_lazy_nccl: str = "on"
    # Each rank's first request opens a context on GPU 0 from a thread that selected no device.
    sim_stray_context: bool = False
    # The tokenizer (main process) opens a context on the first GPU.
    sim_tokenizer_context: bool = False
    # MiB of weights that one rank alone has: RANK:MIB.
    sim_imbalance: str = ""
    # MiB of weights more on every rank.
    sim_extra_weights: int = 0
    # MiB that each request leaves allocated.
    sim_leak: int = 0
    # MiB that each request allocates in pieces and gives back but for a small part of each segment.
    sim_fragment: int = 0

    @property
    def version(self):
        return tuple(int(part) for part in self.sim_version.split("."))

    @property
    def loads_before_pools(self):
        """From 0.5.14 on, weights of target and draft are loaded before the KV cache is sized."""
        return self.version >= (0, 5, 14)

    @property
    def draft_model(self):
        return self.speculative_draft_model_path or self.model_path + "-eagle"

    def imbalance_of(self, rank):
        """MiB of weights that this rank has alone."""
        of_rank, _, mib = self.sim_imbalance.partition(":")
        return int(mib) if mib and int(of_rank) == rank else 0

    def uses_all_reduce_v2(self):
        chosen = os.environ.get("SGLANG_OPT_USE_CUSTOM_ALL_REDUCE_V2")
        return chosen == "1" if chosen else self.version >= (0, 5, 12)


def prepare_server_args(argv):
    """ServerArgs of a command line."""
    parser = argparse.ArgumentParser(prog="sglang.launch_server", description=__doc__)
    for field in fields(ServerArgs):
        name = "--" + field.name.replace("_", "-")
        if field.type is bool:
            parser.add_argument(name, action="store_true")
        else:
            parser.add_argument(name, type=field.type, default=field.default)
    args = ServerArgs(**vars(parser.parse_args(argv)))
    for model in [args.model_path] + [args.draft_model] * bool(args.speculative_algorithm):
        if model not in MODELS:
            parser.error(f"--model-path {model}: choose one of {', '.join(MODELS)}")
    return args
