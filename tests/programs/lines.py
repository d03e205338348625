"""Writes lines in every way that Python programs do, all of which a trace must keep: each holds "avail mem="."""
import logging
import multiprocessing
import os
import subprocess
import sys
import threading
import time
import warnings


def worker(_number):
    time.sleep(1.5)
    print("avail mem=7.00 GB of a worker", flush=True)


def main():
    print("avail mem=1.00 GB by print", flush=True)
    print("avail mem=1.10 GB", "in", "parts", sep=" ", end="\n", flush=True)
    sys.stderr.write("avail mem=2.00 GB by sys.stderr.write\n")
    logging.basicConfig(format="[%(asctime)s TP0] %(message)s", datefmt="%Y-%m-%d %H:%M:%S", level=logging.INFO)
    logging.info("Load weight begin. avail mem=3.00 GB")
    os.write(1, b"avail mem=4.00 GB by os.write\n")
    os.writev(2, [b"avail mem=5.00 ", b"GB by ", b"os.writev\n"])
    sys.stdout.buffer.write("avail mem=6.00 GB \u00e9\u4e2d".encode() + b" \xff not UTF-8\n")
    sys.stdout.flush()
    warnings.warn("avail mem=6.50 GB of a warning")
    thread = threading.Thread(target=lambda: print("avail mem=6.60 GB of a thread", flush=True))
    thread.start()
    thread.join()
    for method in ("fork", "spawn"):
        context = multiprocessing.get_context(method)
        process = context.Process(target=worker, args=(0,))
        process.start()
        process.join()
    subprocess.run([sys.executable, "-c", "print('avail mem=8.00 GB of a program')"], check=True)
    for step in range(4):
        sys.stderr.write(f"\rCapturing batches (avail_mem={step}.00 GB): avail mem={step}.00 GB")
        sys.stderr.flush()
    sys.stderr.write("\n")
    print("server_args=ServerArgs(" + ", ".join(f"option_{n}='value {n}'" for n in range(700)) + ")", flush=True)
    for number in range(200):
        print(f"avail mem={number}.00 GB in a row", flush=True)
    raise RuntimeError("Not enough memory. avail mem=9.00 GB")


if __name__ == "__main__":
    main()
