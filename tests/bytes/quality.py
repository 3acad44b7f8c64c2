#!/usr/bin/env python3
"""Proves what `make quality` computes with: scripts/quality, without its models.

    quality.py [NAME ...]

Padding, signal to noise, perplexity and divergence against values worked out by hand, the
forward pass against what must hold for every language model, the variants against what the
program offers, a small conversion through the program, the protocol of the other quantizers
and the page, to the letter. Ends with `N passed, N failed`.
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
import llama
import page
import peer
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
    both = figures.pad(w, 4)
    check(both.shape == (4, 4) and not both[2:].any() and np.array_equal(both[:2], padded),
          "zeros are appended to rows and columns")
    check(np.array_equal(figures.crop(both, w), w), "the way back of both")
    check(figures.pad(w, 1) is w and figures.pad(w[0], 4).shape == (4,), "nothing to fill; a row")
    for shape in ((3, 3), (2, 5), (6,)):
        check(refuses(lambda s=shape: figures.crop(padded, np.ones(s)), ValueError),
              f"{padded.shape} is no padded form of {shape}")


def signal_to_noise(check):
    w = np.array([[3, 4], [0, 5]], dtype=np.float32)
    check(near(figures.snr_db(w, w * np.float32(1.5)), 20 * math.log10(2)), "half of w is 6 dB")
    check(figures.snr_db(w, w) == math.inf, "no error at all")
    off = w + np.array([[1, 0], [1, 0]], dtype=np.float32)
    check(near(figures.snr_db(w, off), 10 * math.log10(50 / 2)), "sums over the whole matrix")
    h = np.array([4, 1], dtype=np.float32)
    check(near(figures.snr_db(w, off, h), 10 * math.log10((4 * 9 + 41) / 8)),
          "columns count by their importance")
    check(near(figures.snr_db(w, off, h * 0 + 7), figures.snr_db(w, off)),
          "equal importance changes nothing")


def divergences(check):
    half, quarter = np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])
    check(near(figures.divergence(half, quarter), [0.5 * math.log(2) + 0.5 * math.log(2 / 3)]),
          "KL of 1/2, 1/2 and 1/4, 3/4")
    check(near(figures.divergence(quarter, half), [0.25 * math.log(.5) + 0.75 * math.log(1.5)]),
          "the other way is another number")
    check(figures.divergence(half, half)[0] == 0, "KL of the same is 0")
    logits = np.random.default_rng(1).standard_normal((2, 9, 50)).astype(np.float32) * 5
    a, b = figures.log_softmax(logits[0]), figures.log_softmax(logits[1])
    check(a.dtype == np.float64 and near(np.exp(a).sum(-1), np.ones(9)), "probabilities add to 1")
    check((figures.divergence(a, b) > 0).all(), "KL is positive")
    check(near(figures.log_softmax(logits[0] + np.float32(8192)),
               figures.log_softmax((logits[0] + np.float32(8192)).astype(np.float64) - 8192)),
          "a constant changes nothing, and nothing overflows")


def perplexities(check):
    uniform = figures.log_softmax(np.zeros((3, 64), dtype=np.float32))
    surprises = figures.surprise(uniform, np.array([0, 5, 63]))
    check(near(surprises, np.full(3, math.log(64))), "one of 64")
    check(near(figures.perplexity(surprises), 64.0), "perplexity of one of 64")
    rows = np.log([[0.5, 0.5], [0.125, 0.875]])
    check(near(figures.perplexity(figures.surprise(rows, np.array([1, 0]))), 4.0),
          "the geometric mean of 2 and 8")
    check(near(figures.standard_error([1, 2, 3, 4]), math.sqrt(5 / 3 / 4)), "standard error")
    a = np.array([[1, 0], [1, 1]], dtype=np.float32)
    b = np.array([[0, 2], [3, 3]], dtype=np.float32)
    check(np.allclose(figures.cosine_distance(a, b), [1, 0], atol=1e-15), "cosine distance")


def texts(check):
    check(figures.paragraphs("a b\nc\n\n\n d\n") == ["a b c", "d"], "paragraphs")
    check(np.array_equal(figures.windows(list(range(7)), 3), [[0, 1, 2], [3, 4, 5]]), "windows")
    held = {}
    for name in ("evaluation", "calibration"):
        with open(os.path.join(QUALITY, name + ".txt"), encoding="utf-8") as f:
            held[name] = figures.paragraphs(f.read())
        check(sum(len(p.split()) for p in held[name]) > 2000, f"{name}: more than 2,000 words")
    check(not set(held["evaluation"]) & set(held["calibration"]), "two texts, not one")


# ---- the forward pass -------------------------------------------------------------------

SMALL = {"hidden_size": 12, "num_attention_heads": 3, "num_key_value_heads": 1,
         "num_hidden_layers": 2, "rms_norm_eps": 1e-5, "rope_theta": 1e4}


def small_model():
    rng = np.random.default_rng(2)
    size = {"q_proj": (12, 12), "o_proj": (12, 12), "down_proj": (12, 20), "gate_proj": (20, 12),
            "up_proj": (20, 12), "k_proj": (4, 12), "v_proj": (4, 12)}
    tensors = {name: rng.standard_normal(size[name.split(".")[-2]], dtype=np.float32)
               for name in llama.linear_names(SMALL)}
    for i in range(2):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"model.layers.{i}.{norm}.weight"] = rng.random(12, dtype=np.float32)
    tensors["model.norm.weight"] = np.ones(12, dtype=np.float32)
    tensors["model.embed_tokens.weight"] = rng.standard_normal((30, 12), dtype=np.float32)
    return llama.Llama(SMALL, tensors), tensors


def forward(check):
    model, weights = small_model()
    tokens = np.random.default_rng(3).integers(0, 30, (2, 7))
    out = model.hidden(tokens, weights)
    check(out.shape == (2, 7, 12) and out.dtype == np.float32, "shape and dtype")
    changed = tokens.copy()
    changed[:, 5] = (changed[:, 5] + 1) % 30
    other = model.hidden(changed, weights)
    check(near(other[:, :5], out[:, :5], 1e-4) and not near(other[:, 5:], out[:, 5:], 1e-2),
          "a token changes what follows it and nothing before it")
    check(near(model.hidden(tokens[1:], weights)[0], out[1], 1e-3), "windows do not see each other")
    swapped = model.hidden(tokens[:, [1, 0, 2, 3, 4, 5, 6]], weights)
    check(not near(swapped[:, 6], out[:, 6], 1e-2), "the order of the tokens counts")
    check(near(model.logits(out), out @ weights["model.embed_tokens.weight"].T, 1e-6),
          "the head is the embedding")
    seen = {}
    model.hidden(tokens, weights, lambda name, x: seen.setdefault(name, x.shape))
    check(list(seen) == llama.linear_names(SMALL), "every matrix is observed, once, in order")
    check(all(seen[n] == (14, weights[n].shape[1]) for n in seen), "with inputs of its K")


def rotations(check):
    rng = np.random.default_rng(4)
    q, k = rng.standard_normal((2, 1, 8)).astype(np.float32)
    turn = llama.rotations(9, 8, 1e4)
    q9, k9 = (llama.rotate(np.repeat(x, 9, axis=0), *turn) for x in (q, k))
    check(near(q9[5] @ k9[2], q9[8] @ k9[5], 1e-4), "products depend on the distance alone")
    check(near(np.linalg.norm(q9, axis=1), np.full(9, np.linalg.norm(q)), 1e-5),
          "lengths stay")
    rows = np.arange(8, dtype=np.float32)[:, None]
    check(llama.from_pairs(rows, 2)[:, 0].tolist() == [0, 2, 1, 3, 4, 6, 5, 7],
          "rows go back from pairs to halves, head by head")


# ---- tilepack ---------------------------------------------------------------------------

HELP = "--search WHAT --signed --importance HOW"


def variants(check):
    formats = json.loads(tool.run("formats", "--json").stdout)["formats"]
    written = sorted(f["name"] for f in formats
                     if not f.get("input_only") and f["codec"] != "float")
    able, unable = conversions.variants(formats, "")
    names = [" ".join([v.format, *v.settings]) for v in able]
    groups = [f"w4a16-ct group={group}" for group in ("128", "64", "32", "channel")]
    check(sorted(names) == sorted([n for n in written if n != "w4a16-ct"] + groups),
          "without searches: each format that quantizes once, w4a16-ct with each group")
    check(all(v.search == "none" and not v.options for v in able), "and as it is")
    check({v.codec for v in unable} == {"int4", "mxfp4", "nvfp4"}, "the searches are of 4 bits")
    everything, none = conversions.variants(formats, HELP)
    check(not none and len(everything) == len(able) + len(unable), "with searches: all")
    check(all("--signed" not in v.options or v.codec == "int4" for v in everything),
          "negative scales are int4's")
    check({v.format for v in everything if "w4a8" in v.options} == {"w4a8-ct"},
          "codes for a later kernel are w4a8-ct's")
    check(len({(v.format, v.settings, v.search) for v in everything}) == len(everything),
          "no name twice")
    partly, _ = conversions.variants(formats, "--search WHAT --importance HOW")
    check(not any("--signed" in v.options for v in partly), "an option that is not offered")


class Subject:
    """One matrix whose K is no multiple of 128, as a checkpoint with another, which is not asked
    for."""

    label = "small"

    def __init__(self, directory):
        values = np.random.default_rng(5).standard_normal((32, 300), dtype=np.float32) * 0.02
        values = values.astype(ml_dtypes.bfloat16)
        name = "model.layers.0.mlp.up_proj.weight"
        self.source = {name: values.astype(np.float32)}
        self.importance = {name: np.arange(300, dtype=np.float32)}
        self.checkpoint = os.path.join(directory, "checkpoint")
        os.mkdir(self.checkpoint)
        padded = figures.pad(values, 128)
        save_file({name: padded, name.replace("up_proj", "down_proj"): padded.copy()},
                  os.path.join(self.checkpoint, "model.safetensors"))
        with open(os.path.join(self.checkpoint, "config.json"), "w", encoding="utf-8") as f:
            json.dump({"model_type": "llama"}, f)


def convert(check):
    with tool.Workdir() as work:
        subject = Subject(work.path)
        program = conversions.Program(tool.binary(), work.path, 1)
        able, _ = program.variants()
        for name, bits, db in (("w4a8-ct", 4.125, 18), ("nvfp4-ct", 4.5, 20),
                               ("w4a16-ct group=32", 4.5, 20), ("fp8-dynamic-ct", 8 + 1 / 256, 31),
                               ("mxfp8-blocked", 8.25, 31), ("w4a8-cutlass", 4.5 + 32 / 4096, 18)):
            variant = next(v for v in able if " ".join([v.format, *v.settings]) == name)
            values, _ = program.values(variant, subject, None)
            (got,), (want,) = values.values(), subject.source.values()
            check(got.shape == want.shape and got.dtype == np.float32, f"{name}: shape")
            check(abs(figures.snr_db(want, got) - db) < 2, f"{name}: about {db} dB")
            check(abs(program.bits(variant.format, variant.settings) - bits) < 1e-4,
                  f"{name}: {bits} bits")
        check(not os.path.exists(program.packed) and not os.path.exists(program.plain),
              "what was written is removed")
        experts = next(v for v in able if v.format == "mxint4-trtllm")
        check(program.takes(variant, subject) and not program.takes(experts, subject),
              "a format of experts alone takes no other matrix")
        kept = variant._replace(options=("--exclude", "up_proj"))
        check(refuses(lambda: program.values(kept, subject, None), SystemExit),
              "a matrix that was kept is not measured")
        path = work.at("importance.safetensors")
        conversions.save_importance(path, subject, 128)
        (name, t), = tool.load(path)[0].items()
        check(name in subject.source and t.dtype == "F32" and t.shape == (384,)
              and np.array_equal(t.f32()[:300], subject.importance[name])
              and not t.f32()[300:].any(), "the file of the importance")


# ---- other quantizers -------------------------------------------------------------------

CHILD = """
import json, os, sys
os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
sys.path.insert(0, sys.argv[1])
import peer
def load(path):
    print("noise on stdout")
    return {"checkpoint": {"a": 2, "b": 3}, "importance": {"b": 5}}[path]
def save(values, path):
    with open(path, "w") as f:
        json.dump(values, f)
peer.serve({"product": ("child 1.0", 4.5, lambda w, h: w * h)}, load, save)
"""


def peers(check):
    with tool.Workdir() as work:
        with open(work.at("child.py"), "w", encoding="utf-8") as f:
            f.write(CHILD)
        child = peer.Peer(sys.executable, work.at("child.py"), QUALITY)
        check(child.methods == [{"method": "product", "program": "child 1.0", "bits": 4.5}],
              "methods")
        for _ in range(2):
            child.quantize("product", "checkpoint", "importance", work.at("out"))
            with open(work.at("out"), encoding="utf-8") as f:
                check(json.load(f) == {"b": 15}, "a task")
            os.unlink(work.at("out"))
        child.close()
        check(child.child.returncode == 0, "it ends when asked")
        with open(work.at("child.py"), "w", encoding="utf-8") as f:
            f.write("raise SystemExit(7)")
        check(refuses(lambda: peer.Peer(sys.executable, work.at("child.py")), peer.Ended),
              "a child that ends is an error")


# ---- results and page -------------------------------------------------------------------

class Measured:
    """Counts how often it was measured."""

    def __init__(self, label):
        self.label, self.count = label, 0

    def measure(self, _values):
        self.count += 1
        return {"snr": self.count}


def collecting(check):
    models = [Measured("one"), Measured("two")]
    table = results.Results(models, lambda _: None)

    def add(method, *numbers):
        given = {m.label: np.array([n], dtype=np.float32) for m, n in zip(models, numbers)}
        table.add({"program": "p", "method": method, "search": ""},
                  lambda subject: ({"w": given[subject.label]}, 1.0))

    add("first", 1, 0.0)
    add("twin", 1, -0.0)
    add("cousin", 1, 3)
    check([r["method"] for r in table.rows] == ["first", "cousin"], "twins share a row")
    check([r["method"] for r in table.rows[0]["also"]] == ["twin"], "the sign of 0 is nothing")
    check(models[0].count == 1 and models[1].count == 2, "nothing is measured twice")
    check(refuses(lambda: add("broken", math.nan, 1), SystemExit), "NaN is an error")


def remembering(check):
    """A later run measures what is new, or asked for again."""
    def run(path, again, *methods):
        models = [Measured("one"), Measured("two")]
        table = results.Results(models, lambda _: None, path, again)
        for number, method in enumerate(methods):
            table.add({"program": "p", "method": method, "search": ""},
                      lambda subject, number=number: ({"w": np.float32([number])}, 1.0))
        return models[0].count, [(r["method"], r["figures"], r["also"]) for r in table.rows]

    with tool.Workdir() as work:
        path = work.at("rows.json")
        first = run(path, None, "a", "b")
        check(first[0] == 2, "what is not known is measured")
        check(run(path, None, "a", "b") == (0, first[1]), "and not a second time")
        count, rows = run(path, None, "a", "b", "c")
        check(count == 1 and rows[:2] == first[1] and len(rows) == 3, "a new one is")
        check(run(path, "^p b", "a", "b", "c")[0] == 1, "one that is asked for again")
        check(run(path, "", "a", "b", "c")[0] == 3, "all of them")


def row(program, method, search, size, kl, also=()):
    language = {"snr": 18.5, "snr_least": 17.25, "snr_weighted": 19.0, "perplexity": 40 + kl,
                "kl": kl, "kl_error": kl / 50, "positions": 2552}
    sentence = {"snr": 19.5, "snr_least": 18.0, "snr_weighted": 20.0, "distance": kl / 10}
    return {"program": program, "method": method, "search": search, "bits": size,
            "also": list(also), "figures": {page.LANGUAGE: language, page.SENTENCE: sentence},
            "seconds": {page.LANGUAGE: 0.5, page.SENTENCE: 0.25}}


def pages(check):
    rows = [row("tilepack", "mxfp8-ct", "none", 8.25, 0.01,
                [row("tilepack", "mxfp8-blocked", "none", 8.25, 0.01),
                 row("ct 1", "MXFP8", "", 8.25, 0.01)]),
            row("llama.cpp", "Q4_0", "", 4.5, 0.3),
            row("tilepack", "w4a8-ct", "none", 4.125012, 0.5),
            row("tilepack", "w4a8-ct", "mse, plain", 4.125012, 0.545),
            row("tilepack", "w4a8-ct", "mse, importance", 4.125012, 0.25)]
    variant = conversions.Variant("nvfp4-ct", "nvfp4", "mse, plain", ())
    result = {"rows": rows, "version": "tilepack 0", "processors": 2, "seconds": 600,
              "rounds": 3, "window": 320, "perplexity": 39.98, "sentences": 91,
              "calibration_tokens": 2560, "left_out": ["`torch`: not installed"],
              "not_offered": [variant], "partial": ["experts-alone"]}
    text = page.page(result)
    for line in (
            "| tilepack | `w4a8-ct` | 4.125 | 18.50 (17.25) | 19.00 | 40.50 | 0.5000 |  | 0.50 |",
            "| tilepack | `w4a8-ct` mse, plain | 4.125 | 18.50 (17.25) | 19.00 | 40.55 | 0.5450 "
            "| +9 % | 0.50 |",
            "| tilepack | `w4a8-ct` mse, importance | 4.125 | 19.50 (18.00) | 20.00 | 0.02500 "
            "| -50 % |",
            "| tilepack | `mxfp8-ct`, `mxfp8-blocked`, ct 1 MXFP8 | 8.25 | 18.50 (17.25) | 19.00 "
            "| 40.01 | 0.0100 |  | 0.50 |",
            "This version of tilepack does not offer: `nvfp4-ct` mse, plain.",
            "Not here, as they hold experts alone or take certain shapes only: `experts-alone`. "
            "The codes are those of the other formats with the same codec.",
            "Left out, with its rows: the environment `torch`: not installed."):
        check(line in text.split("\n"), line)
    check(text.index("| `w4a8-ct` |") < text.index("| Q4_0 |") < text.index("| `mxfp8-ct`"),
          "by size")
    check("{" not in text.replace("\n```", ""), "no place is left open")
    check("not checked against transformers" in text, "a check that was not made is named")
    result["check"] = {"logits": {"kl": 1.9e-11, "largest": 6.4e-5, "perplexity": [33.4, 33.5]},
                       "gguf": {"differ": 0, "values": 134515008}, "sentence": {"largest": 7e-7},
                       "importance": {"largest": 2e-5}}
    text = " ".join(page.page(result).split())
    for words in ("by a KL of 2e-11, by 6e-05", "of 33.40000 and 33.50000. Of the 134,515,008",
                  "by itself, 0 differ", "by 7e-07 of", "by 2e-05 of"):
        check(words in text, "the checks: " + words)
    chosen = page.choice(result).split("\n")
    check("| `w4a8-ct` | 4.125 | 0.500 | 0.545 (mse, plain) | 0.250 (mse, importance) |" in chosen,
          "the short table: w4a8-ct")
    check("| `mxfp8-ct` | 8.25 | 0.010 | - | - |" in chosen, "the short table: no search")


PARTS = [padding, signal_to_noise, divergences, perplexities, texts, forward, rotations, variants,
         convert, peers, collecting, remembering, pages]


def main(names):
    tally = tool.Tally()
    for part in PARTS:
        if not names or part.__name__ in names:
            part(lambda good, text, name=part.__name__: tally.check(good, f"{name}: {text}"))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
