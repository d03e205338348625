"""Where groups are made from 0.5.17 on."""

from sglang.srt.distributed.parallel_state import initialize_model_parallel


def init_torch_distributed(place, server_args):
    return _init_parallel_groups(place, server_args)


def _init_parallel_groups(place, server_args):
    return initialize_model_parallel(place, server_args)
