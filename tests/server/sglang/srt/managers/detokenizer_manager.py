"""Turns tokens into text: a process without GPU memory."""

import signal

from simulation.title import die_with_parent, set_title


def run_detokenizer_process(pipe):
    die_with_parent(signal.SIGKILL)
    set_title("sglang::detokenizer")
    import torch

    torch.cuda.device_count()
    while True:
        pipe.recv()
        pipe.send("text")
