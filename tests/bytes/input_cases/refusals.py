"""What is refused, in which words, and what config.json has to say."""
import json
import os
import shutil

import numpy as np

import refquant as rq
import stfile
import tool
from input_cases.common import (AWQ, FILE, awq_file, case, ct_file, decoded, e4m3_codes,
                                f16_scales, fp8_scales, gptq_file, int8_file, mx_source,
                                random_codes, refused, repeated, same, to_bf16, write_source)
from golden import Mismatch
from stfile import tensor


OPTION = ("--requantize decodes it and quantizes again, and prints the error that costs; "
          "--exclude leaves it as it is")
EIGHT_BITS = "serve W8A8 as it is, or convert the plain model"


@case("refused: asymmetric, act-order, narrow groups")
def _(report):
    rng = np.random.default_rng(9)
    n, k = 64, 512
    codes, scales = random_codes(rng, n, k), f16_scales(rng, n, 4)
    ct = to_bf16(scales)
    mixed = np.full((n, 4), 7, dtype=np.uint8)
    mixed[3, 2] = 8  # neither all v1 nor all v2
    asym = "it is asymmetric: x.{} holds other zero points than 8"
    order = "it is in act-order: x.{} is not k / 128"
    g_idx = np.arange(k) // 128
    g_idx[[0, 511]] = g_idx[[511, 0]]
    cases = [
        ("gptq (groups of 128)", gptq_file("x", codes, scales, mixed), asym.format("qzeros")),
        ("awq (groups of 128)", awq_file("x", codes, scales, mixed), asym.format("qzeros")),
        ("awq (groups of 128)", awq_file("x", codes, scales, np.full((n, 4), 7, np.uint8)),
         asym.format("qzeros")),
        ("ct-int4 (groups of 128)", ct_file("x", codes, ct, mixed),
         asym.format("weight_zero_point")),
        ("gptq (groups of 128)", gptq_file("x", codes, scales, 0x77777777, g_idx),
         order.format("g_idx")),
        ("ct-int4 (groups of 128)", ct_file("x", codes, ct, None, g_idx),
         order.format("weight_g_idx")),
    ]
    for width in (32, 64):
        narrow = f16_scales(rng, n, k // width)
        reason = f"its groups are {width} columns wide, which is no multiple of 128"
        for kind, made in (("gptq", gptq_file("x", codes, narrow, 0x88888888)),
                           ("awq", awq_file("x", codes, narrow)),
                           ("ct-int4", ct_file("x", codes, to_bf16(narrow))),
                           ("ct-int8", int8_file("x", codes, to_bf16(narrow)))):
            cases.append((f"{kind} (groups of {width})", made, reason))
    for source, made, reason in cases:
        for to in ("w4a8-ct", "w4a8-cutlass"):
            refused(report, made, to, f"{FILE}: tensor 'x': {source} cannot be converted to {to}: "
                    f"{reason}", OPTION)
    refused(report, gptq_file("x", codes, scales, 0x77777777), "fp8-deepseek",
            f"{FILE}: tensor 'x': gptq (groups of 128) cannot be converted to fp8-deepseek: an "
            "int4 weight has to be decoded and quantized again for that", OPTION)


@case("refused: damaged or foreign tensors")
def _(report):
    rng = np.random.default_rng(10)
    n, k = 64, 512
    codes, scales = random_codes(rng, n, k), f16_scales(rng, n, 4)
    g_idx = np.arange(k) // 128
    for value in (4, -1):
        bad = g_idx.copy()
        bad[7] = value
        refused(report, gptq_file("x", codes, scales, 0x77777777, bad), "w4a8-ct",
                f"{FILE}: tensor 'x.g_idx': g_idx[7] is {value}, but there are only 4 groups",
                "get the file again: it is damaged", status=3)
    for value, shown in ((np.nan, "nan"), (np.inf, "inf")):
        bad = scales.copy()
        bad[5, 1] = value
        for made in (gptq_file("x", codes, bad, 0x77777777), awq_file("x", codes, bad),
                     int8_file("x", codes, to_bf16(bad))):
            refused(report, made, "w4a8-cutlass", f"{FILE}: tensor 'x': one of its scales is "
                    f"{shown}: NaN, infinite and negative ones are no scales",
                    "--nonfinite keep takes it over as it is; --exclude leaves the weight out",
                    status=3)
    wide = int8_file("x", codes, to_bf16(scales))
    wide["x.weight"] = tensor("I8", np.where(codes == 3, 100, codes).astype(np.int8) - np.int8(8))
    refused(report, wide, "w4a8-ct", f"{FILE}: tensor 'x': it holds the code 92: these are 8-bit "
            "weights, not int4 ones stored as bytes",
            EIGHT_BITS + "; convert --exclude leaves a weight as it is")
    eight_bit = gptq_file("x", codes, scales, 0x77777777)  # 8 bits: K/4 rows
    eight_bit["x.qweight"] = tensor("I32", np.repeat(eight_bit["x.qweight"].bits, 2, axis=0))
    refused(report, eight_bit, "w4a8-ct", f"{FILE}: tensor 'x.qweight': I32 [128,64] looks like "
            "the codes of a quantized weight, but with the tensors beside it (qzeros, scales) it is "
            "of no format that is read here", "`tilepack formats --all` lists what is read; start "
            "from the model that it was made of, or --exclude leaves the tensor as it is")
    padded = ct_file("x", codes, to_bf16(scales))
    padded["x.weight_shape"] = tensor("I64", np.array([n, k - 8], dtype=np.int64))
    refused(report, padded, "w4a8-cutlass", f"{FILE}: tensor 'x.weight_shape': it says [64,504], "
            "but the packed codes are of [64,512]", "--exclude leaves the weight as it is")
    odd = gptq_file("x", random_codes(rng, 24, 256), f16_scales(rng, 24, 2), 0x77777777)
    refused(report, odd, "w4a8-cutlass", f"{FILE}: tensor 'x': gptq (groups of 128) cannot be "
            "converted to w4a8-cutlass: w4a8-cutlass needs N in multiples of 16, this is 24: a "
            "tile of the reordered layout is 16 output features", "--exclude leaves it as it is")


@case("refused: zero points or an order that config.json says to be there, and are not")
def _(report):
    rng = np.random.default_rng(12)
    codes, scales = random_codes(rng, 64, 512), f16_scales(rng, 64, 4)
    gptq, awq, ct = (gptq_file("x", codes, scales), awq_file("x", codes, scales),
                     ct_file("x", codes, to_bf16(scales)))
    del awq["x.qzeros"]
    flat = {"bits": 4, "group_size": 128}

    def groups(*each):
        weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
        return {"quant_method": "compressed-tensors", "format": "pack-quantized",
                "config_groups": {f"group_{i}": {"targets": ["Linear"],
                                                 "weights": {**weights, **more}}
                                  for i, more in enumerate(each)}}

    for made, said, members, config in (
            (gptq, '"sym": false', "zero", {"quant_method": "gptq", "sym": False, **flat}),
            (gptq, '"desc_act": true', "order", {"quant_method": "gptq", "desc_act": True, **flat}),
            (awq, '"zero_point": true', "zero", {"quant_method": "awq", "zero_point": True, **flat}),
            (ct, '"symmetric": false', "zero", groups({"symmetric": False})),
            (ct, '"actorder"', "order", groups({"symmetric": True, "actorder": "group"}))):
        names = "qzeros nor weight_zero_point" if members == "zero" else "g_idx nor weight_g_idx"
        refused(report, made, "w4a8-cutlass", f"config.json: tensor 'x': config.json says {said}, "
                f"but neither {names} is beside the codes", "the download may be incomplete: get the "
                'checkpoint again, or correct "quantization_config"', config, status=3)


def two_groups(first, second):
    """A config of groups for the one weight and for the other."""
    usual = {"num_bits": 4, "type": "int"}
    return {"quant_method": "compressed-tensors", "format": "pack-quantized",
            "config_groups": {f"group_{i}": {"targets": [f"re:.*{'ab'[i]}"],
                                             "weights": {**usual, **more}}
                              for i, more in enumerate((first, second))}}


@case("zero points and orders that config.json says of one weight, and not of the one before it")
def _(report):
    rng = np.random.default_rng(14)
    codes, half = random_codes(rng, 64, 256), random_codes(rng, 64, 128)
    scales, row = f16_scales(rng, 64, 2), to_bf16(f16_scales(rng, 64, 1))
    zeros = rng.integers(0, 16, (64, 2), dtype=np.uint8)
    by_group = {"strategy": "group", "group_size": 128}
    for by_row in ({"strategy": "channel", "group_size": -1},
                   {"strategy": "channel", "group_size": None}):
        for said, says, member in (
                ('"symmetric": false', {"symmetric": False}, {"zeros": zeros}),
                ('"actorder"', {"actorder": "Group"}, {"g_idx": rng.permutation(256) // 128})):
            whole = ct_file("a", codes, to_bf16(scales), **member)
            config = two_groups({**by_group, **says}, by_row)
            with tool.Workdir() as work:
                write_source(work, whole | ct_file("b", half, row), config)
                tool.run("unpack", work.at("src"), "-o", work.at("out"), "-q")
                report.bytes += os.path.getsize(work.at("out", "model.safetensors"))
            lost = ct_file("b", codes, to_bf16(scales))
            names = "qzeros nor weight_zero_point" if "zeros" in member else "g_idx nor weight_g_idx"
            refused(report, ct_file("a", half, row) | lost, "nvfp4-ct", "config.json: tensor 'b': "
                    f"config.json says {said}, but neither {names} is beside the codes",
                    None, two_groups(by_row, {**by_group, **says}), status=3,
                    extra=("--requantize",))


@case("refused: zero points that are lost beside modules that GPTQ leaves alone")
def _(report):
    rng = np.random.default_rng(15)
    codes, scales = random_codes(rng, 64, 512), f16_scales(rng, 64, 4)
    refused(report, gptq_file("x", codes, scales), "w4a8-cutlass", "config.json: tensor 'x': "
            'config.json says "sym": false, but neither qzeros nor weight_zero_point is beside the '
            "codes", None, {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": False,
                            "dynamic": {"-:^lm_head$": {}}}, status=3)


@case("numbers and truth of config.json, however they are spelled")
def _(report):
    rng = np.random.default_rng(17)
    n, k = 64, 512
    codes, row = random_codes(rng, n, k), f16_scales(rng, n, 1)
    usual = {"targets": ["Linear"]}

    def ct(**weights):
        return {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups":
                {"group_0": usual | {"weights": {"type": "int", **weights}}}}

    packed = ct_file("x", codes, to_bf16(row))
    del packed["x.weight_shape"]  # of 4 bits in K columns as well as of 8 in half of them
    by_group = ct_file("x", codes, to_bf16(f16_scales(rng, n, 4)))
    gptq = gptq_file("x", codes, f16_scales(rng, n, 4))
    gptq_row = gptq_file("x", codes, row)
    fp8 = {"x.weight": tensor("F8_E4M3", e4m3_codes(rng, 192, 192)),
           "x.weight_scale_inv": fp8_scales(rng, "F32", 2, 2)[0]}
    nvfp4 = {"x.weight": tensor("U8", rng.integers(0, 256, (n, k // 2), dtype=np.uint8)),
             "x.weight_scale": tensor("F8_E4M3", rng.integers(1, 0x70, (n, k // 16), dtype=np.uint8)),
             "x.weight_scale_2": tensor("F32", np.float32([0.5])[0].reshape(()))}
    flat = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    modelopt = {"quant_method": "modelopt", "quant_algo": "NVFP4"}
    for source, config, width in (
            (packed, ct(num_bits=8, strategy="channel"), k // 2),
            (packed, ct(num_bits=8.0, strategy="channel"), k // 2),
            (packed, ct(num_bits=4.0, strategy="channel"), k),
            (packed, ct(num_bits="8", strategy="channel"), '"num_bits": "8"'),
            (by_group, ct(num_bits=4, group_size=128.0), k),
            (by_group, ct(num_bits=4, group_size=64.0), '"group_size": 64'),
            (by_group, ct(num_bits=4, group_size="128"), '"group_size": "128"'),
            (by_group, ct(num_bits=4.5), '"num_bits": 4.5'),
            (by_group, ct(num_bits=4, symmetric="yes"), '"symmetric": "yes"'),
            (by_group, {**ct(), "config_groups": {"group_0": 7}}, 'a group of "config_groups": 7'),
            (by_group, {**ct(), "config_groups": "all"}, '"config_groups": "all"'),
            (gptq_row, {**flat, "bits": 8.0, "group_size": -1}, k // 2),
            (gptq, {**flat, "bits": "4"}, '"bits": "4"'),
            (gptq, {**flat, "group_size": 1e30}, '"group_size": 1e+30'),
            (gptq, {**flat, "sym": "false"}, '"sym": "false"'),
            (gptq, {**flat, "sym": 1.0, "desc_act": 0}, k),
            (gptq, {**flat, "sym": 0}, None),
            (gptq, {**flat, "desc_act": 1}, None),
            (gptq, {**flat, "sym": False, "config_groups": None}, None),
            (gptq, {**flat, "desc_act": True, "config_groups": {}}, None),
            (gptq, {**flat, "group_size": 64, "extra_config": {"y": {"group_size": 128}}}, k),
            (gptq, {**flat, "group_size": 64, "extra_config": {"y": {"bits": 16}}},
             '"group_size": 64'),
            (fp8, {"quant_method": "fp8", "weight_block_size": [128.0, 128]}, 192),
            (fp8, {"quant_method": "fp8", "weight_block_size": [96.0, 96.0]},
             '"weight_block_size": [96,96]'),
            (fp8, {"quant_method": "fp8", "weight_block_size": [128]},
             '"weight_block_size": a list of other things'),
            (nvfp4, {**modelopt, "group_size": 16.0}, k),
            (nvfp4, {**modelopt, "group_size": 64}, '"group_size": 64'),
            (nvfp4, {**modelopt, "config_groups": {"group_0": usual | {"weights": {
                "num_bits": 4, "type": "float", "group_size": 16}}}}, k),
            (nvfp4, {**modelopt, "config_groups": {"group_0": usual | {"weights": {
                "num_bits": 4, "type": "float", "group_size": 32}}}}, '"group_size": 32')):
        with tool.Workdir() as work:
            write_source(work, source, config)
            done = tool.run("unpack", work.at("src"), "-o", work.at("out"), "-q", check=False)
            if isinstance(width, int):
                made = stfile.load(work.at("out", "model.safetensors"))[0]["x.weight"]
                right = made.shape[1] == width
            else:
                right = done.returncode == 3 and f"config.json says {width or ''}" in done.stderr
            if not right:
                raise Mismatch(f"{config}: {done.returncode} {done.stderr}")
        report.bytes += 1


@case("refused: how GPTQ's zero points are stored, in a word that is not known")
def _(report):
    rng = np.random.default_rng(18)
    made = gptq_file("x", random_codes(rng, 64, 512), f16_scales(rng, 64, 4),
                     rng.integers(0, 15, (64, 4), dtype=np.uint8))
    flat = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    for key, word in (("checkpoint_format", "bitblas"), ("format", "marlin"),
                      ("packing_format", "auto_round:exllamav2"), ("checkpoint_format", ["gptq_v2"])):
        said = word if isinstance(word, str) else "no text"
        refused(report, made, "gptq", f'config.json: config.json says "{key}": "{said}", which does '
                "not tell how zero points are stored", None, {**flat, key: word}, status=4)


@case("how GPTQ's zero points are stored, in AutoRound's words")
def _(report):
    rng = np.random.default_rng(19)
    codes, scales = random_codes(rng, 64, 512), f16_scales(rng, 64, 4)
    zeros = rng.integers(0, 15, (64, 4), dtype=np.uint8)
    for word, less in (("auto_round:auto_gptq", 1), ("auto_gptq", 1), ("auto_round", 0),
                       ("auto_round:gptqmodel", 0)):
        with tool.Workdir() as work:
            write_source(work, gptq_file("x", codes, scales, zeros), {
                "quant_method": "auto-round", "bits": 4, "group_size": 128, "sym": False,
                "packing_format": word})
            tool.run("unpack", work.at("src"), "-o", work.at("out"), "-q", "--dtype", "bf16")
            made = stfile.load(work.at("out", "model.safetensors"))[0]["x.weight"]
            same(report, word, made, stfile.f32_to_bf16(
                decoded(codes, scales, zeros + np.uint8(less), np.arange(512) // 128)), "BF16")


@case("refused: groups of config.json without number")
def _(report):
    rng = np.random.default_rng(16)
    made = {}
    for i in range(400):
        k = 128 * (1 + i)
        made |= ct_file(f"x{i:03}", random_codes(rng, 8, k), to_bf16(f16_scales(rng, 8, 1 + i)))
    weights = {"num_bits": 4, "type": "int", "strategy": "group"}
    config = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
        f"group_{g}": {"targets": ["Linear"], "weights": {**weights, "group_size": 128 + g % 2}}
        for g in range(60_000)}}
    refused(report, made, "w4a8-ct", "config.json: quantization_config: \"config_groups\" has too "
            "many groups to be compared with all weights", None, config, status=4)


@case("read: what config.json does not say of the weight")
def _(report):
    rng = np.random.default_rng(13)
    codes, scales = random_codes(rng, 64, 512), f16_scales(rng, 64, 4)
    weights = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}
    both = {f"group_{i}": {"targets": ["Linear"], "weights": {**weights, "symmetric": i == 0}}
            for i in range(2)}
    row = gptq_file("x", codes, f16_scales(rng, 64, 1))
    for made, config in (
            (ct_file("x", codes, to_bf16(scales)),
             {"quant_method": "compressed-tensors", "format": "pack-quantized",
              "config_groups": both}),
            (gptq_file("x", codes, scales), {"quant_method": "gptq", "bits": 4, "group_size": 128,
                                             "sym": False, "dynamic": {"+:x": {"sym": True}}}),
            (row, {"quant_method": "gptq", "bits": 4, "group_size": -1, "desc_act": True})):
        with tool.Workdir() as work:
            write_source(work, made, config)
            done = tool.run("unpack", work.at("src"), "-o", work.at("out"), "-q", check=False)
            if done.returncode != 0:
                raise Mismatch(f"{config}: {done.stderr}")
            report.bytes += os.path.getsize(work.at("out", "model.safetensors"))


@case("refused: two tensors that may be the scales of one weight")
def _(report):
    rng = np.random.default_rng(31)
    n, k = 256, 384
    codes, row = e4m3_codes(rng, n, k), tensor("BF16", to_bf16(f16_scales(rng, n, 1)))
    block, _ = fp8_scales(rng, "F32", n // 128, k // 128)
    one = tensor("F32", np.float32([0.5])[0].reshape(()))
    mx = tensor("U8", np.full((n, k // 32), 120, np.uint8))
    mx_rows = tensor("U8", np.full((n, k // 8), 120, np.uint8))  # a shape that nobody reads
    int4, scales = random_codes(rng, n, k), to_bf16(f16_scales(rng, n, k // 128))
    int8 = int8_file("x", int4, to_bf16(f16_scales(rng, n, 1)))
    hint = ("leave the one that the weight was made with in the file, without the other; "
            "--exclude leaves the weight as it is")
    inv, cases = "weight_scale_inv", []
    for source, read, scale, spare, other in (
            ("fp8-ct", "weight_scale", block, inv, block),
            ("fp8-deepseek", inv, block, "weight_scale_2", one),
            ("fp8-deepseek", inv, block, "weight_scale", mx_rows),
            ("fp8-dynamic-ct", "weight_scale", row, inv, mx_rows),
            ("fp8-tensor-ct", "weight_scale", one, inv, one),
            ("mxfp8-ct", "weight_scale", mx, inv, mx)):
        cases.append((source, read, {"x.weight": tensor("F8_E4M3", codes), f"x.{read}": scale},
                      spare, other))
    fp8 = {"x.weight": tensor("F8_E4M3", codes), "x.weight_scale": block}
    some = np.zeros((2, 3), np.uint8)
    some[1, 2] = 1
    awq, order = awq_file("x", int4, scales), np.arange(k, dtype=np.int32) // 128
    order[[0, 300]] = order[[300, 0]]
    cases += [("fp8-ct", "weight_scale", fp8, "weight_zero_point", tensor("U8", some)),
              ("fp8-ct", "weight_scale", fp8, "qzeros", tensor("U8", 0 * some)),
              ("awq (groups of 128)", "scales", awq, "g_idx", tensor("I32", order)),
              ("awq (groups of 128)", "scales", awq, "g_idx", tensor("I32", 0 * order[:128])),
              ("awq (groups of 128)", "scales", awq, "weight_zero_point",
               tensor("I8", np.zeros(k, np.int8)))]
    cases += [("ct-int8 (groups of 384)", "weight_scale", int8, "qzeros", one),
              ("w4a8-ct", "weight_scale", ct_file("x", int4, scales),
               "weight_global_scale", one),
              ("awq (groups of 128)", "scales", awq_file("x", int4, scales), "weight_scale", row)]
    for source, read, tensors, spare, other in cases:
        refused(report, {**tensors, f"x.{spare}": other}, "w4a8-ct",
                f"{FILE}: tensor 'x': as {source} it has x.{read}, but x.{spare} stands beside it, "
                "too: nothing says with which of them its codes are to be read", hint)


@case("tensors beside a weight that say nothing are left out")
def _(report):
    rng = np.random.default_rng(32)
    n, k = 256, 384
    codes = e4m3_codes(rng, n, k)
    block, _ = fp8_scales(rng, "F32", n // 128, k // 128)
    row = tensor("BF16", to_bf16(f16_scales(rng, n, 1)))
    int4, scales = random_codes(rng, n, k), to_bf16(f16_scales(rng, n, k // 128))
    zeros = [("weight_zero_point", tensor(dtype, np.zeros(shape, kind))) for dtype, kind, shape in (
        ("F8_E4M3", np.uint8, (n, 1)), ("I8", np.int8, (1,)), ("BF16", np.uint16, (2, 3)))]
    order = [("g_idx", tensor("I32", np.arange(k, dtype=np.int32) // 128))]
    for made, spares, to in (
            ({"x.weight": tensor("F8_E4M3", codes), "x.weight_scale": row}, zeros, "mxfp8-ct"),
            ({"x.weight": tensor("F8_E4M3", codes), "x.weight_scale_inv": block}, zeros,
             "mxfp8-ct"),
            (awq_file("x", int4, scales), order, "w4a8-ct")):
        extra = ("--requantize",) if to == "mxfp8-ct" else ()
        want, _ = tool.convert_tensors(made, to, None, extra)
        for name, spare in spares:
            got, _ = tool.convert_tensors({**made, f"x.{name}": spare}, to, None, extra)
            if set(got) != set(want):
                raise Mismatch(f"with {name} the output holds {sorted(got)}")
            for key in want:
                report.equal(key, got[key].bytes, want[key].bytes)
            with tool.Workdir() as work:
                stfile.save(work.at("in.safetensors"), {**made, f"x.{name}": spare})
                tool.run("unpack", work.at("in.safetensors"), "-o", work.at("u"), "--quiet")
                if set(tool.load(work.at("u"))[0]) != {"x.weight"}:
                    raise Mismatch(f"with {name} of {spare.dtype} unpack leaves another tensor")


@case("FP8 experts: stacked where their rows end at tiles, else refused")
def _(report):
    rng = np.random.default_rng(24)
    for rows, to in ((192, "w4a8-cutlass"), (256, "mxfp8-blocked"), (192, "mxfp8-blocked")):
        source, values = {}, []
        for e in range(2):
            for part in ("gate_proj", "up_proj"):
                q, (scale, s) = e4m3_codes(rng, rows, 256), fp8_scales(rng, "F32", 2, 2)
                at = f"l.experts.{e}.{part}."
                source.update({at + "weight": tensor("F8_E4M3", q), at + "weight_scale_inv": scale})
                values.append(rq.round_bf16(rq.E4M3[q] * rq.spread(s, 128, 128, rows, 256)))
        v = np.stack(values).reshape(2, 2 * rows, 256)
        if rows == 192 and to == "mxfp8-blocked":
            refused(report, source, to, f"{FILE}: tensor 'l.experts.w13': fp8-deepseek cannot be "
                    "converted to mxfp8-blocked: its packed parts of 192 rows do not end at the "
                    "128-row tiles of mxfp8-blocked", "--no-stack leaves the experts apart; or "
                    "unpack first, and convert the plain weights")
            continue
        out, _ = tool.convert_tensors(source, to, None, ("--max-memory", "32MiB", "--jobs", "12",
                                                         "--requantize"))
        if to == "w4a8-cutlass":
            for key, array in rq.w4a8_cutlass(*rq.int4(v)).items():
                same(report, key, out["l.experts.w13_" + key], array)
        else:
            q, s = rq.mxfp8(v)
            report.e4m3("codes", out["l.experts.w13_weight"], tensor("F8_E4M3", q))
            same(report, "scale", out["l.experts.w13_weight_scale"], rq.tiles_128x4(s))


@case("config.json is checked against the tensors")
def _(report):
    rng = np.random.default_rng(11)
    n, k = 64, 512
    codes, scales = random_codes(rng, n, k), f16_scales(rng, n, 4)
    hint = ('correct "quantization_config", or start from the model that the checkpoint was made '
            'of')
    gptq = gptq_file("x", codes, scales, 0x77777777)
    ct = ct_file("x", codes, f16_scales(rng, n, 2), dtype="F16")
    fp8 = {"x.weight": tensor("F8_E4M3", random_codes(rng, 128, 256)),
           "x.weight_scale_inv": tensor("F32", np.ones((1, 2), np.float32))}
    group = {"weights": {"num_bits": 4, "group_size": 128, "strategy": "group"}}

    def ct_config(fmt, weights):
        return {"quant_method": "compressed-tensors", "format": fmt,
                "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}

    def blocks(structure, strategy="block"):
        return ct_config("float-quantized", {"num_bits": 8, "type": "float", "strategy": strategy,
                                             "block_structure": structure})

    fp8_ct = {"x.weight": tensor("F8_E4M3", e4m3_codes(rng, 180, 256)),
              "x.weight_scale": fp8_scales(rng, "BF16", 2, 2)[0]}
    rows = [
        (gptq, {"quant_method": "awq", "bits": 4, "group_size": 128}, '"quant_method": "awq"',
         "gptq (groups of 128)"),
        (gptq, {"quant_method": "gptq", "bits": 8, "group_size": 128}, '"bits": 8',
         "gptq (groups of 128)"),
        (gptq, {"quant_method": "gptq", "bits": 4, "group_size": 64}, '"group_size": 64',
         "gptq (groups of 128)"),
        (gptq, {"quant_method": "gptq", "bits": 4, "group_size": -1}, '"group_size": -1',
         "gptq (groups of 128)"),
        (ct, ct_config("pack-quantized", group["weights"]), '"group_size": 128',
         "ct-int4 (groups of 256)"),
        # as codes of 8 bits, which the shapes allow, they would be half as many
        (ct, ct_config("pack-quantized", {"num_bits": 8, "group_size": 256}),
         '"group_size": 256', "ct-int8-packed (groups of 128)"),
        (ct, ct_config("int-quantized", {"num_bits": 4, "group_size": 256}),
         '"format": "int-quantized"', "ct-int4 (groups of 256)"),
        (fp8, {"quant_method": "fp8", "weight_block_size": [64, 128]},
         '"weight_block_size": [64,128]', "fp8-deepseek"),
        (fp8_ct, blocks([96, 128]), '"block_structure": [96,128]', "fp8-ct"),
        (fp8_ct, blocks("128x64"), '"block_structure": [128,64]', "fp8-ct"),
    ]
    for made, config, says, source in rows:
        refused(report, made, "w4a8-cutlass", f"config.json: tensor 'x': config.json says {says}, "
                f"but the tensors are {source}", hint, config, status=3, extra=("--requantize",))
    small = {"x.weight": tensor("F8_E4M3", e4m3_codes(rng, 96, 64)),
             "x.weight_scale": tensor("F32", np.ones((1, 1), np.float32))}
    whole = {**small, "x.weight_scale": tensor("F32", np.ones(1, np.float32))}
    for made, config in ((fp8_ct, blocks([128, 128])), (fp8_ct, blocks("128x128")),
                         (fp8_ct, blocks([96, 128], "channel")), (fp8_ct, blocks(None)),
                         (small, blocks([128, 128])), (whole, blocks([128, 128]))):
        with tool.Workdir() as work:
            os.mkdir(work.at("src"))
            stfile.save(work.at("src", "model.safetensors"), made)
            with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
                json.dump({"quantization_config": config}, f)
            tool.run("unpack", work.at("src"), "-o", work.at("out"), "--quiet")
    plain = {"x.weight": stfile.from_f32("BF16", np.ones((128, 128), np.float32))}
    refused(report, plain, "w4a8-ct", 'config.json: config.json says "quant_method": "gptq", '
            '"bits": 4, but no tensors of a quantization that is read here were found',
            '`tilepack formats --all` lists what is read; if the weights are plain, take '
            '"quantization_config" out of config.json', {"quant_method": "gptq", "bits": 4})


def transforms(*locations):
    return {"config_groups": {"R": {"type": "hadamard", "apply": [
        {"targets": ["Linear"], "location": at} for at in locations]}}}


@case("inputs that engines transform as they run, as config.json says, are refused")
def _(report):
    rng = np.random.default_rng(62)
    codes, scales = random_codes(rng, 64, 512), f16_scales(rng, 64, 4)
    gptq = gptq_file("x", codes, scales, 0x77777777), {"quant_method": "gptq", "bits": 4,
                                                       "group_size": 128}
    ct = ct_file("x", codes, to_bf16(scales)), {
        "quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": {
            "a": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 128}}}}
    rows = [(*ct, "transform_config", transforms("weight_input", "input")),
            (*ct, "transform_config", transforms("q_attn")),
            (*ct, "transform_config", transforms(None)),
            (*ct, "transform_config", {"schemes": 1}),
            (*ct, "transform_config", {"config_groups": {"R": {"apply": {"location": "input"}}}}),
            (*ct, "transform_config", {"config_groups": {"R": None}}),
            (*gptq, "rotation", "hadamard"),
            (gptq[0], {**gptq[1], "quant_method": "auto-round"}, "rotation_config",
             {"hadamard_type": "hadamard", "block_size": 32})]
    for made, config, key, value in rows:
        said = (f'config.json: its quantization_config says "{key}": engines transform the inputs '
                "of layers as they run, and the weights are made for that, which no format here "
                "can say", "serve it as it is, or convert the model that it was made from")
        refused(report, made, "w4a8-ct", *said, {**config, key: value})
    none = [(*ct, "transform_config", value) for value in
            (None, {}, {"config_groups": {}}, transforms("weight_input", "weight_output"))]
    none += [(*gptq, "rotation", value) for value in (None, "")]
    for made, config, key, value in [rows[0], *none]:
        with tool.Workdir() as work:
            os.mkdir(work.at("src"))
            stfile.save(work.at("src", "model.safetensors"), made)
            with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
                json.dump({"quantization_config": {**config, key: value}}, f)
            fine = (made, config, key, value) != rows[0]
            for command in (("unpack",), ("convert", "--to", "w4a16-marlin", "--include", ".")):
                done = tool.run(*command, work.at("src"), "-o", work.at(command[0]), "--quiet",
                                check=fine)
                if not fine and (done.returncode != 4 or f'"{key}"' not in done.stderr):
                    raise Mismatch(f"{command}: {done.returncode} {done.stderr}")
            copied = fine and config is ct[1]  # it is in that format, and so is its config.json
            done = tool.run("convert", work.at("src"), "-o", work.at("same"), "--quiet", "--to",
                            *(("w4a16-ct",) if copied else ("w4a8-ct", "--exclude", ".")),
                            check=copied)
            if not copied:
                if done.returncode != 4 or os.path.exists(work.at("same")):
                    raise Mismatch(f"nothing is converted: {done.returncode} {done.stderr}")
                continue
            with open(work.at("same", "config.json"), encoding="utf-8") as f:
                if json.load(f)["quantization_config"].get(key) != value:
                    raise Mismatch("the copy's config.json is another")


def refused_beside(report, made, weight, beside, formats):
    """A weight beside which stands what engines compute with is neither converted nor unpacked."""
    says = (f"{FILE}: tensor '{weight}': {beside} stands beside it: engines compute with it as "
            "they run, and the weight is made for that, which no format here can say",
            "serve it as it is, or convert the model that it was made from")
    for to in formats:
        refused(report, made, to, *says)
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), made)
        done = tool.run("unpack", work.at("in.safetensors"), "-o", work.at("u"), check=False)
        if done.returncode != 4 or says[0][len(FILE):] not in done.stderr:
            raise Mismatch(f"unpack: {done.returncode} {done.stderr}")


@case("tensors beside a weight with which engines compute are refused")
def _(report):
    rng = np.random.default_rng(63)
    nvfp4 = {f"m.0.up_proj.{key}": t for key, t in mx_source(rng, "nvfp4-ct", 64, 256).items()}
    plain = {"m.1.up_proj.weight": stfile.from_f32("BF16", np.ones((64, 256), np.float32))}
    ones = stfile.from_f32("BF16", np.ones(256, np.float32))
    for beside in ("pre_quant_scale", "svdquant_lora_a", "svdquant_lora_b", "hadamard_matrix",
                   "forward_hadamard_matrix"):
        made = {**nvfp4, **plain, f"m.0.up_proj.{beside}": ones}
        refused_beside(report, made, "m.0.up_proj", f"m.0.up_proj.{beside}",
                       ("nvfp4-ct", "nvfp4-marlin"))
        with tool.Workdir() as work:
            stfile.save(work.at("in.safetensors"), made)
            out, _ = tool.convert(work.at("in.safetensors"), work.at("o.safetensors"), "mxfp8-ct",
                                  None, ("--include", ".", "--exclude", "m.0.*"))
            same(report, "copied", out[f"m.0.up_proj.{beside}"], ones.bits)


@case("activations that AWQ has scaled are refused")
def _(report):
    rng = np.random.default_rng(64)
    codes, scales = random_codes(rng, 64, 512), f16_scales(rng, 64, 4)
    awq = awq_file("h.0.mlp.c_proj", codes, scales)
    ones = stfile.from_f32("F16", np.ones(512, np.float32))
    for scaled in ("act.scales", "gelu_impl.scales"):
        made = {**awq, f"h.0.mlp.{scaled}": ones}
        refused_beside(report, made, "h.0.mlp.c_proj", f"h.0.mlp.{scaled}",
                       ("w4a8-ct", "w4a16-marlin"))
    # scales of a module of that name, and those of another block
    for others in (awq_file("h.0.mlp.act", codes, scales), {"h.1.mlp.act.scales": ones},
                   {"h.0.act.scales": ones}, {"act.scales": ones}):
        tool.convert_tensors({**awq, **others}, "w4a8-ct", None, ("--include", "."))


@case("config.json that agrees is no obstacle")
def _(report):
    rng = np.random.default_rng(12)
    n, k = 64, 512
    codes, scales = random_codes(rng, n, k), f16_scales(rng, n, 4)
    one = f16_scales(rng, n, 1)
    rows = [
        (gptq_file("x", codes, scales, 0x77777777), scales,
         {"quant_method": "gptq", "bits": 4, "group_size": 128, "checkpoint_format": "gptq_v2"}),
        (gptq_file("x", codes, one, 0x88888888), one,
         {"quant_method": "gptq", "bits": 4, "group_size": -1, "checkpoint_format": "gptq"}),
        (gptq_file("x", codes, scales, 0x77777777), scales,
         {"quant_method": "gptq", "bits": 8, "group_size": 32, "dynamic": {"+:x": {"bits": 4}}}),
        (ct_file("x", codes, to_bf16(one)), one,
         {"quant_method": "compressed-tensors", "format": "mixed-precision", "config_groups": {
             "a": {"format": "float-quantized", "weights": {"num_bits": 8}},
             "b": {"format": "pack-quantized", "weights": {"num_bits": 4, "group_size": None}}}}),
    ]
    for made, s, config in rows:
        with tool.Workdir() as work:
            os.mkdir(work.at("src"))
            stfile.save(work.at("src", "model.safetensors"), made)
            with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
                json.dump({"quantization_config": config, "torch_dtype": "float16"}, f)
            tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", "w4a8-ct",
                     "--include", ".", "--quiet")
            out, _ = tool.load(work.at("out"))
            same(report, "packed", out["x.weight_packed"], rq.pack_nibbles(codes))
            same(report, "scale", out["x.weight_scale"], repeated(to_bf16(s), k))
            with open(work.at("out", "config.json"), encoding="utf-8") as f:
                written = json.load(f)
            if written["quantization_config"]["format"] != "pack-quantized":
                raise Mismatch(f"config.json: {written}")


@case("plan names the source's format")
def _(report):
    rng = np.random.default_rng(13)
    codes = random_codes(rng, 64, 512)
    made = {**gptq_file("a", codes, f16_scales(rng, 64, 4), 0x77777777),
            **awq_file("b", codes, f16_scales(rng, 64, 2)),
            "c.weight": stfile.from_f32("BF16", np.ones((64, 512), np.float32))}
    want = {"a": "gptq (groups of 128)", "b": "awq (groups of 256)", "c": "BF16"}
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), made)
        args = ("plan", work.at("in.safetensors"), "--to", "w4a8-ct", "--include", ".")
        units = json.loads(tool.run(*args, "--json").stdout)["units"]
        if {u["name"]: u["source"] for u in units} != want:
            raise Mismatch(f"--json: {units}")
        text = tool.run(*args).stdout
        for source in want.values():
            if source not in text:
                raise Mismatch(f"{source} is not in the table: {text}")
        report.bytes += len(text)


@case("a file that describes the source's quantization is not carried into another one")
def _(report):
    rng = np.random.default_rng(14)
    codes, scales = random_codes(rng, 64, 512), f16_scales(rng, 64, 4)
    stale = ["hf_quant_config.json", "quant_config.json", "quantize_config.json"]
    with tool.Workdir() as work:
        os.mkdir(work.at("src"))
        stfile.save(work.at("src", "model.safetensors"),
                    gptq_file("x", codes, scales, 0x77777777))
        for name in ["config.json", "tokenizer.json", *stale]:
            with open(work.at("src", name), "w", encoding="utf-8") as f:
                f.write('{"quantization": {}}' if name.startswith("hf_") else "{}")

        def carried(out):
            return [n for n in stale if os.path.exists(work.at(out, n))]

        to = (work.at("src"), "--to", "w4a8-ct", "--include", ".")
        text = tool.run("plan", *to).stdout
        if f"not copied, as the weights change: {', '.join(stale)}\n" not in text:
            raise Mismatch(f"the plan does not say it: {text}")
        told = json.loads(tool.run("plan", *to, "--json").stdout)["left_out"]
        tool.run("convert", *to, "-o", work.at("out"), "--quiet")
        tool.run("unpack", work.at("src"), "-o", work.at("plain"), "--quiet")
        for out in ("out", "plain"):
            if carried(out) or not os.path.exists(work.at(out, "tokenizer.json")):
                raise Mismatch(f"{out} holds {os.listdir(work.at(out))}")
            tool.run("verify", work.at(out), "--quiet")
        os.remove(work.at("out", "tilepack.json"))
        for name in stale:  # of what is in the format already, they are true
            shutil.copy(work.at("src", name), work.at("out", name))
        kept = (work.at("out"), "--to", "w4a8-ct", "--include", ".")
        same_told = json.loads(tool.run("plan", *kept, "--json").stdout)["left_out"]
        tool.run("convert", *kept, "-o", work.at("same"), "--quiet")
        if told != stale or same_told or carried("same") != stale:
            raise Mismatch(f"--json: {told} and {same_told}; kept: {carried('same')}")
        report.bytes += len(text)


@case("quantization_config inside of text_config is checked, and gone where weights change")
def _(report):
    rng = np.random.default_rng(15)
    made = {"x.weight": tensor("F8_E4M3", e4m3_codes(rng, 128, 256)),
            "x.weight_scale_inv": tensor("F32", np.ones((1, 2), np.float32))}
    claim = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    text = '{"text_config": {"a": 1.50, "quantization_config": %s, "b": NaN}, "c": 2e0}'
    with tool.Workdir() as work:
        os.mkdir(work.at("src"))
        stfile.save(work.at("src", "model.safetensors"), made)
        with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
            f.write(text % json.dumps(claim))
        tool.run("unpack", work.at("src"), "-o", work.at("plain"), "--quiet")
        tool.run("convert", work.at("src"), "-o", work.at("out"), "--to", "mxfp8-ct",
                 "--include", ".", "--quiet")
        for out, begin in (("plain", '{"text_config": {"a": 1.50, "b": NaN}, "c": 2e0}'),
                           ("out", '{"text_config": {"a": 1.50, "b": NaN}, "c": 2e0, "quant')):
            with open(work.at(out, "config.json"), encoding="utf-8") as f:
                got = f.read()
            if not got.startswith(begin) or got.count("quantization_config") != (out == "out"):
                raise Mismatch(f"{out}: {got}")
            report.bytes += len(got)
        with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
            f.write(text % json.dumps(claim | {"weight_block_size": [64, 64]}))
        done = tool.run("convert", work.at("src"), "-o", work.at("no"), "--to", "mxfp8-ct",
                        "--include", ".", check=False)
        if done.returncode != 3 or "config.json says" not in done.stderr:
            raise Mismatch(f"exit {done.returncode}: {done.stderr}")


@case("shards that the index does not name are named")
def _(report):
    made = {"x.weight": tensor("BF16", np.zeros((32, 128), np.uint16))}
    with tool.Workdir() as work:
        os.mkdir(work.at("src"))
        for name in ("model", "mtp", "adapter"):
            stfile.save(work.at("src", f"{name}.safetensors"), made)
        with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
            f.write("{}")
        for gone, told in (("adapter", "'adapter.safetensors' and 1 more are not shards of"),
                           ("mtp", "'mtp.safetensors' is no shard of the checkpoint"),
                           ("model", None)):
            text = tool.run("plan", work.at("src"), "--to", "mxfp8-ct").stderr
            if text if told is None else told not in text:
                raise Mismatch(f"before {gone} is gone: {text!r}")
            os.unlink(work.at("src", f"{gone}.safetensors"))
            report.bytes += len(text)


@case("refused: finite values for which compressed-tensors' scale rule has no scale")
def _(report):
    values = np.full((32, 64), 0x3F80, dtype=np.uint16)
    values[5, 40] = 0x7F60  # 1.75 * 2^127: its scale would be 2^120 and more
    made = {"x.weight": tensor("BF16", values)}
    refused(report, made, "mxfp8-ct", f"{FILE}: tensor 'x': some of its finite values are "
            "1.75 * 2^127 or more, for which scale=ct has no scale",
            "--set scale=rceil and scale=floor have one", status=3, extra=("--set", "scale=ct"))
    values[5, 40] = 0x7F5F
    with tool.Workdir() as work:
        stfile.save(work.at("in.safetensors"), made | {"x.weight": tensor("BF16", values)})
        done = tool.run("convert", work.at("in.safetensors"), "-o", work.at("out.safetensors"),
                        "--to", "mxfp8-ct", "--set", "scale=ct", "--include", ".", "--quiet")
        report.bytes += 1 + len(done.stdout)


@case("weights that are stored as numbers: NaN, infinite, and what becomes so, are refused")
def _(report):
    for dtype, bad, said in (("BF16", np.nan, "1 of 131072 values are NaN or infinite"),
                             ("F16", -np.inf, "1 of 131072 values are NaN or infinite"),
                             ("F32", 3.4e38, "some of its values are so large")):
        values = np.full((256, 512), 0.02, np.float32)
        values[3, 5] = bad
        with tool.Workdir() as work:
            write_source(work, {"x.o_proj.weight": stfile.from_f32(dtype, values)})
            made = work.at("made.safetensors")
            for source, to, text in ((work.at("src"), made, said),
                                     (made, work.at("copy.safetensors"), "a value is NaN or infinite")):
                convert = ("convert", source, "-o", to, "--to", "bf16-trtllm", "--quiet")
                done = tool.run(*convert, check=False)
                if done.returncode != 3 or text not in done.stderr:
                    raise Mismatch(f"{dtype}: {done.returncode} (3 and: {text}) {done.stderr}")
                tool.run(*convert, "--nonfinite", "keep")
            copy = stfile.load(work.at("copy.safetensors"))[0]
            for key, tensor_made in stfile.load(made)[0].items():
                report.exact(key, copy[key], tensor_made)
