#!/usr/bin/env python3
"""What the package tilepack_llm says, and how one finds one's way in it: options and their words,
hints, reprs, progress, compare, diff and suggest, and the example of docs/python.md. Ends with
`N passed, N failed`.
"""
import inspect
import io
import json
import os
import re
import subprocess
import sys
import types

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import tool
from tool import raised

import tilepack_llm as tp
from tilepack_llm import _bar, _options, _running, _spoken, loading, tensor

Q_PROJ = "model.layers.0.self_attn.q_proj"
COMMANDS = "convert", "unpack", "verify", "compare", "diff", "suggest"


def options(t):
    """_options.py is what the program says, and help() lists it."""
    made = subprocess.check_output([sys.executable, os.path.join(
        tool.REPO, "scripts", "python_options.py"), tool.binary()], text=True)
    t.check(inspect.getsource(_options) == made, "_options.py is another; run: python3 "
            "scripts/python_options.py build/tilepack > python/tilepack_llm/_options.py")
    mine = {"output", "against", "dry-run", "json", "quiet", "verbose", "progress", "progress-fd",
            "color", "help"}
    for command in COMMANDS:
        text = tool.run("help", command).stdout
        there = set(re.findall(r"^ *(?:-\w, )?--([a-z-]+)", text, re.M)) - mine
        known = getattr(_options, f"{command.title()}Options").__annotations__
        here = {name.replace("_", "-") for name in known}
        t.check(there == here and there, f"{command}: every option {sorted(there ^ here)}")
        told = getattr(tp, command).__doc__
        t.check(all(re.search(rf"^    {name} +\S", told, re.M) for name in known),
                f"help(tilepack_llm.{command}) lists them")
    t.check("    gpus" in tp.plan.__doc__ and "--" not in tp.plan.__doc__, "of plan, too")


def synonyms(t, work):
    src = work.at("src")
    t.check(tp.plan(src, format="w4a8-ct").report == tp.plan(src, to="w4a8-ct").report,
            "format is to")
    t.check(tp.convert(src, work.at("packed"), format="w4a8-cutlass").bytes_out, "of convert, too")
    for given, words in (({"format": "w4a8-ct", "to": "w4a8-ct"}, "both are given"),
                         ({"fromat": "w4a8-ct"}, "did you mean 'format"),
                         ({"exclud": "x"}, "did you mean 'exclude'?"),
                         ({"zzz": 1}, "there is no option 'zzz'")):
        error = raised(TypeError, tp.plan, src, **given)
        t.check(error is not None and words in str(error), f"{given}: {error}")


def hints(t, work):
    """As Python is written, and never as a shell is, unless the program alone can do it."""
    for said, meant in (
            ("--force replaces it", "force=True replaces it"),
            ("no format is given; --to FORMAT or --recipe FILE; 'tilepack formats' lists them",
             'no format is given; to="FORMAT" or recipe="FILE"; tilepack_llm.formats() lists them'),
            ("'tilepack convert --help' lists what it takes",
             "help(tilepack_llm.convert) lists what it takes"),
            ("--set scales=bf16 keeps it; --exclude leaves the weight out",
             'set={"scales": "bf16"} keeps it; exclude leaves the weight out'),
            ("--force is --if-exists replace, and not skip",
             'force=True is if_exists="replace", and not skip'),
            ("convert --exclude with --nonfinite keep leaves it as it is",
             'convert exclude with nonfinite="keep" leaves it as it is'),
            ("--to and --dtype exclude each other", "to and dtype exclude each other"),
            ("--to awq has a place for it", 'to="awq" has a place for it'),
            ("does what --to does", "does what to does"),
            ("what was left plain: --plain convert quantizes it",
             'what was left plain: plain="convert" quantizes it'),
            ("--against SRC derives the weights again",
             'against="SRC" derives the weights again'),
            ("does not fit into --max-memory", "does not fit into max_memory"),
            ("as in --shape 7168,2048", "as in --shape 7168,2048"),
            ("'tilepack models NAME --json' prints a file", "'tilepack models NAME --json' prints a file"),
            ("'tilepack dump src' lists the tensors", "'tilepack dump src' lists the tensors"),
            ("`tilepack verify` finds it", "tilepack_llm.verify() finds it"),
            ("a name--with dashes, and --", "a name--with dashes, and --")):
        t.check(_spoken.spoken(said) == meant, f"{said!r} is {_spoken.spoken(said)!r}")
    error = raised(tp.UsageError, tp.plan, work.at("src"))
    t.check(error and 'to="FORMAT"' in error.hint and "--" not in str(error), f"plan: {error}")
    error = raised(tp.ExistsError, tp.convert, work.at("src"), work.at("packed"), to="mxfp8-ct")
    t.check(error and error.reason == "format", "it says how the output is another one")
    t.check(error and "force=True" in error.hint, f"convert: {error}")
    known = set(_options.LINES["convert"]) | set(_options.LINES["verify"])
    shell = [line for path in ("src/cli/options.c", "src/cli/outcome.c")
             for line in re.findall(r'"([^"]*--[a-z][^"]*)"', open(os.path.join(tool.REPO, path),
                                                                encoding="utf-8").read())]
    left = [text for text in map(_spoken.spoken, shell) for name in re.findall(r"--([a-z-]+)", text)
            if name.replace("-", "_") in known]
    t.check(shell and not left, f"no option of a function is left: {left}")


def reprs(t, work):
    checkpoint = tp.open(work.at("packed"))
    weight = checkpoint.weights[Q_PROJ]
    made = tp.convert(work.at("src"), work.at("packed"), to="w4a8-cutlass")
    for value in (checkpoint, checkpoint.tensors, weight, made, tp.plan(work.at("src"), to="awq"),
                  tp.verify(work.at("packed")), checkpoint.others["lm_head.weight"]):
        t.check(len(repr(value)) < 240 and "object at" not in repr(value), repr(value)[:240])
    t.check(work.at("packed") in repr(checkpoint) and "12 packed" in repr(checkpoint), "and where")


def weights(t, work):
    checkpoint = tp.open(work.at("packed"))
    weight, stack = checkpoint.weights[Q_PROJ], next(
        w for w in checkpoint.weights.values() if w.stacked)
    t.check(weight.shape == weight.box[1:] and stack.shape == stack.box and stack.ndim == 3 and
            weight.dtype == np.float32 and len(stack) == stack.box[0], "shape and dtype")
    whole = weight.values()
    t.check(weight[3, 5] == whole[3, 5] and np.array_equal(weight[2:4, 8:16], whole[2:4, 8:16]) and
            np.array_equal(stack[1], stack.values()[1]) and
            np.array_equal(np.asarray(weight), whole) and
            np.asarray(weight, np.float64).dtype == np.float64, "[n, k] and np.asarray()")
    t.check(np.array_equal(np.stack(list(weight)), whole), "and its rows one after the other")


def tensors(t, work):
    """np.asarray() of a stored tensor has its values; load() gives torch's where that is."""
    plain = tp.open(work.at("src")).tensors["lm_head.weight"]
    values = np.asarray(plain)
    t.check(plain.dtype == "BF16" and values.dtype.name == "bfloat16" and np.array_equal(
        values.astype(np.float32).view(np.uint32) >> 16, plain.array), "BF16 is ml_dtypes'")
    t.check(np.array_equal(np.asarray(plain, np.float32), values.astype(np.float32)) and
            np.shares_memory(plain.numpy(), plain.array) and
            not np.shares_memory(np.array(plain), plain.array), "a view, unless a copy is asked for")
    scales = tp.open(work.at("packed")).weights[Q_PROJ].stored["weight_group_scale"]
    t.check(np.asarray(scales).dtype.name == "float8_e4m3fn", "FP8 as well")
    missing, sys.modules["ml_dtypes"] = sys.modules.pop("ml_dtypes", None), None
    error = raised(tp.SystemFailure, np.asarray, plain)
    sys.modules.pop("ml_dtypes")
    if missing:
        sys.modules["ml_dtypes"] = missing
    t.check(error and "ml_dtypes" in error.hint, "without ml_dtypes it is an error, and not raw bits")
    torch = types.ModuleType("torch")
    there, asked = loading.find_spec, []
    loading.find_spec = lambda name: asked.append(name) or torch
    usual, tensor.Tensor.torch = tensor.Tensor.torch, lambda self: ("of torch", self.dtype)
    try:
        loaded = tp.load(work.at("packed"))
    finally:
        loading.find_spec, tensor.Tensor.torch = there, usual
    t.check(asked == ["torch"] and all(value[0] == "of torch" for value in loaded.values()),
            "load gives torch's tensors where torch is")
    loaded = tp.load(work.at("packed"))["lm_head.weight"]
    if loading.find_spec("torch"):
        t.check(str(loaded.dtype) == "torch.bfloat16" and loaded.shape == plain.shape and
                np.array_equal(loaded.float().numpy(), values.astype(np.float32)), "of its values")
    else:
        t.check(np.array_equal(np.asarray(loaded), values), "and tensors for numpy where it is not")


class NoDriver(types.ModuleType):
    """A torch that finds no driver."""

    class cuda:  # noqa: N801
        @staticmethod
        def current_device():
            raise RuntimeError("Found no NVIDIA driver on your system.\nPlease check")

    @staticmethod
    def device(_):
        return types.SimpleNamespace(index=None)


def no_driver(t, work):
    usual, loading.import_torch = loading.import_torch, lambda: NoDriver("torch")
    error = raised(tp.ResourceError, tp.load, work.at("packed"), "cuda")
    loading.import_torch = usual
    t.check(error and "Found no NVIDIA driver" in error.message and "\n" not in error.message and
            error.hint, f"load: no driver is an Error: {error}")


class Terminal(io.StringIO):
    def isatty(self):
        return True


def progress(t, work):
    t.check(_bar.is_watched(Terminal()) and not _bar.is_watched(io.StringIO()) and
            not _bar.is_watched(None), "a bar on a terminal")
    kernel = type("ZMQInteractiveShell", (), {})()
    sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: kernel)
    t.check(_bar.is_watched(io.StringIO()), "and in a notebook")
    del sys.modules["IPython"]
    out = Terminal()
    bar = _bar.Bar(out)
    for done in (0, 1 << 20, 1 << 21):
        bar(_running.Progress("convert", done, 1 << 21, "a" * 300))
    bar(_running.Progress("convert", 5, 0, ""))
    bar.close()
    lines = out.getvalue().split("\r")
    t.check("  0%|" in lines[1] and " 50%|############            | 1.05 MB/2.1 MB [00:00<00:00]"
            in lines[2] and "100%|####" in lines[3] and out.getvalue().endswith("\n") and
            max(map(len, lines)) <= 101, f"its lines {lines}")
    for showing, stream, drawn in ((None, Terminal(), True), (None, io.StringIO(), False),
                                   (True, io.StringIO(), True), (False, Terminal(), False)):
        usual, sys.stderr = sys.stderr, stream
        try:
            tp.verify(work.at("packed"), progress=showing)
        finally:
            sys.stderr = usual
        t.check(("verify" in stream.getvalue()) == drawn, f"progress={showing}: {drawn}")


def looking(t, work):
    src = work.at("src")
    found = tp.compare(src, to=["fp8-ct", "w4a16-ct"])
    shell = json.loads(tool.run("compare", src, "--to", "fp8-ct", "--to", "w4a16-ct", "--json").stdout)
    t.check(found.formats == shell["formats"] and len(found.formats) == 2, "compare")
    t.check(tp.compare(src, to="fp8-ct").formats[0]["format"] == "fp8-ct", "compare with one")
    t.check(tp.diff(src, src).equal and not tp.diff(src, work.at("packed")).equal and
            tp.diff(src, work.at("packed")).items[0]["difference"] == "values", "diff")
    made = tp.suggest(src, gpu="h100", gpus=1)
    t.check(made.formats[0]["preferred"] and made.formats[0]["format"] in tp.formats() and
            made.formats[0]["serve"][0] == "vllm", "suggest")
    offered = tp.formats(gpu="h100", engine="vllm")
    t.check(offered and len(offered) == len(set(offered)) < len(tp.formats()) and
            set(offered) <= set(tp.formats()), "formats of a GPU")
    t.check(raised(tp.UsageError, lambda: tp.formats(gpu="abacus")) is not None, "of no GPU")


def example(t, work):
    """The blocks of docs/python.md, one after the other, in a folder with a model of that name."""
    with open(os.path.join(tool.REPO, "docs", "python.md"), encoding="utf-8") as file:
        text = file.read()
    t.check(text.count("\n") <= 100, "docs/python.md has at most 100 lines")
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    os.mkdir(work.at("docs"))
    os.symlink(work.at("src"), work.at(os.path.join("docs", "model")))
    done = subprocess.run([sys.executable, "-c", "\n".join(blocks)], cwd=work.at("docs"), check=False,
                          capture_output=True, text=True)
    t.check(len(blocks) > 3 and done.returncode == 0, f"its example runs {done.stderr}")
    listed = re.search(r"^\| function.*?\n\n", text, re.M | re.S)[0]
    t.check(all(f"`{name}`" in listed for name in tp.__all__ if name in dir(tp) and
                inspect.isfunction(getattr(tp, name))), "every function is in its table")


def main():
    t = tool.Tally()
    with tool.Workdir() as work:
        subprocess.run([sys.executable, os.path.join(tool.REPO, "samples", "gen_checkpoint.py"),
                        work.at("src"), "--preset", "tiny-mixtral", "--quiet"], check=True)
        options(t)
        for part in (synonyms, hints, reprs, weights, tensors, no_driver, progress, looking, example):
            part(t, work)
    return t.finish()


if __name__ == "__main__":
    sys.exit(main())
