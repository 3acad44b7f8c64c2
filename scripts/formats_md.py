#!/usr/bin/env python3
"""docs/formats.md: a table for each format, from what `tilepack formats --json` says.

usage: formats_md.py PROGRAM [--check PAGE]

Prints the page; with --check compares it with PAGE, prints the differences and exits with
1 if there are any. Facts stand in formats/*.json alone, so nothing is added here.
"""
import sys

import generated_page

HEAD = """# The formats, a table for each

Made from the format files by `python3 scripts/formats_md.py build/tilepack > docs/formats.md`; a test
compares it. [formats/README.md](../formats/README.md) defines every word used here. W[E,N,K] has E
experts, N output features and K input features; a weight of two dimensions has E = 1 and shapes
without E. A tensor is named `S.` and its suffix, S being the weight's name without `.weight`.
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


def facts(fmt):
    """Rows of the first table: what a reader asks first."""
    yield "loads in", fmt["loads_in"]
    yield "taken from", fmt["source"]
    yield "codec", f"{code(fmt['codec'])}, a scale for each block of {listing(fmt['block'])} (n, k)"
    yield "experts", {"stack": "stacked", "split": "one weight each"}[fmt["experts"]]
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
    return [code(out["suffix"]), f"{out['dtype']} {listing(out['shape'])}", holds, code(where)]


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(str(c).replace("|", "\\|") for c in row) + " |" for row in rows]


def section(fmt):
    lines = ["", f"## {fmt['name']}", "", fmt["title"] + ".", "", fmt["about"], ""]
    lines += table(["", ""], facts(fmt))
    lines += [""] + table(["tensor", "stored as", "holds", "layout"], map(output_row, fmt["outputs"]))
    return lines


def page(formats):
    written = sorted((f for f in formats if not f.get("input_only")), key=lambda f: f["name"])
    read = sorted((f for f in formats if f.get("input_only")), key=lambda f: f["name"])
    index = table(["format", "what it is", "loads in"],
                  [[f"[{f['name']}](#{f['name']})", f["title"],
                    "(read, not written) " * bool(f.get("input_only")) + f["loads_in"]]
                   for f in written + read])
    lines = HEAD.splitlines() + [""] + index
    for fmt in written + read:
        lines += section(fmt)
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(generated_page.main(__doc__, "formats", page))
