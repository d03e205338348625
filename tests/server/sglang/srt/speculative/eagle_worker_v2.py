"""The draft model from 0.5.14 on: each step right after the target's."""

from simulation import truth

from sglang.srt.layers.attention.flashinfer_backend import FlashInferAttnBackend
from sglang.srt.speculative.eagle_worker import EAGLEWorker


class EAGLEWorkerV2(EAGLEWorker):
    def __init__(self, server_args, gpu_id, place, target_worker):
        self.target_worker = target_worker
        super(EAGLEWorker, self).__init__(server_args, gpu_id, place, is_draft_worker=True, target=target_worker)

    def alloc_memory_pool(self):
        self.model_runner.alloc_memory_pool()

    def init_attention_backends(self):
        with truth.phase("attention_backend"):
            self.draft_attn_backend = FlashInferAttnBackend()

    def init_cuda_graphs(self):
        self._capture_cuda_graphs()

    def _capture_cuda_graphs(self):
        super().init_cuda_graphs()
