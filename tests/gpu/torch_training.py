"""Trains a small model on a GPU, captures a graph of it, and says at each step what nvidia-smi and PyTorch itself say.

One line a step on standard output: `step NAME t=CLOCK_MONOTONIC_NS smi=MIB allocated=BYTES reserved=BYTES blocks=N`, the last
three being torch.cuda.memory_stats()'s. Needs one NVIDIA GPU, PyTorch and nvidia-smi. To hold a trace against it:

    sudo vramtrace run -o training.vrt -- python3 tests/gpu/torch_training.py | tee training.txt
    VRAMTRACE_RECORDED=$PWD/training cargo test -p live-tests --test recorded torch_training

`training.txt` holds the steps, `vramtrace report training.vrt` the same figures in "PyTorch's caching allocator".
"""

import os
import subprocess
import sys
import threading
import time

import torch
from torch import nn

MIB = 1 << 20
DEVICE = "cuda:0"


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
    used, stats = smi(), torch.cuda.memory_stats()
    own = [stats.get(f"{key}.all.current", 0) for key in ("allocated_bytes", "reserved_bytes", "allocation")]
    print(f"step {name} t={time.clock_gettime_ns(time.CLOCK_MONOTONIC)} smi={used} allocated={own[0]} "
          f"reserved={own[1]} blocks={own[2]}", flush=True)
    time.sleep(0.05)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2048, 8192), nn.GELU(), nn.Linear(8192, 2048), nn.LayerNorm(2048))

    def forward(self, x):
        return self.body(x).square().mean()


def train(net, optimizer, x):
    loss = net(x)
    step("forward")
    loss.backward()
    step("backward")
    del loss
    optimizer.step()
    step("optimizer_step")
    optimizer.zero_grad(set_to_none=True)
    step("gradients_gone")


def capture(net, x):
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), torch.no_grad():
        for _ in range(3):
            net(x)
    torch.cuda.current_stream().wait_stream(stream)
    step("graph_warm_up")
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        result = net(x)
    step("graph_captured")
    graph.replay()
    step("graph_replayed")
    return graph, result


def freed_elsewhere(block):
    """A block whose last reference goes in another thread."""
    holder = [block]
    del block
    thread = threading.Thread(target=holder.clear)
    thread.start()
    thread.join()


def expandable():
    torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    blocks = [torch.empty(size, dtype=torch.uint8, device=DEVICE) for size in (700, 30 * MIB, 300 * MIB)]
    step("expandable_grown")
    blocks.pop()
    torch.cuda.empty_cache()
    step("expandable_shrunk")
    torch.cuda.memory._set_allocator_settings("expandable_segments:False")
    return blocks


def main():
    torch.cuda.init()
    x = torch.randn(512, 2048, device=DEVICE)
    step("first_tensor")
    net = Net().to(DEVICE)
    step("model")
    optimizer = torch.optim.Adam(net.parameters())
    train(net, optimizer, x)
    train(net, optimizer, x)
    graph, result = capture(net, x)
    a = torch.randn(4096, 4096, device=DEVICE, dtype=torch.bfloat16)
    product = a @ a
    step("cublas")
    image = torch.randn(8, 64, 128, 128, device=DEVICE)
    nn.functional.conv2d(image, torch.randn(64, 64, 3, 3, device=DEVICE))
    step("convolution")
    freed_elsewhere(torch.empty(200 * MIB, dtype=torch.uint8, device=DEVICE))
    step("freed_by_another_thread")
    kept = expandable()
    try:
        torch.empty(1 << 42, dtype=torch.uint8, device=DEVICE)
    except torch.OutOfMemoryError:
        step("out_of_memory")
    del graph, result, a, product, image, kept, optimizer, net
    torch.cuda.empty_cache()
    step("almost_all_gone")


if __name__ == "__main__":
    main()
    sys.exit(3)
