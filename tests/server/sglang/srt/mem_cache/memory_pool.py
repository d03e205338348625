"""The KV cache."""

import logging

import torch

GIB = 1 << 30
PAGE = 1

logger = logging.getLogger(__name__)


class ReqToTokenPool:
    def __init__(self, requests, context):
        self.req_to_token = torch.empty(requests * context * 4)


class MHATokenToKVPool:
    def __init__(self, model, layers, tokens, version):
        self._model, self._layers, self._tokens = model, layers, tokens
        self._create_buffers()
        nbytes = sum(buffer.nbytes for buffer in self.k_buffer) / GIB
        dtype = "dtype: torch.bfloat16, " if version >= (0, 5, 13) else ""
        logger.info(f"KV Cache is allocated. {dtype}#tokens: {tokens}, K size: {nbytes:.2f} GB, V size: {nbytes:.2f} GB")

    def _create_buffers(self):
        nbytes = self._model.layer_kv_bytes(self._tokens + PAGE)
        self.k_buffer = [torch.zeros(nbytes) for _ in range(self._layers)]
        self.v_buffer = [torch.zeros(nbytes) for _ in range(self._layers)]
