"""A simulated SGLang server: the real process tree, titles, log lines, file and function names; no model and no HTTP.

    PYTHONPATH=tests/server python3 -m sglang.launch_server --model-path sim/small --tp-size 8

It calls the simulated CUDA libraries the way SGLang and PyTorch call the real ones, sizes its KV cache as SGLang does, and
tells the simulated driver whom each piece of memory serves (`simulation/truth.py`). Written for these tests; SGLang's names and
log formats are as published, its code is not used.

Its arguments are SGLang's as far as they matter here, and `--sim-…` for what a test wants to happen: see
`sglang/srt/server_args.py`.
"""

import sys

from sglang.srt.entrypoints.http_server import launch_server
from sglang.srt.server_args import prepare_server_args

if __name__ == "__main__":
    launch_server(prepare_server_args(sys.argv[1:]))
