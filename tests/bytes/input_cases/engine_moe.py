"""Kernel-ready experts: rows put in another order, gate and up padded apart, bits moved
(golden/engines), and the ways from such files to others."""
import functools
import json
import os

import numpy as np

import oracle
import stfile
import tool
from input_cases.common import ROOT, case
from golden import Mismatch
from stfile import Tensor, tensor

KEEP = ("--nonfinite", "keep")  # random bytes are also scales that are no numbers
AT = "m.mlp.experts."


@functools.cache
def load(family):
    """{case: {name: tensor}}"""
    cases = {}
    for key, t in stfile.load(os.path.join(ROOT, "engines", family + ".safetensors"))[0].items():
        _, name, rest = key.split(".", 2)
        cases.setdefault(name, {})[rest] = t
    return cases


REPRODUCED = set()  # ids of golden tensors that a conversion gave


def reproduced(report, name, got, want):
    """A tensor of a result against the golden one: shape and bytes."""
    if got.shape != want.shape:
        raise Mismatch(f"{name} is {got.shape}, not {want.shape}")
    report.equal(name, got.bytes, want.bytes)
    REPRODUCED.add(id(want))


def rows_of(t, e, rows=slice(None)):
    return tensor(t.dtype, np.ascontiguousarray(t.bits[e][rows]))


def experts(t, names):
    """A checkpoint with a matrix for each expert. `names`: of the golden's -> of the source's."""
    source = {}
    biases = {"bias": "bias"} if "in_w13_bias" in t else {}
    for name, to in (names | biases).items():
        w13, w2 = t["in_w13_" + name], t["in_w2_" + name]
        half = w13.shape[1] // 2
        for e in range(w13.shape[0]):
            source[f"{AT}{e}.gate_proj.{to}"] = rows_of(w13, e, slice(0, half))
            source[f"{AT}{e}.up_proj.{to}"] = rows_of(w13, e, slice(half, None))
            source[f"{AT}{e}.down_proj.{to}"] = rows_of(w2, e)
    return source


def each(source, name, number):
    """One number beside every matrix, a scalar or [1]."""
    for key in [k for k in source if k.endswith(".weight")]:
        source[key[:-6] + name] = number(int(key.split(".")[3]), "down" in key)


def modelopt(t):
    source = experts(t, {"weight": "weight", "weight_scale": "weight_scale"})
    each(source, "weight_scale_2",
         lambda e, down: Tensor("F32", (), np.float32((e + 1) / 1024).tobytes()))
    return source


def gptoss(t):
    """The stacks that gpt-oss publishes: rows of gate and up are interleaved."""
    source = {}
    for part, name in (("w13", "gate_up_proj"), ("w2", "down_proj")):
        w, scale = t[f"in_{part}_weight"], t[f"in_{part}_weight_scale"]
        shape = (w.shape[0], w.shape[1], w.shape[2] // 16, 16)
        source[f"{AT}{name}_blocks"] = Tensor("U8", shape, w.data)
        source[f"{AT}{name}_scales"] = Tensor("U8", scale.shape, scale.data)
        if f"in_{part}_bias" in t:
            source[f"{AT}{name}_bias"] = t[f"in_{part}_bias"]
    return source


def compressed(t):
    return experts(t, {"weight": "weight_packed", "weight_scale": "weight_scale"})


def equal_files(report, what, a, b):
    """Tensors of two converted files."""
    x, y = tool.load(a)[0], tool.load(b)[0]
    if set(x) != set(y):
        raise Mismatch(f"{what}: {sorted(x)} and {sorted(y)}")
    for name in x:
        report.equal(f"{what} {name}", x[name].bytes, y[name].bytes)


def check_values(report, work, out, codes="weight"):
    """What unpack restores, against the oracle, and single elements as dump has them."""
    tool.run("unpack", work.at("out.safetensors"), "-o", work.at("plain.safetensors"), "--dtype", "f32", "--quiet")
    plain = tool.load(work.at("plain.safetensors"))[0]
    for unit in oracle.Checkpoint([work.at("out.safetensors")]).units:
        values, row = unit.values(), 0
        for origin in unit.sources:
            mine = values[:, row:row + origin["rows"]]
            row += origin["rows"]
            first, step = origin.get("row", 0), origin.get("step", 1)
            for e in range(values.shape[0]):
                theirs = plain[origin["name"].replace("{e}", str(e))].f32()
                if unit.descriptor.get("bias"):
                    theirs = theirs[..., None]
                theirs = theirs if theirs.ndim == 2 else theirs[e]
                theirs = theirs.T if origin.get("transposed") else theirs
                theirs = theirs[first:first + (origin["rows"] - 1) * step + 1:step]
                if not np.array_equal(theirs, mine[e], equal_nan=True):
                    raise Mismatch(f"{unit.prefix}: other values are unpacked of {origin['name']}")
                report.bytes += theirs.nbytes
        check_elements(work, unit, values, codes)
    return out


def check_elements(work, unit, values, codes="weight"):
    rng = np.random.default_rng(18)
    for _ in range(3):
        e, n, k = (int(rng.integers(size)) for size in values.shape)
        name = unit.prefix + ("" if unit.descriptor.get("bias") else codes)
        done = tool.run("dump", work.at("out.safetensors"), name, "--at", f"{e},{n},{k}", "--json")
        got = np.float32(json.loads(done.stdout)["value"])
        want = values[e, n, k]
        if not np.array_equal(got, want, equal_nan=True):
            raise Mismatch(f"element {e},{n},{k} of {unit.prefix} is {got}, not {want}")


def check(report, source, to, want, others=()):
    """`want`: name behind the experts -> tensor. `others`: formats that the result is taken over
    into, which must give what the source gives."""
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), source)
        out, _ = tool.convert(work.at("in.safetensors"), work.at("out.safetensors"), to, None, KEEP)
        for name, t in want.items():
            reproduced(report, f"{to} {name}", out[AT + name], t)
        tool.run("verify", work.at("out.safetensors"), "--against", work.at("in.safetensors"), "--quiet")
        check_values(report, work, out)
        for other in others:
            tool.convert(work.at("in.safetensors"), work.at("straight.safetensors"), other, None, KEEP)
            tool.convert(work.at("out.safetensors"), work.at("around.safetensors"), other, None, KEEP)
            equal_files(report, f"{to} to {other}", work.at("straight.safetensors"), work.at("around.safetensors"))
            tool.convert(work.at("around.safetensors"), work.at("back.safetensors"), to, None, KEEP)
            equal_files(report, f"{other} to {to}", work.at("out.safetensors"), work.at("back.safetensors"))
            for name in ("straight.safetensors", "around.safetensors", "back.safetensors"):
                os.remove(work.at(name))


def both(t, *suffixes):
    if "out_w13_bias" in t:
        suffixes += ("bias",)
    return {f"{part}_{s}": t[f"out_{part}_{s}"] for part in ("w13", "w2") for s in suffixes}


WEIGHTS = ("weight", "weight_scale")


def refused(source, to, says, meta=None):
    """Raises Mismatch unless the conversion ends with status 4 and says so."""
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), source, meta)
        done = tool.run("convert", work.at("in.safetensors"), "-o", work.at("o.safetensors"),
                        "--to", to, "--quiet", *KEEP, "--include", ".", check=False)
        if done.returncode != 4 or says not in done.stderr:
            raise Mismatch(f"{done.returncode} {done.stderr}")


@case("engines: TRTLLM-gen and CUTLASS experts, NVFP4")
def _(report):
    cases = load("trtllm")
    for name in ("nvfp4_gated", "nvfp4_gated_pad"):
        check(report, modelopt(cases[name]), "nvfp4-trtllm", both(cases[name], *WEIGHTS),
              ("nvfp4-cutlass-moe", "nvfp4-cutedsl"))
    cases = load("nvfp4moe")
    check(report, modelopt(cases["fi_cutlass"]), "nvfp4-cutlass-moe",
          both(cases["fi_cutlass"], *WEIGHTS))
    check(report, modelopt(cases["vllm_cutlass"]), "nvfp4-vllm-cutlass",
          both(cases["vllm_cutlass"], *WEIGHTS), ("nvfp4-trtllm", "nvfp4-cutedsl"))
    for name in ("cutedsl", "cutedsl_pad"):
        check(report, modelopt(cases[name]), "nvfp4-cutedsl", both(cases[name], *WEIGHTS))


@case("engines: TRTLLM-gen experts, MXFP4 and MXFP8")
def _(report):
    cases = load("trtllm")
    t = cases["mxfp4_gateup_pad"]
    check(report, compressed(t), "mxfp4-trtllm", both(t, *WEIGHTS), ("mxfp4-flashinfer-sm90",))
    for name in ("mxfp4_gptoss", "mxfp4_gptoss_pad"):
        check(report, gptoss(cases[name]), "mxfp4-trtllm", both(cases[name], *WEIGHTS),
              ("mxfp4-flashinfer-sm90",))
    without = {k: v for k, v in cases["mxfp4_gptoss"].items() if "bias" not in k}
    check(report, gptoss(without), "mxfp4-trtllm", both(without, *WEIGHTS), ("mxfp4-megamoe",))
    t = cases["mxfp8_gated_pad"]
    source = experts(t, {"weight": "weight", "weight_scale": "weight_scale"})
    check(report, source, "mxfp8-trtllm", both(t, *WEIGHTS))


@case("engines: TRTLLM-gen experts, FP8 and int4")
def _(report):
    cases = load("trtllm")
    t = cases["fp8block"]
    names = {"weight": "weight", "weight_scale_inv": "weight_scale_inv"}
    check(report, experts(t, names), "fp8-trtllm", both(t, *names))
    for name in ("fp8tensor_gated", "fp8tensor_gated_pad"):
        t = cases[name]
        source = experts(t, {"weight": "weight"})
        each(source, "weight_scale", lambda e, down, t=t: Tensor(
            "F32", (1,), t[f"in_{'w2' if down else 'w13'}_weight_scale"].bits[e:e + 1].tobytes()))
        check(report, source, "fp8-tensor-trtllm", both(t, *WEIGHTS))
    t = cases["mxint4"]
    source = experts(t, {"weight_packed": "weight_packed", "weight_scale": "weight_scale"})
    for key in [k for k in source if k.endswith("weight_packed")]:
        n, words = source[key].shape
        source[key[:-6] + "shape"] = tensor("I64", np.array([n, words * 8], dtype=np.int64))
    check(report, source, "mxint4-trtllm", both(t, *WEIGHTS))


@case("engines: TRTLLM-gen experts, BF16")
def _(report):
    t = load("trtllm")["bf16_gated"]
    names = {"weight": "weight"}
    check(report, experts(t, names), "bf16-trtllm", both(t, *names))
    check(report, {AT + "gate_up_proj": t["in_w13_weight"], AT + "down_proj": t["in_w2_weight"]},
          "bf16-trtllm", both(t, *names))


def ungated(t, names, labels=("up_proj", "down_proj")):
    """A checkpoint of experts that have two matrices each."""
    source = {}
    for name, to in names.items():
        for part, label in zip(("w13", "w2"), labels):
            for e in range(t[f"in_{part}_{name}"].shape[0]):
                source[f"{AT}{e}.{label}.{to}"] = rows_of(t[f"in_{part}_{name}"], e)
    return source


@case("engines: experts without a gate")
def _(report):
    cases = load("trtllm")
    one = {"weight": "weight"}
    for labels in (("up_proj", "down_proj"), ("fc1", "fc2"), ("w1", "w2")):
        t = cases["bf16_nongated"]
        check(report, ungated(t, one, labels), "bf16-trtllm", both(t, *one))
    t = cases["mxfp8_nongated_pad"]
    names = {name: name for name in WEIGHTS}
    check(report, ungated(t, names), "mxfp8-trtllm", both(t, *WEIGHTS))
    t = load("nvfp4moe")["fi_cutlass_nongated"]
    source = ungated(t, names)
    each(source, "weight_scale_2",
         lambda e, down: Tensor("F32", (), np.float32((e + 1) / 1024).tobytes()))
    check(report, source, "nvfp4-cutlass-moe", both(t, *WEIGHTS), ("nvfp4-vllm-cutlass", "nvfp4-trtllm"))


def numbered(t, names):
    """Experts without a gate, with a global scale for each matrix."""
    source = ungated(t, names)
    each(source, "weight_scale_2",
         lambda e, down: Tensor("F32", (), np.float32((e + 1) / 1024).tobytes()))
    return source


@case("engines: experts without a gate are padded otherwise, the last matrix, too")
def _(report):
    names = {name: name for name in WEIGHTS}
    others = ("nvfp4-vllm-cutlass", "nvfp4-trtllm", "nvfp4-cutlass-moe", "nvfp4-cutedsl")
    cases = load("nvfp4moe")
    for name, to in (("vllm_cutlass_nongated_pad", "nvfp4-vllm-cutlass"),
                     ("cutedsl_nongated_pad", "nvfp4-cutedsl")):
        check(report, numbered(cases[name], names), to, both(cases[name], *WEIGHTS),
              [other for other in others if other != to])
    cases = load("trtllm")
    t = cases["nvfp4_nongated_pad"]
    check(report, numbered(t, names), "nvfp4-trtllm-token", both(t, *WEIGHTS), others[:1])
    t = cases["fp8tensor_nongated_pad"]
    source = ungated(t, {"weight": "weight"})
    each(source, "weight_scale", lambda e, down: Tensor(
        "F32", (1,), t[f"in_{'w2' if down else 'w13'}_weight_scale"].bits[e:e + 1].tobytes()))
    check(report, source, "fp8-tensor-trtllm", both(t, *WEIGHTS))


@case("engines: stacks of NVFP4 whose rows are interleaved, as the model's file says")
def _(report):
    t = load("nvfp4moe")["cutedsl_oai"]
    source = {}
    for part, name in (("w13", "gate_up_proj"), ("w2", "down_proj")):
        for suffix in WEIGHTS:
            source[f"{AT}{name}.{suffix}"] = t[f"in_{part}_{suffix}"]
        source[f"{AT}{name}.weight_scale_2"] = tensor("F32", np.array([.5], dtype=np.float32))
    with tool.Workdir() as work:
        os.makedirs(work.at("src"))
        stfile.save(work.at("src", "model.safetensors"), source)
        with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
            json.dump({"model_type": "gpt_oss"}, f)
        for to in ("nvfp4-cutedsl", "nvfp4-trtllm", "nvfp4-cutlass-moe"):
            tool.run("convert", work.at("src"), "-o", work.at(to), "--to", to, "--quiet", *KEEP,
                     *tool.weights_only(to))
            tool.run("verify", work.at(to), "--against", work.at("src"), "--quiet")
        out = tool.load(work.at("nvfp4-cutedsl"))[0]
        for name, want in both(t, *WEIGHTS).items():
            reproduced(report, name, out[AT + name], want)
        tool.run("convert", work.at("nvfp4-cutedsl"), "-o", work.at("around"), "--to", "nvfp4-trtllm",
                 "--quiet", "--weights-only", *KEEP)
        equal_files(report, "around", work.at("around"), work.at("nvfp4-trtllm"))


@case("engines: MXFP4 experts for Hopper")
def _(report):
    cases = load("mxfp4")
    t = cases["fi_sm90_pad"]
    check(report, gptoss(t), "mxfp4-flashinfer-sm90", both(t, *WEIGHTS), ("mxfp4-trtllm",))
    for name in ("value_a", "value_b", "scale_a", "scale_b"):
        check_triton(report, cases["hopper_" + name], "mxfp4-triton-hopper")


def check_triton(report, t, to):
    """A golden of codes or of scales alone; the others are random."""
    rng = np.random.default_rng(19)
    if "in_weight" in t:
        codes = t["in_weight"].bits
        scale = rng.integers(90, 150, codes.shape[:2] + (codes.shape[2] // 16,), dtype=np.uint8)
        want = {"w2_weight": t["out_weight"]}
    else:
        scale = t["in_scale"].bits
        codes = rng.integers(0, 256, scale.shape[:2] + (scale.shape[2] * 16,), dtype=np.uint8)
        want = {"w2_weight_scale": t["out_scale"]}
    source = {}
    for e in range(codes.shape[0]):
        at = f"{AT}{e}.down_proj.weight_"
        source[at + "packed"] = tensor("U8", codes[e])
        source[at + "scale"] = tensor("U8", scale[e])
    check(report, source, to, want)


def sm90_codes(t, to, suffixes, source_of):
    """A golden of codes alone, in the last matrix of experts."""
    source = {}
    for e, codes in enumerate(t["in_weight"].bits):
        source |= {f"{AT}{e}.down_proj.{s}": v for s, v in zip(suffixes, source_of(codes))}
    return source, to, {"w2_weight": t["out_weight"]}


@case("engines: FlashInfer's SM90 kernels for FP8 activations")
def _(report):
    rng, cases = np.random.default_rng(21), load("mxfp4")
    source, to, want = sm90_codes(
        cases["fi_sm90_int4"], "w4a8-flashinfer-sm90", ("weight_packed", "weight_scale", "weight_shape"),
        lambda codes: (tensor("I32", (codes ^ 0x88).view(np.int32)),
                       stfile.from_f32("BF16", rng.uniform(.5, 1, (len(codes), 1)).astype(np.float32)),
                       tensor("I64", np.array([len(codes), 2 * codes.shape[1]], dtype=np.int64))))
    check(report, source, to, want)
    t = cases["fi_sm90_fp4_fp8"]
    n, k = t["in_weight"].shape[1:]
    source, to, want = sm90_codes(
        t, "mxfp4-flashinfer-sm90-fp8", ("weight_packed", "weight_scale"),
        lambda codes: (tensor("U8", codes),
                       tensor("U8", rng.integers(90, 150, (n, k // 16), dtype=np.uint8))))
    check(report, source, to, want, ("mxfp4-flashinfer-sm90",))


@case("engines: comfy-kitchen, MXFP8 and tiles alone")
def _(report):
    cases, rng = load("comfy"), np.random.default_rng(22)
    for name in ("mxfp8", "mxfp8_pad"):
        t = cases[name]
        with tool.Workdir() as work:
            stfile.save(work.at("in.safetensors"), {"x.weight": t["in_x"]})
            out, _ = tool.convert(work.at("in.safetensors"), work.at("out.safetensors"), "mxfp8-comfy", None, KEEP)
            reproduced(report, "codes", out["x.weight"], t["out_codes"])
            reproduced(report, "scale", out["x.weight_scale"], t["out_scale"])
            tool.run("verify", work.at("out.safetensors"), "--against", work.at("in.safetensors"), "--quiet")
            check_values(report, work, out)
    t = cases["tiles"]
    n, j = t["in_scale"].shape
    source = {"x.weight": tensor("F8_E4M3", rng.integers(0, 0x70, (n, 32 * j), dtype=np.uint8)),
              "x.weight_scale": t["in_scale"]}
    reproduced(report, "tiles", tool.convert_tensors(source, "mxfp8-comfy", None, KEEP)[0]["x.weight_scale"],
               t["out_scale"])


@case("engines: MXFP4 experts for Blackwell, DeepGEMM's and Triton's")
def _(report):
    t = load("megamoe")["b"]
    check(report, compressed(t), "mxfp4-megamoe", {
        "w13_weight": t["out_w13_weight"], "w2_weight": t["out_w2_weight"],
        "w13_weight_scale": t["out_w13_weight_scale"],
        "w2_weight_scale": t["out_w2_weight_scale"]}, ("mxfp4-trtllm",))
    cases = load("mxfp4")
    t = cases["fi_cutlass_mxfp8_a"]
    check(report, gptoss(t), "mxfp4-cutlass-moe", both(t, *WEIGHTS), ("mxfp4-trtllm",))
    for name in ("value_a", "value_b", "scale_a", "scale_b"):
        check_triton(report, cases["blackwell_" + name], "mxfp4-triton-blackwell")


@case("engines: comfy-kitchen, the high nibble first")
def _(report):
    for name in ("nvfp4", "nvfp4_pad"):
        t = load("comfy")[name]
        source = {"x.weight": t["in_codes"], "x.weight_scale": t["in_scale"],
                  "x.weight_scale_2": Tensor("F32", (), t["in_per_tensor_scale"].data)}
        with tool.Workdir() as work:
            stfile.save(work.at("in.safetensors"), source)
            out, _ = tool.convert(work.at("in.safetensors"), work.at("out.safetensors"), "nvfp4-comfy", None, KEEP)
            reproduced(report, "codes", out["x.weight"], t["out_codes"])
            reproduced(report, "scale", out["x.weight_scale"], t["out_scale"])
            tool.run("verify", work.at("out.safetensors"), "--against", work.at("in.safetensors"), "--quiet")
            check_values(report, work, out)


@case("engines: rows of gpt-oss that were put apart are told apart")
def _(report):
    t = load("trtllm")["mxfp4_gptoss"]
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), gptoss(t))
        tool.convert(work.at("in.safetensors"), work.at("out.safetensors"), "mxfp4-trtllm", None,
                     KEEP)
        shown = tool.run("dump", work.at("out.safetensors"), AT + "w13").stdout
        if "rows 1 to 255, every second" not in shown:
            raise Mismatch(shown[:400])
        for name, words in ((AT + "gate_up_proj", "lie in several places of the weight"),
                            (AT + "down_proj", "")):
            done = tool.run("dump", work.at("out.safetensors"), name, "--at", "0,1,2", check=False)
            if words not in done.stderr or done.returncode != (2 if words else 0):
                raise Mismatch(f"{name}: {done.returncode} {done.stderr}")
        for to in ("mxfp4-ct", "mxfp4-marlin"):
            done = tool.run("convert", work.at("out.safetensors"), "-o", work.at("o.safetensors"),
                            "--to", to, "--quiet", check=False)
            if done.returncode != 4 or "would have them interleaved" not in done.stderr:
                raise Mismatch(f"{to}: {done.returncode} {done.stderr}")
            report.bytes += 1


@case("engines: rows that alternate stay so from format to format, or are put apart once")
def _(report):
    t = load("trtllm")["mxfp4_gptoss"]
    bare = {k: v for k, v in t.items() if "bias" not in k}
    for of, to in ((t, "mxfp4-trtllm"), (bare, "mxfp4-megamoe")):
        stays = ("mxfp4-marlin", "mxfp4-triton-hopper", "mxfp4-triton-blackwell", "mxfp4-blocked")
        with tool.Workdir() as work:
            def convert(a, b, fmt, work=work):
                tool.convert(work.at(a + ".safetensors"), work.at(b + ".safetensors"), fmt, None,
                             (*KEEP, "--force"))
                return work.at(b + ".safetensors")
            stfile.save(work.at("src.safetensors"), gptoss(of))
            straight = convert("src", "straight", to)
            for first in stays:
                convert("src", first, first)
                for second in stays:
                    equal_files(report, f"{first} to {second}", convert("src", "own", second),
                                convert(first, "second", second))
                    equal_files(report, f"{first} to {second} to {to}", straight,
                                convert("second", "around", to))
            for fmt in stays[1:3]:
                names = set(tool.load(work.at(fmt + ".safetensors"))[0])
                want = {f"{AT}{part}_{s}" for part in ("w13", "w2")
                        for s in WEIGHTS + (("bias",) if of is t else ())}
                if names != want:
                    raise Mismatch(f"{fmt} holds {sorted(names)}")


@case("engines: rows that were put apart stay so, whatever the weight is called")
def _(report):
    bare = {k: v for k, v in load("trtllm")["mxfp4_gptoss"].items() if "bias" not in k}
    with tool.Workdir() as work:
        stfile.save(work.at("src.safetensors"), gptoss(bare))
        for of in ("w8a16-marlin-channel", "mxfp4-trtllm"):
            for name, options in (("named", ()), ("unnamed", ("--no-stack",))):
                tool.convert(work.at("src.safetensors"), work.at(name + ".safetensors"), of, None,
                             (*KEEP, "--requantize", "--force", *options))
            for to in ("fp8-marlin-channel", "mxfp8-marlin", "mxfp4-cutlass-moe"):
                for name in ("named", "unnamed"):
                    tool.convert(work.at(name + ".safetensors"), work.at(f"of-{name}.safetensors"), to,
                                 None, (*KEEP, "--requantize", "--force"))
                equal_files(report, f"{of} to {to}", work.at("of-named.safetensors"),
                            work.at("of-unnamed.safetensors"))


@case("engines: a bias goes where the rows of its weight go, or the weight is refused")
def _(report):
    t = load("trtllm")["mxfp4_gptoss"]
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), gptoss(t))
        done = tool.run("convert", work.at("in.safetensors"), "-o", work.at("o.safetensors"),
                        "--to", "mxfp4-megamoe", "--quiet", check=False)
        if done.returncode != 4 or "it has a bias, and mxfp4-megamoe does not say" not in done.stderr:
            raise Mismatch(f"{done.returncode} {done.stderr}")
        out, _ = tool.convert(work.at("in.safetensors"), work.at("a.safetensors"), "mxfp4-trtllm",
                              None, KEEP)
        if AT + "gate_up_proj_bias" in out:
            raise Mismatch("the bias is there in both orders")
        refused(out, "mxfp4-megamoe", "it has a bias, and mxfp4-megamoe does not say",
                stfile.load(work.at("a.safetensors"))[1])
        again, _ = tool.convert(work.at("a.safetensors"), work.at("b.safetensors"), "mxfp4-trtllm",
                                None, KEEP)
        report.equal("again", again[AT + "w13_bias"].bytes, out[AT + "w13_bias"].bytes)
        stfile.save(work.at("in.safetensors"),
                    {f"x.{end}": tensor("BF16", np.full(shape, 0x3F80, np.uint16))
                     for end, shape in (("weight", (128, 128)), ("bias", (128,)))})
        tool.run("convert", work.at("in.safetensors"), "-o", work.at("c.safetensors"), "--to",
                 "mxfp4-marlin", "--include", ".", "--quiet")
        dense, meta = stfile.load(work.at("c.safetensors"))
        refused(dense, "nvfp4-trtllm", "it has a bias, and nvfp4-trtllm does not say", meta)
    half = dict(experts(load("trtllm")["mxfp4_gateup_pad"],
                        {"weight": "weight_packed", "weight_scale": "weight_scale"}))
    del half[AT + "0.up_proj.bias"]
    refused(half, "mxfp4-trtllm", "some have a bias and others have none")


def with_biases():
    """The same experts twice, one by one and as stacks, with their biases."""
    rng = np.random.default_rng(25)
    apart, whole = {}, {}
    for stack, parts, n, k in (("gate_up_proj", ("gate", "up"), 192, 256),
                               ("down_proj", ("down",), 256, 192)):
        for end, joint, shape in (("weight", "", (n, k)), ("bias", "_bias", (n,))):
            bits = stfile.from_f32("BF16", rng.standard_normal((2, len(parts), *shape)).astype(
                np.float32)).bits
            whole[AT + stack + joint] = tensor("BF16", bits.reshape(2, len(parts) * n, *shape[1:]))
            apart |= {f"{AT}{e}.{part}_proj.{end}": tensor("BF16", bits[e][p])
                      for e in range(2) for p, part in enumerate(parts)}
    return apart, whole


@case("engines: the biases of experts that a format without biases made into stacks")
def _(report):
    apart, whole = with_biases()
    for source, middle, to in ((apart, "mxfp4-blocked", "mxfp4-marlin"),
                               (apart, "mxfp4-blocked", "mxfp4-trtllm"),
                               (apart, "mxfp8-blocked", "mxfp8-marlin"),
                               (whole, "mxfp4-blocked", "mxfp4-cutlass-moe")):
        with tool.Workdir() as work:
            def run(command, a, b, *options, work=work):
                return tool.run(command, work.at(a + ".safetensors"), "--quiet", *options,
                                *(("-o", work.at(b + ".safetensors")) if b else ()))
            stfile.save(work.at("in.safetensors"), source)
            run("convert", "in", "straight", "--to", to)
            run("convert", "in", "middle", "--to", middle)
            run("convert", "middle", "around", "--to", to)
            run("verify", "around", None, "--against", work.at("middle.safetensors"))
            for way in ("straight", "around"):
                run("unpack", way, way + "-back")
            for a, b in (("straight", "around"), ("straight-back", "around-back")):
                equal_files(report, f"{middle} to {to}", work.at(a + ".safetensors"),
                            work.at(b + ".safetensors"))
            if to == "mxfp4-trtllm":
                lacks, meta = stfile.load(work.at("middle.safetensors"))
                bias = lacks.pop(AT + "1.up_proj.bias")
                refused(lacks, to, "some have a bias and others have none", meta)
                lacks[AT + "1.up_proj.bias"] = tensor("BF16", bias.bits[1:])
                refused(lacks, to, f"its bias {AT}1.up_proj.bias has not its rows", meta)
                lacks[AT + "1.up_proj.bias"] = bias
                refused(lacks, "mxfp4-megamoe", "it has a bias, and mxfp4-megamoe does not say", meta)


@case("engines: a bias that was packed has the variant of its weight again")
def _(report):
    rng = np.random.default_rng(26)
    source = {f"x.{end}": stfile.from_f32("BF16", rng.standard_normal(shape).astype(np.float32))
              for end, shape in (("weight", (320, 160)), ("bias", (320,)))}
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), source)
        for a, b, to in (("in", "straight", "mxfp4-marlin"), ("in", "middle", "w8a16-marlin-channel"),
                         ("middle", "around", "mxfp4-marlin")):
            tool.run("convert", work.at(a + ".safetensors"), "-o", work.at(b + ".safetensors"),
                     "--to", to, "--include", ".", "--requantize", "--quiet")
        straight, around = (tool.load(work.at(name + ".safetensors"))[0]["x.bias"]
                            for name in ("straight", "around"))
        if straight.shape != (384,):
            raise Mismatch(f"the bias has {straight.shape}: this shape is not wide")
        reproduced(report, "x.bias", around, straight)


@case("engines: a bias is no weight, whatever --include or a recipe says")
def _(report):
    rng = np.random.default_rng(23)
    plain = {AT + "gate_up_proj": (2, 256, 256), AT + "down_proj": (2, 256, 128),
             AT + "gate_up_proj_bias": (2, 256), AT + "down_proj_bias": (2, 256)}
    plain = {name: stfile.from_f32("BF16", rng.standard_normal(shape).astype(np.float32))
             for name, shape in plain.items()}
    recipe = {"rules": [{"match": "experts", "to": "mxfp4-trtllm"}]}
    for source in (gptoss(load("trtllm")["mxfp4_gptoss"]), plain):
        for to in ("mxfp4-trtllm", "mxfp4-flashinfer-sm90", "mxfp4-marlin", "mxfp4-cutlass-moe",
                   "mxfp4-triton-hopper"):
            with tool.Workdir() as work:
                stfile.save(work.at("in.safetensors"), source)
                with open(work.at("recipe.json"), "w", encoding="utf-8") as f:
                    json.dump(recipe, f)
                tool.convert(work.at("in.safetensors"), work.at("straight.safetensors"), to, None, KEEP)
                ways = [("experts.safetensors", ("--to", to, "--include", "experts")),
                        ("all.safetensors", ("--to", to, "--include", "."))]
                if to == "mxfp4-trtllm":
                    ways.append(("recipe.safetensors", ("--recipe", work.at("recipe.json"))))
                for name, options in ways:
                    tool.run("convert", work.at("in.safetensors"), "-o", work.at(name), "--quiet",
                             *KEEP, *options)
                    equal_files(report, f"{to} {name}", work.at("straight.safetensors"), work.at(name))
                    tool.run("verify", work.at(name), "--against", work.at("in.safetensors"), "--quiet")
                    tool.run("unpack", work.at(name), "-o", work.at("back.safetensors"), "--quiet", "--force")
                    back = tool.load(work.at("back.safetensors"))[0]
                    for bias in [key for key in source if key.endswith("bias")]:
                        report.equal(bias, back[bias].bytes, source[bias].bytes)


@case("engines: what is no weight by its name stays as it is")
def _(report):
    rng = np.random.default_rng(24)
    names = ("a.bias", "a.in_proj_bias", "b.weight_scale", "b.weight_scale_inv", "b.zero_point",
             "b.weight_zero_point", "c.A_log", "c.sinks", "c.attn_sink")
    source = {name: stfile.from_f32("BF16", rng.standard_normal((64, 128)).astype(np.float32))
              for name in ("a.weight", "a.in_proj", *names)}
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), source)
        out, _ = tool.convert(work.at("in.safetensors"), work.at("out.safetensors"), "mxfp8-ct", None,
                              ("--include", ".", "--strict"))
        want = sorted([*names, "a.weight", "a.weight_scale", "a.in_proj.weight", "a.in_proj.weight_scale"])
        if sorted(out) != want:
            raise Mismatch(f"{sorted(out)}, not {want}")
        for name in names:
            report.equal(name, out[name].bytes, source[name].bytes)
        done = tool.run("convert", work.at("in.safetensors"), "-o", work.at("o.safetensors"), "--to",
                        "mxfp8-ct", "--include", "bias$", "--quiet", check=False)
        if done.returncode != 2 or "--include 'bias$' matches no weight" not in done.stderr:
            raise Mismatch(f"{done.returncode} {done.stderr}")


@case("engines: a name with the placeholder of experts is no weight's")
def _(report):
    rng = np.random.default_rng(25)
    names = ("a.{e}.weight", "a.0.weight", f"m{{e}}{AT}0.gate_proj.weight")
    source = {name: stfile.from_f32("BF16", rng.standard_normal((64, 128)).astype(np.float32))
              for name in names}
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), source)
        tool.convert(work.at("in.safetensors"), work.at("out.safetensors"), "mxfp8-ct", None,
                     ("--include", "."))
        tool.run("unpack", work.at("out.safetensors"), "-o", work.at("back.safetensors"), "--quiet")
        back = tool.load(work.at("back.safetensors"))[0]
        if sorted(back) != sorted(names):
            raise Mismatch(f"{sorted(back)}, not {sorted(names)}")
        for name in (names[0], names[2]):
            report.equal(name, back[name].bytes, source[name].bytes)
        if np.array_equal(back[names[1]].bytes, source[names[1]].bytes):
            raise Mismatch("the weight beside them is not converted")
        done = tool.run("convert", work.at("in.safetensors"), "-o", work.at("o.safetensors"), "--to",
                        "mxfp8-ct", "--include", ".", "--strict", "--quiet", check=False)
        if done.returncode != 4 or "its name holds {e}" not in done.stderr:
            raise Mismatch(f"{done.returncode} {done.stderr}")
        packed = {name.replace("a.0.", "a.{e}."): tensor
                  for name, tensor in tool.load(work.at("out.safetensors"))[0].items()
                  if name.startswith("a.0.")}
        stfile.save(work.at("packed.safetensors"), packed)
        done = tool.run("unpack", work.at("packed.safetensors"), "-o", work.at("o.safetensors"),
                        "--quiet", check=False)
        if done.returncode != 4 or "its name holds {e}" not in done.stderr:
            raise Mismatch(f"packed: {done.returncode} {done.stderr}")


@case("engines: plain stacks and back, a single expert's matrix")
def _(report):
    rng = np.random.default_rng(20)
    stack = stfile.from_f32("BF16", rng.standard_normal((2, 256, 256)).astype(np.float32))
    down = stfile.from_f32("BF16", rng.standard_normal((2, 256, 128)).astype(np.float32))
    split = {}
    for e in range(2):
        split[f"{AT}{e}.gate_proj.weight"] = rows_of(stack, e, slice(0, 128))
        split[f"{AT}{e}.up_proj.weight"] = rows_of(stack, e, slice(128, None))
        split[f"{AT}{e}.down_proj.weight"] = rows_of(down, e)
    whole = {AT + "gate_up_proj": stack, AT + "down_proj": down}
    for e in range(2):  # of which only some formats say what becomes of them
        for part, n in (("gate", 128), ("up", 128), ("down", 256)):
            split[f"{AT}{e}.{part}_proj.bias"] = stfile.from_f32(
                "F16", rng.standard_normal(n).astype(np.float32))
    whole[AT + "gate_up_proj_bias"] = stfile.from_f32("F16", np.concatenate([np.stack(
        [split[f"{AT}{e}.{part}_proj.bias"].f32() for e in range(2)]) for part in ("gate", "up")],
        axis=1))
    whole[AT + "down_proj_bias"] = stfile.from_f32("F16", np.stack(
        [split[f"{AT}{e}.down_proj.bias"].f32() for e in range(2)]))
    for to in ("mxfp4-trtllm", "mxfp4-flashinfer-sm90", "mxfp4-cutlass-moe", "nvfp4-trtllm",
               "fp8-trtllm", "nvfp4-cutlass-moe", "bf16-trtllm"):
        biased = to.startswith("mxfp4")
        if not biased:
            split = {k: v for k, v in split.items() if not k.endswith("bias")}
            whole = {k: v for k, v in whole.items() if not k.endswith("bias")}
        with tool.Workdir() as work:
            stfile.save(work.at("split.safetensors"), split)
            stfile.save(work.at("whole.safetensors"), whole)
            tool.convert(work.at("split.safetensors"), work.at("a.safetensors"), to)
            tool.convert(work.at("whole.safetensors"), work.at("b.safetensors"), to)
            equal_files(report, to, work.at("a.safetensors"), work.at("b.safetensors"))
            for name, back in (("a.safetensors", split), ("b.safetensors", whole)):
                tool.run("unpack", work.at(name), "-o", work.at("back.safetensors"), "--quiet", "--force")
                plain = tool.load(work.at("back.safetensors"))[0]
                if set(plain) != set(back):
                    raise Mismatch(f"{to}: unpack restores other tensors")
                for key in plain:
                    if key.endswith("bias") and not np.array_equal(plain[key].f32(), back[key].f32()):
                        raise Mismatch(f"{to}: unpack restores another {key}")


@case("engines: every golden tensor of experts is reproduced")
def _(report):
    """Comes after all cases above, and says nothing without them."""
    if tool.SHARE > 1:
        report.bytes += len(REPRODUCED)
        return
    families = ("trtllm", "nvfp4moe", "mxfp4", "megamoe", "comfy")
    missing = [f"{family}.{name}.{key}" for family in families
               for name, tensors in load(family).items() for key, t in tensors.items()
               if key.startswith("out_") and id(t) not in REPRODUCED]
    if missing:
        raise Mismatch("not reproduced: " + ", ".join(missing))
    report.bytes += len(REPRODUCED)


@case("engines: rows of gate and up that are interleaved under scales of several rows do not come apart")
def _(report):
    rng = np.random.default_rng(63)
    t = {}
    for part, rows in (("w13", 256), ("w2", 128)):
        t[f"in_{part}_weight"] = tensor("U8", rng.integers(0, 256, (2, rows, 64), dtype=np.uint8))
        t[f"in_{part}_weight_scale"] = tensor(
            "U8", rng.integers(110, 127, (2, rows, 4), dtype=np.uint8))
    for middle, to in (("mxfp8-torchao3d", "mxfp8-marlin"), ("mxfp8-torchao3d", "mxfp4-trtllm"),
                       ("fp8-deepgemm-sm90", "mxfp8-trtllm")):
        with tool.Workdir() as work:
            stfile.save(work.at("in.safetensors"), gptoss(t))
            tool.convert(work.at("in.safetensors"), work.at("middle.safetensors"), middle, None,
                         ("--requantize",))
            done = tool.run("convert", work.at("middle.safetensors"), "-o", work.at("o.safetensors"),
                            "--to", to, "--requantize", check=False)
            said = "rows of gate and up are interleaved in m.mlp.experts.gate_up_proj, and one of its"
            if done.returncode != 4 or said not in done.stderr:
                raise Mismatch(f"{middle} to {to}: {done.returncode} {done.stderr}")
            report.bytes += 1
