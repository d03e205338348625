"""The same PyTorch program with and without one communicator of NCCL, for `vramtrace diff`.

    sudo vramtrace run -o base.vrt -- python3 tests/gpu/torch_pair.py
    sudo vramtrace run -o nccl.vrt -- python3 tests/gpu/torch_pair.py --nccl
    vramtrace diff base.vrt nccl.vrt

Two training steps of a small model; with `--nccl` an all-reduce in a group of one rank before the first. One line a step on
standard output: `step NAME t=CLOCK_MONOTONIC_NS smi=MIB`. Needs one NVIDIA GPU, PyTorch and nvidia-smi.
"""

import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch import nn


def smi():
    """This process's memory as nvidia-smi prints it, MiB; 0 when it is not listed."""
    text = subprocess.run(
        ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits"],
        check=True, capture_output=True, text=True).stdout
    rows = dict(line.split(", ") for line in text.splitlines() if line.strip())
    return int(rows.get(str(os.getpid()), 0))


def step(name):
    torch.cuda.synchronize()
    time.sleep(0.15)  # long enough for a sample of the tracer's own
    print(f"step {name} t={time.clock_gettime_ns(time.CLOCK_MONOTONIC)} smi={smi()}", flush=True)
    time.sleep(0.05)


def communicator():
    store = dist.HashStore()
    dist.init_process_group("nccl", store=store, rank=0, world_size=1, device_id=torch.device("cuda:0"))
    dist.all_reduce(torch.ones(1 << 20, device="cuda"))


def main():
    torch.cuda.set_device(0)
    step("context")
    if "--nccl" in sys.argv:
        communicator()
        step("communicator")
    net = nn.Sequential(nn.Linear(4096, 4096), nn.GELU(), nn.Linear(4096, 4096)).to("cuda:0")
    optimizer = torch.optim.AdamW(net.parameters())
    step("model")
    for _ in range(2):
        optimizer.zero_grad()
        net(torch.randn(256, 4096, device="cuda:0")).square().mean().backward()
        optimizer.step()
    step("trained")


main()
