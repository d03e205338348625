"""The server's own account of whom its memory serves.

The code says where it is (`with truth.phase("weights"):`); whoever makes memory says whose it is (`with truth.owner("torch"):`).
Each change goes to the simulated driver, which puts it beside every piece of memory that the thread allocates from then on.
Nothing of vramtrace takes part: neither stacks nor names of functions nor log lines are looked at.
"""

import contextlib
import json
import os
import threading

_here = threading.local()
_control = None
_rank = "main"


def _write(command):
    global _control
    if _control is None:
        _control = os.open(os.path.join(os.environ["VRAMTRACE_SIM_DEV"], "control"), os.O_WRONLY | os.O_CLOEXEC)
    text = json.dumps(command).encode()
    assert os.write(_control, text) == len(text)


def _state():
    if not hasattr(_here, "state"):
        _here.state = {"phase": "startup", "role": "target", "owner": "driver"}
        _here.told = None
    return _here.state


def _tell():
    state = _state()
    text = "|".join([_rank, state["role"], state["phase"], state["owner"]])
    if text != _here.told:
        _write({"label": {"text": text}})
        _here.told = text


def rank(name):
    """Names the process: as a report names ranks."""
    global _rank
    _rank = name


@contextlib.contextmanager
def _set(key, value):
    state = _state()
    before, state[key] = state[key], value
    try:
        yield
    finally:
        state[key] = before


def phase(name):
    """The thread is in a phase of the server's life."""
    return _set("phase", name)


def role(name):
    """What the thread makes serves the target model, the draft model, the tokenizer."""
    return _set("role", name)


@contextlib.contextmanager
def owner(name):
    """What is made here is this allocator's."""
    with _set("owner", name):
        _tell()
        yield


def mark(name):
    """Notes a point of time in the driver's log."""
    _write({"mark": {"name": name}})


def current_phase():
    return _state()["phase"]
