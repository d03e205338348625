"""From the command line to a server that serves, and to its end."""

import logging
import os
import signal

from simulation import truth

from sglang.srt.entrypoints.engine import _launch_subprocesses
from sglang.srt.utils.common import kill_process_tree

logger = logging.getLogger(__name__)


def _execute_server_warmup(tokenizer_manager):
    tokenizer_manager.generate_request("warmup")
    logger.info("The server is fired up and ready to roll!")


def _wait_and_warmup(server_args, tokenizer_manager):
    _execute_server_warmup(tokenizer_manager)
    truth.mark("ready")
    for _ in range(server_args.sim_requests):
        tokenizer_manager.generate_request("serving")
    truth.mark("served")


def launch_server(server_args):
    tokenizer_manager = _launch_subprocesses(server_args)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    _wait_and_warmup(server_args, tokenizer_manager)
    if server_args.sim_end == "sigterm":
        os.kill(os.getpid(), signal.SIGTERM)
    signum = signal.sigwait({signal.SIGTERM})
    logger.info(f"SIGTERM received. {signum=} frame=None. Draining requests and shutting down...")
    logger.info("Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].")
    kill_process_tree(os.getpid())
