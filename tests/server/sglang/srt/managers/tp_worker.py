"""The worker of one model in a scheduler."""

from sglang.srt.model_executor.model_runner import ModelRunner


class TpModelWorker:
    def __init__(self, server_args, gpu_id, place, is_draft_worker=False, target=None):
        self.model_runner = ModelRunner(server_args, gpu_id, place, is_draft_worker, target)

    def forward_batch_generation(self, first):
        return self.model_runner.forward(first)
