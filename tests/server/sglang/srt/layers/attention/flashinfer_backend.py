"""The attention backend: a workspace."""

import torch

WORKSPACE = 384 << 20


class FlashInferAttnBackend:
    def __init__(self):
        self.workspace_buffer = torch.empty(WORKSPACE)
        self.kv_indptr = torch.zeros(16 << 10)
        torch.cuda.launch("plan")
