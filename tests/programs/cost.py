"""Time of one allocation and its release, in nanoseconds, from Python code that is 30 calls deep."""

import time
from ctypes import byref, c_void_p

from allocation import MIB2, free_gil

ROUNDS = 500


def deep(depth):
    if depth:
        return deep(depth - 1)
    pointer = c_void_p()
    fastest = []
    for _ in range(5):
        begin = time.perf_counter_ns()
        for _ in range(ROUNDS):
            free_gil.cudaMalloc(byref(pointer), MIB2)
            free_gil.cudaFree(pointer)
        fastest.append((time.perf_counter_ns() - begin) // ROUNDS)
    return min(fastest)


deep(1)
print(deep(30))
