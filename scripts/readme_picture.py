#!/usr/bin/env python3
"""docs/layout.svg, the picture of README: the first bytes of one weight in two checkpoints.

usage: readme_picture.py PROGRAM [--check PICTURE]

Converts a made-up checkpoint to w4a16-ct, whose rows lie one behind the other, and to w4a8-cutlass,
whose bytes are in the order of a Hopper kernel, has PROGRAM draw both (`dump --svg`), and puts their
first cells side by side. Prints the picture; with --check compares it with PICTURE (status 1 if they
differ).
"""
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as tree

SVG = "{http://www.w3.org/2000/svg}"
SAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "samples")
WEIGHT = "model.layers.0.self_attn.q_proj"
PANELS = (("w4a16-ct", "as checkpoints have it: row after row"),
          ("w4a8-cutlass", "as a Hopper kernel reads it"))
COLUMNS, LINES, WIDTH, HEIGHT, ADDRESS, GAP, TOP = 8, 8, 44, 24, 30, 44, 52

STYLE = """text{font:12px system-ui,sans-serif;text-anchor:middle;fill:#111}
.head{font-size:14px;font-weight:600}.head,.dim{text-anchor:start;fill:#1b1f24}
.dim{fill:#5b6570}.at{text-anchor:end;fill:#5b6570;font-size:11px}
@media(prefers-color-scheme:dark){.head{fill:#e6e9ec}.dim,.at{fill:#9aa4ae}}"""


def cells(program, folder, name):
    """Codes of WEIGHT in format `name`, as (byte, n, k), in the order of their bytes: the first ones,
    or where rows lie one behind the other the first ones of each row."""
    packed, picture = os.path.join(folder, name), os.path.join(folder, name + ".svg")
    subprocess.run([program, "convert", os.path.join(folder, "tiny"), "-o", packed, "--to", name,
                    "--search", "none", "--quiet"], check=True)
    subprocess.run([program, "dump", packed, WEIGHT, "--svg", picture], check=True,
                   stdout=subprocess.DEVNULL)
    codes = [g.attrib for g in tree.parse(picture).getroot().iter(SVG + "g")
             if g.get("data-role") == "codes"]
    codes.sort(key=lambda c: (int(c["data-byte"]), c["data-half"] == "high"))
    return [tuple(int(c["data-" + key]) for key in ("byte", "n", "k"))
            for c in codes[:COLUMNS * LINES]]


def panel(name, title, codes, left):
    yield f'<text class="head" x="{left + ADDRESS}" y="18">{name}</text>'
    yield f'<text class="dim" x="{left + ADDRESS}" y="38">{title}</text>'
    for line in range(LINES):
        y = TOP + line * HEIGHT
        cut = codes[line * COLUMNS:][:COLUMNS]
        yield f'<text class="at" x="{left + ADDRESS - 6}" y="{y + 16}">{cut[0][0]}</text>'
        for column, (_, n, k) in enumerate(cut):
            x = left + ADDRESS + column * WIDTH
            yield (f'<rect x="{x}" y="{y}" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="2" '
                   f'fill="hsl({n * 67.5 % 360:.1f},70%,82%)"/>'
                   f'<text x="{x + WIDTH / 2}" y="{y + 16}">{n},{k}</text>')


def picture(program):
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, os.path.join(SAMPLES, "gen_checkpoint.py"),
                        os.path.join(folder, "tiny"), "--preset", "tiny-mixtral"], check=True,
                       stdout=subprocess.DEVNULL)
        panels = [(name, title, cells(program, folder, name)) for name, title in PANELS]
    step = ADDRESS + COLUMNS * WIDTH + GAP
    width, height = 2 * step - GAP + 8, TOP + LINES * HEIGHT + 28
    label = "bytes of a weight in the order of checkpoints, and in the order of a kernel"
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
           f'viewBox="0 0 {width} {height}" role="img" aria-label="{label}">')
    yield f"<style>{STYLE}</style>"
    for number, (name, title, codes) in enumerate(panels):
        yield from panel(name, title, codes, number * step)
    yield (f'<text class="dim" x="{ADDRESS}" y="{height - 8}">At the left the byte; each holds two '
           "codes. A cell names the row and column of the weight; a colour is a row.</text>")
    yield "</svg>"


def main():
    made = "\n".join(picture(sys.argv[1])) + "\n"
    if len(sys.argv) == 2:
        sys.stdout.write(made)
        return 0
    with open(sys.argv[3], encoding="utf-8") as file:
        return int(file.read() != made)


if __name__ == "__main__":
    sys.exit(main())
