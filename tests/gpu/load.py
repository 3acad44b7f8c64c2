"""The Python package's loader on a GPU: right, then fast.

    load.py TILEPACK [GIGABYTES]

Needs numpy and torch; TILEPACK_LIBRARY names the library where it is not in the checkout. First
every tensor, slices, ranks of experts, damaged files and quantize() of CUDA tensors against the
CPU. With GIGABYTES, W4A8 experts of that size in memory (tmpfs) are then loaded in several ways,
beside pread alone (all threads, into pinned memory) and copies of pinned memory alone, in the
same run; the best of TILEPACK_LOAD_ROUNDS rounds (3). fastsafetensors and runai_model_streamer
are measured where they are installed. Ends with `N passed, N failed`.
"""
import itertools
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
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(HERE, "..", "lib"), os.path.join(ROOT, "python")]
os.environ["TILEPACK_PROGRAM"] = os.path.abspath(sys.argv[1])
import stfile  # noqa: E402  (tests/lib)
from tool import raised  # noqa: E402

import tilepack_llm as tp  # noqa: E402
from tilepack_llm import loading, parts  # noqa: E402
from tilepack_llm.tensor import torch_dtype  # noqa: E402

BASE = "/dev/shm/tilepack-load"
ROUNDS = int(os.environ.get("TILEPACK_LOAD_ROUNDS", "3"))
MIB = 1 << 20
E, HIDDEN, INTER = 8, 7168, 3584
failed = []
passed = 0


def check(good, name):
    global passed
    passed += bool(good)
    if not good:
        failed.append(name)
        print("FAIL", name, flush=True)


def bytes_of(tensor):
    return tensor.cpu().contiguous().view(torch.uint8).numpy().tobytes()


def same(loaded, views):
    """Tensors of a GPU and views of the file hold the same bytes."""
    return set(loaded) == set(views) and all(
        loaded[n].is_cuda and not views[n].is_cuda and loaded[n].shape == views[n].shape and
        loaded[n].dtype == views[n].dtype and bytes_of(loaded[n]) == bytes_of(views[n])
        for n in loaded)


def right():
    src, packed = f"{BASE}/small", f"{BASE}/packed"
    subprocess.run([sys.executable, os.path.join(ROOT, "samples", "gen_checkpoint.py"), src,
                    "--preset", "tiny-mixtral", "--quiet"], check=True)
    experts = "model.layers.0.block_sparse_moe.experts.w2"
    for fmt in ("w4a8-cutlass", "mxfp4-blocked", "fp8-deepseek"):
        tp.convert(src, packed, to=fmt, search="none", force=True)  # as quantize has it
        views = tp.load(packed)
        for verify in (False, True):
            check(same(tp.load(packed, "cuda", verify=verify), views), f"{fmt} verify={verify}")
        stored = tp.open(packed).weights["model.layers.0.self_attn.q_proj"].stored
        plain = tp.open(src).tensors["model.layers.0.self_attn.q_proj.weight"].torch()
        made = tp.quantize(plain.cuda(), fmt)
        check(set(made) == set(stored) and all(
            made[s].is_cuda and made[s].cpu().view(torch.uint8).numpy().tobytes()
            == stored[s].array.tobytes() for s in made), f"quantize on the GPU: {fmt}")
    tp.convert(src, packed, to="w4a8-cutlass", force=True)
    for names in ({experts: np.s_[1:3]}, {f"{experts}_weight_packed": np.s_[0, 5:9, 1:]}):
        check(same(tp.load(packed, "cuda:0", names=names), tp.load(packed, names=names)),
              f"load {names}")
    busy = torch.cuda.Stream()
    with torch.cuda.stream(busy):  # memory that is still being written when it is handed out
        junk = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
        for _ in range(20):
            junk.fill_(7)
        del junk
        check(same(tp.load(packed, "cuda"), tp.load(packed)), "load behind a busy stream")
    file = f"{packed}/model.safetensors"
    with open(file, "r+b") as out:
        out.seek(-5000, 2)
        out.write(b"\xff\x00\xff")
    check(raised(tp.Difference, tp.load, packed, "cuda", verify=True), "a flipped byte")
    with open(file, "r+b") as out:
        out.truncate(os.path.getsize(file) - 4096)
    check(raised(tp.InputError, tp.load, packed, "cuda"), "a truncated file")


def make_source(gigabytes):
    """Experts that are of about that size when packed: layers of one Mixtral, all of the same
    random bits."""
    src = f"{BASE}/src"
    layers = max(1, round(gigabytes * 1e9 / (3 * E * HIDDEN * INTER * 0.56)))
    os.makedirs(src)
    block = torch.randn(HIDDEN * INTER, device="cuda").mul_(0.02).to(torch.bfloat16)
    bits = block.view(torch.int16).cpu().numpy().data.cast("B")
    shapes = {"w1": (INTER, HIDDEN), "w2": (HIDDEN, INTER), "w3": (INTER, HIDDEN)}
    shards = [{f"model.layers.{i}.block_sparse_moe.experts.{e}.{w}.weight":
               stfile.Tensor("BF16", shape, bits)
               for e in range(E) for w, shape in shapes.items()} for i in range(layers)]
    names = [f"model-{i + 1:05d}-of-{layers:05d}.safetensors" for i in range(layers)]
    writers = [threading.Thread(target=stfile.save, args=(f"{src}/{n}", s))
               for n, s in zip(names, shards)]
    for group in range(0, layers, 16):
        for t in writers[group:group + 16]:
            t.start()
        for t in writers[group:group + 16]:
            t.join()
    with open(f"{src}/model.safetensors.index.json", "w", encoding="utf-8") as out:
        json.dump({"metadata": {}, "weight_map": {k: n for n, s in zip(names, shards)
                                                  for k in s}}, out)
    with open(f"{src}/config.json", "w", encoding="utf-8") as out:
        out.write('{"model_type": "mixtral"}')
    return src


def make_experts(gigabytes):
    src, packed = make_source(gigabytes), f"{BASE}/experts"
    tp.convert(src, packed, to="w4a8-cutlass")
    shutil.rmtree(src)
    return packed


def files(path):
    return [f"{path}/{n}" for n in sorted(os.listdir(path)) if n.endswith(".safetensors")]


def best(name, work, size, limit=None):
    """Seconds of the best round; memory of the last one is given back before each."""
    times = []
    for _ in range(ROUNDS):
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.synchronize()
        start = time.perf_counter()
        held = work()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
        peak = torch.cuda.max_memory_allocated() / 1e9
        del held
    fast, middle = min(times), sorted(times)[len(times) // 2]
    share = f"  {size / fast / limit:.2f} of the limit" if limit else ""
    print(f"{name:58s} {fast:7.3f} s (median {middle:7.3f})  {size / fast / 1e9:6.1f} GB/s"
          f"  peak {peak:5.1f} GB{share}", flush=True)
    return size / fast


def read_alone(paths, threads, block, pinned):
    """pread of all files, by threads that take blocks in turn, each with three of them."""
    fds = [os.open(p, os.O_RDONLY) for p in paths]
    turns = iter([(fd, at) for fd in fds
                  for at in range(0, os.fstat(fd).st_size, block)])
    lock = threading.Lock()

    def work(i):
        slots = itertools.cycle([pinned[(3 * i + s) * block:(3 * i + s + 1) * block]
                                 for s in range(3)])
        while True:
            with lock:
                turn = next(turns, None)
            if turn is None:
                return
            os.preadv(turn[0], [next(slots)], turn[1])
    run = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for t in run:
        t.start()
    for t in run:
        t.join()
    for fd in fds:
        os.close(fd)


def copy_alone(size, block, pinned, to):
    for at in range(0, size, block):
        n = min(block, size - at)
        slot = at // block % (len(pinned) // block) * block
        to[at:at + n].copy_(pinned[slot:slot + n], non_blocking=True)


def limits(paths, size):
    pinned = torch.empty(16 * 3 * 8 * MIB, dtype=torch.uint8, pin_memory=True)
    view = pinned.numpy().data
    reading = max(best(f"pread alone, {threads} threads, {block} MiB", lambda t=threads, b=block:
                       read_alone(paths, t, b * MIB, view), size)
                  for threads in (8, 12, 16) for block in (2, 8))
    to = torch.empty(size, dtype=torch.uint8, device="cuda")
    copying = max(best(f"pinned copies alone, {block} MiB", lambda b=block:
                       copy_alone(size, b * MIB, pinned, to), size) for block in (2, 8, 64))
    return min(reading, copying)


def with_safetensors(paths):
    from safetensors import safe_open
    held = {}
    for path in paths:
        with safe_open(path, framework="pt", device="cuda") as file:
            held.update((k, file.get_tensor(k)) for k in file.keys())
    return held


def with_fastsafetensors(paths):
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup
    loader = SafeTensorsFileLoader(SingleGroup(), torch.device("cuda:0"), nogds=True)
    loader.add_filenames({0: paths})
    buffers = loader.copy_files_to_device()
    return loader, buffers, {k: buffers.get_tensor(k) for k in buffers.key_to_rank_lidx}


def with_runai(paths):
    from runai_model_streamer import SafetensorsStreamer
    with SafetensorsStreamer() as streamer:
        streamer.stream_files(paths, device="cuda:0")
        return {k: t.clone() for k, t in streamer.get_tensors()}


def into(packed, made, chosen, verify=False):
    """The library's part alone, opening included."""
    checkpoint = tp.open(packed)
    parts.copy(checkpoint.handle, list(chosen.values()), [t.data_ptr() for t in made.values()],
               device=0, stream=torch.cuda.current_stream().cuda_stream, verify=verify)


def fast(gigabytes):
    packed = make_experts(gigabytes)
    paths = files(packed)
    size = sum(map(os.path.getsize, paths))
    print(f"{size / 1e9:.2f} GB in {len(paths)} files, {len(tp.open(packed).tensors)} tensors")
    limit = limits(paths, size)
    best("tilepack_llm.load(device='cuda')", lambda: tp.load(packed, "cuda"), size, limit)
    best("tilepack_llm.load(device='cuda', verify=True)",
         lambda: tp.load(packed, "cuda", verify=True), size, limit)
    half = {name: np.s_[:E // 2] for name in tp.open(packed).weights}
    best("tilepack_llm.load: half of the experts", lambda: tp.load(packed, "cuda", names=half),
         size / 2, limit)
    chosen = loading._chosen(tp.open(packed), None)
    made = {n: torch.empty(p.shape, dtype=torch_dtype(p.dtype), device="cuda")
            for n, p in chosen.items()}
    best("  tilepack_load into memory that is there", lambda: into(packed, made, chosen), size,
         limit)
    best("  the same, verified", lambda: into(packed, made, chosen, True), size, limit)
    del made
    best("torch.empty of every tensor", lambda: [
        torch.empty(p.shape, dtype=torch_dtype(p.dtype), device="cuda")
        for p in chosen.values()], size)
    for name, work in (("safetensors", with_safetensors),
                       ("fastsafetensors", with_fastsafetensors),
                       ("runai_model_streamer", with_runai)):
        try:
            best(name, lambda w=work: w(paths), size, limit)
        except Exception as error:  # what it is, it is no part of this project
            print(f"{name}: not measured: {type(error).__name__}: {error}", flush=True)


def main():
    shutil.rmtree(BASE, ignore_errors=True)
    os.makedirs(BASE)
    torch.zeros(1, device="cuda")
    try:
        right()
        print(f"right: {passed} passed, {len(failed)} failed", flush=True)
        if len(sys.argv) > 2:
            fast(float(sys.argv[2]))
    finally:
        shutil.rmtree(BASE, ignore_errors=True)
    print(f"{passed} passed, {len(failed)} failed")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
