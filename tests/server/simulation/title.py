"""Titles of processes, set the way setproctitle sets them: over the arguments."""

import ctypes

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
_libc = ctypes.CDLL(None)


def set_title(title):
    """Overwrites the memory that /proc/PID/cmdline shows, and the name of the thread."""
    with open("/proc/self/stat") as stat:
        fields = stat.read().rsplit(") ", 1)[1].split()
    # arg_start and arg_end, fields 48 and 49 of proc(5); the first one here is field 3.
    start, end = int(fields[48 - 3]), int(fields[49 - 3])
    text = title.encode()[: end - start - 1]
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, text, len(text))
    _libc.prctl(PR_SET_NAME, ctypes.c_char_p(text[:15]), 0, 0, 0)


def die_with_parent(signal):
    """The kernel sends this signal when the parent is gone."""
    _libc.prctl(PR_SET_PDEATHSIG, int(signal), 0, 0, 0)
