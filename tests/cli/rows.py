#!/usr/bin/env python3
"""Rows that vLLM moves when it loads a plain weight: query_key_value of Falcon, q and k of Llama 4.

What vLLM does is written here with numpy, as its loaders have it. A kernel-ready format holds the bytes that the
moved weight would have; `unpack`, `verify --against`, `diff` and `dump` take the order back; interchange formats
keep the order of the source, and are made of kernel-ready ones again.

usage: rows.py"""
import json
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import oracle  # noqa: E402
import stfile  # noqa: E402
import tool  # noqa: E402

tally = tool.Tally()
QKV, Q, K, V = "h.0.self_attention.query_key_value", "model.layers.0.self_attn.q_proj", \
    "model.layers.0.self_attn.k_proj", "model.layers.0.self_attn.v_proj"


def grouped(weight, heads, groups):
    """q, k and v one after the other; in the file each group has its heads of q, and one of k and of v."""
    parts = weight.reshape(groups, heads // groups + 2, -1, weight.shape[-1])
    q, k, v = parts[:, :-2], parts[:, -2], parts[:, -1]
    return np.concatenate([part.reshape(-1, weight.shape[-1]) for part in (q, k, v)])


def rotary(weight, heads):
    """The two numbers of a pair lie half a head apart; in the file side by side."""
    rows, columns = weight.shape
    return weight.reshape(heads, rows // heads // 2, 2, columns).transpose(0, 2, 1, 3).reshape(rows, columns)


# model: (model_type, config, {tensor: (rows, how vLLM moves them)})
NEW = {"new_decoder_architecture": True, "multi_query": True}
MODELS = {
    "new": ("falcon", {"num_attention_heads": 6, "num_kv_heads": 2, **NEW},
            {QKV: (640, lambda w: grouped(w, 6, 2))}),
    "old names": ("falcon", {"n_head": 6, "n_head_kv": 3, **NEW}, {QKV: (768, lambda w: grouped(w, 6, 3))}),
    "one": ("falcon", {"num_attention_heads": 6, "num_kv_heads": 6, "new_decoder_architecture": False,
                       "multi_query": True}, {QKV: (512, lambda w: w)}),
    "old": ("falcon", {"num_attention_heads": 4, "new_decoder_architecture": False, "multi_query": False},
            {QKV: (768, lambda w: grouped(w, 4, 4))}),
    "rotary": ("llama4_text", {"num_attention_heads": 4, "num_key_value_heads": 2},
               {Q: (512, lambda w: rotary(w, 4)), K: (256, lambda w: rotary(w, 2)), V: (256, lambda w: w)}),
    "narrow": ("llama4_text", {"num_attention_heads": 8, "num_key_value_heads": 4},
               {Q: (512, lambda w: rotary(w, 8)), K: (256, lambda w: rotary(w, 4)), V: (256, lambda w: w)}),
}
KERNELS = ("w4a16-marlin", "w8a16-machete", "w4a8-cutlass", "fp8-marlin", "fp8-deepgemm-sm100", "mxfp8-blocked",
           "mxfp4-marlin", "nvfp4-marlin")
# What is taken over of codes and scales: (interchange format, kernel-ready one, settings of both).
TAKEN = (("w4a16-ct", "w4a16-marlin", "group=128"), ("w8a16-ct", "w8a16-machete", "group=128"),
         ("mxfp8-ct", "mxfp8-blocked", None), ("mxfp4-ct", "mxfp4-marlin", None))


def save(path, tensors, config):
    os.makedirs(path)
    stfile.save(os.path.join(path, "model.safetensors"),
                {f"{name}.weight": stfile.from_f32("BF16", values) for name, values in tensors.items()})
    with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f)


def tensors_of(path):
    return {name: (t.dtype, t.shape, t.data) for name, t in
            stfile.load(os.path.join(path, "model.safetensors"))[0].items()}


def descriptors(path):
    meta = stfile.load(os.path.join(path, "model.safetensors"))[1]
    found = json.loads(meta["tilepack.descriptors"])
    return {unit["prefix"][:-1]: found[unit["desc"]] for unit in json.loads(meta["tilepack.units"])}


def said(*args, status=0):
    done = tool.run(*args, check=False)
    if done.returncode != status:
        raise SystemExit(f"{args}: status {done.returncode}: {done.stderr}")
    return done


def values_of(path):
    return {name.removesuffix(".weight"): t.f32() for name, t in
            stfile.load(os.path.join(path, "model.safetensors"))[0].items()}


def dumped(packed, name, want, moved):
    """Elements by their row in the source, and the bytes of codes back to that row."""
    dice, at, bytes_of = np.random.default_rng(3), 0, {}
    order = np.argsort(moved(np.arange(len(want), dtype=np.float32)[:, None])[:, 0], kind="stable")
    for n in dice.choice(len(want), 12, replace=False):
        k = int(dice.integers(want.shape[1]))
        found = json.loads(said("dump", packed, name, "--at", f"{n},{k}", "--json").stdout)
        code = next(part for part in found["parts"] if part["role"] == "codes")
        at += (found["at"] == [0, n, k] and found["value"] == want[n, k] and
               found.get("stored_row", n) == order[n])
        back = json.loads(said("dump", packed, code["tensor"], "--offset", str(code["byte"]), "--json").stdout)
        bytes_of[n] = any(i["n"] == [n, n + 1] and i["k"] == [k, k + 1] and i["element_value"] == want[n, k]
                          for i in back["items"])
    tally.check(at == 12, f"{packed}: --at of 12 elements: {at}")
    tally.check(all(bytes_of.values()), f"{packed}: --offset leads back: {bytes_of}")
    rows = json.loads(said("dump", packed, f"{name}.weight", "--values", "62:67,3:5", "--json").stdout)
    tally.check(rows["n"] == [62, 67] and np.array_equal(np.float32(rows["values"]), want[62:67, 3:5]),
                f"{packed}: --values")


def kernels(work, name):
    """The bytes are those of the moved weight, and all readers take the order back."""
    kind, config, weights = MODELS[name]
    dice = np.random.default_rng(7)
    tensors = {t: dice.standard_normal((rows, 256), dtype=np.float32) for t, (rows, _) in weights.items()}
    source, turned = work.at(name), work.at(f"{name} turned")
    save(source, tensors, {"model_type": kind, **config})
    save(turned, {t: weights[t][1](values) for t, values in tensors.items()}, {"model_type": "llama"})
    for fmt in KERNELS:
        packed, other, back = (work.at(f"{name} {fmt} {end}") for end in ("packed", "turned", "back"))
        said("convert", source, "-o", packed, "--to", fmt, "--strict")
        said("convert", turned, "-o", other, "--to", fmt, "--strict", "--include", ".")
        tally.check(tensors_of(packed) == tensors_of(other), f"{name} {fmt}: the bytes of the moved rows")
        said("verify", packed, "--against", source)
        said("unpack", packed, "-o", back, "--dtype", "f32")
        plain = values_of(back)
        stored = oracle.Checkpoint([os.path.join(packed, "model.safetensors")])
        for t, (_, moved) in weights.items():
            tally.check(np.array_equal(moved(plain[t]), stored.unit(t + ".").values()[0]), f"{name} {fmt}: {t} is unpacked")
        if fmt in KERNELS[:2]:
            for t in weights:
                dumped(packed, t, plain[t], weights[t][1])
    has = {t: d["rows"]["order"] for t, d in descriptors(packed).items() if "rows" in d}
    tally.check(set(has) == set(weights) - {V}, f"{name}: descriptors say {has}")


def taken(work, name, plain, fmt, setting):
    """Codes and scales follow their rows both ways."""
    sets = ("--set", setting) if setting else ()
    first, packed, again, other = (work.at(f"{name} {plain} {end}") for end in ("", fmt, "again", f"{fmt} 2"))
    source = work.at(name)
    said("convert", source, "-o", first, "--to", plain, *sets)
    tally.check(not any("rows" in d for d in descriptors(first).values()), f"{name} {plain}: in the source's order")
    said("convert", first, "-o", packed, "--to", fmt, *sets)
    said("convert", packed, "-o", again, "--to", plain, *sets)
    tally.check(tensors_of(first) == tensors_of(again), f"{name} {plain}: {fmt} and back")
    tally.check("no difference" in said("diff", first, packed).stdout, f"{name} {plain}: equal to {fmt}")
    said("convert", source, "-o", other, "--to", fmt, *sets)
    tally.check(descriptors(packed) == descriptors(other), f"{name} {fmt}: one descriptor, whatever the source")
    already = said("plan", packed, "--to", fmt, *sets)
    tally.check(f"is in the format {fmt} already" in already.stderr, f"{name} {fmt}: nothing is left to convert")


def damaged(path, name, change):
    """Status and words of a reader of another descriptor."""
    file = os.path.join(path, "model.safetensors")
    tensors, meta = stfile.load(file)
    described = json.loads(meta["tilepack.descriptors"])
    for descriptor in described.values():
        if "rows" in descriptor:
            change(descriptor)
    copy = f"{path} {name}.safetensors"
    stfile.save(copy, tensors, {**meta, "tilepack.descriptors": json.dumps(described)})
    done = tool.run("dump", copy, QKV, check=False)
    return done.returncode, done.stderr


def edges(work):
    """What is not known, and what does not divide."""
    packed = work.at("new w4a16-marlin packed")
    for name, change, status, text in (
            ("heads", lambda d: d["rows"].update(heads=7), 3, '"rows" is wrong'),
            ("groups", lambda d: d["rows"].update(groups=0), 3, '"rows" is wrong'),
            ("more", lambda d: d["rows"].update(turn=1), 3, '"rows" is wrong'),
            ("word", lambda d: d["rows"].update(order="spiral"), 4, "order of rows 'spiral' is not known")):
        got, stderr = damaged(packed, name, change)
        tally.check(got == status and text in stderr, f"{name}: {got} {stderr.strip()}")
    values = {QKV: np.ones((640, 256), np.float32)}
    for name, heads in (("odd", {"num_attention_heads": 7, "num_kv_heads": 2}), ("none", {})):
        save(work.at(name), values, {"model_type": "falcon", **NEW, **heads})
        done = said("convert", work.at(name), "-o", work.at("none"), "--to", "w4a16-marlin", "--strict", status=4)
        tally.check("config.json states no heads that its rows divide into" in done.stderr, f"{name}: {done.stderr}")
    save(work.at("unknown"), values, {"model_type": "llama"})
    said("convert", work.at("unknown"), "-o", work.at("as it is"), "--to", "w4a16-marlin")
    tally.check("rows" not in descriptors(work.at("as it is"))[QKV], "nothing moves in another model")


def main():
    with tool.Workdir() as work:
        for name in MODELS:
            kernels(work, name)
        for name in ("new", "rotary"):
            for plain, fmt, setting in TAKEN:
                taken(work, name, plain, fmt, setting)
        edges(work)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
