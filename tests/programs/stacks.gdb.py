"""For gdb: writes the stack of every request to the resource manager, as one JSON list of frames a line (innermost first).

A frame is [function, file name, line]; inlined functions are frames of their own; what gdb does not know is null. It stops in
the simulated libcuda, where `rm_ioctl` is entered: a breakpoint in `ioctl` would not be met while a tracer has a uprobe there.
The line from which `rm_ioctl` calls `ioctl` is read from its source.
"""

import json
import os

import gdb


def find_libraries():
    """gdb hears of libraries by a breakpoint in the dynamic linker; a tracer's uprobe there may keep that from it."""
    gdb.execute("info sharedlibrary", to_string=True)
    gdb.execute("sharedlibrary", to_string=True)


class Request(gdb.Breakpoint):
    """Notes who called and lets the program go on."""

    def stop(self):
        frames = []
        frame = gdb.newest_frame()
        while frame is not None:
            at = frame.find_sal()
            known = at.symtab is not None
            frames.append([frame.name(), os.path.basename(at.symtab.filename) if known else None, at.line if known else None])
            frame = frame.older()
        frames[0][2] = line
        out.write(json.dumps(frames) + "\n")
        return False


source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../cuda/driver/rm.c")
with open(source) as lines:
    line = next(n for n, text in enumerate(lines, 1) if "return ioctl(" in text and "_IOC(" in text)
out = open(os.environ["STACKS"], "w")
gdb.execute("set pagination off")
gdb.execute("set breakpoint pending on")
gdb.execute("set debuginfod enabled off")
# Up to the kernel's entry, as a tracer sees it.
gdb.execute("set backtrace past-main on")
gdb.execute("set backtrace past-entry on")
gdb.execute("break main")
gdb.execute("run")
find_libraries()
# libcuda is loaded at the first call: stop there, so that its symbols can be read.
gdb.execute("tbreak dlsym")
gdb.execute("continue")
find_libraries()
Request("rm_ioctl", internal=True)
gdb.execute("continue")
out.close()
