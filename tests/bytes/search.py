#!/usr/bin/env python3
"""`convert --search` against the golden files of tests/golden/search, byte for byte, and
what must not change them: parts, repacking, the form in which a weight is stored."""
import json
import os
import struct
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import refquant as rq
import refsearch as rs
import stfile
import tool

GOLDEN = os.path.join(tool.REPO, "tests", "golden", "search")
F32 = np.float32
NAME = "model.layers.0.self_attn.q_proj"
tally = tool.Tally()


def f32(array):
    return stfile.tensor("F32", np.ascontiguousarray(array, F32))


def imatrix_dat(path, entries, calls=1):
    with open(path, "wb") as f:
        f.write(struct.pack("<i", len(entries)))
        for name, values in entries.items():
            values = np.ascontiguousarray(values, F32)
            f.write(struct.pack("<i", len(name)) + name.encode() + struct.pack("<i", calls)
                    + struct.pack("<i", values.size) + values.tobytes())
        f.write(struct.pack("<ii", 7, 4) + b"text")


def imatrix_gguf(path, entries, counts):
    """entries: name -> [E,K] sums; counts: name -> [E]."""
    tensors = []
    for name, values in entries.items():
        tensors.append((name + ".in_sum2", np.atleast_2d(np.asarray(values, F32))))
        tensors.append((name + ".counts", np.asarray(counts[name], F32).reshape(-1, 1)))

    def text(s):
        return struct.pack("<Q", len(s)) + s.encode()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), 3)
    head += text("general.type") + struct.pack("<I", 8) + text("imatrix")
    head += text("imatrix.datasets") + struct.pack("<IIQ", 9, 8, 1) + text("wiki")
    head += text("imatrix.chunk_count") + struct.pack("<II", 4, 5)
    data = b""
    for name, values in tensors:
        head += text(name) + struct.pack("<IQQIQ", 2, values.shape[1], values.shape[0], 0,
                                         len(data))
        data += values.tobytes() + b"\0" * (-values.nbytes % 32)
    with open(path, "wb") as f:
        f.write(head + b"\0" * (-len(head) % 32) + data)


def case_of(name, importance):
    """(format, --set values, options) of NAME in a golden."""
    words = name.split(".")
    rule = {} if words[0] == "int4" else {"scale": words.pop(1)}
    options = ["--search", words[1]]
    if "signed" in words:
        options.append("--signed")
    if words[1] != "none":
        options += ["--importance", "magnitude" if "magnitude" in words else
                    importance if "importance" in words else "none"]
    if words[0] == "int4":
        return "w4a8-ct", {"quotient": "bf16"} if "bf16" in words else {}, options
    if words[0] == "mxfp4":
        return "mxfp4-ct", {"scale": rule["scale"].replace("even", "ct")}, options
    return "nvfp4-blocked" if rule["scale"] == "torchao" else "nvfp4-ct", (
        rule if rule["scale"] == "torchao" else {}), options


def untiled(data, n, k):
    """Scales [n,k] out of 128x4 tiles."""
    columns = -(-k // 4)
    row, col = np.meshgrid(np.arange(n), np.arange(k), indexing="ij")
    at = (row % 32 * 16 + row // 32 % 4 * 4 + col % 4 + 512 * (col // 4)
          + 512 * columns * (row // 128))
    return np.frombuffer(data, np.uint8)[at].tobytes()


def same_as_golden(made, want, name):
    codes, scale = want[name + ".weight_packed"], want[name + ".weight_scale"]
    got = made[NAME + ".weight_scale"].data
    if len(got) != len(scale.data) or "torchao" in name:
        got = untiled(got, *scale.shape)
    return made[NAME + ".weight_packed"].data == codes.data and got == scale.data


def golden(path):
    """Every tensor of a golden, through the command line."""
    tensors = stfile.load(path)[0]
    names = [n[:-len(".weight_packed")] for n in tensors if n.endswith(".weight_packed")]
    label = "_".join(os.path.basename(path).split("_")[:2])
    with tool.Workdir() as work:
        src, imp = work.at("in.safetensors"), work.at("imp.safetensors")
        stfile.save(src, {NAME + ".weight": tensors["input"]})
        stfile.save(imp, {NAME + ".weight": tensors["importance"]})
        for name in names:
            fmt, sets, options = case_of(name, imp)
            dst = work.at(name + ".safetensors")
            try:
                made = tool.convert(src, dst, fmt, sets, options)[0]
                tally.check(same_as_golden(made, tensors, name), f"{label} {name}")
            except tool.ToolError as error:
                tally.check(False, f"{label} {name}: {error}")
            if name + ".group_scale" in tensors and tensors["input"].shape[0] % 16 == 0:
                kernel_form(work, src, tensors, name, options, label)


def kernel_form(work, src, tensors, name, options, label):
    """Searched straight into the kernel's form: the golden's g and channel; by rule gpu
    those of the oracle."""
    x = tensors["input"].f32()
    importance = (tensors["importance"].bits if name.endswith(".importance") else
                  "magnitude" if name.endswith(".magnitude") else None)
    _, scales = rs.int4_w4a8(x, signed=".signed" in name, importance=importance, rule="gpu")
    g, channel = rq.channel_scale(scales[None], "gpu")
    want = {"gpu": (g[0].T, channel)}
    golden_pair = (tensors[name + ".group_scale"].bits, tensors[name + ".channel"].bits)
    want["cpu"] = want["div"] = golden_pair
    for rule, search in (("gpu", "w4a8"), ("cpu", "mse"), ("div", "w4a8")):
        dst = work.at(f"{name}-{rule}.safetensors")
        made = tool.convert(src, dst, "w4a8-cutlass", {"scale": rule},
                            ["--include", ".", "--search", search] + options[2:])[0]
        g, channel = want[rule]
        eight = rq.group8(np.ascontiguousarray(g.T))
        good = (made[NAME + ".weight_group_scale"].data == eight.tobytes() and
                made[NAME + ".weight_chan_scale"].data == channel.tobytes())
        tally.check(good, f"{label} {name} in the kernel's form, scale={rule}")
        taken = tool.convert(work.at(name + ".safetensors"), dst + ".2.safetensors",
                             "w4a8-cutlass", {"scale": rule})[0]
        tally.check(rule == "gpu" or all(taken[n].data == made[n].data for n in made),
                    f"{label} {name} taken over, scale={rule}")


# ---- a checkpoint ------------------------------------------------------------------

LAYERS = 2


def write_checkpoint(work, rng):
    """A small mixture of experts, and importance of some of its weights: as llama.cpp writes
    it in both its forms, and by the names of the weights."""
    shapes = {"self_attn.q_proj": (64, 256), "self_attn.k_proj": (64, 256),
              "mlp.down_proj": (64, 512)}
    for e in range(2):
        shapes |= {f"mlp.experts.{e}.{p}_proj": sh for p, sh in
                   (("gate", (64, 256)), ("up", (64, 256)), ("down", (64, 256)))}
    names = [f"model.layers.{n}." for n in range(LAYERS)]
    tensors = {p + n + ".weight": stfile.from_f32("BF16", rng.standard_normal(sh).astype(F32))
               for p in names for n, sh in shapes.items()}
    os.mkdir(work.at("m"))
    stfile.save(work.at("m", "model.safetensors"), tensors)
    with open(work.at("m", "config.json"), "w", encoding="utf-8") as f:
        json.dump({"model_type": "mixtral", "hidden_size": 256, "num_attention_heads": 4,
                   "num_key_value_heads": 4, "head_dim": 16}, f)
    sums, own = {}, {}
    for n, prefix in enumerate(names):
        q, up, down = (rng.lognormal(0, 2, s).astype(F32) for s in ((256,), (2, 256), (2, 256)))
        sums |= {f"blk.{n}.attn_q.weight": q, f"blk.{n}.ffn_up_exps.weight": up,
                 f"blk.{n}.ffn_down_exps.weight": down}
        own[prefix + "self_attn.k_proj"] = f32(q)
        for e in range(2):
            own[f"{prefix}mlp.experts.{e}.gate_proj.weight"] = f32(up[e])
            own[f"{prefix}mlp.experts.{e}.down_proj.weight"] = f32(down[e])
    counts = {n: np.full(np.atleast_2d(v).shape[0], 4) for n, v in sums.items()}
    imatrix_dat(work.at("dat"), {n: v * F32(8) for n, v in sums.items()}, 8)
    imatrix_gguf(work.at("gguf"), {n: v * F32(4) for n, v in sums.items()}, counts)
    stfile.save(work.at("own"), own)
    return tensors


def shard(path):
    with open(os.path.join(path, "model.safetensors"), "rb") as f:
        return f.read()


def three_kinds(work, options):
    """Each kind of file says the same; verify needs it, and finds another one."""
    made = {}
    for kind in ("dat", "gguf", "own"):
        out = work.at("out-" + kind)
        done = tool.run("convert", work.at("m"), "-o", out, *options, "--importance",
                        work.at(kind))
        tally.check("model.layers.0.mlp.down_proj and others: searched without importance"
                    in done.stderr, f"{kind}: the weights without importance are named")
        made[kind] = shard(out)
        done = tool.run("verify", out, "--against", work.at("m"), "--importance", work.at(kind),
                        check=False)
        tally.check(done.returncode == 0, f"{kind}: verify derives it again")
    tally.check(made["dat"] == made["gguf"] == made["own"], "three kinds of file, the same bytes")
    done = tool.run("plan", work.at("m"), *options, "--importance", work.at("own"), "--verbose")
    tally.check(all(f"model.layers.{n}.mlp.down_proj: searched without importance" in done.stderr
                    for n in range(LAYERS)), "--verbose names every weight without importance")
    done = tool.run("verify", work.at("out-dat"), "--against", work.at("m"), check=False)
    tally.check(done.returncode == 2 and "which is needed" in done.stderr,
                "verify asks for the file")
    other = stfile.load(work.at("own"))[0]
    name = "model.layers.1.self_attn.k_proj"
    other[name] = f32(other[name].bits[::-1])
    stfile.save(work.at("other"), other)
    done = tool.run("verify", work.at("out-dat"), "--against", work.at("m"), "--importance",
                    work.at("other"), check=False)
    tally.check(done.returncode == 3 and "is not what the weight was converted" in done.stderr,
                "verify knows another file")
    return made["dat"]


def in_the_oracle(work, tensors):
    """Codes and scales of experts and of a sibling, box by box, against the oracle."""
    made = tool.load(work.at("ct"))[0]
    sums = stfile.load(work.at("own"))[0]
    for name, source in (("self_attn.q_proj", "self_attn.k_proj"),
                         ("mlp.experts.1.up_proj", "mlp.experts.1.gate_proj.weight"),
                         ("mlp.down_proj", None)):
        name = "model.layers.1." + name
        h = sums["model.layers.1." + source].bits if source else None
        codes, scale = rs.int4_mse(tensors[name + ".weight"].f32(), signed=True, importance=h)
        tally.check(made[name + ".weight_packed"].data == rq.pack_nibbles(codes).tobytes() and
                    made[name + ".weight_scale"].bits.tobytes() == scale.tobytes(),
                    f"{name}: as the oracle searches it")


def decibels(x, codes, scale, weight):
    value = (codes.astype(np.float64) - 8) * np.repeat(rq.bf16_to_f32(scale), 128, axis=-1)
    return 10 * np.log10((weight * x ** 2).sum() / (weight * (value - x) ** 2).sum())


def figures(work, tensors):
    """What verify says of a search, against numpy."""
    done = tool.run("verify", work.at("ct"), "--against", work.at("m"), "--importance",
                    work.at("own"), "--json")
    units = {u["name"]: u for u in json.loads(done.stdout)["weights"]}
    name = "model.layers.0.self_attn.q_proj"
    h = stfile.load(work.at("own"))[0]["model.layers.0.self_attn.k_proj"].bits
    values = tensors[name + ".weight"].f32()
    found, none = rs.int4_mse(values, signed=True, importance=h), rq.int4(values)
    x, h = values.astype(np.float64), h.astype(np.float64)
    want = {"snr_db": decibels(x, *found, 1), "snr_none_db": decibels(x, *none, 1),
            "weighted_snr_db": decibels(x, *found, h),
            "weighted_snr_none_db": decibels(x, *none, h)}
    off = [abs(units[name][key] - want[key]) for key in want]
    tally.check(max(off) < 1e-3 and want["weighted_snr_db"] > want["weighted_snr_none_db"] + 0.5,
                f"verify's figures of the search {off}")


FIGURES = ("snr_db", "snr_none_db", "weighted_snr_db", "weighted_snr_none_db")


def mean(weights, key):
    values = [w[key] for w in weights if w.get(key) is not None]
    return sum(values) / len(values)


def converts_figures(work):
    """What convert says of a search: of small weights all rows are looked at, so that these
    are verify's figures; and their means."""
    options = ("--to", "w4a8-ct", "--search", "mse", "--signed", "--importance", work.at("own"))
    done = tool.run("convert", work.at("m"), "-o", work.at("said"), *options, "--json")
    said = json.loads(done.stdout)
    proved = json.loads(tool.run("verify", work.at("said"), "--against", work.at("m"),
                                 "--importance", work.at("own"), "--json").stdout)["weights"]
    keys = ("name", "search") + FIGURES
    cut = [{key: w[key] for key in keys if key in w} for w in proved]
    same = len(cut) == len(said["weights"]) and all(
        a.keys() == b.keys() and all(a[k] == b[k] or abs(a[k] - b[k]) < 1e-9 for k in FIGURES
                                     if k in a) for a, b in zip(cut, said["weights"]))
    tally.check(same, "convert's figures are verify's")
    tally.check(all(abs(said[key] - mean(cut, key)) < 1e-9 for key in FIGURES),
                "convert's means")
    text = tool.run("convert", work.at("m"), "-o", work.at("told"), *options).stdout.split("\n")[1]
    a, b, c, d = (said[key] for key in FIGURES)
    tally.check(text == f"search: SNR {a:.2f} dB, without the search {b:.2f} dB: {a - b:+.2f} dB; "
                f"weighted {c:.2f} dB, without {d:.2f} dB: {c - d:+.2f} dB (mean of "
                f"{len(cut)} weights, a sample of rows)", f"convert's line: {text}")
    done = tool.run("convert", work.at("m"), "-o", work.at("told"), *options, "--json")
    again = json.loads(done.stdout)
    tally.check(again["already_done"] and again["weights"] == [] and again["snr_db"] is None,
                "nothing was made: nothing was measured")
    done = tool.run("convert", work.at("m"), "-o", work.at("mute"), *options, "--quiet")
    tally.check(done.stdout == "", "--quiet: no figures")


def sample_of(x, fmt, set_of=64):
    """Rows of a weight that convert looks at: one granule of `step`."""
    granule = {"w4a8-cutlass": 16, "nvfp4-blocked": 128}.get(fmt, 1)
    step = min(max(len(x) // max(granule, set_of), 1), 61)
    step -= step % 2 == 0
    return np.arange(len(x)) // granule % step == 0


def sampled_figures(rng):
    """Of a larger weight convert looks at some rows: the figures are those of these rows,
    whatever the layout, the threads and the memory."""
    with tool.Workdir() as work:
        x = stfile.from_f32("BF16", rng.standard_normal((2000, 256)).astype(F32))
        src = work.at("x.safetensors")
        stfile.save(src, {NAME + ".weight": x})
        values = x.f32()
        for fmt in ("w4a8-ct", "nvfp4-ct", "nvfp4-blocked", "w4a8-cutlass", "mxfp4-ct"):
            said = []
            for number, more in enumerate((("--jobs", "1"), ("--jobs", "3", "--max-memory", "32MiB"))):
                dst = work.at(f"{fmt}-{number}.safetensors")
                done = tool.run("convert", src, "-o", dst, "--to", fmt, "--include", ".",
                                "--search", "mse", "--json", *more)
                said.append([json.loads(done.stdout)[key] for key in FIGURES[:2]])
            plain = work.at(fmt + "-none.safetensors")
            tool.run("convert", src, "-o", plain, "--to", fmt, "--include", ".", "--search", "none")
            rows = sample_of(values, fmt)
            read = [seen(work, path, values, rows) for path in (dst, plain)]
            off = max(abs(a - b) for a, b in zip(said[0], read))
            tally.check(said[0] == said[1] and off < 1e-6 and rows.sum() < 400,
                        f"{fmt}: figures of a sample of {rows.sum()} rows {said} {read}")


def seen(work, packed, x, rows):
    """Decibels of what unpack reads, of these rows."""
    out = work.at("plain.safetensors")
    tool.run("unpack", packed, "-o", out, "--dtype", "f32", "--force")
    value = tool.load(out)[0][NAME + ".weight"].f32().astype(np.float64)[rows]
    x = x.astype(np.float64)[rows]
    return 10 * np.log10((x ** 2).sum() / ((value - x) ** 2).sum())


def again(work, options):
    """The same request is done already; with other numbers it is another one."""
    out = work.at("out-gguf")
    done = tool.run("convert", work.at("m"), "-o", out, *options, "--importance", work.at("dat"))
    tally.check("complete already" in done.stdout, "the same numbers: nothing to do")
    done = tool.run("convert", work.at("m"), "-o", out, *options, "--importance",
                    work.at("other"), check=False)
    tally.check(done.returncode == 7, "other numbers are another conversion")


def checkpoint(work):
    tensors = write_checkpoint(work, np.random.default_rng(23))
    options = ["--to", "w4a8-cutlass", "--search", "mse", "--signed"]
    m, plain = work.at("m"), three_kinds(work, options)
    again(work, options)
    options += ["--importance", work.at("gguf")]
    tool.run("convert", m, "-o", work.at("ct"), "--to", "w4a8-ct", *options[2:])
    in_the_oracle(work, tensors)
    figures(work, tensors)
    converts_figures(work)
    tool.run("convert", m, "-o", work.at("whole"), *options)
    done = tool.run("verify", work.at("whole"), "--against", m, "--importance", work.at("own"),
                    check=False)
    tally.check(done.returncode == 0, "it is derived again with the same numbers")
    for part in ("1/2", "2/2"):
        tool.run("convert", m, "-o", work.at("parts"), "--part", part, *options)
    done = tool.run("merge", work.at("parts"), check=False)
    tally.check(done.returncode == 2 and "which is needed" in done.stderr,
                "merge asks for the file")
    tool.run("merge", work.at("parts"), "--importance", work.at("dat"))
    tally.check(shard(work.at("parts")) == plain, "in parts: the same bytes")
    changed(work, m)
    take_over(work)


def changed(work, m):
    """One changed byte of a searched conversion is found by its source too."""
    path = work.at("out-dat", "model.safetensors")
    data = bytearray(shard(work.at("out-dat")))
    data[-100] ^= 0x10
    with open(path, "wb") as f:
        f.write(data)
    done = tool.run("verify", work.at("out-dat"), "--against", m, "--importance", work.at("own"),
                    check=False)
    tally.check(done.returncode == 1 and "differ" in done.stdout, "a changed byte is found")


def take_over(work):
    """Negative scales are read; what is taken over is not searched unless it is decoded."""
    ct, cutlass = work.at("ct"), work.at("taken")
    tool.run("convert", ct, "-o", cutlass, "--to", "w4a8-cutlass")
    tool.run("unpack", cutlass, "-o", work.at("back"), "--to", "w4a8-ct")
    tool.run("verify", cutlass, "--against", ct)
    tool.run("unpack", ct, "-o", work.at("plain"))
    tool.run("diff", ct, work.at("plain"), check=False)
    scales = [stfile.bf16_to_f32(t.bits) for n, t in tool.load(ct)[0].items()
              if n.endswith("_scale")]
    tally.check(min(s.min() for s in scales) < 0, "some scales are negative")
    weighted = ("--to", "w4a8-ct", "--search", "mse", "--requantize", "--importance")
    again = [work.at("again-gguf"), work.at("again-own")]
    for out, kind in zip(again, ("gguf", "own")):
        tool.run("convert", cutlass, "-o", out, *weighted, work.at(kind))
    tally.check(shard(again[0]) == shard(again[1]) and "no" == descriptor(again[0])["signed"],
                "stacked experts find their importance by the names they came with")
    done = tool.run("convert", ct, "-o", work.at("no"), "--to", "w4a8-cutlass", "--search", "mse",
                    check=False)
    tally.check(done.returncode == 4 and "nothing to search" in done.stderr,
                "what is taken over is not searched")
    tool.run("convert", ct, "-o", work.at("again"), "--to", "w4a8-cutlass", "--search", "mse",
             "--requantize")
    params = descriptor(work.at("again"))
    tally.check((params["search"], params["signed"], params["importance"]) ==
                ("mse", "no", "magnitude"), "but with --requantize it is")


def descriptor(path):
    meta = tool.load(path)[1]
    return next(iter(json.loads(meta["tilepack.descriptors"]).values()))["params"]


def recipe(work):
    """Each rule searches as it says; FP8 has no use for it, and plan says so. Engines load q and k as
    one matrix, and want one format of them; --merged convert makes two."""
    merged = ("--merged", "convert")
    with open(work.at("recipe.json"), "w", encoding="utf-8") as f:
        json.dump({"rules": [
            {"match": "q_proj", "to": "nvfp4-ct", "search": "mse"},
            {"match": "k_proj", "to": "fp8-ct", "search": "mse"},
            {"match": "experts", "to": "w4a8-ct", "search": "w4a8", "signed": True},
            {"match": "down_proj", "to": "w4a8-ct", "search": "none"}]}, f)
    m = work.at("m")
    done = tool.run("plan", m, "--recipe", work.at("recipe.json"), *merged, "--json")
    units = {u["name"].split("layers.0.")[-1]: u for u in json.loads(done.stdout)["units"]}
    said = {n: (u.get("search"), u.get("signed"), u.get("importance"), u.get("search_note"))
            for n, u in units.items() if "layers" not in n}
    best = "its scales are the best already"
    tally.check(said["self_attn.q_proj"] == ("mse", "no", "none", None) and
                said["self_attn.k_proj"] == (None, None, None, best) and
                said["mlp.experts.0.up_proj"] == ("w4a8", "yes", "magnitude", None) and
                said["mlp.down_proj"] == (None, None, None, None), "plan says what is searched")
    done = tool.run("plan", m, "--recipe", work.at("recipe.json"), *merged)
    tally.check("w4a8-ct, search w4a8, signed, importance magnitude" in done.stdout and
                "not searched, as its scales are the best already" in done.stdout,
                "and as text")
    tool.run("convert", m, "-o", work.at("mixed"), "--recipe", work.at("recipe.json"),
             *merged)
    done = tool.run("verify", work.at("mixed"), "--against", m, check=False)
    tally.check(done.returncode == 0, "a recipe is derived again")


def recipe_folder(work):
    """A file of importance that a recipe names lies where the recipe says, seen from there."""
    os.mkdir(work.at("folder"))
    os.symlink(work.at("own"), work.at("folder", "mine"))
    options = ("--include", ".")

    def written(path, importance):
        with open(path, "w", encoding="utf-8") as f:
            json.dump({"rules": [{"match": "proj", "to": "w4a8-ct", "search": "mse",
                                  "importance": importance}]}, f)
        return path
    tool.run("convert", work.at("m"), "-o", work.at("plain-own"), "--to", "w4a8-ct", "--search",
             "mse", "--importance", work.at("own"), *options)
    recipes = [written(work.at("folder", "near.json"), "mine"),
               written(work.at("folder", "up.json"), "../own"),
               written(work.at("folder", "whole.json"), work.at("own"))]
    recipes.append(os.path.relpath(recipes[0]))
    for i, path in enumerate(recipes):
        out = work.at(f"by-recipe-{i}")
        done = tool.run("convert", work.at("m"), "-o", out, "--recipe", path, *options, check=False)
        good = done.returncode == 0 and stored(out) == stored(work.at("plain-own"))
        tally.check(good, f"a recipe names its file of importance {i}{'' if good else done.stderr}")
    done = tool.run("plan", work.at("m"), "--recipe",
                    written(work.at("folder", "gone.json"), "gone"), check=False)
    tally.check(done.returncode == 5 and work.at("folder", "gone") + ":" in done.stderr,
                "a missing file is named with its folder")
    here = tool.run("plan", work.at("m"), "--recipe", "near.json", check=False,
                    cwd=work.at("folder"))
    tally.check(here.returncode == 0, "a recipe in the current folder")


def stored(path):
    return {name: t.data for name, t in tool.load(path)[0].items()}


# ---- without a word ------------------------------------------------------------------

def searches_of(path):
    """What the descriptors say of searches."""
    params = [d["params"] for d in json.loads(tool.load(path)[1]["tilepack.descriptors"]).values()]
    return {tuple(p.get(key) for key in ("search", "signed", "importance")) for p in params}


# What is asked for, of a format that is searched by default, and what its descriptors say then.
UNSAID = {"nvfp4-ct": (("--search", "mse"), ("mse", "no", "none")),
          "w4a16-ct": (("--search", "mse", "--signed"), ("mse", "yes", "magnitude")),
          "w4a8-cutlass": (("--search", "mse", "--signed"), ("mse", "yes", "magnitude"))}
NOT_SEARCHED = {(None, None, None)}


def unsaid(work, fmt):
    """Plain weights are searched where the format says how and the user says nothing; the result knows
    it, and `--search none` is another conversion."""
    m, to = work.at("m"), ("--to", fmt)
    asked, described = UNSAID[fmt]

    def made(name, *words, src=m):
        tool.run("convert", src, "-o", work.at(fmt, name), "--include", ".", "--weights-only",
                 *(words if "--recipe" in words else (*words, *(() if "--to" in words else to))))
        return stored(work.at(fmt, name))
    os.mkdir(work.at(fmt))
    found, same, none = made("unsaid"), made("asked", *asked), made("no", "--search", "none")
    tally.check(found == same != none and searches_of(work.at(fmt, "unsaid")) == {described} and
                searches_of(work.at(fmt, "no")) == NOT_SEARCHED, f"{fmt}: searched by default")
    tally.check(made("weighed", "--importance", work.at("own")) ==
                made("asks", "--importance", work.at("own"), *asked) != found,
                f"{fmt}: importance alone is of that search")
    if "--signed" in asked:
        tally.check(made("signed", "--signed") == found != made("unsigned", "--search", "mse"),
                    f"{fmt}: a search that is named has negative scales only if that is said")
    for name, words in (("unsaid", ()), ("no", ("--search", "none"))):
        done = tool.run("verify", work.at(fmt, name), "--against", m, check=False)
        tally.check(done.returncode == 0, f"{fmt}: {name}: derived again {done.stderr}")
        done = tool.run("convert", m, "-o", work.at(fmt, name), *to, "--include", ".", "--weights-only",
                        *words)
        tally.check("complete already" in done.stdout, f"{fmt}: {name}: nothing to do")
    done = tool.run("convert", m, "-o", work.at(fmt, "unsaid"), *to, "--include", ".", "--weights-only",
                    "--search", "none", check=False)
    tally.check(done.returncode == 7, f"{fmt}: without the search it is another conversion")
    for part in ("1/2", "2/2"):
        tool.run("convert", m, "-o", work.at(fmt, "parts"), *to, "--part", part, "--include", ".",
                 "--weights-only")
    tool.run("merge", work.at(fmt, "parts"))
    tally.check(stored(work.at(fmt, "parts")) == found, f"{fmt}: in parts: the same bytes")
    for i, more in enumerate(({}, {"search": "none"})):
        with open(work.at("rule.json"), "w", encoding="utf-8") as f:
            json.dump({"rules": [{"match": ".", "to": fmt} | more]}, f)
        tally.check(made(f"rule-{i}", "--recipe", work.at("rule.json")) == (none if more else found),
                    f"{fmt}: a rule {more}")


def unsaid_of_packed(work):
    """Weights that are packed already are not searched without a word."""
    m = work.at("m")
    tool.run("convert", m, "-o", work.at("fp8"), "--include", ".", "--weights-only", "--to", "fp8-ct")
    for fmt, search in (("nvfp4-ct", "mse"), ("w4a16-ct", "mse"), ("w4a8-cutlass", "w4a8")):
        done = tool.run("plan", work.at("fp8"), "--to", fmt, "--include", ".", "--weights-only",
                        "--requantize", "--json", "--no-stack")
        searched = {u["name"].split("layers.0.")[-1]: u.get("search")
                    for u in json.loads(done.stdout)["units"] if "layers.0." in u["name"]}
        # down_proj alone is: experts and what readers merge are kept
        tally.check(searched.pop("mlp.down_proj") is None and set(searched.values()) == {search},
                    f"{fmt}: not what is packed {searched}")


def unsaid_elsewhere(work):
    """Negative scales go with the codes; formats whose kernels nobody ran with them warn."""
    for fmt, warns in (("w4a8-flashinfer-sm90", True), ("w4a8-ct", False)):
        done = tool.run("plan", work.at("w4a16-ct", "unsaid"), "--to", fmt, "--include", ".")
        tally.check(("scales may be negative" in done.stderr) == warns, f"{fmt}: a word of negative scales")


def unsaid_everywhere():
    """Every format does what its file says, and every choice that takes the search away says so."""
    with tool.Workdir() as work:
        src = work.at("x.safetensors")
        stfile.save(src, {"a.down_proj.weight": stfile.tensor("BF16", np.zeros((512, 1024), np.uint16))})
        for fmt in json.loads(tool.run("formats", "--all", "--json").stdout)["formats"]:
            if not fmt.get("input_only"):
                unsaid_choices(src, fmt)


def unsaid_choices(src, fmt):
    def planned(*words):
        done = tool.run("plan", src, "--to", fmt["name"], "--weights-only", *words, "--json")
        unit = json.loads(done.stdout)["units"][0]
        return "search" in unit, unit.get("signed") == "yes", unit.get("search_note")
    own = ("search" in fmt, fmt.get("signed", False), None)
    wrong = [] if planned() == own else ["by itself"]
    for param in fmt.get("params", ()):
        for choice in param["choices"]:
            word = f"{param['key']}={choice['name']}"
            takes = "search" in fmt and "search" in choice
            note = (False, False, f"with {word} that is not the default")
            if planned("--set", word) != (note if takes else own) or (
                    takes and planned("--set", word, "--search", "none") != (False, False, None)):
                wrong.append(word)
    tally.check(not wrong, f"{fmt['name']}: searched by default as its file says {wrong}")


# ---- every format --------------------------------------------------------------------

# Their kernels quantize activations by scales that the source here has not.
NEED_ACTIVATIONS = {"nvfp4-cutedsl", "nvfp4-cutlass-moe", "nvfp4-trtllm", "nvfp4-vllm-cutlass"}
NO_EXPERTS = {"w4a8-int8-marlin-channel"}
SEARCHED_CODECS = {"int4", "mxfp4", "nvfp4"}
SIZES = [{"group": g, "scales": s} for g in ("128", "64", "32", "channel") for s in ("bf16", "f16")]
SETTINGS = {"w4a16-ct": SIZES, "gptq": SIZES, "awq": SIZES,
            "w4a16-marlin": [s for s in SIZES if s["group"] != "channel"],
            "w4a16-machete": [s for s in SIZES if s["group"] == "128"],
            "w4a16-marlin-channel": [{"scales": "bf16"}, {"scales": "f16"}]}


def write_experts(work, rng):
    """One layer of two experts, and importance of all their columns."""
    tensors = {}
    for e in range(2):
        for p, shape in (("gate", (256, 512)), ("up", (256, 512)), ("down", (512, 256))):
            x = rng.standard_t(5, shape).astype(F32) * F32(0.03)
            tensors[f"model.layers.0.mlp.experts.{e}.{p}_proj.weight"] = stfile.from_f32("BF16", x)
    os.mkdir(work.at("experts"))
    stfile.save(work.at("experts", "model.safetensors"), tensors)
    with open(work.at("experts", "config.json"), "w", encoding="utf-8") as f:
        json.dump({"model_type": "mixtral", "hidden_size": 512}, f)
    stfile.save(work.at("h"), {name: f32(rng.lognormal(0, 1.5, t.shape[-1]))
                               for name, t in tensors.items()})


def proved(work, fmt, sets, importance):
    """A searched conversion is derived again; what verify says of its weights, and their
    parameters."""
    out, src = work.at("proved"), work.at("experts")
    words = [w for key, value in sets.items() for w in ("--set", f"{key}={value}")]
    tool.run("convert", src, "-o", out, "--to", fmt, *words, "--include", "experts", "--search",
             "mse", "--importance", importance, "--force")
    more = ("--importance", importance) if importance == work.at("h") else ()
    done = tool.run("verify", out, "--against", src, *more, "--json", check=False)
    return json.loads(done.stdout)["weights"] if done.returncode == 0 else None, descriptor(out)


def gains(weights, key):
    return [w[key] - w[key.replace("snr_db", "snr_none_db")] for w in weights]


def searched_format(work, fmt, sets):
    """By the error alone no weight is worse than without the search; and by a file's, in the
    error that it weights."""
    label = fmt + "".join(f" {key}={value}" for key, value in sets.items())
    for importance, key in (("none", "snr_db"), (work.at("h"), "weighted_snr_db")):
        weights, params = proved(work, fmt, sets, importance)
        said = params["importance"]
        tally.check(weights and min(gains(weights, key)) > 0,
                    f"{label}: {key} gains {weights and gains(weights, key)}")
        tally.check((params["search"], params["signed"]) == ("mse", "no") and
                    (said == "none" if importance == "none" else len(said) == 32),
                    f"{label}: the descriptor says {params}")


def not_searched(work, fmt):
    """The search is accepted and left out, and plan says so."""
    done = tool.run("plan", work.at("experts"), "--to", fmt, "--include", "experts", "--search",
                    "mse", "--json")
    tally.check(all(u["search_note"] == "its scales are the best already" and "search" not in u
                    for u in json.loads(done.stdout)["units"]), f"{fmt}: nothing to search")
    tool.run("convert", work.at("experts"), "-o", work.at("proved"), "--to", fmt, "--include",
             "experts", "--search", "mse", "--force")
    tally.check("search" not in descriptor(work.at("proved")), f"{fmt}: no search described")


def every_format(rng):
    formats = json.loads(tool.run("formats", "--json").stdout)
    formats = formats if isinstance(formats, list) else formats["formats"]
    with tool.Workdir() as work:
        write_experts(work, rng)
        for entry in formats:
            name, codec = entry["name"], entry["codec"]
            if entry.get("input_only") or codec == "float":
                continue
            if name in NEED_ACTIVATIONS:
                done = tool.run("plan", work.at("experts"), "--to", name, "--include", "experts",
                                check=False)
                tally.check("activation scales" in done.stderr, f"{name}: wants more of a source")
            elif name in NO_EXPERTS:
                done = tool.run("plan", work.at("experts"), "--to", name, "--include", "experts",
                                "--json")
                tally.check(not json.loads(done.stdout)["units"], f"{name}: holds no experts")
            elif codec == "int8":
                not_searched(work, name)
            elif codec in SEARCHED_CODECS:
                for sets in SETTINGS.get(name, [{}]):
                    searched_format(work, name, sets)


# ---- random shapes -----------------------------------------------------------------

def random_case(rng):
    """One shape, dtype, search and importance; whether the bytes are the oracle's."""
    fmt = rng.choice(["w4a8-ct", "mxfp4-ct"])
    n, k = int(rng.integers(1, 40)), int(rng.integers(1, 7)) * 128
    dtype = str(rng.choice(["BF16", "F32"]))
    x = stfile.from_f32(dtype, (rng.standard_t(4, (n, k)) * 2.0 ** rng.integers(-9, 9, (n, 1)))
                        .astype(F32))
    h = [None, "magnitude", rng.lognormal(0, 2, k).astype(F32)][rng.integers(0, 3)]
    search = "mse" if fmt == "mxfp4-ct" else str(rng.choice(["mse", "w4a8"]))
    signed = bool(fmt == "w4a8-ct" and rng.integers(0, 2))
    if fmt == "mxfp4-ct":
        codes, scale = rs.mxfp4_mse(x.f32(), importance=h)
        packed = rq.pack_pairs(codes)
    else:
        function = rs.int4_mse if search == "mse" else rs.int4_w4a8
        codes, scale = function(x.f32(), signed=signed, importance=h, **(
            {} if search == "mse" else {"rule": "div"}))
        packed = rq.pack_nibbles(codes)
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), {NAME + ".weight": x})
        if isinstance(h, np.ndarray):
            imatrix_dat(work.at("h"), {"blk.0.attn_k.weight": h})
        how = h if isinstance(h, str) else "none" if h is None else work.at("h")
        made = tool.convert(work.at("in.safetensors"), work.at("out.safetensors"), fmt, {}, [
            "--include", ".", "--search", search, "--importance", how]
            + ["--signed"] * signed)[0]
    good = (made[NAME + ".weight_packed"].data == packed.tobytes() and
            made[NAME + ".weight_scale"].data == scale.tobytes())
    text = "none" if h is None else h if isinstance(h, str) else "file"
    return good, f"{fmt} [{n},{k}] {dtype} {search}{' signed' * signed} {text}"


def random_shapes(count):
    rng = np.random.default_rng(7)
    for i in range(count):
        good, text = random_case(rng)
        tally.check(good, f"random {i}: {text}")


def main():
    random_shapes(24 // tool.SHARE)
    for name in tool.share(sorted(os.listdir(GOLDEN))):
        if name.endswith(".safetensors"):
            golden(os.path.join(GOLDEN, name))
    with tool.Workdir() as work:
        checkpoint(work)
        recipe(work)
        recipe_folder(work)
        for fmt in UNSAID:
            unsaid(work, fmt)
        unsaid_of_packed(work)
        unsaid_elsewhere(work)
    sampled_figures(np.random.default_rng(5))
    unsaid_everywhere()
    every_format(np.random.default_rng(31))
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
