"""Requests go from here to the schedulers. It lives in the main process."""

from simulation import truth


class TokenizerManager:
    def __init__(self, server_args, pipes, detokenizer):
        import torch

        self._pipes, self._detokenizer = pipes, detokenizer
        # The main process initialises CUDA and makes no context, unless something it uses does.
        torch.cuda.device_count()
        if server_args.sim_tokenizer_context:
            self._process_mm_data()

    def _process_mm_data(self):
        import os

        import torch

        truth.rank(f"tokenizer {os.getpid()}")
        with truth.role("tokenizer"):
            torch.cuda._lazy_init()

    def generate_request(self, kind):
        """Sends a request to all ranks; each data-parallel group's work is the same."""
        for pipe in self._pipes:
            pipe.send(kind)
        for pipe in self._pipes:
            assert pipe.recv() == "done"
        self._detokenizer.send(kind)
        assert self._detokenizer.recv() == "text"
