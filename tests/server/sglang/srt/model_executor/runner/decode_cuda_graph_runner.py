"""Graphs of decode, by batch size."""

import torch

from sglang.srt.model_executor.capturing import batch_sizes, capture_shape, register_inputs


class DecodeCudaGraphRunner:
    def __init__(self, runner):
        self._runner = runner
        self.input_ids = torch.zeros(2 << 20)
        self.graphs = self._capture()

    def _capture(self):
        graphs = self._capture_one_stream()
        register_inputs(self._runner, graphs)
        return graphs

    def _capture_one_stream(self):
        return [self.capture_one_shape(size) for size in batch_sizes(self._runner)]

    def capture_one_shape(self, size):
        return capture_shape(self._runner, size)
