"""A target that means harm: every name, title and line that a tracer may keep of it steers terminals, breaks out of pages
and files, is enormous, or holds a secret. The secrets (SECRET…) must be nowhere; the rest must be mere text.

The first run executes itself again under a forged title. `hold` waits for the end of standard input before it ends.
"""

import ctypes
import os
import sys

from allocation import byref, c_size_t, c_void_p, free_gil

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e</script></title><img src=x onerror=alert(1)>&\"';,\r\n\t\x00"
LONG = "N" * 65536
PREFIX = "[2026-01-01 00:00:00 TP7] "
ARGUMENTS = [
    "--api-key", "SECRET01", "--admin-api-key=SECRET02", "--hf-token", "SECRET03",
    "--json-model-override-args", '{"auth": {"api_key": "SECRET04"}, "password": "SECRET05"}',
    "http://user:SECRET06@host/", "-H", "Authorization: Bearer SECRET07", "--env", "HF_TOKEN=SECRET08",
]
VARIABLES = {
    "HF_TOKEN": "SECRET10", "SGLANG_API_KEY": "SECRET11", "VLLM_API_KEY": "SECRET12", "NCCL_PASSWORD": "SECRET13",
    "SGLANG_URL": "https://me:SECRET14@host/x?token=SECRET15", "CUDA_NOTE": EVIL.replace("\0", "") + "N" * 100_000,
    "OPENAI_API_KEY": "SECRET16", "TORCH_HEADERS": "Authorization: Bearer SECRET17",
}
LINES = [
    PREFIX + "Load weight begin. avail mem=1.00 GB " + EVIL,
    "server_args=ServerArgs(model_path='m', api_key='SECRET20', admin_api_key=\"SECRET21\", hf_token='SECRET22', "
    + "url='redis://u:SECRET23@h/', " + "x='" + "y" * (2 << 20) + "', last_api_key='SECRET24')",
    PREFIX + "avail mem=2.00 GB Authorization: Bearer SECRET25",
    "avail mem=3.00 GB {'api_key': 'SECRET26', \"token\": \"SECRET27\"} --api-key SECRET28 HF_TOKEN=SECRET29",
    PREFIX * 20_000 + "avail mem=4.00 GB",
]


def named(name, file, body):
    """A function whose code has these names."""
    changed = {"co_name": name, "co_filename": file}
    if sys.version_info >= (3, 11):
        changed["co_qualname"] = name
    body.__code__ = body.__code__.replace(**changed)
    return body


def allocate():
    pointer = c_void_p()
    assert free_gil.cudaMalloc(byref(pointer), c_size_t(2 << 20)) == 0
    return pointer


def in_a_circle():
    """Calls from a frame whose caller is itself, by CPython 3.11's `_PyInterpreterFrame.previous`."""
    if sys.version_info[:2] != (3, 11):
        return
    inner = ctypes.c_uint64.from_address(id(sys._getframe()) + 24).value
    previous = ctypes.c_uint64.from_address(inner + 48)
    pointer, size, malloc, kept = c_void_p(), c_size_t(2 << 20), free_gil.cudaMalloc, previous.value
    previous.value = inner
    malloc(byref(pointer), size)
    previous.value = kept


def main():
    ctypes.CDLL(None).prctl(15, b"\x1b[31m</x>\n")
    for name in (EVIL, LONG, "", "a;b 7\nc;d 8", "\ud800", "🙀" * 20_000):
        named(name, name, lambda: allocate())()
    in_a_circle()
    # Who only holds has nobody to read them.
    for line in LINES if "hold" not in sys.argv else []:
        os.write(1, line.encode("utf-8", "replace") + b"\n")
    os.write(2, b"avail mem=" + bytes(range(256)) * 4 + b"\n")
    if "hold" in sys.argv:
        os.write(2, b"holding\n")
        sys.stdin.read()


if __name__ == "__main__":
    if "again" in sys.argv:
        main()
    else:
        title = EVIL.replace("\0", "")
        environment = {**os.environ, **VARIABLES}
        # One argument may have 128 KiB: eight make a title of a megabyte.
        arguments = [title, __file__, "again", *sys.argv[1:], *ARGUMENTS, *["T" * 130_000] * 8]
        os.execve(sys.executable, arguments, environment)
