#!/usr/bin/env python3
"""docs/formats.md: a table for each format, from what `tilepack formats --json` says.

usage: formats_md.py PROGRAM [--check PAGE]

Prints the page; with --check compares it with PAGE, prints the differences and exits with
1 if there are any. Facts stand in formats/*.json and engines/*.json alone; what the default kernels of
GPUs read stands in a table here.
"""
import sys

import generated_page

HEAD = """# The formats, a table for each

This page lists the formats, and then for each one the tensors that it stores for a weight. `tilepack formats NAME`
prints the same.

* A weight is W[E,N,K]: E experts, N output features and K input features.
* A weight of two dimensions has E = 1, and its shapes have no E.
* A tensor's name is `S.` and a suffix, where S is the weight's name without `.weight`.

[formats/README.md](../formats/README.md) defines every other word.
`python3 scripts/formats_md.py build/tilepack > docs/formats.md` makes this page from the files of `formats/`, and a
test compares it.
"""


def code(text):
    return f"`{text}`"


def listing(values):
    return "[" + ",".join(str(v) for v in values) + "]"


def abbreviations(fmt):
    return [f"{name} = {code(text)}" for name, text in fmt.get("let", {}).items()]


def rule(entry):
    when = " and ".join(f"{k}={v}" for k, v in entry.get("when", {}).items())
    return (f"{entry['dim']} a multiple of {entry['multiple']}"
            + (f" (with {when})" if when else "") + f": {entry['why']}")


def readers(fmt, engines):
    """The engines that load it, or else whose callers do."""
    found = {kind: [e["title"] for e in sorted(engines, key=lambda e: e["name"]) if e["kind"] == kind
                    and any(fmt["name"] in row["formats"] for row in e["reads"])]
             for kind in ("server", "library", "kernels")}
    loads = found["server"] + found["library"]
    return ", ".join(loads) or "callers of " * bool(found["kernels"]) + ", ".join(found["kernels"])


def facts(fmt, engines):
    """Rows of the first table: what a reader asks first."""
    yield "read by", readers(fmt, engines)
    yield "taken from", fmt["source"]
    yield "codec", f"{code(fmt['codec'])}, a scale for each block of {listing(fmt['block'])} (n, k)"
    if "search" in fmt:
        yield "search", f"{code(fmt['search'])}{', signed' * fmt.get('signed', False)}, of plain weights by default"
    yield "experts", {"stack": "stacked", "split": "one weight each"}[fmt["experts"]]
    inputs = fmt.get("inputs")
    if inputs:
        whose = "of all experts" if inputs["over"] == "experts" else "of an expert's parts"
        needed = f"; needed (or {code('--weights-only')}): {inputs['why']}" if "why" in inputs else ""
        yield "activations", f"a source's scales become {code(inputs['suffix'])}, the largest {whose}{needed}"
    yield "direction", "read only" if fmt.get("input_only") else "read and written"
    for entry in fmt.get("needs", []):
        yield "needs", rule(entry)
    for entry in fmt.get("wants", []):
        yield "wants", rule(entry)
    for param in fmt.get("params", []):
        names = [choice["name"] for choice in param["choices"]]
        yield "--set", f"{code(param['key'] + '=' + '|'.join(names))}: {param['help']}"
    if fmt.get("let"):
        yield "with", "; ".join(abbreviations(fmt))


def output_row(out):
    holds = f"{out['role']}, {out['element']}"
    if "per" in out:
        holds += f", one for {listing(out['per'])}"
    where = out.get("layout") or ("words " + ", ".join(out["words"]) if "words" in out else "one number")
    name = code(out["suffix"]) if out["suffix"] else "S itself"
    return [name, f"{out['dtype']} {listing(out['shape'])}", holds, code(where)]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(c).replace("|", "\\|") for c in row) + " |" for row in rows]


PARTS = {"gated": "weights that hold gate and up (two stretches, S = 2)",
         "up": "the first matrix of experts without a gate, or with interleaved rows",
         "down": "the last matrix of experts",
         "down_ungated": "the last matrix of experts without a gate",
         "wide": "a matrix that is no expert, if it takes less room so",
         "bias": "a bias"}

# What vLLM 0.33's default kernels read, from A100 to RTX 50; the first that there is, "=" as loaded.
GPUS = ["A100 (sm80)", "L40S, RTX 4090 (sm89)", "H100, H200 (sm90)", "B200 (sm100)", "RTX 50 (sm120)"]
MARLIN = ["w4a16-marlin"]
DEFAULTS = [
    ("int4, linear", [MARLIN, MARLIN, ["w4a16-machete"], MARLIN, MARLIN]),
    ("int4, experts", [MARLIN, MARLIN, ["w4a16-humming"], MARLIN, MARLIN]),
    ("FP8 by rows", [["fp8-marlin-channel"]] + [["fp8-dynamic-ct"]] * 4),
    ("FP8 128x128, linear", [["fp8-marlin"], ["fp8-deepseek"], ["fp8-deepseek"],
                             ["fp8-deepgemm-sm100"], ["fp8-deepseek"]]),
    ("FP8 128x128, experts", [["fp8-marlin"], ["fp8-marlin"], ["fp8-deepseek"], ["fp8-trtllm"],
                              ["fp8-deepseek"]]),
    ("MXFP4, gpt-oss", [["mxfp4-marlin"], ["mxfp4-marlin"], ["mxfp4-triton-hopper"],
                        ["mxfp4-trtllm"], ["mxfp4-marlin"]]),
    ("NVFP4, linear", [["nvfp4-marlin"]] * 3 + [["nvfp4-blocked"]] * 2),
    ("NVFP4, experts", [["nvfp4-marlin"]] * 3 + [["nvfp4-trtllm"], ["nvfp4-cutlass-moe"]]),
    ("BF16, experts", [["as they are"]] * 3 + [["bf16-trtllm"], ["as they are"]]),
]


def defaults(formats):
    """Which format the default kernel of a GPU reads; a name that there is not is not shown."""
    names = {f["name"] for f in formats} | {"as they are"}

    def cell(wanted):
        name = next((w for w in wanted if w in names), None)
        return "-" if name is None else name if name == "as they are" else f"[{name}](#{name})"

    return ["", "The default kernels of vLLM 0.33 read these formats, NVFP4 on H100 by Marlin's kernels, not Humming's:", ""] + \
        table(["weights"] + GPUS, [[what] + [cell(w) for w in row] for what, row in DEFAULTS])


def joined(words):
    return ", ".join(words[:-1]) + " and " * (len(words) > 1) + words[-1]


def variant(part, whose):
    """The sentence about a part, and its table: "For a bias, P is `align(N,64)`, and ..."."""
    says = []
    if part.get("let"):
        says.append(joined([f"{name} is {code(text)}" for name, text in part["let"].items()]))
    outputs = part.get("outputs", [])
    if outputs:
        says.append("the tensors are" if len(outputs) > 1 else "the tensor is")
    lines = ["", f"For {whose}, " + ", and ".join(says or ["all is the same"]) + (":" if outputs else ".")]
    if outputs:
        lines += [""] + table(["tensor", "stored as", "holds", "layout"], map(output_row, outputs))
    return lines


def variants(fmt, of=""):
    """What the format is for some weights only."""
    lines = []
    for key, whose in PARTS.items():
        if fmt.get(key):
            lines += variant(fmt[key], of + whose)
        if fmt.get(key) and key == "bias":
            lines += variants(fmt[key], "the bias of ")
    return lines


def section(fmt, engines):
    lines = ["", f"## {fmt['name']}", "", fmt["title"] + ".", "", fmt["about"], ""]
    lines += table(["", ""], facts(fmt, engines))
    lines += [""] + table(["tensor", "stored as", "holds", "layout"], map(output_row, fmt["outputs"]))
    return lines + variants(fmt)


def page(formats, engines):
    written = sorted((f for f in formats if not f.get("input_only")), key=lambda f: f["name"])
    read = sorted((f for f in formats if f.get("input_only")), key=lambda f: f["name"])
    index = table(["format", "what it is", "read by"],
                  [[f"[{f['name']}](#{f['name']})", f["title"],
                    "(read, not written) " * bool(f.get("input_only")) + readers(f, engines)]
                   for f in written + read])
    lines = HEAD.splitlines() + [""] + index + defaults(formats)
    for fmt in written + read:
        lines += section(fmt, engines)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(generated_page.main(__doc__, "formats", page, "engines"))
