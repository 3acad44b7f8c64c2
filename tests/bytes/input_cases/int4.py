"""int4 checkpoints of other tools: taken over, or decoded and quantized again."""
import json
import os

import numpy as np

import refquant as rq
import stfile
import tool
from input_cases.common import (AWQ, FILE, ROOT, awq_file, case, check_int4, ct_file, decoded,
                                f16_scales, golden_case, gptq_file, int8_file, random_codes,
                                refused, repeated, same, to_bf16, to_f32)
from golden import Mismatch
from stfile import tensor


@golden_case("w4a8/src_gptq_*.safetensors")
def gptq_golden(report, g):
    ct = stfile.load(os.path.join(ROOT, "w4a8/src_pack_quantized_n128_k512.safetensors"))[0]
    codes = rq.unpack_nibbles(ct["weight_packed"].bits)
    scales = stfile.f32_to_bf16(g["scales"].bits.T.astype(np.float32))
    for zeros, order in (("qzeros", True), ("qzeros_v2", True), ("qzeros", False), (None, False)):
        source = {"x.qweight": g["qweight"], "x.scales": g["scales"]}
        if zeros:
            source["x.qzeros"] = g[zeros]
        if order:
            source["x.g_idx"] = g["g_idx"]
        check_int4(report, source, codes, scales)
    report.equal("library", rq.pack_nibbles(codes).view(np.uint8).reshape(-1),
                 ct["weight_packed"].bytes)


@golden_case("w4a8/src_pack_quantized_*.safetensors")
def ct_golden(report, g):
    codes = rq.unpack_nibbles(g["weight_packed"].bits)
    source = {"x." + key: g[key] for key in ("weight_packed", "weight_scale", "weight_shape")}
    out, _ = tool.convert_tensors(source, "w4a8-cutlass")
    want = rq.w4a8_cutlass(codes[None], g["weight_scale"].bits[None])
    for key, dtype in (("weight_packed", "I32"), ("weight_group_scale", "F8_E4M3"),
                       ("weight_chan_scale", "F32")):
        same(report, key, out["x." + key], want[key][0], dtype)


SHAPES = [(16, 256, 128), (48, 512, 256), (112, 1280, 128), (24, 768, 384), (32, 1024, 1024),
          (128, 2304, 768), (8, 128, 128), (208, 640, 640)]


def each_shape(make, dtypes=("f16", "bf16")):
    def run(report):
        rng = np.random.default_rng(1)
        for n, k, group in SHAPES:
            for dtype in dtypes:
                codes = random_codes(rng, n, k)
                codes[0, :128] = 8  # a group of zeros
                scales = f16_scales(rng, n, k // group)
                if dtype == "bf16":
                    scales = stfile.f32_to_bf16(scales.astype(np.float32))
                made = make(rng, codes, scales)
                if made:
                    check_int4(report, made, codes, repeated(to_bf16(scales), k))
    return run


@case("gptq: every shape and group, v1 and v2")
def _(report):
    each_shape(lambda rng, c, s: gptq_file("x", c, s, 0x77777777), ("f16",))(report)
    each_shape(lambda rng, c, s: gptq_file("x", c, s, 0x88888888), ("f16",))(report)
    each_shape(lambda rng, c, s: gptq_file("x", c, s), ("f16",))(report)


@case("awq: every shape and group")
def _(report):
    each_shape(lambda rng, c, s: awq_file("x", c, s), ("f16",))(report)


@case("compressed-tensors: every shape and group, bf16 and fp16 scales")
def _(report):
    def make(_, codes, scales):
        group128 = scales.shape[1] * 128 == codes.shape[1]
        if group128 and scales.dtype == np.uint16:
            return None  # already w4a8-ct
        return ct_file("x", codes, scales, dtype="F16" if scales.dtype == np.float16 else "BF16")

    def run(rng, codes, scales):
        made = make(rng, codes, scales)
        if made and scales.shape[1] * 128 == codes.shape[1]:
            return None  # fp16 scales in groups of 128: see the next case
        return made
    each_shape(run)(report)


@case("compressed-tensors: explicit zero points of 8, a g_idx of k / group")
def _(report):
    def make(_, codes, scales):
        n, k = codes.shape
        g_idx = np.arange(k) // (k // scales.shape[1])
        zeros = np.full(scales.shape, 8, dtype=np.uint8)
        return ct_file("x", codes, scales, zeros if n % 8 == 0 else None, g_idx)
    each_shape(make, ("bf16",))(report)


@case("compressed-tensors: int8-stored int4, every shape and group")
def _(report):
    each_shape(lambda rng, c, s: int8_file("x", c, s), ("bf16",))(report)


@case("box size, thread count and instruction set change nothing")
def _(report):
    rng = np.random.default_rng(3)
    n, k = 2048, 1536
    codes, scales = random_codes(rng, n, k), f16_scales(rng, n, k // 256)
    for source in (gptq_file("x", codes, scales, 0x77777777), awq_file("x", codes, scales)):
        for extra in (("--jobs", "12", "--max-memory", "32MiB"), ("--jobs", "1")):
            check_int4(report, source, codes, repeated(to_bf16(scales), k), extra)


@case("experts of GPTQ, AWQ and compressed-tensors become w13 and w2")
def _(report):
    rng = np.random.default_rng(4)
    experts, inter, hidden = 3, 128, 256
    kinds = {"gptq": lambda *a: gptq_file(*a, 0x77777777), "awq": awq_file, "int8": None}
    for kind, make in kinds.items():
        source, codes, scales = {}, {}, {}
        for e in range(experts):
            for part, (n, k) in (("gate_proj", (inter, hidden)), ("up_proj", (inter, hidden)),
                                 ("down_proj", (hidden, inter * 2))):
                c, s = random_codes(rng, n, k), f16_scales(rng, n, k // 128)
                codes[e, part], scales[e, part] = c, to_bf16(s)
                name = f"model.layers.0.mlp.experts.{e}.{part}"
                source.update(make(name, c, s) if make else int8_file(name, c, to_bf16(s)))
        out, _ = tool.convert_tensors(source, "w4a8-cutlass")
        for stack, parts in (("w13", ("gate_proj", "up_proj")), ("w2", ("down_proj",))):
            c = np.stack([np.concatenate([codes[e, p] for p in parts]) for e in range(experts)])
            s = np.stack([np.concatenate([scales[e, p] for p in parts]) for e in range(experts)])
            want = rq.w4a8_cutlass(c, s)
            for key, array in want.items():
                same(report, f"{kind} {stack} {key}",
                     out[f"model.layers.0.mlp.experts.{stack}_{key}"], array)


def check_requantized(report, source, values, config=None):
    """values: what is decoded, float32 that fits bf16."""
    codes, scales = rq.int4(values)
    with tool.Workdir() as work:
        os.mkdir(work.at("src"))
        stfile.save(work.at("src", "model.safetensors"), source)
        if config:
            with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
                json.dump({"quantization_config": config}, f)
        done = tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", "w4a8-ct",
                        "--include", ".", "--requantize")
        out, _ = tool.load(work.at("out"))
        same(report, "packed", out["x.weight_packed"], rq.pack_nibbles(codes), "I32")
        same(report, "scale", out["x.weight_scale"], scales, "BF16")
        after = (codes.astype(np.float64) - 8) * np.repeat(
            stfile.bf16_to_f32(scales).astype(np.float64), 128, axis=1)
        exact = values_before(source, values)
        share = 100 * np.sqrt(((after - exact) ** 2).sum() / (exact ** 2).sum())
        want = (f"tilepack: warning: 1 weight was decoded and quantized again: root mean square "
                f"error {share:.3g} % of the source's values, largest difference "
                f"{np.abs(after - exact).max():.3g} in x\n")
        if not done.stderr.endswith(want):
            raise Mismatch(f"the error is not reported: {done.stderr!r}, not {want!r}")
        out, _ = tool.convert(work.at("src"), work.at("o.safetensors"), "fp8-deepseek", None,
                              ("--include", ".", "--requantize"))
        q, s = rq.fp8_block(values)
        same(report, "fp8", out["x.weight"], q, "F8_E4M3")
        same(report, "fp8 scale", out["x.weight_scale_inv"], s, "F32")


EXACT = {}


def values_before(source, values):
    """The source's values before they were rounded to bf16."""
    return EXACT.get(id(source), values).astype(np.float64)


def remember(source, codes, scales, zeros, group):
    s = to_f32(scales)[:, group]
    z = np.broadcast_to(zeros, scales.shape)[:, group].astype(np.float32)
    EXACT[id(source)] = (codes.astype(np.float32) - z) * s
    return source


@case("--requantize: asymmetric GPTQ of both versions, by config.json")
def _(report):
    rng = np.random.default_rng(5)
    n, k = 64, 512
    codes, scales = random_codes(rng, n, k), f16_scales(rng, n, 4)
    stored = rng.integers(0, 16, (n, 4), dtype=np.uint8)
    group = np.arange(k) // 128
    numbers = {"seed": 2 ** 64 - 1, "low": -2 ** 63 - 1, "damp": float("nan"), "note": "1e999",
               "limits": [-float("inf"), 2 ** 63 - 1, {"to": float("inf")}]}  # as Python reads them
    for version, add, more in (("gptq", 1, {}), ("gptq_v2", 0, {}), (None, 1, {}),
                               ("gptq_v2", 0, numbers)):
        config = {"quant_method": "gptq", "bits": 4, "group_size": 128, **more}
        if version:
            config["checkpoint_format"] = version
        source = remember(gptq_file("x", codes, scales, stored), codes, scales, stored + add, group)
        check_requantized(report, source, decoded(codes, scales, stored + add, group), config)


@case("packed weights are taken whatever their name; what --exclude left is read again")
def _(report):
    rng = np.random.default_rng(16)
    group = np.arange(512) // 128
    made, want = {}, {}
    for name, stored in (("lm_head", 0x77777777), ("kept", rng.integers(0, 16, (64, 4)))):
        codes, scales = random_codes(rng, 64, 512), f16_scales(rng, 64, 4)
        made |= gptq_file(name, codes, scales, stored)
        zeros = np.full((64, 4), 8) if isinstance(stored, int) else stored
        want[name] = decoded(codes, scales, zeros, group)
    config = {"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "gptq_v2"}
    with tool.Workdir() as work:
        os.mkdir(work.at("src"))
        stfile.save(work.at("src", "model.safetensors"), made)
        with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
            json.dump({"quantization_config": config}, f)
        done = tool.run("convert", work.at("src"), "-o", work.at("no"), "--to", "w4a8-ct",
                        "--exclude", "kept", check=False)
        if done.returncode != 4 or "'kept': it stays packed as gptq, and" not in done.stderr:
            raise Mismatch(f"beside what engines read: {done.returncode} {done.stderr}")
        tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", "w4a16-marlin",
                 "--exclude", "kept", "--quiet")
        packed, _ = stfile.load(work.at("out", "model.safetensors"))
        if "lm_head.weight_packed" not in packed or "kept.qweight" not in packed:
            raise Mismatch(f"the output holds {sorted(packed)}")
        tool.run("unpack", work.at("out"), "-o", work.at("plain"), "--dtype", "bf16", "--quiet")
        plain, _ = stfile.load(work.at("plain", "model.safetensors"))
        for name, values in want.items():
            same(report, name, plain[f"{name}.weight"], stfile.f32_to_bf16(values), "BF16")


def ct_bytes(name, codes, scales, shape=True):
    """compressed-tensors pack-quantized of 8 bits; scales [N,G]: bf16 bits."""
    out = {f"{name}.weight_packed": tensor("I32", codes.view(np.int32)),
           f"{name}.weight_scale": tensor("BF16", scales)}
    if shape:
        out[f"{name}.weight_shape"] = tensor("I64", np.array(codes.shape, dtype=np.int64))
    return out


def gptq_bytes(name, codes, scales, zeros=None):
    n, k = codes.shape
    words = codes.reshape(n, k // 4, 4).view(np.int32)[:, :, 0].T
    out = {f"{name}.qweight": tensor("I32", np.ascontiguousarray(words)),
           f"{name}.scales": tensor("F16", scales.T)}
    if zeros is not None:
        stored = np.ascontiguousarray(zeros.T.astype(np.uint8))
        out[f"{name}.qzeros"] = tensor("I32", stored.view(np.int32))
    return out


def ct_group(bits, size, targets, **other):
    return {"targets": targets, "weights": {"num_bits": bits, "type": "int", "symmetric": True,
            "strategy": "group" if size else "channel", "group_size": size}} | other


def ct_groups(*groups):
    return {"quant_method": "compressed-tensors", "format": "pack-quantized",
            "config_groups": {f"group_{i}": group for i, group in enumerate(groups)}}


def save_model(work, source, config):
    os.mkdir(work.at("src"))
    stfile.save(work.at("src", "model.safetensors"), source)
    with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
        json.dump({"quantization_config": config}, f)


def check_unpacked(report, work, what, want):
    tool.run("unpack", work.at(what), "-o", work.at("plain"), "--dtype", "bf16", "--quiet",
             "--force")
    plain, _ = tool.load(work.at("plain"))
    for name, values in want.items():
        same(report, f"{what}: {name}", plain[f"{name}.weight"], stfile.f32_to_bf16(values), "BF16")


@case("8 bits: what --exclude left is read again as what it was")
def _(report):
    rng = np.random.default_rng(31)
    n, k, group = 128, 512, np.arange(512) // 128
    gptq = {"quant_method": "gptq", "bits": 8, "group_size": 128}
    ct = ct_groups(ct_group(8, 128, ["Linear"]))
    bytes_ = [rng.integers(0, 256, (n, k), dtype=np.uint8) for _ in range(2)]
    scales = [f16_scales(rng, n, 4) for _ in range(2)]
    bf16 = [to_bf16(s) for s in scales]
    zeros = np.full((n, 4), 127)
    for make, own, config, tells in (
            (lambda i: gptq_bytes("ab"[i], bytes_[i], scales[i]), scales, gptq, False),
            (lambda i: gptq_bytes("ab"[i], bytes_[i], scales[i], zeros), scales, gptq, True),
            (lambda i: ct_bytes("ab"[i], bytes_[i], bf16[i]), bf16, ct, True),
            (lambda i: ct_bytes("ab"[i], bytes_[i], bf16[i], False), bf16, ct, False)):
        kept = decoded(bytes_[0], own[0], np.uint8(128), group)
        for to in ("w4a8-cutlass", "w8a16-marlin"):
            with tool.Workdir() as work:
                save_model(work, make(0) | make(1), config)
                args = ("--to", to, "--requantize", "--exclude", "^a", "--quiet")
                tool.run("convert", work.at("src"), "-o", work.at("out"), *args)
                tool.run("verify", work.at("out"), "--against", work.at("src"), "--quiet")
                check_unpacked(report, work, "out", {"a": kept})
                tool.run("convert", work.at("out"), "-o", work.at("all"), "--to", to,
                         "--requantize", "--include", "^a", "--quiet")
                tool.run("convert", work.at("src"), "-o", work.at("want"), "--to", to,
                         "--requantize", "--quiet", "--include", ".")
                a, b = tool.load(work.at("all"))[0], tool.load(work.at("want"))[0]
                for name in b:
                    report.exact(f"{to}: {name}", a[name], b[name], b[name].shape)
                done = tool.run("convert", work.at("src"), "-o", work.at("f.safetensors"), *args,
                                check=False)
                if tells != (done.returncode == 0):
                    raise Mismatch(f"to a file: exit {done.returncode}: {done.stderr}")
                if tells:
                    check_unpacked(report, work, "f.safetensors", {"a": kept})


@case("compressed-tensors of 4 and of 8 bits in one model: weight_shape says which")
def _(report):
    rng = np.random.default_rng(32)
    n, k = 64, 512
    four, eight = random_codes(rng, n, k), rng.integers(0, 256, (n, k), dtype=np.uint8)
    for g4, g8 in ((128, 128), (128, None), (None, None), (None, 128), (128, 64)):
        s4, s8 = (to_bf16(f16_scales(rng, n, k // (g or k))) for g in (g4, g8))
        want = {"a": decoded(four, s4, np.uint8(8), np.arange(k) // (g4 or k)),
                "b": decoded(eight, s8, np.uint8(128), np.arange(k) // (g8 or k))}
        groups = [ct_group(4, g4, ["re:a"]), ct_group(8, g8, ["re:b"])]
        with tool.Workdir() as work:
            save_model(work, ct_file("a", four, s4) | ct_bytes("b", eight, s8), ct_groups(*groups))
            check_unpacked(report, work, "src", want)
            tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", "fp8-marlin-channel",
                     "--requantize", "--exclude", "^b", "--include", ".", "--quiet")
            check_unpacked(report, work, "out", {"b": want["b"]})
        unsaid = ct_file("a", four, s4) | ct_bytes("b", eight, s8, False)
        said = ("config.json: tensor 'b': config.json has weights of 4 bits and of 8, and the "
                "tensors of this one fit either", "add its weight_shape (of GPTQ, its qzeros), or "
                "convert the plain model")
        refused(report, unsaid, "fp8-dynamic-ct", *said, ct_groups(*groups[::-1]))
        with tool.Workdir() as work:  # nor is it shown as if it were known
            save_model(work, unsaid, ct_groups(*groups))
            done = tool.run("dump", work.at("src"), "b", "--at", "0,0", check=False)
            shown = json.loads(tool.run("dump", work.at("src"), "--json").stdout)["tensors"]
            if done.returncode != 4 or said[0] not in done.stderr or any(
                    ("format" in t) != t["name"].startswith("a.") for t in shown):
                raise Mismatch(f"dump: {done.stderr} {shown}")


@case("W4A16 and W4A8 are the same tensors: config.json says which, before and after")
def _(report):
    rng = np.random.default_rng(34)
    n, k = 64, 512
    plain = ct_group(4, 128, ["Linear"])
    eight = {"num_bits": 8, "type": "float", "strategy": "token", "symmetric": True, "dynamic": True}
    whole = eight | {"type": "int"}
    inputs = {"w4a16-ct": None, "w4a8-ct": eight}
    source = {}
    for name in "ab":
        source |= ct_file(name, random_codes(rng, n, k), to_bf16(f16_scales(rng, n, 4)))
    for said, *other in ((None,), (eight,), (whole,), (eight, ct_group(8, 128, ["re:none"]))):
        config = ct_groups(plain | ({"input_activations": said} if said else {}), *other)
        for to, wanted in inputs.items():
            with tool.Workdir() as work:
                save_model(work, source, config)
                done = tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", to,
                                "--include", ".")
                if ("already" in done.stderr) != (said == wanted):
                    raise Mismatch(f"{to} of {said}: {done.stderr}")
                check_config(work, "out", {"Linear": wanted})
                out, _ = tool.load(work.at("out"))
                for name in source:
                    report.exact(name, out[name], source[name], source[name].shape)
        for to in ("mxfp4-ct", "fp8-ct", *inputs) if said is not whole else ():
            with tool.Workdir() as work:
                save_model(work, source, config)
                tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", to,
                         "--requantize", "--include", ".", "--exclude", "^a", "--quiet")
                check_config(work, "out", {"Linear" if inputs.get(to, 0) == said else "a": said})
        with tool.Workdir() as work:  # what is kept twice is no other kind afterwards
            save_model(work, source, config)
            tool.run("convert", work.at("src"), "-o", work.at("one"), "--to", "w4a16-marlin",
                     "--requantize", "--include", ".", "--exclude", "^a", "--quiet")
            tool.run("convert", work.at("one"), "-o", work.at("two"), "--to",
                     "mxfp4-marlin" if said is whole else "mxfp4-ct",
                     "--requantize", "--include", ".", "--exclude", "^a", "--quiet")
            with open(work.at("two", "config.json"), encoding="utf-8") as f:
                two = json.load(f)["quantization_config"]
            if said is whole and ("config_groups" in two or "ct-int4" not in two["formats"]):
                raise Mismatch(f"kept twice: {two}")
            if said is not whole:
                check_config(work, "two", {"a": said})


def check_config(work, what, want):
    """want: the input_activations of each target."""
    with open(work.at(what, "config.json"), encoding="utf-8") as f:
        config = json.load(f)["quantization_config"]
    found = {target: group.get("input_activations")
             for group in config["config_groups"].values() for target in group["targets"]}
    for target, inputs in want.items():
        if target not in found or found[target] != inputs:
            raise Mismatch(f"{target}: {inputs}, and config.json has {found}")


@case("GPTQ kept beside GPTQ: what one config.json cannot say of both is refused")
def _(report):
    rng = np.random.default_rng(33)
    n, k = 64, 512
    g_idx = rng.permutation(np.arange(k) // 128)
    kinds = "describes all layers alike, but these would be of 2 kinds"
    file = "that it is of GPTQ's second version its config.json alone says"
    some = rng.integers(0, 15, (n, 4))
    for zeros, order, version, to, wrong, single in (
            (0x77777777, None, "gptq", "gptq", None, None),
            (0x77777777, g_idx, "gptq", "gptq", kinds, None),
            (0x88888888, None, "gptq_v2", "gptq", kinds, None),
            (some, None, "gptq", "gptq", None, None),
            (some, None, "gptq_v2", "gptq", kinds, file),
            (some, None, "gptq_v2", "w4a8-ct", "has no words for that", file),
            (some, None, "gptq_v2", "w4a16-marlin", None, file)):
        source, want = {}, {}
        for name in "ab":
            codes, scales = random_codes(rng, n, k), f16_scales(rng, n, 4)
            source |= gptq_file(name, codes, scales, zeros, order)
            middle = np.uint8(8) if isinstance(zeros, int) else zeros + (version == "gptq")
            want[name] = decoded(codes, scales, middle,
                                 np.arange(k) // 128 if order is None else order)
        config = {"quant_method": "gptq", "bits": 4, "group_size": 128,
                  "desc_act": order is not None, "checkpoint_format": version}
        with tool.Workdir() as work:
            save_model(work, source, config)
            for out, message in (("out", wrong), ("o.safetensors", single)):
                done = tool.run("convert", work.at("src"), "-o", work.at(out), "--to", to,
                                "--requantize", "--exclude", "^a", "--include", ".", "--quiet",
                                check=False)
                if done.returncode != (4 if message else 0) or (message or "") not in done.stderr:
                    raise Mismatch(f"{out}: exit {done.returncode}: {done.stderr}")
                if message and os.path.exists(work.at(out)):
                    raise Mismatch(f"there is {out}")
                if not message:
                    check_unpacked(report, work, out, {"a": want["a"]})


@case("--requantize: GPTQ act-order, and groups of 32")
def _(report):
    rng = np.random.default_rng(6)
    n, k = 40, 512
    codes = random_codes(rng, n, k)
    scales = f16_scales(rng, n, 4)
    g_idx = rng.permutation(np.arange(k) // 128)
    eight = np.uint8(8)
    source = remember(gptq_file("x", codes, scales, 0x77777777, g_idx), codes, scales, eight, g_idx)
    check_requantized(report, source, decoded(codes, scales, eight, g_idx))
    scales, group = f16_scales(rng, n, k // 32), np.arange(k) // 32
    source = remember(gptq_file("x", codes, scales, 0x88888888), codes, scales, eight, group)
    check_requantized(report, source, decoded(codes, scales, eight, group))


@case("--requantize: asymmetric AWQ")
def _(report):
    rng = np.random.default_rng(7)
    n, k = 72, 384
    codes, scales = random_codes(rng, n, k), f16_scales(rng, n, 3)
    zeros = rng.integers(0, 16, (n, 3), dtype=np.uint8)
    group = np.arange(k) // 128
    source = remember(awq_file("x", codes, scales, zeros), codes, scales, zeros, group)
    check_requantized(report, source, decoded(codes, scales, zeros, group),
                      {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True})


@case("--requantize: compressed-tensors with zero points, any number of rows, and g_idx")
def _(report):
    rng = np.random.default_rng(8)
    for n in (16, 21):
        codes = random_codes(rng, n, 512)
        scales = to_bf16(f16_scales(rng, n, 4))
        zeros = rng.integers(0, 16, (n, 4), dtype=np.uint8)
        g_idx = rng.permutation(np.arange(512) // 128)
        for order in (np.arange(512) // 128, g_idx):
            source = ct_file("x", codes, scales, zeros, order)
            remember(source, codes, scales, zeros, order)
            check_requantized(report, source, decoded(codes, scales, zeros, order))


def stacked(files):
    """Weights of one name as one stack of experts: [E, ...] of each tensor."""
    out = {key: tensor(files[0][key].dtype, np.stack([f[key].bits for f in files]))
           for key in files[0]}
    out["x.weight_shape"] = files[0]["x.weight_shape"]
    return out


@case("compressed-tensors stacks in act-order: each expert has its own")
def _(report):
    rng = np.random.default_rng(28)
    n, k, want, files = 16, 512, [], []
    for _ in range(3):
        codes, scales = random_codes(rng, n, k), to_bf16(f16_scales(rng, n, 4))
        g_idx = rng.permutation(np.arange(k) // 128)
        files.append(ct_file("x", codes, scales, None, g_idx))
        want.append(decoded(codes, scales, np.uint8(8), g_idx))
    source = stacked(files)
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), source)
        tool.run("unpack", work.at("in.safetensors"), "-o", work.at("u.safetensors"), "--dtype",
                 "bf16", "--quiet")
        out, _ = stfile.load(work.at("u.safetensors"))
        same(report, "values", out["x.weight"], stfile.f32_to_bf16(np.stack(want)), "BF16")
    bad = np.array(source["x.weight_g_idx"].bits)
    bad[2, 7] = 4
    refused(report, source | {"x.weight_g_idx": tensor("I32", bad)}, "w4a8-ct",
            f"{FILE}: tensor 'x.weight_g_idx': g_idx[7] is 4, but there are only 4 groups",
            "get the file again: it is damaged", status=3)
    refused(report, source | {"x.weight_g_idx": tensor("I32", bad[0])}, "w4a8-ct",
            f"{FILE}: tensor 'x.weight_packed': I32 [3,16,64] looks like the codes of a quantized "
            "weight, but with the tensors beside it (weight_scale, weight_shape) it is of no format "
            "that is read here")
