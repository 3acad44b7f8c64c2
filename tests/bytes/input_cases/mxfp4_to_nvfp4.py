"""MXFP4 taken over as NVFP4: the same codes, powers of two as e4m3 scales, one global scale.

Everything is computed here from the rule alone (formats/README.md, 13.1), in integers."""
import os
import subprocess

import numpy as np

import oracle
import refquant as rq
import stfile
import tool
from input_cases.common import FILE, case, mx_source, refused, same
from input_cases.engine_moe import AT, compressed, equal_files, gptoss
from golden import Mismatch
from stfile import tensor

E4M3_OF_POWER = {p: (p + 7) << 3 for p in range(-6, 9)} | {-7: 4, -8: 2, -9: 1}
RULES = {"nvfp4-ct": (None, -1), "nvfp4-blocked": ("modelopt", 1)}


def nibbles(packed):
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)


def shift(blocks):
    """g of blocks of these scale bytes, NaN left out."""
    return max(int(blocks[blocks < 255].max()) - 127 - 8, -126)


def scales(blocks, g):
    """e4m3 bytes [N,K/16] of e8m0 bytes [N,K/32]."""
    table = np.array([E4M3_OF_POWER[min(max(b - 127 - g, -9), 8)] for b in range(255)] + [0x7F],
                     dtype=np.uint8)
    return np.repeat(table[blocks], 2, axis=-1)


def matrix(rng, n, k, low, high):
    made = mx_source(rng, "mxfp4-ct", n, k)
    made["weight_scale"] = tensor("U8", rng.integers(low, high + 1, (n, k // 32), dtype=np.uint8))
    return made


def changed(source, *changes, suffix="weight_scale"):
    """The same with some bytes changed: pairs of a place (row, column) and what comes there."""
    bits = source[suffix].bits.copy()
    for place, value in changes:
        bits[place] = value
    return source | {suffix: tensor(source[suffix].dtype, bits)}


def check(report, name, made, source, g, sign):
    """One matrix as nvfp4-ct or nvfp4-blocked has it."""
    blocks, tiled = source["weight_scale"].bits, made["weight_scale"].dtype == "F8_E4M3"
    want = scales(blocks, g)
    if made["weight_scale"].shape != want.shape:
        want = rq.tiles_128x4(want)
    same(report, name + " codes", made["weight_packed"], source["weight_packed"].bits)
    same(report, name + " scales", made["weight_scale"], want, "F8_E4M3" if tiled else None)
    same(report, name + " global", made["weight_global_scale"],
         np.array([np.ldexp(1.0, sign * g)], dtype=np.float32), "F32")


def named(source, name):
    return {f"{name}.{suffix}": t for suffix, t in source.items()}


@case("MXFP4 to NVFP4: codes as they are, powers of two as e4m3, over all exponents")
def _(report):
    rng = np.random.default_rng(41)
    for low, high in ((100, 117), (0, 0), (0, 17), (3, 9), (237, 254), (120, 120), (1, 18)):
        source = changed(matrix(rng, 40, 96, low, high), ((0, 0), low), ((0, 1), high))
        for to, (rule, sign) in RULES.items():
            sets = {"scale": rule} if rule else None
            out, _ = tool.convert_tensors(named(source, "x"), to, sets)
            made = {key[2:]: t for key, t in out.items()}
            check(report, f"{to} {low} to {high}", made, source,
                  shift(source["weight_scale"].bits), sign)


@case("MXFP4 to NVFP4: what engines load as one shares the global scale; verify and diff agree")
def _(report):
    rng = np.random.default_rng(42)
    layer, sets = "model.layers.1.", (("self_attn.", "qkv"), ("mlp.", ("gate", "up")),
                                      ("mlp.", ("down",)))
    parts = {}
    for i, (at, names) in enumerate(sets):
        for j, part in enumerate(names):
            parts[f"{layer}{at}{part}_proj"] = (i, matrix(rng, 32, 64, 105 + 4 * j, 109 + 4 * j))
    source = {}
    for name, (_, made) in parts.items():
        source |= named(made, name)
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), source)
        out, _ = tool.convert(work.at("in.safetensors"), work.at("out.safetensors"), "nvfp4-ct")
        for name, (i, made) in parts.items():
            g = max(shift(other["weight_scale"].bits) for s, other in parts.values() if s == i)
            got = {suffix: out[f"{name}.{suffix}"]
                   for suffix in ("weight_packed", "weight_scale", "weight_global_scale")}
            check(report, name, got, made, g, -1)
        said = tool.run("verify", work.at("out.safetensors"), "--against",
                        work.at("in.safetensors")).stdout
        if said.count(" exact") != len({n.split(".")[-1] for n in parts}):
            raise Mismatch(said)
        tool.run("diff", work.at("in.safetensors"), work.at("out.safetensors"))


def exact(report, source, work, to):
    """Every value of the result is that of the source, which the oracle knows as mxfp4-ct."""
    stfile.save(work.at("in.safetensors"), source)
    for name, into in (("mx", "mxfp4-trtllm"), ("out", to)):
        tool.convert(work.at("in.safetensors"), work.at(name + ".safetensors"), into, None,
                     ("--force",))
    units = {u.prefix: u.values() for u in oracle.Checkpoint([work.at("out.safetensors")]).units}
    for unit in oracle.Checkpoint([work.at("mx.safetensors")]).units:
        want, got = unit.values(), units[unit.prefix]
        if to == "nvfp4-vllm-cutlass" and unit.prefix.endswith("w13_"):
            want = np.roll(want, want.shape[1] // 2, axis=1)
        if not np.array_equal(got, want):
            raise Mismatch(f"{to}: other values of {unit.prefix}")
        report.bytes += got.nbytes
    tool.run("verify", work.at("out.safetensors"), "--against", work.at("in.safetensors"),
             "--quiet")


@case("MXFP4 to NVFP4: experts, in every layout and order of rows, there from any layout")
def _(report):
    rng = np.random.default_rng(43)
    source = {}
    for e in range(3):
        for part, (n, k) in (("gate", (128, 256)), ("up", (128, 256)), ("down", (256, 128))):
            made = matrix(rng, n, k, 100 + 5 * e, 110 + 5 * e)
            source |= named(made, f"{AT}{e}.{part}_proj")
    for to in ("nvfp4-trtllm", "nvfp4-cutedsl", "nvfp4-cutlass-moe", "nvfp4-vllm-cutlass"):
        with tool.Workdir() as work:
            exact(report, source, work, to)
            for middle in ("mxfp4-trtllm", "mxfp4-triton-hopper", "mxfp4-megamoe"):
                tool.convert(work.at("in.safetensors"), work.at("mid.safetensors"), middle, None,
                             ("--force",))
                tool.convert(work.at("mid.safetensors"), work.at("around.safetensors"), to, None,
                             ("--force",))
                equal_files(report, f"{middle} to {to}", work.at("out.safetensors"),
                            work.at("around.safetensors"))
    out, _ = tool.convert_tensors(source, "nvfp4-ct")
    for e in range(3):
        g = max(shift(source[f"{AT}{e}.{p}_proj.weight_scale"].bits) for p in ("gate", "up"))
        for p in ("gate", "up"):
            at = f"{AT}{e}.{p}_proj."
            got = {s: out[at + s] for s in ("weight_packed", "weight_scale", "weight_global_scale")}
            check(report, at, got, {s: source[at + s] for s in ("weight_packed", "weight_scale")},
                  g, -1)


@case("MXFP4 to NVFP4: gpt-oss, whose rows are interleaved")
def _(report):
    rng = np.random.default_rng(44)
    t = {}
    for part, (n, k) in (("w13", (256, 128)), ("w2", (128, 128))):
        t[f"in_{part}_weight"] = tensor("U8", rng.integers(0, 256, (2, n, k // 2), dtype=np.uint8))
        t[f"in_{part}_weight_scale"] = tensor(
            "U8", rng.integers(110, 127, (2, n, k // 32), dtype=np.uint8))
    source = gptoss(t)
    with tool.Workdir() as work:
        exact(report, source, work, "nvfp4-trtllm")
        out, _ = tool.load(work.at("out.safetensors"))
        want = [np.ldexp(1.0, shift(t["in_w13_weight_scale"].bits[e])) for e in range(2)]
        same(report, "global", out[AT + "w13_weight_scale_2"], np.array(want, dtype=np.float32))
        os.mkdir(work.at("src"))
        stfile.save(work.at("src", "model.safetensors"), source)
        with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
            f.write('{"model_type": "gpt_oss", "num_attention_heads": 2}')
        run = ("convert", work.at("src"), "--to", "nvfp4-blocked", "--quiet", "-o")
        tool.run(*run, work.at("one"))
        tool.run("verify", work.at("one"), "--against", work.at("src"), "--quiet")


@case("MXFP4 to NVFP4: blocks of zeros do not count, too wide a range is refused or quantized")
def _(report):
    rng = np.random.default_rng(45)
    signs = rng.integers(0, 256, 16, dtype=np.uint8) & 0x88  # zeros of both
    source = changed(matrix(rng, 16, 64, 100, 117), ((0, 0), 100), ((0, 1), 117), ((3, 1), 0),
                     ((5, 0), 254))
    source = changed(source, ((3, slice(16, 32)), signs), ((5, slice(0, 16)), 0),
                     suffix="weight_packed")
    out, _ = tool.convert_tensors(named(source, "x"), "nvfp4-ct")
    check(report, "zeros", {k[2:]: t for k, t in out.items()}, source, 117 - 127 - 8, -1)
    source = changed(source, ((3, 17), 0x10), suffix="weight_packed")
    why = ("tensor 'x': mxfp4-ct cannot be converted to {}: the scales of its blocks go from "
           "2^-127 to 2^-10, and e4m3 scales with {}")
    hint = ("--requantize decodes it and quantizes again, and prints the error that costs; "
            "--exclude leaves it as it is")
    refused(report, named(source, "x"), "nvfp4-ct", f"{FILE}: " + why.format(
        "nvfp4-ct", "one global scale hold 2^-9 to 2^8 times one power of two"), hint)
    # One power more than there is room for.
    source = changed(source, ((3, 1), 118))
    refused(report, named(source, "x"), "nvfp4-ct", f"{FILE}: tensor 'x': mxfp4-ct cannot be "
            "converted to nvfp4-ct: the scales of its blocks go from 2^-27 to 2^-9, and e4m3 "
            "scales with one global scale hold 2^-9 to 2^8 times one power of two", hint)
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), named(source, "x"))
        tool.run("unpack", work.at("in.safetensors"), "-o", work.at("plain.safetensors"),
                 "--quiet")
        tool.convert(work.at("plain.safetensors"), work.at("a.safetensors"), "nvfp4-ct", None,
                     ("--include", "."))
        tool.convert(work.at("in.safetensors"), work.at("b.safetensors"), "nvfp4-ct", None,
                     ("--requantize",))
        equal_files(report, "requantized", work.at("a.safetensors"), work.at("b.safetensors"))
        tool.run("verify", work.at("b.safetensors"), "--against", work.at("in.safetensors"),
                 "--quiet")


def bytes_read(*args):
    """What one command reads of files; 0 where the kernel does not count it."""
    count = 0
    with subprocess.Popen([tool.binary(), *args], stdout=subprocess.DEVNULL) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        if os.path.exists(f"/proc/{child.pid}/io"):
            with open(f"/proc/{child.pid}/io", encoding="ascii") as f:
                count = int(f.readline().split()[1])
    if child.returncode:
        raise Mismatch(f"{args}: exit status {child.returncode}")
    return count


def mostly_zeros(rng, n, k):
    """Blocks of one expert, two of three of zeros, whose scales say nothing. One block has the
    greatest scale, and one the least."""
    codes = rng.integers(0, 256, (1, n, k // 32, 16), dtype=np.uint8) | 1
    zeros = rng.integers(0, 3, (1, n, k // 32)) > 0
    scale = rng.integers(111, 116, (1, n, k // 32), dtype=np.uint8)
    zeros[0, n // 3, 1] = zeros[0, -1, -1] = False
    codes[zeros] = 0
    scale[zeros] = rng.choice(np.array([0, 250], dtype=np.uint8), np.count_nonzero(zeros))
    scale[0, n // 3, 1], scale[0, -1, -1] = 110, 117
    return tensor("U8", codes.reshape(1, n, k // 2)), tensor("U8", scale)


@case("MXFP4 to NVFP4: experts of many pages, whose columns lie farther apart than their rows")
def _(report):
    rng = np.random.default_rng(47)
    t = {}
    for part, n, k in (("w13", 3072, 2880), ("w2", 2880, 1536)):
        t[f"in_{part}_weight"], t[f"in_{part}_weight_scale"] = mostly_zeros(rng, n, k)
    for source, judge in ((compressed(t), True), (gptoss(t), False)):
        with tool.Workdir() as work:
            if judge:
                exact(report, source, work, "nvfp4-trtllm")
            else:
                stfile.save(work.at("in.safetensors"), source)
                tool.convert(work.at("in.safetensors"), work.at("out.safetensors"), "nvfp4-trtllm")
            out, _ = tool.load(work.at("out.safetensors"))
            same(report, "global", out[AT + "w13_weight_scale_2"],
                 np.array([np.ldexp(1.0, 117 - 127 - 8)], dtype=np.float32))
            mid, around = work.at("mid.safetensors"), work.at("around.safetensors")
            tool.convert(work.at("in.safetensors"), mid, "mxfp4-marlin", None, ("--force",))
            tool.convert(mid, around, "nvfp4-trtllm", None, ("--force",))
            equal_files(report, "mxfp4-marlin to nvfp4-trtllm", work.at("out.safetensors"), around)
            # once for the rows of gate and once for those of up, which lie in the same pages
            size = os.path.getsize(mid)
            count = bytes_read("plan", mid, "--to", "nvfp4-trtllm", "--weights-only")
            if count > 2 * size + (1 << 20):
                raise Mismatch(f"{count} bytes are read to plan {size}")


@case("MXFP4 to NVFP4: single-level scales, scales that are NaN, a set that does not fit together")
def _(report):
    rng = np.random.default_rng(46)
    single = ("--set", "scale=torchao-single")
    source = matrix(rng, 16, 64, 118, 135)
    out, _ = tool.convert_tensors(named(source, "x"), "nvfp4-blocked", None, single)
    check(report, "single", {k[2:]: t for k, t in out.items()}, source, 0, 1)
    source = changed(source, ((2, 1), 136), ((0, 0), 118))
    refused(report, named(source, "x"), "nvfp4-blocked", f"{FILE}: tensor 'x': mxfp4-ct cannot be "
            "converted to nvfp4-blocked: the scales of its blocks go from 2^-9 to 2^9, and e4m3 "
            "scales with a global scale of 1 hold 2^-9 to 2^8", None, extra=single)
    source = changed(source, ((2, 1), 255))
    refused(report, named(source, "x"), "nvfp4-ct", f"{FILE}: tensor 'x': one of its scales is "
            "nan: NaN, infinite and negative ones are no scales", None, status=3)
    out, _ = tool.convert_tensors(named(source, "x"), "nvfp4-ct", None, ("--nonfinite", "keep"))
    check(report, "NaN", {k[2:]: t for k, t in out.items()}, source,
          shift(source["weight_scale"].bits), -1)
    gate, up = matrix(rng, 16, 64, 100, 110), matrix(rng, 16, 64, 120, 130)
    both = named(gate, "m.mlp.gate_proj") | named(up, "m.mlp.up_proj")
    refused(report, both, "nvfp4-ct", f"{FILE}: tensor 'm.mlp.gate_proj': mxfp4-ct cannot be "
            "converted to nvfp4-ct: the scales of its blocks go from 2^-27 to 2^3, and e4m3 "
            "scales with one global scale hold 2^-9 to 2^8 times one power of two", None)
    tool.convert_tensors(both, "nvfp4-ct", None, ("--requantize",))
    for name, made in (("m.mlp.gate_proj", gate), ("m.mlp.up_proj", up)):
        tool.convert_tensors(named(made, name), "nvfp4-ct")
        report.bytes += 1
