#!/usr/bin/env python3
"""docs/sources.md: whose checkpoints are read, from what `tilepack quantizers --json` says.

usage: sources_md.py PROGRAM [--check PAGE]

Prints the page; with --check compares it with PAGE, prints the differences and exits with
1 if there are any. Facts stand in quantizers/*.json alone.
"""
import sys

import generated_page

HEAD = """# Whose checkpoints are read

This page lists the quantizers whose checkpoints `tilepack` reads. It knows a format by the tensors, and takes codes and
scales over exactly if the new format has a place for them. `tilepack plan` says so before anything is written. Weights
that the quantizer left plain stay plain.

The best way to good 4-bit weights today is a checkpoint of GPTQ or AutoRound: `tilepack` takes its codes over exactly,
into the bytes that the kernel reads.

`python3 scripts/sources_md.py build/tilepack > docs/sources.md` makes this page from the files of `quantizers/`, and a
test compares it. [quantizers/README.md](../quantizers/README.md) defines the files.
"""


def code(words):
    return ", ".join(f"`{word}`" for word in words)


def spelled(form):
    """What of a form is not the format's own spelling."""
    said = []
    if form.get("stack"):
        said.append(form["stack"])
    if form.get("marker"):
        said.append(f"marked `{form['marker']}`")
    for role, members in form.get("spelled", {}).items():
        if members.get("suffix"):
            said.append(f"{role} `{members['suffix']}`")
        if members.get("dtype"):
            said.append(f"{role} {members['dtype']}")
    return ", ".join(said)


def reads(quantizer):
    out = [f"\n## {quantizer['title']}\n"]
    if quantizer.get("methods"):
        out.append(f"`quant_method`: {code(quantizer['methods'])}. ")
    if quantizer.get("file"):
        out.append(f"Without it in `config.json`, `{quantizer['file']}` is read. ")
    if quantizer.get("plain"):
        out.append(f"Stays plain by: {code(entry['key'] for entry in quantizer['plain'])}.")
    out.append("\n\n| codes | read as | spelled |\n|---|---|---|\n")
    for form in quantizer["forms"]:
        name = "*" + form.get("joint", ".") + form["codes"]
        if form.get("refused"):
            out.append(f"| `{name}` {form['dtype']} | refused: {form['refused']} | |\n")
        else:
            out.append(f"| `{name}` {form['dtype']} | [{form['format']}](formats.md) | "
                       f"{spelled(form)} |\n")
    for refusal in quantizer.get("refuses", []):
        out.append(f"\nRefused: `{refusal['key']}` {code(refusal['values'])}: {refusal['why']}.\n")
    return "".join(out)


def page(quantizers):
    every = sorted(quantizers, key=lambda quantizer: quantizer["name"])
    out = [HEAD]
    out += [reads(quantizer) for quantizer in every if "forms" in quantizer]
    out.append("\n## Refused by name\n\n| | known by |\n|---|---|\n")
    for quantizer in every:
        if "refused" in quantizer:
            known = code(quantizer.get("methods", []))
            signs = code("." + sign for sign in quantizer.get("signs", []))
            out.append(f"| {quantizer['title']} | {'; '.join(x for x in (known, signs) if x)} |\n")
    return "".join(out)


if __name__ == "__main__":
    sys.exit(generated_page.main(__doc__, "quantizers", page))
