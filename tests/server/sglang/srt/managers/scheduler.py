"""A rank: one process a GPU."""

import logging
import os
import signal
import threading
import traceback

from simulation import truth
from simulation.title import die_with_parent, set_title

from sglang.srt.managers.tp_worker import TpModelWorker
from sglang.srt.utils.common import configure_logger

logger = logging.getLogger(__name__)


class Scheduler:
    def __init__(self, server_args, gpu_id, place):
        self.server_args, self.gpu_id, self.place = server_args, gpu_id, place
        self.draft_worker = None
        if server_args.loads_before_pools:
            self.init_model_worker()
        else:
            self.tp_worker = TpModelWorker(server_args, gpu_id, place)
            self.maybe_init_draft_worker()
        if place.tp_rank == 0:
            runner = self.tp_worker.model_runner
            logger.info(
                f"max_total_num_tokens={runner.max_total_num_tokens}, "
                f"chunked_prefill_size={server_args.chunked_prefill_size}, max_prefill_tokens=16384, "
                f"max_running_requests=4096, context_len=4096, available_gpu_mem={runner.available():.2f} GB"
            )
        self._served = []

    def init_model_worker(self):
        """The order from 0.5.14 on: all weights, then all pools, backends, graphs."""
        self.tp_worker = TpModelWorker(self.server_args, self.gpu_id, self.place)
        self.maybe_init_draft_worker()
        self.init_memory_pools()
        self.init_all_attention_backends()
        self.init_all_cuda_graphs()

    def maybe_init_draft_worker(self):
        if self.server_args.speculative_algorithm is None:
            return
        if self.server_args.loads_before_pools:
            from sglang.srt.speculative.eagle_worker_v2 import EAGLEWorkerV2 as DraftWorker
        else:
            from sglang.srt.speculative.eagle_worker import EAGLEWorker as DraftWorker
        with truth.role("draft"):
            self.draft_worker = DraftWorker(self.server_args, self.gpu_id, self.place, self.tp_worker)

    def init_memory_pools(self):
        self.tp_worker.model_runner.alloc_memory_pool()
        if self.draft_worker:
            with truth.role("draft"):
                self.draft_worker.alloc_memory_pool()

    def init_all_attention_backends(self):
        self.tp_worker.model_runner.init_attention_backends()
        if self.draft_worker:
            with truth.role("draft"):
                self.draft_worker.init_attention_backends()

    def init_all_cuda_graphs(self):
        if self.server_args.disable_cuda_graph:
            return
        self.tp_worker.model_runner.init_cuda_graphs()
        if self.draft_worker:
            with truth.role("draft"):
                self.draft_worker.init_cuda_graphs()

    def event_loop_normal(self, pipe):
        while True:
            request = pipe.recv()
            with truth.phase(request):
                self.run_batch(request)
            pipe.send("done")

    def run_batch(self, request):
        first = not self._served
        worker = self.draft_worker or self.tp_worker
        if self.place.tp_rank == 0:
            logger.info("Prefill batch, #new-seq: 1, #new-token: 28, #cached-token: 0, token usage: 0.00")
        self._served.append(worker.forward_batch_generation(first))
        if self.server_args.sim_stray_context and first:
            thread = threading.Thread(target=self._process_grammar)
            thread.start()
            thread.join()

    def _process_grammar(self):
        """A thread that uses CUDA and never selected a device is on GPU 0."""
        import torch

        torch.cuda._lazy_init()


def run_scheduler_process(server_args, main_pid, gpu_id, tp_rank, pp_rank, dp_rank, pipe):
    from sglang.srt.distributed.parallel_state import Place

    die_with_parent(signal.SIGKILL)
    place = Place(server_args, tp_rank, pp_rank, dp_rank)
    set_title("sglang::scheduler" + place.prefix.replace(" ", "_"))
    configure_logger(place.prefix)
    truth.rank(place.prefix.strip() or "TP0")
    try:
        scheduler = Scheduler(server_args, gpu_id, place)
        pipe.send("ready")
        scheduler.event_loop_normal(pipe)
    except Exception:
        logger.error(f"Scheduler hit an exception: {traceback.format_exc()}")
        os.kill(main_pid, signal.SIGQUIT)
        signal.pause()
