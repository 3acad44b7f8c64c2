#!/usr/bin/env python3
"""docs/engines.md: who reads what on which GPU, from what `tilepack engines --json` says.

usage: engines_md.py PROGRAM [--check PAGE]

Prints the page; with --check, prints how PAGE differs from it instead and ends with status
1 if it does. Facts stand in engines/*.json alone, so nothing is added here.
"""
import sys

import generated_page

HEAD = """# Who reads what, on which GPU

This page lists for each engine the formats that it reads, the GPUs, the sizes that it asks for, and what is known to
fail. `tilepack suggest SRC --gpu NAME` chooses a format. `tilepack plan SRC --to FORMAT` says which engines read the
result; `--engine`, `--gpu` and `--gpus N` make that a condition.

| word | means |
|---|---|
| native | the tensor cores multiply in 8 or 4 bits |
| mixed | the kernel widens the codes, and the tensor cores multiply in 16 bits |
| decoded | the engine makes the weights plain when it loads them |
| by documents | we have read it, and have run nothing |

`python3 scripts/engines_md.py build/tilepack > docs/engines.md` makes this page from the files of `engines/`, and a
test compares it. [engines/README.md](../engines/README.md) defines the files.
"""
VERDICTS = {"refused": "does not load", "wrong": "loads other values, silently", "kept": "kept plain by default"}


def code(words):
    return ", ".join(f"`{word}`" for word in words)


def about(rule):
    """Which weights a rule is about, in words."""
    parts = []
    if "models" in rule or "types" in rule:
        parts.append(code(rule.get("models", []) + rule.get("types", [])))
    if "but" in rule:
        parts.append("all but " + code(rule["but"]))
    if "formats" in rule:
        parts.append("in " + code(rule["formats"]))
    if "of" in rule:
        parts.append("of " + ", ".join(rule["of"]))
    if "modules" in rule:
        parts.append("modules " + code(rule["modules"]))
    for key, value in rule.get("set", {}).items():
        parts.append(f"`{key}={value}`")
    if "calibrated" in rule:
        parts.append("with activation scales" if rule["calibrated"] == "yes" else "without activation scales")
    if "gpus" in rule:
        parts.append("on " + ", ".join(rule["gpus"]))
    return "; ".join(parts) or "all"


def size(rule):
    what = f"{rule['dim']} in multiples of {rule.get('multiple', 'the blocks')}"
    return what + (" on each rank that divides it" if rule.get("divided") else "")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def section(engine):
    lines = ["", f"## {engine['title']} {engine['version']}", "",
             f"`{engine['name']}`, {engine['kind']}. From: {'; '.join(engine['source'])}.", ""]
    if "serve" in engine:
        lines += [f"`{' '.join(engine['serve'])}`, on N ranks with `{' '.join(engine['parallel'])}`.", ""]
    if "how" in engine:
        lines += [f"`{engine['how']}`", ""]
    if "install" in engine:
        lines += [f"It needs `{engine['install']}`.", ""]
    rows = [[code(r["formats"]), ", ".join(r["gpus"]),
             r["speed"] + (f", {r['kernel']}" if "kernel" in r else ""), ", ".join(r["takes"]),
             "; ".join(filter(None, ["by documents" * (r["basis"] == "documents"), r.get("how", ""),
                                     f"`{' '.join(r['before'])}` before the command" if "before" in r else "",
                                     f"`{' '.join(r['behind'])}` behind it" if "behind" in r else ""]))]
            for r in engine["reads"]]
    lines += table(["formats", "GPUs", "speed", "takes", ""], rows)
    if "plain" in engine:
        lines += ["", "Built plain:", ""] + table(["weights", ""], [[about(r), r["says"]] for r in engine["plain"]])
    if "sizes" in engine:
        lines += ["", "Sizes:", ""] + table(["weights", "size", ""],
                                            [[about(r), size(r), r["says"]] for r in engine["sizes"]])
    if "families" in engine:
        lines += ["", "Refused and misread:", ""] + table(
            ["weights", "verdict", ""],
            [[about(r), VERDICTS[r["verdict"]], r["says"]] for r in engine["families"]])
    return lines


def page(engines):
    kinds = ("server", "library", "kernels")
    every = sorted(engines, key=lambda e: (kinds.index(e["kind"]), e["name"]))
    return HEAD + "\n".join(line for e in every for line in section(e)) + "\n"


if __name__ == "__main__":
    sys.exit(generated_page.main(__doc__, "engines", page))
