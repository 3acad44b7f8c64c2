#!/usr/bin/env python3
"""The page of the demo: build/demo/index.html, which opens offline.

usage: demo_page.py FOLDER

FOLDER holds table.txt (a line for each conversion: model, format, weights, bytes before and
after, mean and largest relative error), and for each conversion layouts/MODEL-FORMAT.html,
for each model compare-MODEL.html.
"""
import html
import os
import sys

STYLE = """:root{color-scheme:light dark;--rule:#d5dae0;--dim:#5b6570}
@media(prefers-color-scheme:dark){:root{--rule:#3a424b;--dim:#9aa4ae}}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse}
td,th{padding:.2rem .8rem .2rem 0;text-align:left;border-bottom:1px solid var(--rule)}
th{color:var(--dim)}.n{text-align:right;font-variant-numeric:tabular-nums}
.bar{display:inline-block;height:.7em;background:#2563a8}"""


def row(model, name, weights, before, after, mean, largest, layout):
    share = int(after) / int(before)
    cells = [f"<td><code>{html.escape(name)}</code></td>",
             f'<td class="n">{int(weights)}</td>', f'<td class="n">{int(after):,}</td>',
             f'<td class="n">{share:.3f}</td>',
             f'<td><span class="bar" style="width:{120 * share:.0f}px"></span></td>',
             f'<td class="n">{float(mean):.3f} %</td>', f'<td class="n">{float(largest):.3f} %</td>',
             f'<td><a href="{layout}">layout</a></td>' if layout else "<td></td>"]
    return "<tr>" + "".join(cells) + "</tr>"


def section(folder, model, lines):
    yield f"<h2>{html.escape(model)}, {int(lines[0][3]):,} bytes</h2>"
    if os.path.exists(os.path.join(folder, f"compare-{model}.html")):
        yield f'<p><a href="compare-{model}.html">All formats compared</a>, by a sample.</p>'
    yield ('<table><tr><th>format</th><th class="n">weights</th><th class="n">bytes</th>'
           '<th class="n">share</th><th></th><th class="n">mean error</th>'
           '<th class="n">largest</th><th></th></tr>')
    for _, name, weights, before, after, mean, largest in lines:
        layout = f"layouts/{model}-{name}.html"  # some cannot be drawn
        drawn = os.path.exists(os.path.join(folder, layout))
        yield row(model, name, weights, before, after, mean, largest, layout if drawn else None)
    yield "</table>"


def main():
    folder = sys.argv[1]
    with open(os.path.join(folder, "table.txt"), encoding="utf-8") as file:
        lines = [line.split() for line in file]
    models = list(dict.fromkeys(line[0] for line in lines))
    body = [part for model in models
            for part in section(folder, model, [line for line in lines if line[0] == model])]
    with open(os.path.join(folder, "index.html"), "w", encoding="utf-8") as file:
        file.write('<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
                   f"<title>tilepack: the demo</title><style>{STYLE}</style></head><body>\n"
                   "<h1>Every format, written and verified</h1>\n<p>Errors are relative Frobenius "
                   "errors of the weights. A layout shows which byte holds what.</p>\n"
                   + "\n".join(body) + "\n</body></html>\n")


if __name__ == "__main__":
    main()
