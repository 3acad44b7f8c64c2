#!/usr/bin/env python3
"""What `compare` says, against what conversions and `verify --against` say.

    compare.py SRC              sizes, bits and errors, of a sample and of all values
    compare.py SRC --page FILE  the page of SRC holds them, and nothing from elsewhere
    compare.py --markup         names of tensors that look like markup
    compare.py --nonfinite      values that are no numbers are counted
    compare.py --tiny           values without a global scale are a format's, not the answer's
    compare.py --outliers       runs that became zero, where a few columns are large
    compare.py --large          a sparse model of 137 GB
"""
import glob
import json
import os
import struct
import sys
import xml.etree.ElementTree as tree

import numpy as np

sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "lib")]
import stfile  # noqa: E402
import tool  # noqa: E402

tally = tool.Tally()


def compared(src, *more):
    return json.loads(tool.run("compare", src, "--json", *more).stdout)


def written():
    formats = json.loads(tool.run("formats", "--json").stdout)["formats"]
    return sorted(f["name"] for f in formats
                  if not f.get("input_only") and f["codec"] != "float")


def tensor_bytes(path):
    total = 0
    for name in os.listdir(path):
        if name.endswith(".safetensors"):
            with open(os.path.join(path, name), "rb") as file:
                (size,) = struct.unpack("<Q", file.read(8))
                header = json.loads(file.read(size))
            header.pop("__metadata__", None)
            total += max(entry["data_offsets"][1] for entry in header.values())
    return total


def mean(values):
    return sum(values) / len(values)


def one_format(src, sampled, full, work):
    name = full["format"]
    out = work.at(name)
    tool.run("convert", src, "-o", out, "--to", name, "--quiet", *tool.weights_only(name))
    weights = json.loads(tool.run("verify", out, "--against", src, "--json").stdout)["weights"]
    errors = {w["name"]: w["sqnr_db"] for w in weights}
    shown = {w["name"]: w["snr_db"] for w in full["worst_first"]}
    problem = ""
    if full["bytes"] != tensor_bytes(out) or sampled["bytes"] != full["bytes"]:
        problem = f"{full['bytes']} bytes, but {tensor_bytes(out)}"
    elif set(shown) != set(errors) or any(abs(shown[n] - errors[n]) > 1e-6 for n in errors):
        problem = f"{shown}, but {errors}"
    elif list(shown.values()) != sorted(shown.values()):
        problem = "the worst do not come first"
    elif abs(full["snr_db"] - mean(errors.values())) > 1e-6 or full["worst_db"] != min(shown.values()):
        problem = f"mean {full['snr_db']}, worst {full['worst_db']}"
    elif abs(sampled["snr_db"] - full["snr_db"]) > 0.2:
        problem = f"sampled {sampled['snr_db']}, all {full['snr_db']}"
    tally.check(not problem, f"{name} {problem}")


def figures(src):
    before = sorted(os.listdir(src))
    sampled, full = compared(src), compared(src, "--full")
    tally.check(sorted(f["format"] for f in full["formats"]) == written(), "all formats")
    sizes = [f["bytes"] for f in sampled["formats"]]
    tally.check(sizes == sorted(sizes), "the smallest first")
    tally.check(full["bytes"] == tensor_bytes(src), "the size of the source")
    by_name = {f["format"]: f for f in sampled["formats"]}
    with tool.Workdir() as work:
        for found in full["formats"]:
            one_format(src, by_name[found["format"]], found, work)
    tally.check(sorted(os.listdir(src)) == before, "nothing is written")


def parse(path):
    with open(path, encoding="utf-8") as file:
        text = file.read()
    assert text.startswith("<!DOCTYPE html>\n")
    return text, tree.fromstring(text.split("\n", 1)[1])


def page(src, path):
    text, root = parse(path)
    outside = [e.tag for e in root.iter() if e.tag.split("}")[-1] in ("script", "link", "img", "iframe")
               or any(a.split("}")[-1] in ("src", "href") or a.startswith("on") for a in e.attrib)]
    tally.check(not outside, f"nothing from elsewhere {outside}")
    tally.check("@import" not in text and "url(" not in text, "no style from elsewhere")
    found = compared(src)["formats"]
    rows = {row[0].findtext("code"): [c.text for c in row] for row in root.findall("body/div/table/tr")[1:]}
    wanted = {f["format"]: f"{f['snr_db']:.2f}" for f in found}
    tally.check({name: row[5] for name, row in rows.items()} == wanted, "the table")
    svg = "{http://www.w3.org/2000/svg}"
    dots = root.findall(f"body/div/{svg}svg/{svg}g")
    named = [name for g in dots for name in g.findtext(f"{svg}title").split(", ")]
    tally.check(sorted(named) == sorted(wanted), "each is at one dot")
    tally.check(all(g.findtext(f"{svg}text").startswith(g.findtext(f"{svg}title").split(", ")[0])
                    for g in dots), "a label for each dot")
    tally.check(len(dots) < 30, f"few enough labels to be read: {len(dots)}")
    worst = [d.findtext("table/tr[2]/td/code") for d in root.findall("body/details")]
    tally.check(worst == [f["worst_first"][0]["name"] for f in found], "the worst weights")


def markup():
    name = "<script>alert('\"&\")</script>.weight"
    with tool.Workdir() as work:
        values = np.random.default_rng(3).standard_normal((128, 256), dtype=np.float32)
        stfile.save(work.at("a.safetensors"), {name: stfile.tensor("F32", values)})
        tool.run("compare", work.at("a.safetensors"), "--to", "fp8-ct", "--html", work.at("a.html"))
        _, root = parse(work.at("a.html"))
        texts = ["".join(e.itertext()) for e in root.iter("code")]
        tally.check(name[:-7] in texts, f"the name is text: {texts}")
        tally.check(not list(root.iter("script")), "and no script")


def nonfinite():
    values = np.random.default_rng(4).standard_normal((256, 256), dtype=np.float32)
    values[3, 5], values[90, 200] = np.nan, -np.inf
    with tool.Workdir() as work:
        src = work.at("a.safetensors")
        stfile.save(src, {"a.weight": stfile.tensor("F32", values)})
        found = compared(src, "--to", "fp8-ct")["formats"][0]
        # One such value can spoil its whole block of 128x128.
        stored = work.at("stored")
        tool.run("convert", src, "-o", stored, "--to", "fp8-ct", "--nonfinite", "keep", "--quiet")
        tool.run("unpack", stored, "-o", work.at("back"), "--dtype", "f32", "--quiet")
        back = np.fromfile(glob.glob(work.at("back/*.safetensors"))[0], "<f4")[-values.size:]
        wanted = int((~np.isfinite(values) | ~np.isfinite(back.reshape(values.shape))).sum())
        tally.check(found["nonfinite"] == wanted >= 2, f"{found['nonfinite']} of {wanted}")
        tally.check(found["worst_first"][0]["nonfinite"] == wanted, "of the weight, too")
        text = tool.run("compare", src, "--to", "fp8-ct").stdout
        tally.check(f"fp8-ct: {wanted} values are NaN or infinite" in text, text)


def tiny():
    values = np.zeros((1024, 1024), np.float32)
    values[0, 0] = 1e-45
    whole, mixed = values[:32, :32].copy(), values
    mixed[:512] = 1e-45
    mixed[512:] = np.random.default_rng(5).standard_normal((512, 1024), dtype=np.float32)
    formats = ("--to", "nvfp4-comfy", "--to", "fp8-ct")
    with tool.Workdir() as work:
        src = work.at("a.safetensors")
        stfile.save(src, {"a.weight": stfile.tensor("F32", whole)})
        for more in (), ("--full",):
            fp8, nvfp4 = compared(src, *formats, *more)["formats"]
            wanted = {"format": "nvfp4-comfy", "refused": "tensor 'a': its largest value is "
                      "1.4013e-45: so small that F32 has no global scale for it"}
            tally.check(fp8.get("measured") == 1, f"the other format {more}: {fp8}")
            tally.check(nvfp4 == wanted, f"refused {more}: {nvfp4}")
        # What is larger elsewhere gives such a box its scale.
        stfile.save(src, {"a.weight": stfile.tensor("F32", mixed)})
        for more in (), ("--full",):
            nvfp4 = compared(src, "--to", "nvfp4-comfy", *more)["formats"][0]
            tally.check(nvfp4.get("nonfinite") == 0 and 15 < nvfp4["snr_db"] < 25,
                        f"in part {more}: {nvfp4}")


def lost_runs(values, stored):
    """The share of runs of eight values of a row, of those that are not zero on both sides, that
    became zero."""
    runs = lost = 0
    for row, made in zip(values, stored):
        for k in range(0, len(row), 8):
            before, after = (bool((side[k:k + 8] != 0).any()) for side in (row, made))
            runs += before or after
            lost += before and not after
    return lost / runs


HEALTHY, LARGE, SHORT = "healthy.q_proj", "large.q_proj", "short.q_proj"


def outlier_model(path):
    """Four columns of 2048 in the hundreds of the others, as in Llama 3 70B; the same without;
    and rows that end within a run. Returns them as they are stored."""
    random = np.random.default_rng(6)
    made = {name: (0.02 * random.standard_normal((64, columns))).astype(np.float32)
            for name, columns in ((HEALTHY, 2048), (LARGE, 2048), (SHORT, 1004))}
    columns = random.choice(2048, 4, replace=False)
    made[LARGE][:, columns] = 40 * random.standard_normal((64, 4))
    made[SHORT][:, :2] *= 200
    made[HEALTHY][5, 8:16] = [0, -0.0] * 4  # nothing that could be lost
    made[SHORT][5, 1000:] = 0
    made = {name + ".weight": stfile.from_f32("F32" if name == SHORT else "BF16", w)
            for name, w in made.items()}
    stfile.save(path, made)
    return made


# What the model with large columns loses, in percent, and what is shown as its ratio.
OUTLIERS = {"int8-ct": (97, 99), "fp8-dynamic-ct": (0, 0), "w4a16-ct": (20, 26),
            "nvfp4-ct": (1, 2), "mxfp4-ct": (4, 6)}


def outliers():
    with tool.Workdir() as work:
        src = work.at("a.safetensors")
        values = outlier_model(src)
        for name, (least, most) in OUTLIERS.items():
            one_loss(src, values, name, least, most, work)


def one_loss(src, values, name, least, most, work):
    out, back = work.at(name), work.at(name + "-back")
    made = tool.run("convert", src, "-o", out, "--to", name, *tool.weights_only(name))
    tool.run("unpack", out, "-o", back, "--dtype", "f32", "--quiet")
    stored, _ = stfile.load(glob.glob(os.path.join(back, "*.safetensors"))[0])
    proven = tool.run("verify", out, "--against", src, "--json", "-j", "3")
    found = {w["name"]: w["lost"] for w in json.loads(proven.stdout)["weights"]}
    wanted = {w: lost_runs(*(side[w + ".weight"].f32() for side in (values, stored)))
              for w in found}
    tally.check(found == wanted and {HEALTHY, LARGE} <= set(found), f"{name}: {found}, {wanted}")
    tally.check(least <= 100 * found[LARGE] <= most and found[HEALTHY] < 0.001, f"{name}: as known")
    html = work.at(name + ".html")
    full = tool.run("compare", src, "--to", name, "--full", "--json", "-j", "1", "--html", html)
    result = json.loads(full.stdout)["formats"][0]
    tally.check({w["name"]: w["lost"] for w in result["worst_first"]} == found
                and result["most_lost"] == max(found.values())
                and result["losing"] == sum(v > 0.01 for v in found.values()),
                f"{name}: compare finds the same")
    text, _ = parse(html)
    tally.check((f"{100 * result['most_lost']:.2f} (!)</td>" in text) == (least > 0)
                and (f"{name} (!)</text>" in text) == (least > 0), f"{name}: the page")
    warning = f"{LARGE} in {name}: {100 * found[LARGE]:.2f} % of its runs of eight values"
    for done in made, proven, full:
        said = [line for line in done.stderr.split("\n") if "runs of eight values" in line]
        tally.check(len(said) == (least > 0) and all(warning in line for line in said),
                    f"{name}: {done.args[1]} warns {done.stderr!r}")
    with open(os.path.join(out, "README.md"), encoding="utf-8") as file:
        card = file.read()
    tally.check(f" | {100 * max(found.values()):.2f} % |\n" in card and
                ("**Warning:**" in card) == (least > 0), f"{name}: the card")


def large():
    shapes = {"self_attn.q_proj": (8192, 8192), "self_attn.k_proj": (1024, 8192),
              "self_attn.v_proj": (1024, 8192), "self_attn.o_proj": (8192, 8192),
              "mlp.gate_proj": (28672, 8192), "mlp.up_proj": (28672, 8192),
              "mlp.down_proj": (8192, 28672)}
    header, at = {}, 0
    for layer in range(80):
        for name, (n, k) in shapes.items():
            header[f"model.layers.{layer}.{name}.weight"] = {
                "dtype": "BF16", "shape": [n, k], "data_offsets": [at, at + 2 * n * k]}
            at += 2 * n * k
    text = json.dumps(header).encode()
    with tool.Workdir() as work:
        with open(work.at("model.safetensors"), "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            file.truncate(8 + len(text) + at)
        formats = compared(work.at("model.safetensors"), "--to", "w4a16-ct", "--to", "fp8-ct")["formats"]
        tally.check([f["weights"] for f in formats] == [560, 560], f"weights of {at / 1e9:.0f} GB")


def main():
    if sys.argv[1] == "--markup":
        markup()
    elif sys.argv[1] == "--nonfinite":
        nonfinite()
    elif sys.argv[1] == "--tiny":
        tiny()
    elif sys.argv[1] == "--outliers":
        outliers()
    elif sys.argv[1] == "--large":
        large()
    elif "--page" in sys.argv:
        page(sys.argv[1], sys.argv[3])
    else:
        figures(sys.argv[1])
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
