"""Sizes the KV cache and makes it, from 0.5.14 on: when all weights are there."""

from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool

GIB = 1 << 30


class KVCacheConfigurator:
    def __init__(self, runner):
        self._runner = runner

    def configure(self):
        runner = self._runner
        if not runner.is_draft_worker:
            runner.max_total_num_tokens = self._profile_tokens()
        return self._init_pools()

    def _profile_tokens(self):
        """What is free, less what the fraction leaves for all else: of what was free before the weights came."""
        runner, fraction = self._runner, self._runner.server_args.mem_fraction_static
        available = runner.available(runner.groups.world)
        rest = available - runner.pre_model_load_memory * (1 - fraction)
        if rest <= 0:
            viable = 1 - available / runner.pre_model_load_memory
            raise RuntimeError(
                f"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static={fraction}. "
                f"Raise --mem-fraction-static above {viable:.3f} (minimum viable = 1 - available/pre = {viable:.3f})."
            )
        return int(rest * GIB // runner.cell_bytes())

    def _init_pools(self):
        runner = self._runner
        runner.req_to_token_pool = ReqToTokenPool(1024, 4096)
        tokens, version = runner.max_total_num_tokens, runner.server_args.version
        return MHATokenToKVPool(runner.model_config, runner.layers, tokens, version)
