"""The process tree."""

import logging
import multiprocessing as mp
import os
import signal
import time

from sglang.srt.managers.data_parallel_controller import run_data_parallel_controller_process
from sglang.srt.managers.detokenizer_manager import run_detokenizer_process
from sglang.srt.managers.scheduler import run_scheduler_process
from sglang.srt.managers.tokenizer_manager import TokenizerManager
from sglang.srt.utils.common import configure_logger, kill_process_tree

logger = logging.getLogger(__name__)


def _set_envs_and_config():
    os.environ.setdefault("NCCL_CUMEM_ENABLE", "0")
    os.environ["CUDA_DEVICE_MAX_CONNECTIONS"] = "8"
    os.environ["CUDA_MODULE_LOADING"] = "AUTO"
    os.environ["SGLANG_RUN_ID"] = f"sglang-run-{time.time()}-{os.getpid()}"

    def launch_phase_sigquit_handler(signum, frame):
        logger.error("Received sigquit from a child process. It usually means the child failed.")
        kill_process_tree(os.getpid())

    signal.signal(signal.SIGQUIT, launch_phase_sigquit_handler)
    mp.set_start_method("spawn", force=True)


def _launch_scheduler_processes(server_args, main_pid):
    """Schedulers, or the controller that starts them; what says that they are ready, and what takes requests."""
    pipes, processes = [], []
    if server_args.dp_size > 1:
        here, there = mp.Pipe()
        controller = mp.Process(target=run_data_parallel_controller_process, args=(server_args, main_pid, there))
        controller.start()
        return [here], [controller]
    for pp_rank in range(server_args.pp_size):
        for tp_rank in range(server_args.tp_size):
            gpu_id = server_args.base_gpu_id + pp_rank * server_args.tp_size + tp_rank
            here, there = mp.Pipe()
            arguments = (server_args, main_pid, gpu_id, tp_rank, pp_rank, None, there)
            process = mp.Process(target=run_scheduler_process, args=arguments)
            process.start()
            pipes.append(here)
            processes.append(process)
    return pipes, processes


def _launch_subprocesses(server_args):
    """Starts everything, waits until the model is loaded."""
    configure_logger()
    logger.info(f"{server_args=!s}")
    _set_envs_and_config()
    pipes, processes = _launch_scheduler_processes(server_args, os.getpid())
    detokenizer_pipe, there = mp.Pipe()
    detokenizer = mp.Process(target=run_detokenizer_process, args=(there,))
    detokenizer.start()
    tokenizer_manager = TokenizerManager(server_args, pipes, detokenizer_pipe)
    for rank, pipe in enumerate(pipes):
        try:
            assert pipe.recv() == "ready"
        except EOFError:
            logger.error(f"Rank {rank} scheduler is dead. Please check if there are relevant logs.")
            processes[rank].join()
            logger.error(f"Exit code: {processes[rank].exitcode}")
            # The scheduler's SIGQUIT ends the server.
            signal.pause()
    return tokenizer_manager
