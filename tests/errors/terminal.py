#!/usr/bin/env python3
"""A checkpoint whose names hold control characters, shown by every command that shows names.

No byte of an output may be a control character but the newline, or part of a C1 control, of a
bidirectional one, or of one that is not seen. JSON must say the same names as they are."""
import json
import os
import re
import shutil
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np

sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib")]
import stfile  # noqa: E402
import tool  # noqa: E402

tally = tool.Tally()
EVIL = "\x7f\x9b31m\x85\u202eabc\u2066\u200f\u2028\u200b\ufeff\U000e0041\u061c\ufffe\uffff\ufdd0"
EVIL += "\u00ad\u034f\u115f\u17b4\u180e\u3164\ufe0f\uffa0\ufff0\U0001bca0\U0001d173\U000e0100"
EVIL += "\U000e0fb3"  # stands for a byte within tilepack, and is what Python has for bytes in JSON
FINE = "\u00e9\u20ac\U0001f600\u05d0"
UNSAFE = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f"
                    "\ufdd0-\ufdef\ufeff\ufff0-\ufffb\ufffe\uffff\xad\u034f\u115f-\u1160"
                    "\u17b4-\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0"
                    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]")
NAME = f"l{EVIL}{FINE}.weight"


def strings(value):
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def shown(what, *argv, named=True):
    """One command, its text and its JSON."""
    for extra in ((), ("--json",)):
        done = subprocess.run([tool.binary(), *argv, *extra], capture_output=True, check=False,
                              stdin=subprocess.DEVNULL, env={**os.environ, "LC_ALL": "C.UTF-8"})
        name = what + (" --json" if extra else "")
        problem = ""
        for stream in (done.stdout, done.stderr):
            try:
                found = UNSAFE.search(stream.decode("utf-8"))
                problem = problem or (f"{found.group()!r} in {stream!r}" if found else "")
            except UnicodeDecodeError:
                problem = f"not UTF-8: {stream!r}"
        if extra and not problem and done.stdout:
            said = list(strings(json.loads(done.stdout)))
            if named and not any(f"l{EVIL}{FINE}" in text for text in said):
                problem = f"the name is not in {said}"
        elif named and FINE.encode() not in done.stdout + done.stderr:
            problem = problem or f"letters are not as they are: {done.stdout + done.stderr!r}"
        tally.check(not problem, f"{name}: {problem[:600] or 'status %d' % done.returncode}")


def paths(work, source):
    """What a command says of its input and output names both as safely."""
    at, parts = (work.at(f"{EVIL}{FINE}{what}") for what in ("made", "parts"))
    folder = work.at(f"from{EVIL}")
    os.makedirs(folder)
    shutil.copy(source, os.path.join(folder, "model.safetensors"))
    with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as f:
        f.write("{}")
    to = ("--to", "mxfp8-ct", "--force")
    shown("convert", "convert", folder, "-o", at, *to, named=False)
    shown("convert again", "convert", folder, "-o", at, *to[:2], named=False)
    shown("verify", "verify", at, named=False)
    shown("verify of another's", "verify", folder, named=False)
    shown("unpack", "unpack", at, "-o", at + "plain", "--force", named=False)
    shown("a picture", "dump", at, NAME, "--svg", at + ".svg", named=False)
    try:
        problem = ElementTree.parse(at + ".svg") and ""
    except ElementTree.ParseError as error:
        problem = str(error)
    tally.check(not problem, f"a picture is XML: {problem}")
    shown("a part", "convert", folder, "-o", parts, *to[:2], "--part", "1/1", named=False)
    shown("merge", "merge", parts, named=False)


def main():
    with tool.Workdir() as work:
        dice = np.random.default_rng(1)
        values = dice.standard_normal((128, 128), dtype=np.float32)
        tensors = {NAME: stfile.tensor("F32", values),
                   f"other{EVIL}": stfile.tensor("F32", np.ones((3, 5), np.float32))}
        stfile.save(work.at("a.safetensors"), tensors)
        values[0, 0] += 1
        tensors[NAME] = stfile.tensor("F32", values)
        stfile.save(work.at("b.safetensors"), tensors)
        made = work.at("made.safetensors")
        tool.run("convert", work.at("a.safetensors"), "-o", made, "--to", "mxfp8-ct", "--quiet")
        a, b = work.at("a.safetensors"), work.at("b.safetensors")
        shown("dump", "dump", a)
        shown("dump of what is packed", "dump", made)
        shown("dump of a tensor", "dump", made, NAME)
        shown("dump --at", "dump", made, NAME, "--at", "3,5")
        shown("dump --offset", "dump", made, NAME, "--offset", "7")
        shown("dump --values", "dump", made, NAME, "--values", "0:2,0:2")
        shown("dump of what is not there", "dump", a, NAME + "x")
        shown("plan", "plan", a, "--to", "mxfp8-ct", "--verbose")
        shown("schedule", "schedule", a, "--m", "1")
        shown("compare", "compare", a, "--to", "mxfp8-ct")
        shown("diff", "diff", a, b)
        shown("verify --against", "verify", made, "--against", b, "--verbose")
        values[0, 0] = np.nan
        tensors[NAME] = stfile.tensor("F32", values)
        stfile.save(work.at("nan.safetensors"), tensors)
        shown("an error", "convert", work.at("nan.safetensors"), "-o", work.at("x.safetensors"),
              "--to", "mxfp8-ct")
        shown("a path", "dump", work.at(f"none{EVIL}{FINE}"), named=False)
        paths(work, a)
        done = subprocess.run([tool.binary(), "dump", b"raw\x9b31m\xff"], capture_output=True,
                              check=False)
        tally.check(b"raw\\x9B31m\\xFF" in done.stderr, f"bytes that are no text: {done.stderr!r}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
