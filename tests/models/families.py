#!/usr/bin/env python3
"""What is known of models, through the command line. Each file here describes a family: a
config.json, names and shapes (made up small; numbers in braces are ranges), and what has to come
out: which files are asked, the size of each converted weight, what is kept and why, the two kinds
of lists of kept modules, weights with one NVFP4 scale, warnings. A checkpoint of random values is
made of it and planned, converted, verified and unpacked.

The same without one of the files that it leads to has to come out otherwise: no file of models is
there for nothing.

usage: families.py [--all] [FAMILY ...]"""
import argparse
import concurrent.futures
import copy
import glob
import itertools
import json
import os
import re
import sys
import threading

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(HERE, "..", "lib"))
import stfile  # noqa: E402
import tool  # noqa: E402

FORMATS = ("w4a8-ct", "fp8-deepseek", "nvfp4-ct")
ALL_FORMATS = FORMATS + ("fp8-ct", "mxfp8-ct", "mxfp4-ct")
BLOCKS = ("fp8-deepseek", "fp8-ct")
RANGE = re.compile(r"\{(\d+)-(\d+)\}")

class Tally(tool.Tally):
    """Outcomes of several threads."""

    lock = threading.Lock()

    def check(self, good, text):
        with self.lock:
            super().check(good, text)


tally = Tally()
models = {}  # the files that there are, by their names
needed = {"default"}  # those without which something comes out otherwise
UNKNOWN = "nothing is known of the model_type"


def names_of(pattern):
    """"a.{0-1}.b" -> a.0.b, a.1.b; in an expression, too."""
    ranges = [range(int(a), int(b) + 1) for a, b in RANGE.findall(pattern)]
    parts = RANGE.sub("\0", pattern).split("\0")
    for numbers in itertools.product(*ranges):
        yield parts[0] + "".join(f"{n}{p}" for n, p in zip(numbers, parts[1:]))


def expanded(patterns):
    return {name: value for pattern, value in patterns.items() for name in names_of(pattern)}


def flat(patterns):
    return sorted(name for pattern in patterns for name in names_of(pattern))


def make(path, family):
    """A checkpoint of random values; returns its tensors."""
    dice = np.random.default_rng(14)
    tensors = {}
    for name, shape in expanded(family["tensors"]).items():
        size = dice.uniform(0.01, 0.05)
        values = dice.standard_normal(shape, dtype=np.float32) * np.float32(size)
        tensors[name] = stfile.from_f32("BF16", values)
    os.makedirs(path, exist_ok=True)
    stfile.save(os.path.join(path, "model.safetensors"), tensors)
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
        json.dump(family["config"], f)
    return tensors


def plan(path, to, *extra):
    done = tool.run("plan", path, "--to", to, "--json", *extra)
    return json.loads(done.stdout), done.stderr


def same(what, got, want):
    if got == want:
        tally.check(True, what)
        return
    print(f"  has  {json.dumps(got)}\n  want {json.dumps(want)}")
    tally.check(False, what)


def boxes(made):
    return {u["name"]: u["box"][1:] for u in made["units"]}


def reasons(made, tensors):
    """Of weights: tensors of one dimension are kept in any case."""
    return {k["name"]: k.get("reason") for k in made["kept"] if len(tensors[k["name"]].shape) > 1}


def check_plan(name, family, path, tensors):
    made, _ = plan(path, "mxfp8-ct")
    same(f"{name}: files", made["model"]["files"], family["files"])
    same(f"{name}: converted weights", boxes(made), expanded(family["boxes"]))
    same(f"{name}: kept weights", reasons(made, tensors), expanded(family["kept"]))
    for key, list_of in (("converted", "units"), ("plain", "kept")):
        if key in family:
            same(f"{name}: numbers of {key} tensors", len(made[list_of]), family[key])


def config_of(path):
    with open(os.path.join(path, "config.json"), encoding="utf-8") as f:
        return json.load(f)["quantization_config"]


def lists_of(path):
    config = config_of(path)
    keys = ("ignore", "ignored_layers", "modules_to_not_convert")
    return [config[key] for key in keys if key in config]


def check_scales(name, family, tensors):
    """Weights that engines load as one matrix have one divisor."""
    for together in family.get("fused", []):
        found = {tensors[n + ".weight_global_scale"].bytes.tobytes() for n in flat(together)}
        tally.check(len(found) == 1, f"{name}: one scale for {together}")


def check_unpacked(name, to, source, plain):
    good = sorted(source) == sorted(plain) and all(
        source[n].shape == plain[n].shape and source[n].dtype == plain[n].dtype for n in source)
    tally.check(good, f"{name}: {to} and back")


def check_format(name, family, work, tensors, to, there_and_back):
    src, out, back = work.at("src"), work.at(to), work.at(to + "-back")
    done = tool.run("convert", src, "-o", out, "--to", to)
    warning = family.get("warns", {}).get(to)
    if warning:
        tally.check(warning in done.stderr + done.stdout, f"{name}: {to} warns: {warning}")
    own = family.get("lists", {}).get(to) or family["fp8" if to == "fp8-deepseek" else "ct"]
    for names in lists_of(out):
        same(f"{name}: list of {to}", sorted(names), flat(own))
    if to == "nvfp4-ct":
        check_scales(name, family, tool.load(out)[0])
    if there_and_back:
        tool.run("verify", out, "--against", src, "--quiet")
        tool.run("unpack", out, "-o", back, "--quiet")
        check_unpacked(name, to, tensors, tool.load(back)[0])


SAID = ("name", "title", "source", "model_type", "architectures")


def outcome(work, file, name):
    """All that a user sees of plans by this file of a model, and of conversions."""
    own, out = work.at(name + ".json"), work.at(name)
    with open(own, "w", encoding="utf-8") as f:
        json.dump(file, f)
    for to in ("nvfp4-ct", "fp8-deepseek"):
        done = tool.run("plan", work.at("src"), "--to", to, "--json", "--model-file", own,
                        check=False)
        yield done.returncode, done.stdout, done.stderr
    for to in ("nvfp4-ct", "fp8-deepseek", "w8a16-ct"):
        done = tool.run("convert", work.at("src"), "-o", out, "--to", to, "-q", "--force",
                        "--model-file", own, check=False)
        made = tool.load(out)[0] if done.returncode == 0 else {}
        yield done.stderr, made and config_of(out), \
            {n: t.bytes.tobytes() for n, t in made.items()}


def joined(files):
    """One file that says what these say, the first ones first."""
    whole = {"name": "joined", "title": "x", "source": ["x"], "model_type": ["x"]}
    for file in files:
        for key, value in file.items():
            if key == "sizes":
                whole[key] = {**value, **whole.get(key, {})}
            elif key not in SAID:
                whole[key] = whole.get(key, []) + value
    return whole


def check_needed(name, family, work):
    """A file that is asked before the default and says nothing spares the warning of a model that
    nobody knows; the others make a difference here, or in another family."""
    files = [models[f] for f in family["files"][:-1]]
    for file in files:
        if set(file) <= set(SAID):
            done = tool.run("plan", work.at("src"), "--to", "mxfp8-ct")
            tally.check(UNKNOWN not in done.stderr, f"{name}: {file['name']} is known")
            needed.add(file["name"])
        elif file["name"] not in needed:
            with_it = outcome(work, joined(files), "with")
            without = outcome(work, joined([f for f in files if f is not file]), "without")
            if any(a != b for a, b in zip(with_it, without)):
                needed.add(file["name"])


def check_unknown(name, work):
    """What check_needed() looks for is there where there is no file."""
    done = tool.run("plan", work.at("src"), "--to", "mxfp8-ct")
    tally.check(UNKNOWN in done.stderr, f"{name}: is not known")


def check_looks(name, work, layout, size):
    """compare and schedule take --stacks as plan does."""
    done = tool.run("compare", work.at("refused"), "--to", "mxfp8-ct", "--json")
    tally.check("may be [E,N,K]" in done.stdout, f"{name}: compare cannot tell either")
    numbers = {tuple(shape[-2:]) for shape in size.values()}
    done = tool.run("compare", work.at("refused"), "--to", "mxfp8-ct", "--json", "--stacks", layout)
    made = json.loads(done.stdout)["formats"][0]
    tally.check("refused" not in made or not made["refused"],
                f"{name}: compare --stacks {layout}")
    done = tool.run("schedule", work.at("refused"), "--m", "1", "--json", "--stacks", layout,
                    check=False)
    found = {(s["n"], s["k"]) for s in json.loads(done.stdout or "{}").get("schedules", [])}
    tally.check(numbers <= found, f"{name}: schedule --stacks {layout} {found}")


def check_refusal(name, family, work, case):
    """A change of the family, and the text that the refusal has to hold."""
    other = copy.deepcopy(family)
    other["config"].update(case.get("config", {}))
    other["tensors"] = case.get("tensors", other["tensors"])
    make(work.at("refused"), other)
    done = tool.run("plan", work.at("refused"), "--to", "mxfp8-ct", check=False)
    good = done.returncode == 4 and case["says"] in done.stderr
    tally.check(good, f"{name}: refuses: {case['says']}" + ("" if good else f" {done.stderr}"))
    for layout, size in case.get("stacks", {}).items():
        made, _ = plan(work.at("refused"), "mxfp8-ct", "--stacks", layout)
        found = boxes(made)
        tally.check(all(found.get(n) == s for n, s in expanded(size).items()),
                    f"{name}: --stacks {layout}")
        check_looks(name, work, layout, size)
        tool.run("convert", work.at("refused"), "-o", work.at(layout), "--to", "mxfp8-ct",
                 "--stacks", layout, "--quiet")
        done = tool.run("verify", work.at(layout), "--against", work.at("refused"), "--quiet",
                        check=False)
        tally.check(done.returncode == 0, f"{name}: --stacks {layout} is recorded")


def check_merged(name, work, case):
    """What a reader cannot merge in blocks of 128 rows is kept, in no other format, and
    converted if one asks for it."""
    for to in BLOCKS:
        made, _ = plan(work.at("src"), to)
        kept = {k["name"] for k in made["kept"]}
        tally.check(set(flat(case)) <= kept, f"{name}: {to} keeps {case}")
        made, _ = plan(work.at("src"), to, "--merged", "convert")
        tally.check(not set(flat(case)) & {k["name"] for k in made["kept"]},
                    f"{name}: {to} --merged convert")
    made, _ = plan(work.at("src"), "mxfp8-ct")
    tally.check(not set(flat(case)) & {k["name"] for k in made["kept"]}, f"{name}: mxfp8-ct")


def check(name, family, formats):
    with tool.Workdir() as work:
        tensors = make(work.at("src"), family)
        check_plan(name, family, work.at("src"), tensors)
        for i, to in enumerate(formats if family["boxes"] else ()):
            turn = len(name) % len(formats) == i or formats == ALL_FORMATS
            check_format(name, family, work, tensors, to, turn)
        if family.get("unknown"):
            check_unknown(name, work)
        else:
            check_needed(name, family, work)
        for case in family.get("refused", []):
            check_refusal(name, family, work, case)
        if "merged" in family:
            check_merged(name, work, family["merged"])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--all", action="store_true", help="all interchange formats")
    parser.add_argument("family", nargs="*")
    opt = parser.parse_args()
    paths = [os.path.join(HERE, f + ".json") for f in opt.family] or \
        tool.share(sorted(glob.glob(os.path.join(HERE, "*.json"))))
    models.update((m["name"], m)
                  for m in json.loads(tool.run("models", "--json").stdout)["models"])
    tested = set()
    families = {}
    for path in paths:
        with open(path, encoding="utf-8") as f:
            families[os.path.basename(path)[:-5]] = json.load(f)
    formats = ALL_FORMATS if opt.all else FORMATS
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        running = {name: pool.submit(check, name, family, formats)
                   for name, family in families.items()}
    for name, future in running.items():
        tested.update(families[name]["files"])
        error = future.exception()
        if error:
            tally.check(False, f"{name}: {error!r}")
    if not opt.family and tool.SHARE == 1:
        same("every model has a test", sorted(set(models) - tested), [])
        same("no file of models is there for nothing", sorted(set(models) - needed), [])
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
