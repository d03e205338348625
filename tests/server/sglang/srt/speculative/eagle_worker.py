"""The draft model up to 0.5.13: all of its start-up after all of the target's."""

import logging

from simulation import truth

from sglang.srt.layers.attention.flashinfer_backend import FlashInferAttnBackend
from sglang.srt.managers.tp_worker import TpModelWorker
from sglang.srt.speculative.eagle_draft_cuda_graph_runner import EAGLEDraftCudaGraphRunner
from sglang.srt.speculative.eagle_draft_extend_cuda_graph_runner import EAGLEDraftExtendCudaGraphRunner

logger = logging.getLogger(__name__)


class EAGLEWorker(TpModelWorker):
    def __init__(self, server_args, gpu_id, place, target_worker):
        self.target_worker = target_worker
        super().__init__(server_args, gpu_id, place, is_draft_worker=True, target=target_worker)
        self.init_attention_backend()
        if not server_args.disable_cuda_graph:
            self.init_cuda_graphs()

    def init_attention_backend(self):
        with truth.phase("attention_backend"):
            self.draft_attn_backend = FlashInferAttnBackend()

    def init_cuda_graphs(self):
        with truth.phase("cuda_graph.draft"):
            self.draft_runner = self._between_lines("draft", EAGLEDraftCudaGraphRunner)
            self.extend_runner = self._between_lines("draft extend", EAGLEDraftExtendCudaGraphRunner)

    def _between_lines(self, what, make):
        before = self.model_runner.available()
        logger.info(f"Capture {what} cuda graph begin. This can take up to several minutes. avail mem={before:.2f} GB")
        made, after = make(self.model_runner), self.model_runner.available()
        logger.info(
            f"Capture {what} cuda graph end. Time elapsed: 0.10 s. mem usage={before - after:.2f} GB. "
            f"avail mem={after:.2f} GB."
        )
        return made

    def forward_batch_generation(self, first):
        """The target reads the prompt, the draft proposes what comes next, the target verifies."""
        with truth.role("target"):
            read = self.forward_target_extend(first)
        with truth.role("draft"):
            proposed = self.draft(first)
        with truth.role("target"):
            verified = self.verify(False)
        return read, proposed, verified

    def forward_target_extend(self, first):
        return self.target_worker.forward_batch_generation(first)

    def draft(self, first):
        return self.model_runner.forward(first)

    def verify(self, first):
        return self.target_worker.forward_batch_generation(first)
