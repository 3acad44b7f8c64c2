"""Whole conversions in memory (tmpfs to tmpfs), and their stages measured alone.

    end_to_end.py TILEPACK [GIGABYTES] [FORMAT ...]

Prints, for each format and each of --device cuda and cpu: seconds, GB/s of input, and
the ratio to the slowest stage: reading the input with pread by as many threads, or
writing as many bytes as the output with pwrite.
"""
import os
import shutil
import subprocess
import sys
import threading
import time

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))
import stfile  # noqa: E402  (beside the tests)

BASE = "/dev/shm/tilepack-e2e"
THREADS = 4
CHUNK = 16 << 20


def make_source(path, gigabytes, n=8192, k=8192):
    """Shards of eight bf16 matrices; one random block repeated, shifted by tensor."""
    rng = np.random.default_rng(1)
    block = (rng.integers(0, 1 << 9, n * k, dtype=np.uint16) | 0x3C00).astype(np.uint16)
    block ^= (rng.integers(0, 2, n * k, dtype=np.uint16) << 15).astype(np.uint16)
    count = max(1, round(gigabytes * 1e9 / (n * k * 2)))
    os.makedirs(path)
    weight_map = {}
    shards = (count + 7) // 8
    for s in range(shards):
        name = f"model-{s + 1:05d}-of-{shards:05d}.safetensors"
        tensors = {}
        for t in range(s * 8, min(count, s * 8 + 8)):
            key = f"model.layers.{t}.mlp.down_proj.weight"
            tensors[key] = stfile.Tensor("BF16", (n, k), np.roll(block, t).tobytes())
            weight_map[key] = name
        stfile.save(os.path.join(path, name), tensors)
    import json
    with open(os.path.join(path, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {}, "weight_map": weight_map}, f)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump({"model_type": "llama"}, f)


def files(path):
    return [os.path.join(path, n) for n in sorted(os.listdir(path)) if n.endswith(".safetensors")]


def in_threads(work):
    threads = [threading.Thread(target=work, args=(i,)) for i in range(THREADS)]
    start = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return time.perf_counter() - start


def read_alone(path):
    spans = [(f, at) for f in files(path) for at in range(0, os.path.getsize(f), CHUNK)]

    def work(i):
        buffer = bytearray(CHUNK)
        opened = {f: os.open(f, os.O_RDONLY) for f in files(path)}
        for f, at in spans[i::THREADS]:
            os.preadv(opened[f], [buffer], at)
        for fd in opened.values():
            os.close(fd)
    return in_threads(work)


def write_alone(path, size):
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    os.posix_fallocate(fd, 0, size)
    data = os.urandom(CHUNK)

    def work(i):
        for at in range(i * CHUNK, size - CHUNK, THREADS * CHUNK):
            os.pwrite(fd, data, at)
    seconds = in_threads(work)
    os.close(fd)
    os.unlink(path)
    return seconds


def main():
    tool = os.path.abspath(sys.argv[1])
    gigabytes = float(sys.argv[2]) if len(sys.argv) > 2 else 20
    formats = sys.argv[3:] or ["w4a8-cutlass", "fp8-deepseek", "mxfp8-blocked", "mxfp8-torchao3d"]
    shutil.rmtree(BASE, ignore_errors=True)
    source, out = BASE + "/in", BASE + "/out"
    make_source(source, gigabytes)
    size_in = sum(map(os.path.getsize, files(source)))
    read = min(read_alone(source) for _ in range(2))
    print(f"input {size_in / 1e9:.1f} GB; pread alone, {THREADS} threads: "
          f"{read:.2f} s, {size_in / read / 1e9:.1f} GB/s")
    for name in formats:
        for device in ("cuda", "cpu"):
            best = None
            for _ in range(2):
                shutil.rmtree(out, ignore_errors=True)
                start = time.perf_counter()
                done = subprocess.run([tool, "convert", source, "-o", out, "--to", name,
                                       "--device", device, "--verbose"],
                                      capture_output=True, text=True, check=True)
                seconds = time.perf_counter() - start
                best = min(best or seconds, seconds)
            size_out = sum(map(os.path.getsize, files(out)))
            write = write_alone(BASE + "/write", size_out)
            slowest = max(read, write)
            print(f"{name:16} {device:5} {best:6.2f} s {size_in / best / 1e9:6.1f} GB/s in; "
                  f"pwrite alone {write:.2f} s; of the slowest stage {slowest / best:.2f}")
            print("   ", " | ".join(done.stderr.strip().splitlines()[-3:])[:300])
    shutil.rmtree(BASE)


main()
