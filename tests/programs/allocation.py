"""Allocations of CUDA memory that say with what stack they were made.

Each has a size of its own (its number times 2 MiB) and prints one line of JSON: the case, the number, and the frames that
`traceback` sees at that very line, outermost first.
"""

import ctypes
import json
import sys
import threading
import traceback
from ctypes import byref, c_size_t, c_void_p

MIB2 = 2 << 20
free_gil = ctypes.CDLL("libcudart.so.12")
keep_gil = ctypes.PyDLL("libcudart.so.12")
for runtime in (free_gil, keep_gil):
    runtime.cudaMalloc.argtypes = [c_void_p, c_size_t]
    runtime.cudaFree.argtypes = [c_void_p]
numbers = iter(range(1, 1000))
lock = threading.Lock()


def look():
    """What `traceback` says of the caller: file, line, name; and the qualified name where there is one."""
    frames = traceback.extract_stack(sys._getframe(1))
    codes = [frame.f_code for frame, _ in traceback.walk_stack(sys._getframe(1))][::-1]
    names = [getattr(code, "co_qualname", None) for code in codes]
    return [[f.filename, f.lineno, f.name, q] for f, q in zip(frames, names)]


def allocate(case, runtime=free_gil):
    with lock:
        number = next(numbers)
    pointer = c_void_p()
    seen, result = look(), runtime.cudaMalloc(byref(pointer), number * MIB2)
    assert result == 0, result
    # In one write: threads print at the same time.
    print(json.dumps({"case": case, "number": number, "frames": seen}) + "\n", end="", flush=True)
    runtime.cudaFree(pointer)
