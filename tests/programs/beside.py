"""A program that has nothing to do with CUDA: for each line of its input, prints the processor time that its work took, in nanoseconds."""

import hashlib
import json
import os
import sys
import time


def work():
    begin = time.process_time_ns()
    words = {}
    for n in range(4_000):
        text = json.dumps({"number": n, "name": f"item {n}", "list": [n, n + 1]})
        word = hashlib.sha256(text.encode()).hexdigest()[:4]
        words[word] = words.get(word, 0) + len(json.loads(text)["name"])
        os.getppid()
        if n % 100 == 0:
            os.stat("/")
    return time.process_time_ns() - begin


for _ in sys.stdin:
    print(work(), flush=True)
