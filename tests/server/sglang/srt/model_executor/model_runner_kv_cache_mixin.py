"""Sizes the KV cache and makes it, up to 0.5.13: the draft model's weights are yet to come."""

import logging

from simulation import truth

from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool

GIB = 1 << 30

logger = logging.getLogger(__name__)


class ModelRunnerKVCacheMixin:
    def profile_max_num_token(self, total_gpu_memory):
        """What is free, less what the fraction leaves for all else: of what was free before the weights came."""
        available = self.available(self.groups.world)
        rest = available - total_gpu_memory * (1 - self.server_args.mem_fraction_static)
        return int(rest * GIB // self.cell_bytes())

    def init_memory_pool(self, total_gpu_memory):
        with truth.phase("kv_cache"):
            if not self.is_draft_worker:
                self.max_total_num_tokens = self.profile_max_num_token(total_gpu_memory)
            if self.max_total_num_tokens <= 0:
                raise RuntimeError("Not enough memory. Please try to increase --mem-fraction-static.")
            self._init_pools()
        logger.info(f"Memory pool end. avail mem={self.available():.2f} GB")

    def _init_pools(self):
        self.req_to_token_pool = ReqToTokenPool(1024, 4096)
        tokens, version = self.max_total_num_tokens, self.server_args.version
        self.token_to_kv_pool = MHATokenToKVPool(self.model_config, self.layers, tokens, version)
