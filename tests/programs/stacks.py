"""Allocates in every situation in which Python code runs, and says with what stack it did."""

import asyncio
import ctypes
import functools
import threading
from ctypes import byref, c_int, c_size_t, c_void_p

from allocation import allocate, free_gil, keep_gil

libc = ctypes.CDLL("libc.so.6")


def nested(depth, case, runtime):
    if depth == 0:
        return allocate(case, runtime)

    def inner():
        nested(depth - 1, case, runtime)

    return inner()


class Model:
    def __init__(self):
        self.load()

    def load(self):
        allocate("method")

    @classmethod
    def build(cls):
        allocate("class method")
        return cls()

    @staticmethod
    def helper():
        allocate("static method")

    @property
    def weights(self):
        return allocate("property")

    def __call__(self, *inputs):
        return (
            allocate(
                "a call over several lines",
            )
        )

    class Größe:
        def запуск(self):
            allocate("names beyond ASCII")


class Meta(type):
    def __call__(cls, *args):
        allocate("metaclass")
        return super().__call__(*args)


class Made(metaclass=Meta):
    allocate("class body")


def generator():
    yield 1
    allocate("generator")
    yield from inner_generator()


def inner_generator():
    allocate("yield from")
    yield 2


def recursion(depth):
    if depth == 0:
        allocate("recursion")
    else:
        recursion(depth - 1)


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@decorated
@decorated
def behind_decorators():
    allocate("decorators")


async def coroutine(depth):
    await asyncio.sleep(0)
    if depth:
        await coroutine(depth - 1)
    else:
        allocate("coroutine")


async def gathered():
    await asyncio.gather(coroutine(3), coroutine(0))
    async for _ in async_generator():
        pass


async def async_generator():
    yield 1
    allocate("asynchronous generator")


COMPARE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p)
ROUTINE = ctypes.CFUNCTYPE(c_void_p, c_void_p)


def qsort_callbacks(depth):
    done = []

    @COMPARE
    def compare(left, right):
        if not done:
            done.append(1)
            if depth:
                qsort_callbacks(depth - 1)
            else:
                allocate("callback from qsort")
        return 0

    array = (c_int * 4)(4, 3, 2, 1)
    libc.qsort(array, c_size_t(4), c_size_t(4), compare)


def foreign_thread():
    """A thread that Python did not start runs Python code."""

    @ROUTINE
    def routine(_):
        allocate("callback in a foreign thread")
        return None

    thread = c_void_p()
    assert libc.pthread_create(byref(thread), None, routine, None) == 0
    libc.pthread_join(thread, None)


def sort_key(_):
    allocate("key of sorted")
    return 0


def handled():
    try:
        raise ValueError
    except ValueError:
        allocate("exception handler")
    finally:
        allocate("finally")


class Context:
    def __enter__(self):
        allocate("context manager")

    def __exit__(self, *_):
        allocate("end of a context")


class Finalized:
    def __del__(self):
        allocate("finalizer")


def generated(lines):
    """Code compiled at run time, freed, and compiled again at the same addresses."""
    source = "\n" * lines + "allocate('generated code')\n"
    exec(compile(source, "<generated>", "exec"), {"allocate": allocate})


def busy_bystander(stop):
    while not stop.is_set():
        sum(range(100))


def work(number):
    for _ in range(3):
        nested(number, "thread", free_gil)
        nested(number, "thread that keeps the GIL", keep_gil)


def in_threads():
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main():
    allocate("function")
    nested(3, "nested functions", free_gil)
    nested(3, "nested functions that keep the GIL", keep_gil)
    model = Model.build()
    model.helper()
    model.weights
    model(1, 2)
    Model.Größe().запуск()
    Made()
    (lambda: (lambda: allocate("lambda"))())()
    [allocate("list comprehension") for _ in range(1)]
    {allocate("set comprehension") for _ in range(1)}
    list(allocate("generator expression") for _ in range(1))
    list(map(lambda _: allocate("map"), range(1)))
    list(generator())
    sorted([1], key=sort_key)
    recursion(100)
    behind_decorators()
    functools.partial(nested, 1, "partial")(free_gil)
    asyncio.run(gathered())
    qsort_callbacks(2)
    foreign_thread()
    handled()
    with Context():
        pass
    Finalized()
    for lines in (0, 1, 2, 40, 300):
        generated(lines)
    in_threads()


stop = threading.Event()
bystander = threading.Thread(target=busy_bystander, args=(stop,))
bystander.start()
main()
allocate("module")
stop.set()
bystander.join()
