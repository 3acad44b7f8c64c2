#!/usr/bin/env python3
"""Checkpoints as people publish them, written here (tests/lib/published.py), through the program.

    sources.py [ROW ...]             only these; a pattern of the shell may stand for several
    sources.py --list                their names
    sources.py --write ROW FOLDER    a row's checkpoint, to look at

Of each row that is read: `unpack --dtype f32` gives numpy's values bit for bit, and no codes and
no description are left. `convert` to each format that can take its codes and scales over ends with
0; oracle.py decodes numpy's values of every packed weight and of no other; what was plain is the
same, byte for byte; `verify --against` says exact. What is not read is refused by its name, with a
description and without. One line for each fault; ends with `N passed, N failed`.
"""
import fnmatch
import json
import os
import re
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import oracle
import published_four
import published_fp8
import published_refused
import stfile
import tool

ROWS = published_fp8.ROWS + published_four.ROWS + published_refused.ROWS
FLOATS = ("BF16", "F16", "F32", "F64")
DESCRIBED = ("quantization_config", "compression_config", "quantization")
BESIDE = ("hf_quant_config.json", "quantize_config.json", "quant_config.json")


class Fault(Exception):
    pass


def said(done):
    """What an error says, on one line."""
    lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
    return f"status {done.returncode}: " + " | ".join(line.strip() for line in lines[-3:])


def run(*args):
    done = tool.run(*args, check=False)
    if done.returncode:
        raise Fault(f"{args[0]}: {said(done)}")
    return done


def tensors_of(path):
    out = {}
    for shard in tool.shards(path):
        out |= stfile.load(shard)[0]
    return out


def some(names):
    names = sorted(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# ---- unpack --------------------------------------------------------------------

def described(folder):
    """Names of what still says that an unpacked checkpoint is quantized."""
    out = [name for name in BESIDE if os.path.exists(os.path.join(folder, name))]
    for name in ("config.json", "params.json"):
        path = os.path.join(folder, name)
        if os.path.exists(path):
            with open(path, encoding="utf-8") as f:
                config = json.load(f)
            for inside in (config, config.get("text_config") or {}):
                out += [f"{name}: {word}" for word in DESCRIBED if word in inside]
    return out


def describes_output(c, out):
    """A file that says other things, too, is there with what describes the output instead."""
    for name in c.beside if not c.alone else ():
        if name in BESIDE:
            continue
        path, config = os.path.join(out, name), os.path.join(out, "config.json")
        if not os.path.exists(path):
            raise Fault(f"no {name}")
        with open(path, encoding="utf-8") as f:
            now = json.load(f)
        held = {}
        if os.path.exists(config):
            with open(config, encoding="utf-8") as f:
                held = {"quantization": json.load(f).get("quantization_config")}
        want = {key: value for key, value in c.beside[name].items() if key not in DESCRIBED}
        if {key: value for key, value in now.items() if key not in DESCRIBED} != want:
            raise Fault(f"{name} has not what else it said")
        if c.config and any(now.get(key) != value for key, value in held.items()):
            raise Fault(f"{name} says {now.get('quantization')}, and config.json {held}")
        if not c.config and c.beside[name].get("quantization") == now.get("quantization"):
            raise Fault(f"{name} says what its source said")


def same_values(name, got, want):
    if got.shape != want.shape:
        raise Fault(f"unpack: {name} is {list(got.shape)}, not {list(want.shape)}")
    values = got.f32()
    wrong = values.view(np.uint32) != want.view(np.uint32)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise Fault(f"unpack: {name} differs in {wrong.sum()} of {wrong.size} values, at {at}: "
                    f"{values[at]!r}, not {want[at]!r}")


def unpacks(c, source, work):
    """All values, bit for bit; nothing of the old form is left."""
    out = work.at("U.safetensors" if c.alone else "U")
    run("unpack", source, "-o", out, "--dtype", "f32", "--progress", "none")
    got = tensors_of(out)
    lost = (set(c.truth) | c.plain) - set(got)
    if lost:
        raise Fault(f"unpack: no {some(lost)}")
    left = set(got) - set(c.truth) - c.plain - c.may_stay
    if left:
        raise Fault(f"unpack: left {some(left)}")
    for name, want in c.truth.items():
        if got[name].dtype not in FLOATS:
            raise Fault(f"unpack: {name} is still {got[name].dtype}")
        same_values(name, got[name], np.ascontiguousarray(want))
    for name in c.plain:
        was = c.tensors[name]
        if (got[name].dtype, got[name].data) != (was.dtype, was.data):
            same_values(name, got[name], was.f32())
    if not c.alone and described(out):
        raise Fault(f"unpack: left {some(described(out))}")
    describes_output(c, out)


# ---- convert -------------------------------------------------------------------

def options_of(target, work):
    """What `convert` is told."""
    if isinstance(target, str):
        return ("--to", target)
    if isinstance(target, tuple):
        return target
    path = work.at("recipe.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"rules": list(target)}, f)
    return ("--recipe", path)


def label(target):
    if isinstance(target, str):
        return target
    if isinstance(target, tuple):
        return " ".join(target)
    return "+".join(rule["to"] for rule in target)


def is_same(c, got, name):
    was, now = c.tensors[name], got.get(name)
    return now is not None and (now.dtype, now.shape, now.data) == (was.dtype, was.shape, was.data)


def came_from(c, origin, e):
    """What numpy says of the rows of an origin, for one expert of a unit."""
    name = origin["name"].replace("{e}", str(e))
    if name in c.biases:
        want = c.tensors[name].f32()[..., None]
    elif name in c.truth:
        want = c.truth[name]
    else:
        raise Fault(f"packed from {name}, which is no packed weight of the source")
    if want.ndim == 3:
        want = want[e if "{e}" not in origin["name"] and "expert" not in origin
                    else origin.get("expert", 0)]
    want = want.T if origin.get("transposed") else want
    first, step = origin.get("row", 0), origin.get("step", 1)
    return name, want[first:first + step * origin["rows"]:step]


def holds(c, out):
    """How many values the packed weights of a result hold, all of them numpy's: decoded by
    oracle.py from the descriptors. Names of what they come from."""
    count, names = 0, set()
    for unit in oracle.Checkpoint(tool.shards(out)).units:
        values, row = unit.values(), 0
        for origin in unit.sources:
            for e in range(values.shape[0]):
                name, want = came_from(c, origin, e)
                got = values[e, row:row + origin["rows"]]
                if got.shape != want.shape or not np.array_equal(got, want):
                    worst = np.abs(got - want).max() if got.shape == want.shape else got.shape
                    raise Fault(f"{unit.prefix} does not hold numpy's values of {name}: {worst}")
                names.add(name)
                count += got.size
            row += origin["rows"]
    return count, names


def converts(row, c, source, target, work):
    """All codes and scales taken over, and what was plain as it was."""
    out = work.at("O.safetensors" if c.alone else "O")
    run("convert", source, "-o", out, *options_of(target, work), "--force", "--progress", "none")
    got = tensors_of(out)
    count, names = holds(c, out)
    copied = {name for name, parts in c.parts.items() if name not in names and row.same
              and re.search(row.same, name) and all(is_same(c, got, p) for p in parts)}
    want = sum(v.size for name, v in c.truth.items() if name not in copied)
    want += sum(int(np.prod(c.tensors[name].shape)) for name in names & c.biases)
    if count != want:
        raise Fault(f"{count} values of packed weights, not {want}: all but "
                    f"{some(set(c.truth) - names - copied) or 'rows'} are there")
    changed = [name for name in c.plain - names if not is_same(c, got, name)]
    if changed:
        raise Fault(f"{len(changed)} plain tensors are not as they were: {some(changed)}")
    proof = json.loads(run("verify", out, "--against", source, "--json",
                           "--progress", "none").stdout)
    off = [w["name"] for w in proof["weights"] if w["max_abs"] or w["nonfinite"]]
    if off or not proof["ok"]:
        raise Fault(f"verify: not exact: {some(off)}")
    stale = c.stale & set(got) if "-comfy" not in label(target) else ()
    if stale:
        raise Fault(f"carried what is of the old form only: {some(stale)}")
    describes_output(c, out)
    if c.may_stay and not c.may_stay & set(got):
        raise Fault(f"lost what holds without codes, too: {some(c.may_stay)}")


# ---- what is not read ----------------------------------------------------------

def refused(pattern, source, out, *command):
    """Status 3 or 4, an error with these words, and no output."""
    done = tool.run(*command, source, "-o", out, "--progress", "none", check=False)
    if done.returncode not in (3, 4):
        raise Fault(said(done))
    if not re.search(pattern, done.stderr.replace(source, ""), re.IGNORECASE | re.DOTALL):
        raise Fault(f"no '{pattern}' in {said(done)}")
    if os.path.exists(out):
        raise Fault("there is an output")


def undescribed(c):
    """The same where nothing but tensors tells."""
    c.beside, c.meta = {}, c.bare_meta
    c.config = {key: value for key, value in c.config.items() if key not in DESCRIBED}
    return c


def refuses(tally, row, work):
    for kind, pattern, change in zip(("described", "bare"), row.words, (lambda c: c, undescribed)):
        c = change(row.checkpoint())
        source = c.write(work.at(kind))
        for command in (("convert", "--to", "fp8-dynamic-ct"), ("unpack",)):
            out = work.at(f"{kind}-{command[0]}" + (".safetensors" if c.alone else ""))
            check(tally, row, f"{kind}: {command[0]}", refused, pattern, source, out, *command)


# ---- all -----------------------------------------------------------------------

def check(tally, row, text, function, *args):
    try:
        function(*args)
    except (Fault, oracle.Wrong, tool.ToolError, KeyError, ValueError) as error:
        kind = "" if isinstance(error, Fault) else f"{type(error).__name__}: "
        tally.check(False, f"{row.name}: {text}: {kind}{error}")
    else:
        tally.check(True, f"{row.name}: {text}")


def one(tally, row):
    with tool.Workdir() as work:
        if row.words:
            refuses(tally, row, work)
            return
        c = row.checkpoint()
        source = c.write(work.at("src"))
        check(tally, row, "unpack", unpacks, c, source, work)
        for target in row.to:
            check(tally, row, f"to {label(target)}", converts, row, c, source, target, work)


def main():
    words = sys.argv[1:]
    if words == ["--list"]:
        print("\n".join(row.name for row in ROWS))
        return 0
    if words[:1] == ["--write"]:
        [row] = [row for row in ROWS if row.name == words[1]]
        print(row.checkpoint().write(words[2]))
        return 0
    tally = tool.Tally()
    for word in words:
        if not fnmatch.filter([row.name for row in ROWS], word):
            tally.check(False, f"there is no row {word}")
    for row in ROWS if words else tool.share(ROWS):
        if not words or any(fnmatch.fnmatch(row.name, word) for word in words):
            one(tally, row)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
