"""The section on mixtures of the page that `make quality` writes, from DIR/LABEL/mixtures.json.

Text only: nothing is measured here.
"""
import json
import os

import numpy as np

import measure

MIXTURES = [("w4a16-ct", "w8a16-ct"), ("nvfp4-ct", "mxfp8-ct")]
BUDGETS = [4.25, 4.5, 5, 5.5, 6]
RANDOM = 5
FILES = {"gradients": "recipe, with gradients", "importance": "recipe, with E[x^2]",
         "": "recipe, without a file"}
WORST = "worst SNR first"

INTRO = """
## Mixtures

What `tilepack recipe SRC --bits B --formats A,B` chooses, on the text of the evaluation, which no choice
has seen. *Line* is the KL between those of the two formats alone, at these bits; in brackets is how far
from it a choice is.

* *With gradients* is `--importance` with a file of `samples/moments.py` to which `samples/gradients.py` added
  those of 2,048 tokens of the calibration. *With E[x^2]* is the file without them, and *without a file* has
  errors of weights alone. Each format has its default search.
* *Worst SNR first* gives the larger format to sets in the order of their SNR in the smaller one, *random*
  to sets in any order: the mean of {random}, and the range.
* NVFP4 alone has 4.5 bits, so that its mixtures begin above that.
* Models and source predict in bfloat16 here, so that formats alone may be 0.004 from the tables above.

{findings}
"""

FINDINGS = """Which weighting is best depends on the model and the budget. On SmolLM2 and Qwen2.5 a choice with gradients is the best
at every budget, but for 4.25 and 4.5 bits of Qwen2.5, where worst SNR first is as good or better: layers differ in
how much follows from their outputs, which the expected error of these does not show. On Gemma 3 it is the best from
5.5 bits of int4 and int8 on, and for NVFP4 and MXFP8 at every budget. At 4.25 and 4.5 bits, where KL is half a nat,
it is no better than chance there, and the errors of weights alone choose better. With E[x^2] alone a choice is below
the line at every budget of each model. Without a file it gains less as a rule: `recipe` warns.
On other text of SmolLM2 (1,024 tokens of the calibration, int4 and int8, 4.5 and 5 bits) these weightings
were tried, too: the relative error of outputs (-15 and -20 %), times the number of weights (-23 and -31 %),
relative errors of weights (-5 and -19 %), times the number of weights (-12 and -16 %), and a gradient for
each output instead of their mean (-35 and -58 %; the mean: -39 and -58 %).
"""


def key(names, bits, label):
    return f"{' + '.join(names)}: {bits}: {label}"


def line_at(rows, names, bits):
    """KL between the two formats alone."""
    ends = [rows[f"{' + '.join(names)}: {name}"] for name in names]
    share = (bits - ends[0]["bits"]) / (ends[1]["bits"] - ends[0]["bits"])
    return ends[0]["kl"] + (ends[1]["kl"] - ends[0]["kl"]) * share


def random_cell(rows, names, bits):
    found = [rows[at]["kl"] for at in (key(names, bits, f"random {i}") for i in range(RANDOM)) if at in rows]
    return f"{np.mean(found):.3f} ({min(found):.3f} to {max(found):.3f})" if found else "-"


def cells(rows, names, bits):
    """One line, or None where something was not measured."""
    labels = [*FILES.values(), WORST]
    if not all(key(names, bits, label) in rows for label in labels):
        return None
    line = line_at(rows, names, bits)
    kl = [rows[key(names, bits, label)]["kl"] for label in labels]
    return [f"{bits:g}", f"{line:.3f}", *(f"{x:.3f} ({100 * (x / line - 1):+.0f} %)" for x in kl),
            random_cell(rows, names, bits)]


def mean_line(rows, names, budgets):
    """The means of the changes."""
    means = []
    for label in [*FILES.values(), WORST]:
        shares = [rows[key(names, b, label)]["kl"] / line_at(rows, names, b) - 1 for b in budgets]
        means.append(f"{100 * np.mean(shares):+.0f} %")
    return ["mean", "", *means, ""]


def table(rows, names):
    found = {bits: line for bits in BUDGETS if (line := cells(rows, names, bits))}
    if not found:
        return ""
    alone = [rows[f"{' + '.join(names)}: {name}"]["kl"] for name in names]
    ends = " and ".join(f"`{name}` {kl:.4f}" for name, kl in zip(names, alone))
    head = ["bits", "line", *FILES.values(), WORST, f"random, {RANDOM}"]
    return f"Alone: {ends}.\n\n" + measure.table(head, *found.values(), mean_line(rows, names, found)) + "\n"


def section(directory, labels, names_of):
    """"" where nothing was measured."""
    parts = []
    for label in labels:
        path = os.path.join(directory, label, "mixtures.json")
        if not os.path.exists(path):
            continue
        with open(path, encoding="utf-8") as f:
            rows = json.load(f)
        for names in MIXTURES:
            text = table(rows, names) if f"{' + '.join(names)}: {names[1]}" in rows else ""
            if text:
                parts.append(f"### {names_of[label]}: `{names[0]}` and `{names[1]}`\n\n{text}")
    return INTRO.format(random=RANDOM, findings=FINDINGS) + "\n".join(parts) if parts else ""
