"""A program that has nothing to do with CUDA: prints the processor time it took, in nanoseconds."""

import hashlib
import json
import os
import time

begin = time.process_time_ns()
words = {}
for n in range(40_000):
    text = json.dumps({"number": n, "name": f"item {n}", "list": [n, n + 1]})
    word = hashlib.sha256(text.encode()).hexdigest()[:4]
    words[word] = words.get(word, 0) + len(json.loads(text)["name"])
    os.getppid()
    if n % 100 == 0:
        os.stat("/")
print(time.process_time_ns() - begin)
