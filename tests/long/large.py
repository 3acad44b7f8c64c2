#!/usr/bin/env python3
"""large.py [--long]

Checkpoints of many tensors: 750,000 with names of 60 characters convert by default on a machine of
8 GiB. Besides, times of plan and dump, what happens when memory is short, and what is more than is
read. All of holes (sparse.py); --long (or TILEPACK_TEST_LONG in the environment): more of them.

How long a plan or a dump may take is said in times of what Python takes to read the same headers
beside it: so it holds on any machine, whatever else that machine does.
"""
import json
import math
import os
import resource
import shutil
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from memory import check, fits, measure, refused, tally, within  # noqa: E402
import own_hash  # noqa: E402
import sparse  # noqa: E402
import tool  # noqa: E402

PLAN, PLAN_JSON, DUMP = 5, 15, 2.5  # times of reading the headers; measured: 2.5, 7 and 1
MOMENT = 1.0  # seconds that say nothing of how a time grows
DEFAULT = 2048  # MiB that a process takes which was not told otherwise, on 4 GiB and more
MANY, KIMI = 750_000, 247_296  # of Kimi-K3: matrices of experts


def in_program(*argv):
    """(exit status, stderr, CPU seconds that the program itself took, without what the kernel took
    to make and remove its files) of one command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run([tool.binary(), *argv], stdin=subprocess.DEVNULL, check=False,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return done.returncode, done.stderr, seconds


def reading(path):
    """CPU seconds that this process takes to read all headers and the index of a checkpoint."""
    began = time.process_time()
    for name in sorted(os.listdir(path)):
        with open(os.path.join(path, name), "rb") as f:
            if name.endswith(".safetensors"):
                sorted(json.loads(f.read(int.from_bytes(f.read(8), "little"))))
            elif name.endswith(".index.json"):
                json.load(f)
    return time.process_time() - began


def fast(path, *argv, limit=PLAN, what=""):
    """The command must be quick and small; of both times the best of up to four counts."""
    runs, base = [], []
    while len(runs) < 4 and not any(run[2] <= limit * min(base) for run in runs):
        base.append(reading(path))
        runs.append(measure(argv[0], path, *argv[1:]))
    seconds = min(run[2] for run in runs)
    peak = max(run[3] for run in runs)
    check(runs[0][0] == 0 and seconds <= limit * min(base) and peak <= 512 << 20,
          f"{' '.join(argv)}{what}: {seconds:.2f} s of CPU, {seconds / min(base):.1f} times of reading, "
          f"{peak / 1e6:.0f} MB{runs[0][1] if runs[0][0] else ''}")


def written_formats():
    """Every format that can be converted to."""
    listed = subprocess.run([tool.binary(), "formats", "--json"], check=True,
                            stdout=subprocess.PIPE).stdout
    return [f["name"] for f in json.loads(listed)["formats"]
            if not f.get("input_only", f.get("written") is False)]


def packed(work):
    """A checkpoint that tilepack wrote: 100,000 tensors of 50,000 small weights."""
    source, out = os.path.join(work, "small"), os.path.join(work, "packed")
    sparse.make(source, tensors=50_000, shards=2, hidden=32, inner=32)
    status, errors, _, _ = measure("convert", source, "-o", out, "--to", "mxfp4-ct", "--no-stack",
                                   "--quiet", "--shard-size", "200kB")
    check(status == 0, f"convert of 50,000 small weights {errors}")
    return out


def too_many(work):
    """One tensor above the limit: refused in a few words, however large the rest is."""
    path = os.path.join(work, "too-many")
    sparse.make(path, tensors=2_000_001, shards=163)
    status, errors, seconds, peak = measure("dump", path)
    check(status == 4 and "more than 2000000 tensors" in errors and within(peak, DEFAULT),
          f"2,000,001 tensors: exit status {status}, {seconds:.2f} s of CPU, {peak / 1e6:.0f} MB")


def many_tensors(path, count, letters, first=0, module=None, rows=1):
    """One file of so many small weights with long names: 24 characters more than these letters, or
    with these modules."""
    module, size = module or "x" * letters, 64 * rows
    parts = [f'"m.layers.{first + i:07}.{module}.weight":{{"dtype":"BF16",'
             f'"shape":[{rows},32],"data_offsets":[{size * i},{size * i + size}]}}'
             for i in range(count)]
    text = ("{" + ",".join(parts) + "}").encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        f.truncate(8 + len(text) + size * count)
    return path


def many_in_shards(folder, count, letters, shards, module=None, rows=1):
    """The same in so many files, for headers that one must not have."""
    os.makedirs(folder)
    weight_map, each = {}, count // shards
    for s in range(shards):
        name = f"model-{s + 1:05}-of-{shards:05}.safetensors"
        many_tensors(os.path.join(folder, name), each, letters, s * each, module, rows)
        weight_map.update((f"m.layers.{i:07}.{module or 'x' * letters}.weight", name)
                          for i in range(s * each, (s + 1) * each))
    with open(os.path.join(folder, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"metadata": {}, "weight_map": weight_map}, f)
    return folder


def too_many_outputs(work):
    """More than may be read again, in all or in one file, is refused before the first byte."""
    path = many_tensors(os.path.join(work, "third.safetensors"), 666_667, 5)
    for to, name, count in (("w4a16-ct --set group=32", "thrice", 2_000_001),
                            ("mxfp8-ct", "twice.safetensors", 1_333_334)):
        out = os.path.join(work, name)
        status, errors, _, _ = measure("convert", path, "-o", out, "--to", *to.split(),
                                       "--include", ".", "--quiet")
        check(status == 4 and f"would have {count} tensors" in errors
              and not os.path.exists(out + ".partial"), f"666,667 weights, {to}: {errors}")
    os.unlink(path)
    path = many_in_shards(os.path.join(work, "long-names"), 76_000, 1750, 4)
    out = os.path.join(work, "long-index")
    status, errors, _, _ = measure("convert", path, "-o", out, "--to", "mxfp8-ct", "--include",
                                   ".", "--quiet", "--max-memory", "2GiB", "--shard-size", "300kB")
    check(status == 4 and "the index of the output would have 276792072 bytes" in errors
          and not os.path.exists(out + ".partial"), f"an index beyond the limit: {errors}")
    shutil.rmtree(path)


def short_of_memory(path, megabytes, *argv):
    """Done, or refused with a message; never killed by a signal."""
    status, errors, _, _ = measure(argv[0], path, *argv[1:], memory=megabytes << 20)
    check(status == 0 or (status == 6 and "memory" in errors and "error: " in errors),
          f"{' '.join(argv)} in {megabytes} MiB: exit status {status} {errors.split(chr(10))[0]}")


def experts(path, count, shards=163):
    """A checkpoint of so many small matrices of experts, whose names have 60 characters."""
    os.makedirs(path)
    weight_map = {}
    for s in range(shards):
        file, header = f"model-{s + 1:05}-of-{shards:05}.safetensors", {}
        for n, i in enumerate(range(count * s // shards, count * (s + 1) // shards)):
            part = ("gate_proj", "up_proj", "down_proj")[i % 3]
            name = f"model.layers.{i // 1200:03}.mlp.experts.{i // 3 % 400:03}.{part}"
            name = f"{name.rjust(53, 'x')}.weight"
            header[name] = {"dtype": "BF16", "shape": [8, 32],
                            "data_offsets": [512 * n, 512 * n + 512]}
            weight_map[name] = file
        text = json.dumps(header, separators=(",", ":")).encode()
        with open(os.path.join(path, file), "wb") as f:
            f.write(struct.pack("<Q", len(text)) + text)
            f.truncate(8 + len(text) + 512 * len(header))
    with open(os.path.join(path, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        json.dump({"metadata": {}, "weight_map": weight_map}, f)
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
        json.dump({"model_type": "kimi_k2"}, f)
    assert all(len(name) == 60 for name in weight_map)
    return path


def by_default(*argv, what):
    """It is done, and takes no more than a process that was told nothing may take."""
    status, errors, seconds, peak = measure(*argv, "-q")
    check(status == 0 and within(peak, DEFAULT), f"{argv[0]} {what}: status {status}, "
          f"{peak / 2**20:.0f} MiB, {seconds:.1f} s of CPU {errors}")


def promise(work):
    """Of 750,000 tensors, plain ones or those that a third as many matrices become; both ways, by
    default; and in less memory refused, before anything is written."""
    source, out = experts(os.path.join(work, "many"), MANY), os.path.join(work, "many-out")
    to = ("--to", "mxfp8-ct", "--include", ".", "--shard-size", "20MB")
    by_default("plan", source, *to, what=f"of {MANY} tensors")
    for megabytes in (128, 256, 512):
        refused(megabytes, "convert", source, "-o", out, *to)
    check(not os.path.exists(out + ".partial"), "and nothing is written")
    for times in ("once", "again"):
        by_default("convert", source, "-o", out, *to, what=f"of {MANY} tensors, {times}")
    by_default("verify", out, what=f"of {2 * MANY} tensors")
    for name in (source, out):
        shutil.rmtree(name)
    source = experts(os.path.join(work, "kimi"), KIMI)
    by_default("convert", source, "-o", out, "--to", "w4a16-ct", "--set", "group=32", "--include",
               ".", what=f"of {KIMI} matrices to {3 * KIMI} tensors")
    by_default("unpack", out, "-o", out + "-plain", what=f"of {3 * KIMI} tensors")
    by_default("convert", out, "-o", out + "-other", "--to", "mxfp8-ct", "--requantize",
               what=f"of {3 * KIMI} tensors")
    for name in (source, out, out + "-plain", out + "-other"):
        shutil.rmtree(name)


def trees(work):
    """What becomes a tree takes 25 times its text, or is refused; nothing else is made of one."""
    source, out = os.path.join(work, "configured"), os.path.join(work, "configured-out")
    sparse.make(source, tensors=8, shards=1, experts=1, hidden=256, inner=512)
    values = {
        "groups": {f"g{i}": {"targets": ["x"], "weights": {"num_bits": 4}} for i in range(30_000)},
        "objects": [{}] * 150_000, "texts": ["a"] * 300_000, "numbers": [0] * 300_000,
        "no numbers": [math.nan] * 300_000, "long numbers": [10**30] * 60_000}
    for name, notes in values.items():
        with open(os.path.join(source, "config.json"), "w", encoding="utf-8") as f:
            json.dump({"model_type": "llama", "quantization_config": {"notes": notes}}, f,
                      separators=(",", ":"))
        for argv in (("plan", source, "--to", "mxfp8-ct", "-q"),
                     ("unpack", source, "-o", out, "-q", "--force")):
            refused(32, *argv)
            fits(160, *argv, what=f" with a config.json of {name}")
    texts = ({"chat_template": "a" * (8 << 20)}, {"model_type": "a" * (8 << 20)},
             {"hidden_size": int("1" * 4000)})
    for text in texts:
        with open(os.path.join(source, "config.json"), "w", encoding="utf-8") as f:
            json.dump(text, f)
        fits(128, "plan", source, "--to", "mxfp8-ct", "-q", what=" with a long text")
    recipe = os.path.join(work, "numbers.json")
    with open(recipe, "w", encoding="utf-8") as f:
        json.dump({"rules": [0] * 900_000}, f, separators=(",", ":"))
    refused(32, "plan", source, "--recipe", recipe, "-q")
    shutil.rmtree(source)
    shutil.rmtree(out)


def hostile_manifest(work, megabytes):
    """A manifest of so many small values, without its checksum or with it: neither `verify` nor a
    second run takes more memory for them than for their text, twice."""
    source, out = os.path.join(work, "few"), os.path.join(work, "manifest")
    sparse.make(source, tensors=30, shards=1, experts=8, hidden=128, inner=128)
    argv = ("convert", source, "-o", out, "--to", "w4a8-cutlass", "--quiet")
    measure(*argv)
    manifest = os.path.join(out, "tilepack.json")
    with open(manifest, "r+b") as f:
        f.seek(-len("\n}\n"), os.SEEK_END)
        f.write(b',"x":[')
        for _ in range(megabytes):
            f.write(b"[0,0]," * ((1 << 20) // 6))
        f.write(b"0]}")
    for again, right in ((("verify", out), 1), (argv, 7), (("verify", out), 0), (argv, 0)):
        if right == 0 and again[0] == "verify":
            with open(manifest, "r+b") as f:
                signed = own_hash.sign(f.read())
                f.seek(0)
                f.write(signed)
        status, errors, seconds, peak = measure(*again)
        check(status == right and within(peak, 160), f"{again[0]} with a manifest of {megabytes} MB: "
              f"status {status}, {peak / 2**20:.0f} MiB, {seconds:.1f} s of CPU {errors}")
    shutil.rmtree(out)


def many_files(work, count):
    """Whether so many small files beside the weights are an output's own is known without asking
    each about all others."""
    source, out = os.path.join(work, "files"), os.path.join(work, "files-out")
    sparse.make(source, tensors=30, shards=1, experts=8, hidden=128, inner=128)
    os.mkdir(os.path.join(source, "folder"))
    for i in range(count):
        with open(os.path.join(source, "folder", f"{i:06}.txt"), "wb"):
            pass
    last = os.path.join(source, "zz.dat")
    sparse_bytes = 1 << 25
    with open(last, "wb") as f:
        f.truncate(sparse_bytes)
    argv = ("convert", source, "-o", out, "--to", "w4a8-ct", "--quiet")
    status = subprocess.run([tool.binary(), *argv], stderr=subprocess.DEVNULL, preexec_fn=lambda:
                            resource.setrlimit(resource.RLIMIT_FSIZE,
                                               (sparse_bytes - 1,) * 2)).returncode
    check(status == 5, f"{count} files: the last one is too large, status {status}")
    runs = [("resumed", argv), ("verify", ("verify", out)), ("--force", (*argv, "--force")),
            ("fresh", (*argv[:3], out + "-fresh", *argv[4:]))]
    took = {what: in_program(*line) for what, line in runs}
    once = took["fresh"][2]
    for what, _ in runs[:3]:
        status, errors, seconds = took[what]
        check(status == 0 and seconds < 3 * once + MOMENT / 5,  # it was 9 to 26 times that
              f"{count} files, {what}: {seconds:.2f} s of CPU, once: {once:.2f} {errors}")
    for name in (source, out, out + "-fresh"):
        shutil.rmtree(name, ignore_errors=True)


def many_shards(work, count):
    """The entry of each of so many shards is found without asking each about all others: four
    times as many take no more than five times as long: it was ten."""
    took = []
    for shards in (count // 4, count):
        folder = os.path.join(work, f"shards-{shards}")
        os.mkdir(folder)
        weight_map, files = {}, []
        for s in range(shards):
            file, name = f"model-{s + 1:05}-of-{shards:05}.safetensors", f"layers.{s}.norm.weight"
            data = json.dumps({name: {"dtype": "U8", "shape": [8], "data_offsets": [0, 8]}}).encode()
            with open(os.path.join(folder, file), "wb") as f:
                f.write(struct.pack("<Q", len(data)) + data + bytes(8))
            weight_map[name] = file
            files.append({"name": file, "size": 16 + len(data), "xxh3": "0" * 32})
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
            json.dump({"weight_map": weight_map}, f)
        with open(os.path.join(folder, "tilepack.json"), "wb") as f:
            f.write(own_hash.signed({"tilepack": 1, "xxh3": "", "plan": "0" * 32, "files": files}))
        status, errors, seconds = in_program("verify", folder, "-q", "--json")
        took.append(seconds)
        check(status == 1, f"verify of {shards} shards of other contents: {seconds:.2f} s of CPU {errors}")
        shutil.rmtree(folder)
    check(took[1] < 5 * took[0] + MOMENT / 5, f"four times as many take {took[1] / took[0]:.1f} times")


def main():
    long = "--long" in sys.argv or bool(os.environ.get("TILEPACK_TEST_LONG"))
    with tempfile.TemporaryDirectory(prefix="tilepack-large-") as work:
        promise(work)
        trees(work)
        many = os.path.join(work, "many")
        sparse.make(many, tensors=100_000, shards=163)
        for name in written_formats()[:: 1 if long else 5]:
            fast(many, "plan", "--to", name, "--weights-only")
        fast(many, "plan", "--to", "w4a8-ct", "--shard-size", "10MB")
        fast(many, "plan", "--to", "w4a8-ct", "--json", limit=PLAN_JSON)
        fast(many, "dump", limit=DUMP)
        fast(many, "dump", "--json", limit=DUMP)
        many_packed = packed(work)
        fast(many_packed, "dump", limit=DUMP, what=" of packed weights")
        fast(many_packed, "dump", "--json", limit=DUMP, what=" of packed weights")
        for megabytes in (24, 40, 64, 100, 160):
            short_of_memory(many, megabytes, "plan", "--to", "w4a8-ct")
            short_of_memory(many, megabytes, "dump")
        hostile_manifest(work, 60)
        many_files(work, 20_000)
        many_shards(work, 16_000)
        too_many_outputs(work)
        if long:
            too_many(work)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
