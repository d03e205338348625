"""What a probe costs in a Python program: `bench.py STEP ROUNDS DEPTH` prints nanoseconds a round."""

import ctypes
import sys

# A tracer looks for the interpreter of what loads it.
ctypes.CDLL("libcuda.so.1")
library = ctypes.CDLL("libbench.so")
library.bench.argtypes = [ctypes.c_char_p, ctypes.c_long]
library.bench.restype = ctypes.c_double


def deep(depth):
    if depth:
        return deep(depth - 1)
    return library.bench(sys.argv[1].encode(), int(sys.argv[2]))


print(f"{deep(int(sys.argv[3])):.1f}")
