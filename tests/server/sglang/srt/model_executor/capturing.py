"""One graph, whatever for: activations in the pool of all graphs, a few kernels, and the collective's input."""

import logging

import torch
from torch.cuda.graphs import CUDAGraph, graph

logger = logging.getLogger(__name__)


class CapturedShape:
    """A graph, and what its kernels use."""

    def __init__(self, size, captured, tensors):
        self.size, self.graph, self.tensors = size, captured, tensors


def batch_sizes(runner):
    """1, 2, 4 and every eighth up to the largest; the largest is captured first."""
    largest = runner.server_args.cuda_graph_max_bs
    return sorted({size for size in (1, 2, 4, *range(8, largest + 1, 8), largest) if size <= largest}, reverse=True)


def capture_shape(runner, size):
    """Activations for `size` tokens of two layers are alive at once; a graph keeps its output."""
    captured = CUDAGraph()
    row = runner.model_config.hidden * 2
    with graph(captured, runner.graph_pool, runner.stream):
        hidden = torch.empty(size * row * 16)
        torch.cuda.launch("attention")
        output = torch.empty(size * row * 4)
        torch.cuda.launch("all_reduce")
        del hidden
    return CapturedShape(size, captured, [output])


def register_inputs(runner, shapes):
    """The collective's inputs are made known to the other ranks."""
    communicator = runner.groups.tp.ca_comm
    if communicator is None:
        return
    for shape in shapes:
        communicator.register(shape.tensors[0])
    if runner.place.tp_rank == 0:
        logger.info(f"Registering {len(shapes)} cuda graph addresses")
    communicator.register_graph_buffers()
