"""What PyTorch's caching allocator does: `torch_blocks.py CASE…`. Prints the allocator's own figures at marks."""

import sys
import threading

import torch_allocator as torch

MIB = 1 << 20
GIB = 1 << 30


def segments():
    """Small and large segments, blocks split off them and joined again."""
    small = [torch.alloc(size) for size in (1, 512, 513, 4096, 100_000, MIB)]
    large = [torch.alloc(size) for size in (MIB + 1, 3 * MIB, 9 * MIB, 10 * MIB, 123_456_789)]
    torch.mark("made")
    for block in small[::2] + large[1::2]:
        torch.free(block)
    torch.mark("half freed")
    again = torch.alloc(3 * MIB)
    torch.mark("reused")
    torch.empty_cache()
    torch.mark("emptied")
    for block in [*small[1::2], *large[::2], again]:
        torch.free(block)
    torch.mark("all freed")
    torch.empty_cache()
    torch.mark("all gone")


def expandable():
    """Memory mapped under one range."""
    torch.expandable(True)
    blocks = [torch.alloc(size) for size in (700, 30 * MIB, 5 * MIB, 90 * MIB)]
    torch.mark("grown")
    torch.free(blocks.pop())
    torch.empty_cache()
    torch.mark("shrunk")
    blocks.append(torch.alloc(70 * MIB))
    torch.mark("grown again")
    for block in blocks:
        torch.free(block)
    torch.empty_cache()
    torch.mark("all gone")
    torch.expandable(False)


def graphs():
    """A private pool, filled while a stream is captured."""
    outside = torch.alloc(4 * MIB)
    with torch.graph(pool=7):
        kept = torch.alloc(40 * MIB)
        torch.free(torch.alloc(6 * MIB))
    torch.mark("captured")
    with torch.graph(pool=7):
        more = torch.alloc(5 * MIB)
    torch.mark("captured again")
    torch.free(outside)
    torch.empty_cache()
    torch.mark("the pool stays")
    torch.free(kept)
    torch.free(more)
    torch.release_pool(7)
    torch.empty_cache()
    torch.mark("released")


def exhaustion():
    """A cache that must be emptied first, then a request too large."""
    cached = torch.alloc(100 * GIB)
    torch.free(cached)
    torch.mark("cached")
    block = torch.alloc(110 * GIB)
    torch.mark("after a retry")
    try:
        torch.alloc(60 * GIB)
    except torch.OutOfMemoryError:
        torch.mark("out of memory")
    torch.free(block)
    torch.empty_cache()
    torch.mark("recovered")


def threads():
    """Blocks freed by another thread than the one that made them, by many at a time."""
    blocks = [torch.alloc(1000 * (n + 1)) for n in range(200)]
    torch.mark("made")

    def work(mine):
        for block in mine:
            torch.free(block)
        torch.free(torch.alloc(2 * MIB))

    workers = [threading.Thread(target=work, args=(blocks[n::8],)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    torch.mark("half freed")
    work([block for n in range(4, 8) for block in blocks[n::8]])
    torch.mark("all freed")


def devices():
    """Two devices, one after the other and both at once."""
    first = torch.alloc(3 * MIB, device=1)
    torch.mark("on the second", device=1)
    second = torch.alloc(30 * MIB, device=0)
    torch.mark("on the first", device=0)
    torch.free(first)
    torch.mark("freed", device=1)
    torch.free(second)
    torch.mark("freed", device=0)


def attached():
    """Memory from before a tracer comes; it goes on when a line is read."""
    before = [torch.alloc(size) for size in (5000, 3 * MIB, 50 * MIB)]
    torch.mark("before")
    sys.stdin.readline()
    torch.free(before[1])
    more = [torch.alloc(size) for size in (700, 40 * MIB)]
    torch.mark("more")
    torch.free(before[2])
    torch.free(more[1])
    torch.empty_cache()
    # What came before the tracer goes unseen: the next block tells.
    torch.alloc(512)
    torch.mark("less")


def bursts():
    """200,000 reports as fast as they come."""
    torch.burst(100_000)
    torch.mark("burst")


for name in sys.argv[1:]:
    {f.__name__: f for f in (segments, expandable, graphs, exhaustion, threads, devices, attached, bursts)}[name]()
