"""Runs without graphs: kernels are met for the first time."""

import torch


class EagerRunner:
    def __init__(self, runner):
        self.buffers = torch.zeros(24 << 20)
        runner.run_once(8)
