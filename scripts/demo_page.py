#!/usr/bin/env python3
"""The page of the demo: build/demo/index.html, which opens offline.

usage: demo_page.py FOLDER --add MODEL FORMAT   note what was converted
       demo_page.py FOLDER                      write FOLDER/index.html

--add takes sizes from the files of FOLDER/MODEL and FOLDER/MODEL-FORMAT and errors from
FOLDER/verify.json, which is what `tilepack verify --against --json` printed. The page links to
layouts/MODEL-FORMAT.html and compare-MODEL.html where they are there.
"""
import glob
import html
import json
import os
import sys

STYLE = """:root{color-scheme:light dark;--rule:#d5dae0;--dim:#5b6570;--bar:#2563a8}
@media(prefers-color-scheme:dark){:root{--rule:#3a424b;--dim:#9aa4ae;--bar:#6ea8e0}}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:64rem;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}p{max-width:44rem}
.wide{overflow-x:auto}table{border-collapse:collapse}
td,th{padding:.2rem .8rem .2rem 0;text-align:left;border-bottom:1px solid var(--rule)}
th{color:var(--dim);font-weight:500}td{white-space:nowrap}
.n{text-align:right;font-variant-numeric:tabular-nums}
.bar{display:inline-block;height:.7em;background:var(--bar)}"""

HEAD = """<h1>tilepack</h1>
<p>tilepack writes a model's weights in exactly the bytes that the GPU kernel will read, once,
offline, and can prove it. Each row below is a checkpoint that it wrote on this machine; every byte
of it was then derived again from the source and compared.</p>
<p><i>Error</i> is the relative Frobenius error of the weights: mean and largest over the weights.
A layout page shows which byte of the file holds which element.</p>"""


def size_of(folder):
    return sum(map(os.path.getsize, glob.glob(os.path.join(folder, "*.safetensors"))))


def add(folder, model, name):
    with open(os.path.join(folder, "verify.json"), encoding="utf-8") as file:
        weights = json.load(file)["weights"]
    errors = [w["relative"] for w in weights if "relative" in w and not w["name"].endswith("bias")]
    row = {"model": model, "format": name, "weights": len(errors),
           "before": size_of(os.path.join(folder, model)),
           "bytes": size_of(os.path.join(folder, f"{model}-{name}")),
           "mean": sum(errors) / max(len(errors), 1), "largest": max(errors, default=0)}
    with open(os.path.join(folder, "rows"), "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def line(folder, row):
    share = row["bytes"] / row["before"]
    layout = f"layouts/{row['model']}-{row['format']}.html"  # some cannot be drawn
    drawn = os.path.exists(os.path.join(folder, layout))
    cells = [f"<td><code>{html.escape(row['format'])}</code></td>",
             f'<td class="n">{row["weights"]}</td>', f'<td class="n">{row["bytes"]:,}</td>',
             f'<td class="n">{100 * share:.1f} %</td>',
             f'<td><span class="bar" style="width:{120 * share:.0f}px"></span></td>',
             f'<td class="n">{100 * row["mean"]:.2f} %</td>',
             f'<td class="n">{100 * row["largest"]:.2f} %</td>',
             f'<td><a href="{layout}">layout</a></td>' if drawn else "<td></td>"]
    return "<tr>" + "".join(cells) + "</tr>"


def section(folder, model, rows):
    yield f"<h2>{html.escape(model)}, {rows[0]['before']:,} bytes of weights</h2>"
    if os.path.exists(os.path.join(folder, f"compare-{model}.html")):
        yield f'<p><a href="compare-{model}.html">What every format would cost this model</a></p>'
    yield ('<div class="wide"><table><tr><th>format</th><th class="n">weights</th>'
           '<th class="n">bytes</th><th class="n">of the source</th><th></th>'
           '<th class="n">mean error</th><th class="n">largest</th><th></th></tr>')
    yield from (line(folder, row) for row in sorted(rows, key=lambda row: row["bytes"]))
    yield "</table></div>"


def page(folder):
    with open(os.path.join(folder, "rows"), encoding="utf-8") as file:
        rows = [json.loads(text) for text in file]
    models = list(dict.fromkeys(row["model"] for row in rows))
    body = [part for model in models
            for part in section(folder, model, [row for row in rows if row["model"] == model])]
    with open(os.path.join(folder, "index.html"), "w", encoding="utf-8") as file:
        file.write('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
                   '<meta name="viewport" content="width=device-width">'
                   f"<title>tilepack: the demo</title><style>{STYLE}</style></head><body>\n"
                   f"{HEAD}\n" + "\n".join(body) + "\n</body></html>\n")


if __name__ == "__main__":
    folder, *rest = sys.argv[1:]
    if rest:
        add(folder, *rest[1:])
    else:
        page(folder)
