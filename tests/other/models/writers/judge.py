#!/usr/bin/env python3
"""What writers wrote, read by tilepack: `unpack --dtype f32` gives the writer's values bit for bit,
which are near those of the plain model, and so does what `convert` without --requantize makes of it.

    judge.py WRITER DIR

DIR has `made`, the writer's lines of JSON, and of each checkpoint NAME/ and NAME.values. Every name
stands in one table below: what becomes of it, what the refusal says, or why the writer itself
writes no such checkpoint.
"""
import json
import os
import shutil
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(HERE, "..", "..", "..", "lib"))
import stfile  # noqa: E402
import tool  # noqa: E402
from expected import EXACT, REFUSED, UNWRITTEN  # noqa: E402

FAR = 0.4  # of the norm of a weight; 0.13 is usual for 4 bits, and more than 1 what is misread


def tensors_of(path):
    found = {}
    for shard in tool.shards(path):
        found |= stfile.load(shard)[0]
    return found


def said(done):
    return " ".join((done.stderr or done.stdout).split())[:400]


def difference(got, want):
    """None, or a sentence; of values in BF16, `got` is rounded to that."""
    for name, tensor in want.items():
        if name not in got or got[name].dtype != "F32":
            return f"{name} is {got[name].dtype if name in got else 'not there'}"
        values = got[name].bits
        if tensor.dtype == "BF16":
            values = stfile.bf16_to_f32(stfile.f32_to_bf16(values))
        off = values.view(np.uint32) != tensor.f32().view(np.uint32)
        if off.any():
            return f"{name} differs in {off.sum()} of {off.size} values"
    return None


def unpacked(path, out, want):
    done = tool.run("unpack", path, "-o", out, "--dtype", "f32", "--quiet", "--force", check=False)
    if done.returncode:
        return said(done)
    return difference(tensors_of(out), want)


def far(want, plain):
    for name, tensor in want.items():
        was = plain[name].f32()
        error = np.linalg.norm(tensor.f32() - was) / np.linalg.norm(was)
        if not error < FAR:
            return f"{name}: {error} from the plain model"
    return None


def converted(path, out, target, want):
    done = tool.run("convert", path, "-o", out, "--quiet", "--force", "--to", *target.split(),
                    check=False)
    return said(done) if done.returncode else unpacked(out, out + ".plain", want)


def judge(tally, writer, folder, name, error):
    path = os.path.join(folder, name)
    if name in UNWRITTEN[writer]:
        word = UNWRITTEN[writer][name]
        tally.check(error and word in error, f"{name}: the writer does not write it: {word}"
                    + ("" if error and word in error else f": {error}"))
        return
    if error:
        tally.check(False, f"{name}: the writer says {error}")
        return
    out = os.path.join(folder, "out")
    if name in REFUSED[writer]:
        word = REFUSED[writer][name]
        done = tool.run("unpack", path, "-o", out, "--dtype", "f32", check=False)
        good = done.returncode in (3, 4) and word in done.stderr
        tally.check(good, f"{name}: refused: {word}" + ("" if good else f": {said(done)}"))
        return
    want = stfile.load(path + ".values")[0]
    plain = tensors_of(os.path.join(folder, "plain"))
    outcomes = {"near": far(want, plain), "unpack": unpacked(path, out, want)}
    for target in EXACT[writer].get(name, ()):
        outcomes[f"to {target}"] = converted(path, out + ".to", target, want)
        shutil.rmtree(out + ".to", ignore_errors=True)
    if name not in EXACT[writer]:
        outcomes["expected.py"] = "does not name it"
    for what, wrong in outcomes.items():
        tally.check(wrong is None, f"{name}: {what}" + (f": {wrong}" if wrong else ""))


def main(writer, folder):
    tally = tool.Tally()
    with open(os.path.join(folder, "made"), encoding="utf-8") as f:
        made = [json.loads(line) for line in f]
    tally.check(made, f"{writer} wrote {len(made)} checkpoints")
    for one in made:
        judge(tally, writer, folder, **one)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
