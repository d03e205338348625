"""Graphs, from 0.5.17 on: kernels once without, then prefill, then decode."""

import logging

from simulation import truth

from sglang.srt.model_executor.runner.decode_cuda_graph_runner import DecodeCudaGraphRunner
from sglang.srt.model_executor.runner.eager_runner import EagerRunner
from sglang.srt.model_executor.runner.prefill_cuda_graph_runner import PrefillCudaGraphRunner

logger = logging.getLogger(__name__)


def capture_cuda_graphs(runner):
    with truth.phase("kernel_warmup"):
        runner.eager_runner = EagerRunner(runner)
    with truth.phase("cuda_graph.prefill"):
        runner.prefill_graph_runner = capture_prefill_graph(runner)
    with truth.phase("cuda_graph.decode"):
        runner.graph_runner = capture_decode_graph(runner)


def capture_prefill_graph(runner):
    return _between("prefill", "backend=breakable, num_tokens=[256, 1024]", runner, PrefillCudaGraphRunner)


def capture_decode_graph(runner):
    return _between("decode", "backend=full, num_tokens_per_req=1", runner, DecodeCudaGraphRunner)


def _between(what, how, runner, make):
    """Makes graphs between two lines."""
    role, before = "draft" if runner.is_draft_worker else "target", runner.available()
    logger.info(f"Capture {role} {what} CUDA graph begin. {how}, avail mem={before:.2f} GB")
    made, after = make(runner), runner.available()
    logger.info(
        f"Capture {role} {what} CUDA graph end. elapsed=0.10 s, mem usage={before - after:.2f} GB, avail mem={after:.2f} GB."
    )
    return made
