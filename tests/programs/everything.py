"""A little of all that is traced: a line of output, a library opened late, an allocation under two Python frames, and
another process. Arguments: the program of the other process and what it is told."""

import ctypes
import subprocess
import sys


def allocate(size):
    runtime = ctypes.CDLL("libcudart.so.12")
    address = ctypes.c_void_p()
    result = runtime.cudaMalloc(ctypes.byref(address), ctypes.c_size_t(size))
    assert result == 0, result


def load():
    print("Load weight begin. avail mem=1.00 GB", flush=True)
    allocate(6 << 20)


load()
sys.exit(subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode)
