"""What PyTorch's memory history adds to a block of its allocator: needs PyTorch and a GPU."""

import statistics
import sys
import time

ROUNDS = 2000
REPEATS = 9
DEPTH = 30

try:
    import torch
except ImportError:
    sys.exit("not run: no PyTorch")
if not torch.cuda.is_available():
    sys.exit("not run: no GPU")


def deep(depth):
    if depth:
        return deep(depth - 1)
    begin = time.thread_time_ns()
    for _ in range(ROUNDS):
        torch.empty(512, dtype=torch.uint8, device="cuda")
    return (time.thread_time_ns() - begin) / ROUNDS


HISTORIES = {
    "none": None,
    "Python stacks": {"enabled": "all", "context": "all", "stacks": "python"},
    "all stacks": {"enabled": "all", "context": "all", "stacks": "all"},
}
times = {name: [] for name in HISTORIES}
for _ in range(REPEATS):
    for name, options in HISTORIES.items():
        if options:
            torch.cuda.memory._record_memory_history(max_entries=4 * ROUNDS, **options)
        deep(DEPTH)
        times[name].append(deep(DEPTH))
        torch.cuda.memory._record_memory_history(enabled=None)
medians = {name: statistics.median(of) for name, of in times.items()}
told = ", ".join(f"{name} {medians[name]:.0f} ns" for name in HISTORIES)
print(f"PyTorch's memory history, a block made and taken back {DEPTH} calls deep: {told}")
