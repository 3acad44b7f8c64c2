#!/usr/bin/env python3
"""Nothing that our header reader accepts is refused by the safetensors library.

usage: fuzz_header.py [COUNT] [--seed N] [--driver PATH] [--save DIR] [--reasons]

Makes COUNT files (20,000; 100,000 with TILEPACK_TEST_LONG in the environment): valid
ones, changed at random in their text (bytes, tokens, numbers, escapes) and in their
structure (keys, order, offsets, shapes). Each goes through tests/tools/header_accepts.c,
which --driver names, or which is compiled with $CC into a temporary folder. For every
file that is accepted, safetensors.deserialize() must accept it as well and find the same
names, dtypes, shapes and bytes. What we refuse and it accepts is counted, with --reasons
by the reason: the reader is meant to be stricter, in the ways its header says. Ends with
`N passed, N failed`.
"""
import argparse
import collections
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

import safetensors

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SOURCES = ["src/pack/os/os.c", "src/pack/os/calls.c", "src/pack/os/memory.c",
           "src/pack/os/store.c", "src/pack/text/name_set.c",
           "src/pack/text/json_scan.c", "src/pack/text/text.c",
           "src/pack/file/st_write.c", "src/pack/file/st_parse.c",
           "src/base/escape.c", "src/base/error.c", "src/base/dtype.c", "src/base/num.c"]
BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8,
        "F8_E4M3": 8, "F8_E8M0": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32,
        "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64}
NAMES = ["a", "b", "model.layers.0.mlp.up_proj.weight", "w\u00e9", "\U0001f600", "a\"b", "a\\b",
         "a\nb", "", " ", "__metadata", "x" * 70, "dtype", "shape"]
# Texts that are put in, or exchanged for one another.
TOKENS = [b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b" ", b"\n", b"\t", b"\r", b"\0",
          b"0", b"1", b"-1", b"-0", b"00", b"1.0", b"1e0", b"18446744073709551615",
          b"18446744073709551616", b"9223372036854775808", b"4294967296", b"null", b"true",
          b"{}", b"[]", b'""', b'"dtype"', b'"shape"', b'"data_offsets"', b'"__metadata__"',
          b'"U8"', b'"BF16"', b'"F4"', b"\\u0041", b"\\u0000", b"\\ud800", b"\\udc00",
          b"\\ud83d\\ude00", b"\\u00", b"\\x", b"\\/", b"\xc3\xa9", b"\xed\xa0\x80", b"\xc0\x80",
          b"\xff", b"\xf4\x90\x80\x80", b"\xef\xbb\xbf", b"\x7f", b"\xe2\x80\xa8", b"[0,0]", b"//"]


def good_tensors(rng):
    """A valid list of (name, entry) in data order."""
    tensors, at = [], 0
    for name in rng.sample(NAMES, rng.randrange(0, 5)):
        dtype = rng.choice(list(BITS))
        shape = [rng.choice([0, 1, 1, 2, 3, 4, 8]) for _ in range(rng.randrange(0, 5))]
        bits = BITS[dtype]
        for n in shape:
            bits *= n
        if bits % 8:
            shape.append(8 // 2)
            bits *= 4
        tensors.append([name, {"dtype": dtype, "shape": shape,
                               "data_offsets": [at, at + bits // 8]}])
        at += bits // 8
    return tensors, at


def spell(rng, text):
    """A JSON string, its characters escaped or not."""
    out = ['"']
    for c in text:
        way = rng.random()
        if way < 0.05 and ord(c) < 0x10000:
            out.append("\\u%04x" % ord(c) if way < 0.025 else "\\u%04X" % ord(c))
        elif ord(c) >= 0x10000 and way < 0.5:
            high = ord(c) - 0x10000
            out.append("\\u%04x\\u%04x" % (0xd800 + (high >> 10), 0xdc00 + (high & 0x3ff)))
        else:
            out.append(json.dumps(c, ensure_ascii=False)[1:-1])
    return "".join(out) + '"'


def space(rng):
    return rng.choice(" \n\t\r") * rng.randrange(1, 3) if rng.random() < 0.05 else ""


def render(rng, pairs):
    """JSON of pairs (so that keys may come twice), with random white space."""
    def value(v):
        if isinstance(v, list) and v and isinstance(v[0], tuple):
            inner = ",".join(space(rng) + spell(rng, k) + space(rng) + ":" + space(rng) + value(x)
                             + space(rng) for k, x in v)
            return "{" + inner + "}"
        if isinstance(v, list):
            return "[" + ",".join(space(rng) + value(x) + space(rng) for x in v) + "]"
        if isinstance(v, str):
            return spell(rng, v)
        return json.dumps(v)
    if not pairs:
        return "{" + space(rng) + "}"
    return value(pairs)


def change_structure(rng, pairs, size):
    """One change of meaning. Returns the size of the data."""
    entries = [i for i, (k, v) in enumerate(pairs) if isinstance(v, list)]
    kind = rng.randrange(11)
    if kind == 0:
        return max(0, size + rng.choice([-1, 1, 8]))
    if not entries:
        return size
    at = rng.choice(entries)
    name, fields = pairs[at][0], list(pairs[at][1])
    if kind == 1:
        pairs.insert(rng.randrange(len(pairs) + 1), (name, fields))
    elif kind == 2:
        pairs[at] = (rng.choice(NAMES + ["__metadata__"]), fields)
    elif kind == 3 and fields:
        del fields[rng.randrange(len(fields))]
        pairs[at] = (name, fields)
    elif kind == 4 and fields:
        fields.append(rng.choice(fields + [("x", 1), ("dtype", "U8"), ("shape", [])]))
        pairs[at] = (name, fields)
    elif kind == 5:
        rng.shuffle(pairs)
    elif kind == 6 and fields:
        i = rng.randrange(len(fields))
        fields[i] = (fields[i][0], rng.choice(["U8", "I8", "F4", "BF16", 1, [], [1], [0, 0], None,
                                               [0, 1], [1, 0], [2 ** 64 - 1, 2], [2 ** 63, 2, 0],
                                               [2 ** 64], [1.5], [True], {}]))
        pairs[at] = (name, fields)
    elif kind in (7, 8):
        for i, (key, value) in enumerate(fields):
            if isinstance(value, list) and value and isinstance(value[0], int):
                value = list(value)
                j = rng.randrange(len(value))
                value[j] = rng.choice([value[j] + 1, max(0, value[j] - 1), 0, 1, value[j] * 2])
                fields[i] = (key, value)
                if rng.random() < 0.5:
                    break
        pairs[at] = (name, fields)
    elif kind == 9:
        del pairs[at]
    else:
        rng.shuffle(fields)
        pairs[at] = (name, fields)
    return size


def change_text(rng, text):
    kind = rng.randrange(7)
    at = rng.randrange(len(text) + 1)
    end = min(len(text), at + rng.randrange(1, 6))
    if kind == 0 and text:
        at = min(at, len(text) - 1)
        return text[:at] + bytes([text[at] ^ 1 << rng.randrange(8)]) + text[at + 1:]
    if kind == 1:
        return text[:at] + text[end:]
    if kind == 2:
        return text[:at] + rng.choice(TOKENS) + text[at:]
    if kind == 3:
        return text[:at] + rng.choice(TOKENS) + text[end:]
    if kind == 4:
        return text[:at] + text[at:at + rng.randrange(1, 40)] + text[at:]
    if kind == 5:
        old = rng.choice(TOKENS)
        where = text.find(old, rng.randrange(len(text) + 1))
        return text if where < 0 else text[:where] + rng.choice(TOKENS) + text[where + len(old):]
    return text[:at] + bytes([rng.randrange(256)]) + text[at:]


def make_case(rng):
    tensors, size = good_tensors(rng)
    pairs = [(name, list(entry.items())) for name, entry in tensors]
    if rng.random() < 0.4:
        meta = [(rng.choice(["format", "k", "\u00e9"]), rng.choice(["pt", "", "\"\n\\"]))
                for _ in range(rng.randrange(1, 3))]
        pairs.insert(rng.randrange(len(pairs) + 1), ("__metadata__", meta))
    way = rng.random()
    for _ in range(rng.randrange(0, 4) if way < 0.5 else 0):
        size = change_structure(rng, pairs, size)
    text = render(rng, pairs).encode("utf-8", "surrogatepass")
    for _ in range(rng.choice([1, 1, 1, 2, 3]) if way > 0.4 else 0):
        text = change_text(rng, text)
    if rng.random() < 0.3:
        text += b" " * rng.randrange(9) + (rng.choice(TOKENS) if rng.random() < 0.1 else b"")
    length = len(text)
    if rng.random() < 0.03:
        length = max(0, length + rng.choice([-1, 1, 8, 2 ** 32, 2 ** 63]))
    data = bytes(rng.randrange(256) for _ in range(min(size, 1 << 16)))
    case = struct.pack("<Q", length & (2 ** 64 - 1)) + text + data
    return case[:rng.randrange(len(case) + 1)] if rng.random() < 0.01 else case


def build_driver(folder):
    driver = os.path.join(folder, "header_accepts")
    command = os.environ.get("CC", "cc").split() + [
        "-O2", "-std=c11", "-D_GNU_SOURCE", "-I" + os.path.join(ROOT, "src"), "-o", driver,
        os.path.join(ROOT, "tests/tools/header_accepts.c")]
    subprocess.run(command + [os.path.join(ROOT, s) for s in SOURCES] + ["-lxxhash"], check=True)
    return driver


def accepted_by_library(case):
    try:
        return dict(safetensors.deserialize(case)), None
    except safetensors.SafetensorError as error:
        return None, str(error)


def compare(case, line, theirs):
    """None, or how our reading of an accepted case differs from the library's."""
    ours = json.loads(line)
    ours.pop("__metadata__", None)
    if set(ours) != set(theirs):
        return "names differ: %r, %r" % (sorted(ours), sorted(theirs))
    start = 8 + struct.unpack("<Q", case[:8])[0]
    for name, entry in ours.items():
        begin, end = entry["data_offsets"]
        got = theirs[name]
        if entry["dtype"] != got["dtype"] or entry["shape"] != list(got["shape"]):
            return "%r differs: %r, %r" % (name, entry, got)
        if case[start + begin:start + end] != bytes(got["data"]):
            return "%r has other bytes" % name
    return None


def main():
    parser = argparse.ArgumentParser(description="mutation test of the header reader")
    parser.add_argument("count", nargs="?", type=int,
                        default=100000 if os.environ.get("TILEPACK_TEST_LONG") else 20000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--driver")
    parser.add_argument("--save", help="folder for the cases that fail")
    parser.add_argument("--reasons", action="store_true", help="list what we alone refuse, and why")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    cases = [make_case(rng) for _ in range(args.count)]
    with tempfile.TemporaryDirectory() as folder:
        driver = args.driver or build_driver(folder)
        stream = b"".join(struct.pack("<Q", len(c)) + c for c in cases)
        result = subprocess.run([driver], input=stream, stdout=subprocess.PIPE, check=True)
    lines = result.stdout.decode("utf-8").split("\n")[:-1]
    if len(lines) != len(cases):
        sys.exit("fuzz_header: %d answers to %d cases" % (len(lines), len(cases)))
    failures, accepted, both_refuse, stricter = 0, 0, 0, collections.Counter()
    for number, (case, line) in enumerate(zip(cases, lines)):
        theirs, error = accepted_by_library(case)
        problem = None
        if line.startswith("accept "):
            accepted += 1
            problem = error if theirs is None else compare(case, line[7:], theirs)
        elif theirs is None:
            both_refuse += 1
        else:
            what = line.split(" ", 3)[3]
            stricter["".join("N" if c.isdigit() else c for c in what).split("'")[0]] += 1
        if problem:
            failures += 1
            print("case %d: we accept, but: %s\n  %r" % (number, problem, case[:400]))
            if args.save:
                with open(os.path.join(args.save, "case-%d.safetensors" % number), "wb") as out:
                    out.write(case)
    print("%d cases (seed %d, safetensors %s): %d accepted by both and read alike, %d refused by "
          "both, %d refused by us alone" % (len(cases), args.seed, safetensors.__version__,
                                            accepted - failures, both_refuse,
                                            sum(stricter.values())))
    if args.reasons:
        for reason, count in stricter.most_common():
            print("  %6d stricter: %s" % (count, reason))
    if accepted < args.count // 20 or both_refuse < args.count // 20:
        print("the cases are lopsided and prove little")
        failures += 1
    print("%d passed, %d failed" % (max(0, len(cases) - failures), failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
