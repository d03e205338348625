"""The same PyTorch program with and without one communicator of NCCL, for `vramtrace diff`.

    sudo vramtrace run -o base.vrt -- python3 tests/gpu/torch_pair.py
    sudo vramtrace run -o nccl.vrt -- python3 tests/gpu/torch_pair.py --nccl
    vramtrace diff base.vrt nccl.vrt

Two training steps of a small model; with `--nccl` an all-reduce in a group of one rank before the first. One line a step on
standard output, as of torch_training.py. Needs one NVIDIA GPU, PyTorch and nvidia-smi.
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch_training import step


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
