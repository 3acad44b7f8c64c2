"""Whole conversions in memory (tmpfs to tmpfs), and their stages measured alone.

    end_to_end.py TILEPACK [GIGABYTES] [FORMAT[:SEARCH[:IMPORTANCE]] ...]

Prints, for each format: seconds and GB/s of input of `convert --device cuda`, and the
ratio to the slowest of its stages alone, by as many threads as the converter has lanes
and over the same files: pread of the input into pinned memory, upload of the input,
download of the output, and pwrite of files like the output's. A source has shards of
5 GB, as checkpoints have. Needs torch for pinned memory and copies. With a
SEARCH the same conversion is run without it in turn, and the ratio of their times printed
(the median of the rounds' ratios, of which there are then at least five). TILEPACK_E2E_DEVICES
names other devices ("cuda cpu"), TILEPACK_E2E_ROUNDS how often each is run (2; the best
counts), TILEPACK_E2E_SHARD the gigabytes of a shard; TILEPACK_E2E_KEEP, when set, keeps
the source for the next run.
"""
import json
import os
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import torch

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
import stfile  # noqa: E402  (tests/lib)

BASE = "/dev/shm/tilepack-e2e"
LANES = 12  # of the converter on one GPU
CHUNK = 8 << 20
SHARD = float(os.environ.get("TILEPACK_E2E_SHARD", "5"))
ROUNDS = int(os.environ.get("TILEPACK_E2E_ROUNDS", "2"))
FORMATS = ["w4a8-ct", "w4a8-cutlass", "fp8-deepseek", "fp8-ct", "fp8-deepgemm-sm100", "fp8-1x128",
           "mxfp8-ct", "mxfp8-blocked", "mxfp8-torchao3d", "mxfp4-ct", "mxfp4-blocked",
           "nvfp4-ct", "nvfp4-blocked"]


def make_source(path, gigabytes, n=8192, k=8192):
    """bf16 matrices, one random block shifted by tensor."""
    rng = np.random.default_rng(1)
    block = (rng.integers(0, 1 << 9, n * k, dtype=np.uint16) | 0x3C00).astype(np.uint16)
    block ^= (rng.integers(0, 2, n * k, dtype=np.uint16) << 15).astype(np.uint16)
    count = max(1, round(gigabytes * 1e9 / (n * k * 2)))
    each = max(1, int(SHARD * 1e9 / (n * k * 2)))
    os.makedirs(path)
    weight_map = {}
    shards = -(-count // each)
    for s in range(shards):
        name = f"model-{s + 1:05d}-of-{shards:05d}.safetensors"
        tensors = {}
        for t in range(s * each, min(count, s * each + each)):
            key = f"model.layers.{t}.mlp.down_proj.weight"
            tensors[key] = stfile.Tensor("BF16", (n, k), np.roll(block, t).data.cast("B"))
            weight_map[key] = name
        stfile.save(os.path.join(path, name), tensors)
    with open(os.path.join(path, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {}, "weight_map": weight_map}, f)
    with open(os.path.join(path, "config.json"), "w") as f:
        json.dump({"model_type": "llama"}, f)


def files(path):
    return [os.path.join(path, n) for n in sorted(os.listdir(path)) if n.endswith(".safetensors")]


def in_threads(work):
    threads = [threading.Thread(target=work, args=(i,)) for i in range(LANES)]
    start = time.perf_counter()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return time.perf_counter() - start


def spans(sizes):
    """(file, offset) of every chunk, dealt to the lanes as the converter deals jobs: two
    lanes to a file where there are files enough."""
    lanes = [[] for _ in range(LANES)]
    for f, size in enumerate(sizes):
        for i, at in enumerate(range(0, size, CHUNK)):
            lanes[(f * 2 + i % max(2, LANES // len(sizes))) % LANES].append((f, at))
    most = sum(map(len, lanes)) // LANES + 1
    spare = [x for lane in lanes for x in lane[most:]]
    lanes = [lane[:most] for lane in lanes]
    for lane in lanes:
        while len(lane) < most and spare:
            lane.append(spare.pop())
    return lanes


class Stages:
    """Each stage alone, best of three; the buffers are pinned."""

    def __init__(self):
        self.host = [torch.empty(CHUNK, dtype=torch.uint8).pin_memory() for _ in range(LANES)]
        self.device = [torch.empty(CHUNK, dtype=torch.uint8, device="cuda") for _ in range(LANES)]
        self.views = [memoryview(t.numpy()) for t in self.host]
        for t in self.host:
            t.random_(0, 256)

    def read(self, paths):
        sizes = [os.path.getsize(p) for p in paths]
        opened = [os.open(p, os.O_RDONLY) for p in paths]
        lanes = spans(sizes)

        def work(i):
            for f, at in lanes[i]:
                os.preadv(opened[f], [self.views[i]], at)
        seconds = min(in_threads(work) for _ in range(3))
        for fd in opened:
            os.close(fd)
        return seconds

    def write(self, sizes):
        lanes, best = spans(sizes), None
        os.makedirs(BASE + "/write")
        for _ in range(3):
            opened = [os.open(f"{BASE}/write/{f}", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
                      for f in range(len(sizes))]

            def work(i):
                for f, at in lanes[i]:
                    os.pwrite(opened[f], self.views[i][:min(CHUNK, sizes[f] - at)], at)
            seconds = in_threads(work)
            best = min(best or seconds, seconds)
            for fd in opened:
                os.close(fd)
        shutil.rmtree(BASE + "/write")
        return best

    def copies(self, size, upload):
        streams = [torch.cuda.Stream() for _ in range(LANES)]

        def work(i):
            with torch.cuda.stream(streams[i]):
                for _ in range(i, -(-size // CHUNK), LANES):
                    if upload:
                        self.device[i].copy_(self.host[i], non_blocking=True)
                    else:
                        self.host[i].copy_(self.device[i], non_blocking=True)
                streams[i].synchronize()
        in_threads(work)
        return min(in_threads(work) for _ in range(2))


def convert_once(tool, source, out, options, device):
    """Seconds, and the last lines of what --verbose says."""
    shutil.rmtree(out, ignore_errors=True)
    start = time.perf_counter()
    done = subprocess.run([tool, "convert", source, "-o", out, "--device", device, "--verbose",
                           "--to"] + options, capture_output=True, text=True, check=True)
    return time.perf_counter() - start, done.stderr.strip().splitlines()[-3:]


def convert(tool, source, out, name, device):
    """The best of some."""
    options = [name, "--search", "none"]
    return min(convert_once(tool, source, out, options, device) for _ in range(ROUNDS))


def compare_search(tool, source, out, name, device):
    """The format with its search, and without, in turn."""
    plain, search, *importance = name.split(":")
    options = [plain, "--search", search] + [x for i in importance for x in ("--importance", i)]
    without = [plain, "--search", "none"]
    times = {"none": [], search: []}
    for _ in range(max(5, ROUNDS)):
        times["none"].append(convert_once(tool, source, out, without, device)[0])
        times[search].append(convert_once(tool, source, out, options, device)[0])
    shutil.rmtree(out, ignore_errors=True)
    ratios = sorted(a / b for a, b in zip(times["none"], times[search]))
    print(f"{name:30} {device:4} best {min(times[search]):6.2f} s, without search "
          f"{min(times['none']):6.2f} s; without / with, median {ratios[len(ratios) // 2]:.3f} "
          f"({ratios[0]:.3f}..{ratios[-1]:.3f})", flush=True)


def main():
    tool = os.path.abspath(sys.argv[1])
    gigabytes = float(sys.argv[2]) if len(sys.argv) > 2 else 20
    keep = "TILEPACK_E2E_KEEP" in os.environ
    source, out = BASE + "/in", BASE + "/out"
    if not (keep and os.path.isdir(source)):
        shutil.rmtree(BASE, ignore_errors=True)
        make_source(source, gigabytes)
    stages = Stages()
    size_in = sum(map(os.path.getsize, files(source)))
    stages.write([size_in])  # some machines grow as their memory is first used
    read, up = stages.read(files(source)), stages.copies(size_in, True)
    print(f"input {size_in / 1e9:.1f} GB in {len(files(source))} files; alone, {LANES} threads: "
          f"pread {read:.2f} s ({size_in / read / 1e9:.1f} GB/s), upload {up:.2f} s", flush=True)
    for name in sys.argv[3:] or FORMATS:
        for device in os.environ.get("TILEPACK_E2E_DEVICES", "cuda").split():
            if ":" in name:
                compare_search(tool, source, out, name, device)
                continue
            seconds, said = convert(tool, source, out, name, device)
            sizes = [os.path.getsize(f) for f in files(out)]
            shutil.rmtree(out, ignore_errors=True)
            write, down = stages.write(sizes), stages.copies(sum(sizes), False)
            alone = {"pread": read, "upload": up, "download": down, "pwrite": write}
            slowest = max(alone, key=alone.get)
            print(f"{name:18} {device:4} {seconds:6.2f} s {size_in / seconds / 1e9:6.1f} GB/s in; "
                  f"{len(sizes)} files {sum(sizes) / 1e9:5.1f} GB; download {down:.2f} s, pwrite "
                  f"{write:.2f} s; {slowest} alone / convert {alone[slowest] / seconds:.2f}")
            print("   ", " | ".join(said)[:400], flush=True)
    if not keep:
        shutil.rmtree(BASE)


main()
