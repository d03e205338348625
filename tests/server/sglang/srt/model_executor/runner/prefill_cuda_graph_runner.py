"""Graphs of prefill, by number of tokens."""

from sglang.srt.model_executor.capturing import capture_shape

NUM_TOKENS = (1024, 256)


class PrefillCudaGraphRunner:
    def __init__(self, runner):
        self._runner = runner
        self.graphs = self._capture()

    def _capture(self):
        return [self.capture_one_shape(tokens) for tokens in NUM_TOKENS]

    def capture_one_shape(self, tokens):
        return capture_shape(self._runner, tokens)
