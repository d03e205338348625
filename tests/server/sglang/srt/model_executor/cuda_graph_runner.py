"""Graphs of decode up to 0.5.13."""

import torch

from sglang.srt.model_executor.capturing import batch_sizes, capture_shape, register_inputs


class CudaGraphRunner:
    def __init__(self, runner):
        self._runner = runner
        self.input_ids = torch.zeros(2 << 20)
        self.capture()

    def capture(self):
        self.graphs = [self.capture_one_batch_size(size) for size in batch_sizes(self._runner)]
        register_inputs(self._runner, self.graphs)

    def capture_one_batch_size(self, size):
        return capture_shape(self._runner, size)
