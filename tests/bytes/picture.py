#!/usr/bin/env python3
"""Pictures of `dump --svg` and `--html` against what `dump --at` and `--offset` say.

    picture.py PATH NAME     draws that weight, and asks for every 17th cell
    picture.py --probe FILE  prints FILE, a page, with a script behind it that points at every
                             cell and leaves nothing in the page but what it said of each
    picture.py --said FILE N what a browser made of that: every one of N cells is explained
"""
import html
import json
import os
import re
import sys
import xml.etree.ElementTree as tree

sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib")]
import tool  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
PROBE = """
<script>
var said = Array.from(document.querySelectorAll('.cell')).map(function (cell) {
    cell.querySelector('rect').dispatchEvent(new MouseEvent('mouseover', {bubbles: true}));
    return [document.getElementById('what').textContent, cell.classList.contains('on'),
            document.querySelectorAll('.cell.on').length, Object.assign({}, cell.dataset)];
});
document.body.innerHTML = '';
document.body.appendChild(document.createElement('pre')).textContent = JSON.stringify(said);
</script>
"""
tally = tool.Tally()


def dumped(path, name, *more):
    return json.loads(tool.run("dump", path, name, "--json", *more).stdout)


def attributes(cell):
    return {key[5:]: value for key, value in cell.attrib.items() if key.startswith("data-")}


def as_at(path, name, cell):
    """What --at says of the first element that a cell belongs to."""
    at = dumped(path, name, "--at", f"{cell['e']},{cell['n']},{cell['k']}")
    part = next(p for p in at["parts"] if p["role"] == cell["role"])
    wanted = {"byte": str(part["byte"]), "offset": str(part["offset"]), "stored": part["stored"],
              "value": f"{at['value'] if cell['role'] == 'codes' else part['value']:.9g}"}
    if "nibble" in part:
        wanted["half"] = part["nibble"]
    return {key: cell.get(key) for key in wanted}, wanted


def as_offset(path, cell, tensor):
    """What --offset says of the byte that a cell begins at."""
    items = dumped(path, tensor, "--offset", cell["byte"])["items"]
    item = items[cell.get("half") == "high"]
    if item["padding"]:
        return cell.get("padding"), "1"
    ranges = [int(cell[d]) for d in ("e", "e1", "n", "n1", "k", "k1")]
    return ranges, item["e"] + item["n"] + item["k"]


def cells_of(path, name, work):
    tool.run("dump", path, name, "--svg", work.at("a.svg"), "--html", work.at("a.html"))
    svg = tree.parse(work.at("a.svg")).getroot()
    with open(work.at("a.html"), encoding="utf-8") as file:
        page = tree.fromstring(file.read().split("\n", 1)[1])
    tally.check(svg.tag == SVG + "svg", "the picture is an SVG")
    inside = [attributes(g) for g in page.iter(SVG + "g")]
    cells = [attributes(g) for g in svg.iter(SVG + "g")]
    tally.check(cells and cells == inside, f"page and picture have {len(cells)} cells")
    tags = {e.tag for e in page.iter()}
    outside = [a for e in page.iter() for a in e.attrib if a.endswith(("src", "href"))]
    tally.check(not outside and not tags & {"link", "img", "iframe", SVG + "image"},
                f"nothing from elsewhere {outside}")
    return cells


def boxes_apart(path, work):
    """No cell lies on another."""
    rects = [tuple(float(r.get(key)) for key in ("x", "y", "width", "height"))
             for r in tree.parse(work.at(path)).getroot().iter(SVG + "rect")]
    tally.check(len({(x, y) for x, y, _, _ in rects}) == len(rects), "every cell has its place")


def compare(path, name):
    with tool.Workdir() as work:
        cells = cells_of(path, name, work)
        boxes_apart("a.svg", work)
    weight = dumped(path, name)["weight"]
    tensors = {t["role"]: t["name"] for t in weight["tensors"]}
    tally.check({c["role"] for c in cells} == set(tensors) - {"words"}, "codes and all scales")
    wrong = []
    for cell in cells[::17] + [c for c in cells if c.get("padding")][:3]:
        pairs = [as_offset(path, cell, tensors[cell["role"]])]
        if not cell.get("padding"):
            pairs.append(as_at(path, name, cell))
        wrong += [pair for pair in pairs if pair[0] != pair[1]]
    tally.check(not wrong, f"cells are what --at and --offset say {wrong[:2]}")


def explained(text, on, marked, cell):
    """What the page says of a cell has all its numbers, and the cell is marked, alone only
    when it is padding (a code has its scales, and a scale its codes)."""
    parts = [f"byte {cell['byte']} ", f"({cell['offset']} of the file)", f"stored {cell['stored']}"]
    if "padding" in cell:
        parts.append("padding")
    else:
        parts += [f" n={cell['n']}", f" k={cell['k']}", f"value {cell['value']}"]
    if "half" in cell:
        parts.append(f"{cell['half']} half of byte")
    return on and all(part in text for part in parts) and (marked > 1 or "padding" in cell)


def said(path, count):
    with open(path, encoding="utf-8") as file:
        text = html.unescape(re.search("<pre>(.*)</pre>", file.read(), re.S)[1])
    cells = json.loads(text)
    tally.check(len(cells) == count, f"{len(cells)} cells of {count}")
    # Scales of what is not drawn have no codes beside them.
    wrong = [c for c in cells if not explained(c[0], c[1], c[2] + (c[3]["role"] != "codes"), c[3])]
    tally.check(not wrong, f"explained {wrong[:2]}")


def main():
    if sys.argv[1] == "--said":
        said(sys.argv[2], int(sys.argv[3]))
        return tally.finish()
    if sys.argv[1] == "--probe":
        with open(sys.argv[2], encoding="utf-8") as file:
            print(file.read().replace("</body>", PROBE + "</body>"))
        return 0
    compare(*sys.argv[1:])
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
