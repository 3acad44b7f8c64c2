#!/usr/bin/env python3
"""`recipe` against numpy: what each set costs in each format, and that no assignment within the budget
costs less.

usage: recipe.py DIR   (makes DIR, a model of two layers with files of importance, for recipe.sh)"""
import itertools
import json
import os
import re
import subprocess
import sys

import ml_dtypes
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
import stfile  # noqa: E402
import tool  # noqa: E402

FORMATS = ["w4a16-ct", "w8a16-ct", "bf16"]
HIDDEN, INTER = 256, 384
SHAPES = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (128, HIDDEN), "self_attn.v_proj": (128, HIDDEN),
          "self_attn.o_proj": (HIDDEN, HIDDEN), "mlp.gate_proj": (INTER, HIDDEN), "mlp.up_proj": (INTER, HIDDEN),
          "mlp.down_proj": (HIDDEN, INTER)}
SETS = {"self_attn.qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        "self_attn.o_proj": ("self_attn.o_proj",), "mlp.gate_up": ("mlp.gate_proj", "mlp.up_proj"),
        "mlp.down_proj": ("mlp.down_proj",)}
CONFIG = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": HIDDEN,
          "intermediate_size": INTER, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2,
          "head_dim": 64, "vocab_size": 256}
tally = tool.Tally()


def tensor(values):
    return stfile.Tensor("BF16" if values.dtype == ml_dtypes.bfloat16 else "F32", values.shape, values.tobytes())


def make(path):
    """{weight: float64[N,K]}, and how errors count, {weight: numbers of its columns}: with importance, without,
    and with gradients, too"""
    rng = np.random.default_rng(1)
    weights, h = {}, {}
    for layer, (name, shape) in itertools.product(range(2), SHAPES.items()):
        name = f"model.layers.{layer}.{name}.weight"
        weights[name] = (rng.standard_normal(shape) * rng.uniform(0.01, 0.1)).astype(ml_dtypes.bfloat16)
        h[name] = (rng.standard_normal(shape[1]) ** 4).astype(np.float32)
    os.makedirs(path)
    ends = {name: rng.standard_normal((256, HIDDEN)).astype(ml_dtypes.bfloat16)
            for name in ("model.embed_tokens.weight", "lm_head.weight")}
    stfile.save(f"{path}/model.safetensors", {n: tensor(w) for n, w in {**weights, **ends}.items()})
    squares = {n.removesuffix(".weight") + ".gradient": np.float32(rng.uniform(0.1, 10)).reshape(1) for n in h}
    files = {"importance": h, "gradients": {**h, **squares}, "some": {**h, **dict(list(squares.items())[:7])}, "other": {**h, "model.layers.9.mlp.down_proj.weight": h[name]},
             "part": {n: h[n] for n in h if "layers.0" in n}}
    for file, numbers in files.items():
        stfile.save(f"{path}/{file}.safetensors", {n: tensor(v) for n, v in numbers.items()})
    with open(f"{path}/config.json", "w", encoding="utf-8") as f:
        json.dump(CONFIG, f)
    by = {n: h[n] * float(squares[n.removesuffix(".weight") + ".gradient"][0]) for n in h}
    return {n: w.astype(np.float64) for n, w in weights.items()}, (h, dict.fromkeys(h, 1.0), by)


def recipe(source, work, *options):
    done = tool.run("recipe", source, "--formats", ",".join(FORMATS), "-o", work.at("recipe.json"), "--json", *options)
    return json.loads(done.stdout)


def values_in(source, fmt, work):
    """{weight: float64[N,K]} of what the format makes, and {module: bytes}."""
    packed, plain = work.at(fmt), work.at(fmt + ".plain")
    tool.run("convert", source, "-o", packed, "--to", fmt, "--quiet")
    tool.run("unpack", packed, "-o", plain, "--dtype", "f32", "--quiet")
    sizes = {}
    for name, stored in tool.load(packed)[0].items():
        module = name.rsplit(".", 1)[0]
        sizes[module] = sizes.get(module, 0) + len(stored.data)
    return {n: np.frombuffer(t.data, np.float32).reshape(t.shape).astype(np.float64)
            for n, t in tool.load(plain)[0].items() if t.dtype == "F32"}, sizes


def costs(source, weights, ways, work):
    """{set: {format: (bytes, error in each way)}} by numpy."""
    made = {fmt: values_in(source, fmt, work) for fmt in FORMATS if fmt != "bf16"}
    found = {}
    for layer, (name, parts) in itertools.product(range(2), SETS.items()):
        names = [f"model.layers.{layer}.{part}" for part in parts]
        found[f"model.layers.{layer}.{name}"] = {
            fmt: (sum(sizes[n] for n in names), [
                sum(float(((values[n + ".weight"] - weights[n + ".weight"]) ** 2 * by[n + ".weight"]).sum())
                    for n in names) for by in ways])
            for fmt, (values, sizes) in made.items()}
        found[f"model.layers.{layer}.{name}"]["bf16"] = (sum(2 * weights[n + ".weight"].size for n in names), [0] * 3)
    return found


def check_costs(said, want, column):
    for one in said["sets"]:
        for choice in one["choices"]:
            size, errors = want[one["name"]][choice["format"]]
            tally.check(choice["bytes"] == size and abs(choice["error"] - errors[column]) <= 1e-5 * errors[column],
                        f"{one['name']} in {choice['format']}: {choice}, numpy says {size}, {errors[column]}")


def all_assignments(want, column):
    """Bytes and errors of each assignment, sorted by bytes, with the least error so far."""
    table = [[(size, errors[column]) for size, errors in choices.values()] for choices in want.values()]
    sizes, errors = np.zeros(1), np.zeros(1)
    for choices in table:
        sizes = (sizes[:, None] + [size for size, _ in choices]).ravel()
        errors = (errors[:, None] + [error for _, error in choices]).ravel()
    order = np.argsort(sizes, kind="stable")
    return sizes[order], np.minimum.accumulate(errors[order])


def check_choice(source, want, column, options, work):
    sizes, least = all_assignments(want, column)
    values = sum(two["bf16"][0] // 2 for two in want.values())
    for bits in (4.2, 4.37, 4.5, 4.9, 5.01, 5.5, 6, 6.66, 7.3, 8.2, 9, 11, 13.5, 16, 20):
        said = recipe(source, work, "--bits", str(bits), *options)
        taken = {one["name"]: want[one["name"]][one["format"]] for one in said["sets"]}
        size, error = sum(t[0] for t in taken.values()), sum(t[1][column] for t in taken.values())
        best = least[np.searchsorted(sizes, bits * values / 8, "right") - 1]
        tally.check(size == said["bytes"] and 8 * size <= bits * values and error <= best * (1 + 1e-4) + 1e-12,
                    f"{bits} bits: {8 * size / values:.4f}, error {error:.6g}; the least of all is {best:.6g}")
        tally.check(said["least"] and said["bound"] <= said["expected_error"] * (1 + 1e-9), f"{bits} bits: no better one")


def check_converted(source, work):
    """What convert makes of a recipe has the bytes and the formats that it says."""
    said = recipe(source, work, "--bits", "6")
    tool.run("convert", source, "-o", work.at("out"), "--recipe", work.at("recipe.json"), "--quiet")
    stored = tool.load(work.at("out"))[0]
    formats = {"weight_packed": {"I32": FORMATS[:2]}, "weight": {"BF16": FORMATS[2:]}}
    size = 0
    for one in said["sets"]:
        with open(work.at("recipe.json"), encoding="utf-8") as f:
            rule = next(r for r in json.load(f)["rules"] if r["match"] == one["match"])
        tally.check(rule.get("to", "bf16") == one["format"], f"{one['name']}: {rule}")
        names = [n for n in stored if re.search(one["match"], n.rsplit(".", 1)[0] + ".weight")]
        size += sum(len(stored[n].data) for n in names)
        kinds = {(n.rsplit(".", 1)[1], stored[n].dtype) for n in names} & {("weight_packed", "I32"), ("weight", "BF16")}
        tally.check(len(kinds) == 1 and all(one["format"] in formats[end][dtype] for end, dtype in kinds),
                    f"{one['name']} is {one['format']}: {kinds}")
    tally.check(size == said["bytes"], f"{size} bytes of sets, {said['bytes']} were said")


def check_experts(work):
    """All experts of a layer are one set; what the engine does not read there is not chosen."""
    subprocess.run([sys.executable, os.path.join(tool.REPO, "samples", "gen_checkpoint.py"), work.at("moe"), "--preset",
                    "tiny-mixtral"], check=True, stdout=subprocess.DEVNULL)
    said = json.loads(tool.run("recipe", work.at("moe"), "--formats", "w4a16-ct,w8a16-ct", "--bits", "5.5", "-o",
                               work.at("moe.json"), "--json").stdout)
    names = {one["name"].split(".", 3)[3] for one in said["sets"]}
    tally.check(names == {"self_attn.qkv", "self_attn.o_proj", "block_sparse_moe.experts"}, f"sets: {names}")
    plan = json.loads(tool.run("plan", work.at("moe"), "--recipe", work.at("moe.json"), "--engine", "vllm",
                               "--json").stdout)
    for one in said["sets"]:
        formats = {unit["format"] for unit in plan["units"] if unit["name"].startswith(one["name"])}
        if "experts" in one["name"]:
            tally.check(formats == {one["format"]}, f"{one['name']}: {formats}, {one['format']}")


def main():
    source = sys.argv[1]
    weights, ways = make(source)
    with tool.Workdir() as work:
        want = costs(source, weights, ways, work)
        files = [("--importance", f"{source}/{name}.safetensors") for name in ("importance", "gradients")]
        for column, options in enumerate((files[0], (), files[1])):
            check_costs(recipe(source, work, "--bits", "6", *options), want, column)
            check_choice(source, want, column, options, work)
        check_converted(source, work)
        check_experts(work)
    return tally.finish()


sys.exit(main())
