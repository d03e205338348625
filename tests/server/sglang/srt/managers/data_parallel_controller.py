"""One process that starts the schedulers of each data-parallel rank."""

import multiprocessing as mp
import signal

from simulation.title import die_with_parent, set_title

from sglang.srt.managers.scheduler import run_scheduler_process
from sglang.srt.utils.common import configure_logger


class DataParallelController:
    def __init__(self, server_args, main_pid):
        self._pipes = []
        for dp_rank in range(server_args.dp_size):
            self.launch_tensor_parallel_group(server_args, main_pid, dp_rank)
        for pipe in self._pipes:
            assert pipe.recv() == "ready"

    def launch_tensor_parallel_group(self, server_args, main_pid, dp_rank):
        group = server_args.tp_size * server_args.pp_size
        for pp_rank in range(server_args.pp_size):
            for tp_rank in range(server_args.tp_size):
                gpu_id = server_args.base_gpu_id + dp_rank * group + pp_rank * server_args.tp_size + tp_rank
                here, there = mp.Pipe()
                arguments = (server_args, main_pid, gpu_id, tp_rank, pp_rank, dp_rank, there)
                mp.Process(target=run_scheduler_process, args=arguments).start()
                self._pipes.append(here)

    def event_loop(self, pipe):
        while True:
            request = pipe.recv()
            for scheduler in self._pipes:
                scheduler.send(request)
            for scheduler in self._pipes:
                assert scheduler.recv() == "done"
            pipe.send("done")


def run_data_parallel_controller_process(server_args, main_pid, pipe):
    die_with_parent(signal.SIGKILL)
    set_title("sglang::data_parallel_controller")
    configure_logger()
    controller = DataParallelController(server_args, main_pid)
    pipe.send("ready")
    controller.event_loop(pipe)
