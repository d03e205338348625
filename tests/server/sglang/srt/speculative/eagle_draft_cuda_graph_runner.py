"""Graphs of the draft's own steps."""

from sglang.srt.model_executor.capturing import batch_sizes, capture_shape


class EAGLEDraftCudaGraphRunner:
    def __init__(self, runner):
        self._runner = runner
        self.capture()

    def capture(self):
        self.graphs = [self.capture_one_batch_size(size) for size in batch_sizes(self._runner)]

    def capture_one_batch_size(self, size):
        return capture_shape(self._runner, size)
