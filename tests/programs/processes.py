"""Python in several processes, and what is unusual in one, as the arguments name it."""

import ctypes
import os
import subprocess
import sys
import time

import allocation
from allocation import allocate


def fork():
    """The child uses CUDA, and is gone right after."""
    child = os.fork()
    if child == 0:
        allocate("forked child")
        os._exit(0)
    os.waitpid(child, 0)
    # The child had the first number.
    allocation.numbers = iter(range(50, 100))
    allocate("parent")


def spawn():
    """Programs that load libraries which are known from the one before. Sizes tell their allocations apart."""
    # An interpreter that runs through a wrapper cannot be started by the name it has itself.
    python = os.environ.get("VRAMTRACE_TEST_PYTHON", sys.executable)
    for first in ("100", "200"):
        subprocess.run([python, __file__, "spawned"], check=True, env=dict(os.environ, FIRST=first))
    allocation.numbers = iter(range(300, 1000))


def spawned():
    allocation.numbers = iter(range(int(os.environ["FIRST"]), 1000))
    allocate("spawned")


def attached():
    print("ready", flush=True)
    sys.stdin.readline()
    allocate("attached")


def deep():
    def recursion(depth):
        if depth:
            recursion(depth - 1)
        else:
            allocate("too deep")

    recursion(300)


def large():
    """A name and a line table that are longer than what is read at once."""
    name = "f" * 400
    lines = [f"def {name}(allocate, x):"] + [f"    x = (x + {n}\n         - x)" for n in range(2000)]
    exec(compile("\n".join(lines + ["    allocate('large code')"]), "/" + "d" * 600 + ".py", "exec"), globals())
    globals()[name](allocate, 1)
    # Its rest is read in the process's memory: before that is gone.
    time.sleep(1)


def many():
    """More code objects than anybody keeps: functions that are compiled, called once, and freed."""
    for number in range(200):
        scope = {"allocate": allocate}
        exec(compile("\n" * number + "def made():\n  allocate('one of many')", "<many>", "exec"), scope)
        scope["made"]()


def reused():
    """Functions that are compiled, called once, and freed, so that the next has the same address: said in the case."""
    for number in range(60):
        made = f"made_{number % 7}"
        scope = {"allocate": allocate}
        source = "\n" * (number % 5) + f"def {made}(case):\n" + "  case\n" * (number % 3) + "  allocate(case)"
        exec(compile(source, f"<reused {number % 2}>", "exec"), scope)
        scope[made](f"code at {id(scope[made].__code__):x}")
        scope.clear()


def reused_after_fork():
    """The same in a child and then in its parent, whose code objects are at the child's addresses."""
    child = os.fork()
    if child == 0:
        reused()
        os._exit(0)
    os.waitpid(child, 0)
    # The child had the first numbers.
    allocation.numbers = iter(range(100, 1000))
    reused()


def foreign():
    """A thread that never ran Python code makes the context."""
    thread = ctypes.c_void_p()
    libc = ctypes.CDLL("libc.so.6")
    assert libc.pthread_create(ctypes.byref(thread), None, allocation.free_gil.cudaFree, None) == 0
    libc.pthread_join(thread, None)


def imports():
    import imported  # noqa: F401


for name in sys.argv[1:]:
    globals()[name]()
