#!/usr/bin/env python3
"""Two programs make the same bytes: converts each source to each format with both, on the CPU.

    same_bytes.py OLD NEW [--jobs N] [--model DIR ...] [--format NAME ...]

The sources are three models that samples/gen_checkpoint.py makes, every golden checkpoint, and
those of --model (build/demo/minilm where `make demo` made it). Options are the defaults; where OLD
refuses, a second try has --requantize and --weights-only. Compared are tensors, stored descriptors
and everything else of each safetensors file but its hash and recorded request, and the bytes of
every other file but the manifest and the model card, which name the program. Prints a line for each
difference and then how many pairs are equal; exit status 1 if one differs. What OLD refuses NEW has
to refuse with the same status. Not compared is what OLD copies whole and NEW refuses (status 4).
"""
import argparse
import collections
import concurrent.futures
import json
import os
import struct
import subprocess
import sys
import tempfile

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(TESTS, "lib"))
import golden_data  # noqa: E402  pylint: disable=wrong-import-position

REPO = os.path.dirname(TESTS)
DEMO = os.path.join(REPO, "build", "demo", "minilm")
PRESETS = ("tiny-llama", "tiny-qwen3-moe", "tiny-mixtral")
NAMES_PROGRAM, NOT_COMPARED = ("tilepack.json", "README.md"), ("tilepack.xxh3", "tilepack.request")
SECOND_TRY = ("--requantize", "--weights-only")


def run(program, *args):
    return subprocess.run([program, *args], capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL)


def writable(program):
    listed = json.loads(run(program, "formats", "--json").stdout)
    return [f["name"] for f in listed["formats"] if not f.get("input_only")]


def make_sources(work, models):
    """{name: directory}"""
    sources = {}
    generator = os.path.join(REPO, "samples", "gen_checkpoint.py")
    for preset in PRESETS:
        sources[preset] = os.path.join(work, preset)
        subprocess.run([sys.executable, generator, sources[preset], "--preset", preset, "--quiet"],
                       check=True, stdout=subprocess.DEVNULL)
    golden = golden_data.root()
    for folder, _, files in sorted(os.walk(golden)):
        if "config.json" in files:
            sources[os.path.relpath(folder, golden)] = folder
    for model in models:
        sources[os.path.basename(os.path.normpath(model))] = model
    return sources


def read_header(data):
    """The header of a safetensors file without what is not compared."""
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    for key in NOT_COMPARED:
        header.get("__metadata__", {}).pop(key, None)
    return header, size + 8


def compare_safetensors(name, old, new):
    (old_header, old_start), (new_header, new_start) = read_header(old), read_header(new)
    for key in sorted(set(old_header) | set(new_header)):
        was, is_ = old_header.get(key), new_header.get(key)
        if key == "__metadata__":
            yield from (f"{name}: metadata '{k}'" for k in sorted(set(was or {}) | set(is_ or {}))
                        if (was or {}).get(k) != (is_ or {}).get(k))
        elif was != is_:
            yield f"{name}: '{key}' is {is_}, was {was}"
        else:
            begin, end = was["data_offsets"]
            if old[old_start + begin:old_start + end] != new[new_start + begin:new_start + end]:
                yield f"{name}: the bytes of '{key}'"


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def compare_outputs(old, new):
    was, is_ = set(os.listdir(old)), set(os.listdir(new))
    yield from (f"{name} is in one only" for name in sorted(was ^ is_))
    for name in sorted(was & is_ - set(NAMES_PROGRAM)):
        was, is_ = read(old, name), read(new, name)
        if name.endswith(".safetensors"):
            yield from compare_safetensors(name, was, is_)
        elif was != is_:
            yield name


def compare_pair(programs, source, to, work):
    """What became of the pair ("equal", "refused", "nothing", "differs"), and the differences."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        for extra in ((), SECOND_TRY):
            outputs = [os.path.join(folder, f"{who}{len(extra)}") for who in ("old", "new")]
            done = [run(program, "convert", source, "-o", output, "--to", to, "--device", "cpu",
                        "--jobs", "1", "--json", *extra)
                    for program, output in zip(programs, outputs)]
            if done[0].returncode != done[1].returncode:
                if done[1].returncode == 4 and '"converted": 0,' in done[0].stdout:
                    return "nothing", []
                return "differs", [f"status {done[1].returncode}, was {done[0].returncode}: "
                                   f"{done[1].stderr or done[0].stderr}"]
            if done[0].returncode == 0:
                found = list(compare_outputs(*outputs))
                return ("differs" if found else "equal"), found
        return "refused", []


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("programs", nargs=2, metavar=("OLD", "NEW"))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--model", action="append", default=[d for d in [DEMO] if os.path.isdir(d)])
    parser.add_argument("--format", action="append")
    options = parser.parse_args()
    programs = list(map(os.path.abspath, options.programs))
    formats = options.format or writable(programs[0])
    counts = collections.Counter()
    with tempfile.TemporaryDirectory(prefix="tilepack-same-") as work, \
            concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        pairs = [(name, to, pool.submit(compare_pair, programs, source, to, work))
                 for name, source in make_sources(work, options.model).items() for to in formats]
        for name, to, future in pairs:
            outcome, found = future.result()
            counts[outcome] += 1
            for text in found:
                print(f"DIFFERS {name} to {to}: {text}", flush=True)
    print(f"{counts['equal']} pairs equal, {counts['differs']} differ, {counts['refused']} refused "
          f"by both, {counts['nothing']} convert nothing")
    return 1 if counts["differs"] or not counts["equal"] else 0


if __name__ == "__main__":
    sys.exit(main())
