"""Logging, memory figures, ends of processes."""

import gc
import logging
import os
import signal

GIB = 1 << 30


def configure_logger(prefix=""):
    """SGLang's format, to standard error."""
    logging.basicConfig(
        level=logging.INFO, format=f"[%(asctime)s{prefix}] %(message)s", datefmt="%Y-%m-%d %H:%M:%S", force=True
    )


def get_available_gpu_memory(group=None):
    """Free GiB of this rank's GPU after the cache is emptied; the least of the group's, where one is given."""
    import torch

    gc.collect()
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    return (free if group is None else group.min(free)) / GIB


def _children(pid):
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as children:
                found += [int(child) for child in children.read().split()]
    except OSError:
        pass
    return found + [grandchild for child in found for grandchild in _children(child)]


def kill_process_tree(pid):
    """Kills a process with all below it, this process too: nobody closes anything."""
    for child in _children(pid):
        try:
            os.kill(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
    os.kill(pid, signal.SIGKILL)
