"""One model on one rank: from the groups to the graphs, and its forward passes."""

import logging

import torch
from simulation import truth
from simulation.models import MODELS

from sglang.srt.distributed import bootstrap
from sglang.srt.distributed.parallel_state import initialize_model_parallel
from sglang.srt.layers.attention.flashinfer_backend import FlashInferAttnBackend
from sglang.srt.mem_cache.kv_cache_configurator import KVCacheConfigurator
from sglang.srt.model_executor.cuda_graph_runner import CudaGraphRunner
from sglang.srt.model_executor.model_runner_components.attention_backend_setup import build_attention_backends
from sglang.srt.model_executor.model_runner_components.cuda_graph_setup import capture_cuda_graphs
from sglang.srt.model_executor.model_runner_kv_cache_mixin import ModelRunnerKVCacheMixin
from sglang.srt.model_loader.loader import DefaultModelLoader
from sglang.srt.utils.common import get_available_gpu_memory

MIB = 1 << 20
# Pools of graphs: the target's and the draft's.
GRAPH_POOLS = {False: 1, True: 2}

logger = logging.getLogger(__name__)


class ModelRunner(ModelRunnerKVCacheMixin):
    def __init__(self, server_args, gpu_id, place, is_draft_worker, target):
        self.server_args, self.gpu_id, self.place, self.is_draft_worker = server_args, gpu_id, place, is_draft_worker
        self.model_config = MODELS[server_args.draft_model if is_draft_worker else server_args.model_path]
        self.layers = max(1, self.model_config.layers // place.pp_size)
        self.graph_pool, self.graph_runner, self._leaked, self._kept = GRAPH_POOLS[is_draft_worker], None, [], []
        self.max_total_num_tokens = target.model_runner.max_total_num_tokens if target else 0
        self._target = target
        self.pre_model_load_memory = self._init_distributed()
        self.initialize()

    def available(self, group=None):
        return get_available_gpu_memory(group)

    def cell_bytes(self):
        return self.model_config.cell_bytes(self.layers)

    def _init_distributed(self):
        with truth.phase("distributed_init"):
            if self.server_args.version >= (0, 5, 17):
                make = bootstrap.init_torch_distributed
                return self._between_lines(lambda: make(self.place, self.server_args))
            return self.init_torch_distributed()

    def init_torch_distributed(self):
        return self._between_lines(lambda: initialize_model_parallel(self.place, self.server_args))

    def _between_lines(self, make):
        """Makes the groups; GiB that are free after that, the least of all ranks."""
        logger.info("Init torch distributed begin.")
        torch.cuda.set_device(self.gpu_id)
        before = self.available()
        self.groups = make()
        least, here = self.available(self.groups.world), self.available()
        logger.info(f"Init torch distributed ends. elapsed=0.10 s, mem usage={before - here:.2f} GB")
        if not self.is_draft_worker and self.place.size > 1 and least < here * 0.9:
            raise RuntimeError(
                "The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
                f"min_per_gpu_memory={least}, local_gpu_memory={here}, local_gpu_memory * 0.9={here * 0.9}"
            )
        return least

    def initialize(self):
        self.stream = self._target.model_runner.stream if self._target else self._side_stream()
        self.load_model()
        if self.server_args.loads_before_pools:
            return
        self.init_memory_pool(self.pre_model_load_memory)
        if self.is_draft_worker:
            # The draft worker makes its own backend and graphs.
            return
        self.init_cublas()
        self.init_attention_backend()
        if not self.server_args.disable_cuda_graph:
            self.init_device_graphs()

    @staticmethod
    def _side_stream():
        """The first use of a stream beside the default one opens channels for all of them."""
        stream = torch.cuda.Stream()
        torch.cuda.launch("fill", stream)
        return stream

    def load_model(self):
        with truth.phase("weights"):
            before = self.available()
            logger.info(f"Load weight begin. avail mem={before:.2f} GB")
            own = 0 if self.is_draft_worker else self.server_args.sim_extra_weights
            own += 0 if self.is_draft_worker else self.server_args.imbalance_of(self.place.rank)
            self.model = DefaultModelLoader().load_model(self.model_config, self.layers, own)
            after = self.available()
        name = self.model_config.architecture
        logger.info(
            f"Load weight end. elapsed=0.10 s, type={name}, avail mem={after:.2f} GB, mem usage={before - after:.2f} GB."
        )

    def alloc_memory_pool(self):
        with truth.phase("kv_cache"):
            if self._target:
                self.max_total_num_tokens = self._target.model_runner.max_total_num_tokens
            self.token_to_kv_pool = KVCacheConfigurator(self).configure()
        logger.info(f"Memory pool end. avail mem={self.available():.2f} GB")

    def init_cublas(self):
        """The handle takes its workspace with the first product."""
        with truth.phase("kernel_warmup"):
            self.cublas = torch.cuda.cublas_handle()
            torch.zeros(16 * 16 * 2)

    def init_attention_backend(self):
        with truth.phase("attention_backend"):
            self.attn_backend = FlashInferAttnBackend()

    def init_attention_backends(self):
        with truth.phase("attention_backend"):
            build_attention_backends(self)

    def init_device_graphs(self):
        """Graphs up to 0.5.13."""
        before = self.available()
        logger.info(f"Capture cuda graph begin. This can take up to several minutes. avail mem={before:.2f} GB")
        with truth.phase("cuda_graph.decode"):
            self.graph_runner = CudaGraphRunner(self)
        after = self.available()
        logger.info(
            f"Capture cuda graph end. Time elapsed: 0.10 s. mem usage={before - after:.2f} GB. avail mem={after:.2f} GB."
        )

    def init_cuda_graphs(self):
        """Graphs from 0.5.14 on."""
        capture_cuda_graphs(self)

    def run_once(self, tokens):
        """A forward pass without a graph: its products need cuBLAS, its activations a moment's memory."""
        if not hasattr(self, "cublas"):
            self.cublas = torch.cuda.cublas_handle()
        hidden = torch.empty(tokens * self.model_config.hidden * 2)
        torch.cuda.launch("attention")
        return hidden

    def forward(self, first):
        """A request: the first one meets what start-up did not."""
        with truth.phase(truth.current_phase() + ".nccl"):
            self.groups.tp.device_group.all_reduce()
            self.groups.pp.device_group.all_reduce()
        logits = torch.empty((16 if first else 4) * MIB)
        if self.graph_runner and not self.is_draft_worker:
            self.graph_runner.graphs[-1].graph.replay(self.stream)
        if self.server_args.sim_leak:
            self._leaked.append(torch.empty(self.server_args.sim_leak * MIB))
        if self.server_args.sim_fragment:
            self._fragment()
        del logits
        # What a server keeps of a request: its place in the tree of prefixes.
        return torch.empty(MIB)

    def _fragment(self):
        """Fills segments of 20 MiB with two blocks each, and lets go of the larger one."""
        pieces = [torch.empty(size * MIB) for _ in range(self.server_args.sim_fragment // 20) for size in (2, 9)]
        self._kept += pieces[::2]
