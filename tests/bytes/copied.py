#!/usr/bin/env python3
"""Packed weights that are copied because they are "already in this format" get a fresh hash: so
what is known of them without a source is looked at first. Wrong layout words, padding, scales
that are no multiples or no numbers are refused, by convert, by unpack of other weights, into
archives, and by every way of writing a folder; right ones are copied byte for byte. So it is with what --exclude keeps: its global scales, and orders of columns, which verify
looks at, too. So are descriptors that say of the tensors which weights were made from what cannot
be."""
import glob
import json
import os
import shutil
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import stfile  # noqa: E402
import tool  # noqa: E402
from input_cases.common import f16_scales, gptq_file, random_codes  # noqa: E402

tally = tool.Tally()


def plain(work, name, shape):
    dice = np.random.default_rng(1)
    path = work.at(f"{name}.safetensors")
    stfile.save(path, {"l.weight": stfile.from_f32("BF16", dice.standard_normal(
        shape, dtype=np.float32))})
    return path


def packed(work, to, shape):
    path = work.at(f"{to}.safetensors")
    tool.run("convert", plain(work, "plain", shape), "-o", path, "--to", to, "--quiet", "--force")
    return path


def change(path, suffix, at, value, out):
    """A copy in which some bytes of one tensor are others."""
    entries, _, start = stfile.header(path)
    name = [name for name in entries if name.endswith(suffix)][0]
    begin, end = entries[name]["data_offsets"]
    with open(path, "rb") as f:
        data = bytearray(f.read())
    if at < 0:
        at += end - begin
    data[start + begin + at:start + begin + at + len(value)] = value
    with open(out, "wb") as f:
        f.write(data)


def content(path):
    return {name: tensor.data for name, tensor in stfile.load(path)[0].items()}


def case(work, to, shape, suffix, at, value, text):
    good = packed(work, to, shape)
    out, bad = work.at("out.safetensors"), work.at("bad.safetensors")
    done = tool.run("convert", good, "-o", out, "--to", to, "--quiet", "--force", check=False)
    tally.check(done.returncode == 0 and content(out) == content(good),
                f"{to}: what is right is copied: {done.stderr}")
    change(good, suffix, at, value, bad)
    for target in ("new.safetensors", "new.safetensors.zst"):
        done = tool.run("convert", bad, "-o", work.at(target), "--to", to, "--quiet", check=False)
        tally.check(done.returncode == 3 and text in done.stderr and
                    not os.path.exists(work.at(target)),
                    f"{to}: {suffix} {target}: status {done.returncode} (3 and: {text}) "
                    f"{done.stderr}")
    return bad


def taken_over(work, good, suffix, at, value, then):
    """What is no number is refused on its way into another format, too."""
    bad, out = work.at("bad.safetensors"), work.at("taken.safetensors")
    change(good, suffix, at, value, bad)
    convert = ("convert", bad, "-o", out, "--to", then, "--quiet", "--force")
    done = tool.run(*convert, check=False)
    said = "one of its scales is nan" if "scale" in suffix else "1 of 32768 values are NaN"
    tally.check(done.returncode == 3 and said in done.stderr and
                "--nonfinite keep takes it over as it is" in done.stderr and
                not os.path.exists(out), f"{suffix} to {then}: {done.returncode} {done.stderr}")
    done = tool.run(*convert, "--nonfinite", "keep", check=False)
    tally.check(done.returncode == 0, f"{suffix} to {then}, kept: {done.stderr}")
    os.remove(out)


def taken_apart(work, good, suffix, text):
    """Wrong words are refused where a weight becomes another, is restored or compared, too."""
    bad, out = work.at("bad.safetensors"), work.at("apart.safetensors")
    change(good, suffix, 0, b"\x07", bad)
    for command in (("convert", bad, "--to", "w4a16-ct", "-o", out), ("unpack", bad, "-o", out),
                    ("diff", bad, good)):
        done = tool.run(*command, "--quiet", check=False)
        tally.check(done.returncode == 3 and text in done.stderr and
                    not os.path.exists(out), f"{command[0]} of a wrong {suffix}: "
                    f"{done.returncode} {done.stderr}")


def wrong_eights(work):
    """A kernel multiplies by one of eight scales that are no multiples of one number: they are no
    weight, whatever becomes of them, in rows that lie side by side or not."""
    bad, out = work.at("bad.safetensors"), work.at("taken.safetensors")
    dice = np.random.default_rng(4)
    experts = {f"m.experts.{e}.{name}.weight": stfile.from_f32("BF16", dice.standard_normal(
        (128, 256), dtype=np.float32)) for e in range(2) for name in ("gate_proj", "up_proj")}
    stfile.save(work.at("moe.safetensors"), experts)
    tool.run("convert", work.at("moe.safetensors"), "-o", work.at("stack.safetensors"), "--to",
             "w4a8-cutlass", "--quiet")
    for good, name in ((packed(work, "w4a8-cutlass", (128, 256)), "l"),
                       (work.at("stack.safetensors"), "m.experts.w13")):
        for at, flip in ((13, b"\x01"), (13, b"\xfe"), (8, b"\x01")):
            change(good, "group_scale", at, flip, bad)
            done = tool.run("dump", bad, name, "--values", "0:1,0:1", check=False)
            tally.check(done.returncode == 3 and "eight multiples" in done.stderr,
                        f"values of {good}: {done.returncode} {done.stderr}")
            source = work.at("plain.safetensors" if name == "l" else "moe.safetensors")
            for command, status in ((("verify", bad, "--against", source), 1),
                                    (("diff", bad, good), 3), (("diff", good, bad), 3)):
                done = tool.run(*command, check=False)
                tally.check(done.returncode == status, f"{command}: {done.returncode} {done.stderr}")
            for command in (("convert", "--to", "w4a8-ct"), ("convert", "--to", "w4a16-marlin"),
                            ("convert", "--to", "w4a8-ct", "--nonfinite", "keep"), ("unpack",),
                            ("convert", "--to", "fp8-deepseek", "--requantize"),
                            ("unpack", "--to", "w4a8-ct"), ("unpack", "--dtype", "f32")):
                done = tool.run(command[0], bad, "-o", out, *command[1:], "--quiet", "--force",
                                check=False)
                tally.check(done.returncode == 3 and "eight multiples" in done.stderr and
                            not os.path.exists(out),
                            f"{command} of {good}: {done.returncode} {done.stderr}")


WAYS = ([], ["--zstd"], ["--part", "1/1"], ["--part", "1/1", "--jobs", "1"])


def folders(work, to, damage, ways):
    """The first damage in all of the ways, the others in the first."""
    good, bad, out = work.at("good"), work.at("bad"), work.at("out")
    options = ("--to", to, "--include", "mlp", "--quiet")
    tool.run("convert", work.at("src"), "-o", good, *options, "--force")
    shutil.rmtree(bad, ignore_errors=True)
    shutil.copytree(good, bad)
    os.remove(work.at("bad", "tilepack.json"))
    [shard] = glob.glob(work.at("bad", "*.safetensors"))
    for i, (suffix, at, value, text) in enumerate(damage):
        change(shard.replace(bad, good), suffix, at, value, shard)
        for way in ways if i == 0 else ways[:1]:
            done = tool.run("convert", bad, "-o", out, *options, "--force", *way, check=False)
            tally.check(done.returncode == 3 and text in done.stderr and not os.path.exists(out),
                        f"{to}: {suffix} {way}: status {done.returncode} (3 and: {text}) "
                        f"{done.stderr}")
            shutil.rmtree(out, ignore_errors=True)
            shutil.rmtree(out + ".partial", ignore_errors=True)
    tool.run("convert", bad, "-o", out, *options, "--nonfinite", "keep")
    shutil.rmtree(out)


def all_folders(work):
    tool.make_source(work.at("src"))
    mlp = "layers.0.mlp."
    folders(work, "w4a8-cutlass", [
        (mlp + "gate_proj.weight_group_scale", 16, b"\x7e\x01", "eight multiples"),
        (mlp + "down_proj.weight_layout", 0, b"\x07", "word 0 is 7"),
        (mlp + "down_proj.weight_chan_scale", -4, b"\0\0\xc0\x7f", "scale")], WAYS)
    folders(work, "fp8-deepseek", [
        (mlp + "gate_proj.weight", -1, b"\x7f", "a code is NaN"),
        (mlp + "down_proj.weight", 5, b"\xff", "a code is NaN"),
        (mlp + "down_proj.weight_scale_inv", -4, b"\0\0\x80\x7f", "scale")], WAYS[:1])
    folders(work, "w4a16-ct", [(mlp + "gate_proj.weight_scale", 0, b"\xc0\x7f", "scale")],
            WAYS[:2])


def origins(work):
    """What unpack could not take apart is neither copied, converted nor right."""
    good, bad, out = work.at("good"), work.at("bad"), work.at("out")
    for path in (good, bad):
        tool.run("convert", work.at("src"), "-o", path, "--to", "w4a8-ct", "--quiet", "--force")
    os.remove(work.at("bad", "tilepack.json"))
    [shard] = glob.glob(work.at("bad", "*.safetensors"))
    with open(shard, "rb") as f:
        data = f.read()
    begin = b'gate_proj.weight\\",\\"rows\\":512,\\"shape\\":[512,256]'
    assert data.count(begin) == 1
    for old, new, text, file in ((b"[512,256", b"[512,255", "has another shape", 3),
                                 (b"[512,256", b"[513,256", "only parts of this tensor", 0),
                                 (b"gate_proj", b"down_proj", "only parts of this tensor", 0)):
        with open(shard, "wb") as f:
            f.write(data.replace(begin, begin.replace(old, new)))
        for to in (["--to", "w4a8-ct"], ["--to", "w4a16-ct"]):
            done = tool.run("convert", bad, "-o", out, *to, "--quiet", check=False)
            tally.check(done.returncode == 3 and text in done.stderr and not os.path.exists(out),
                        f"{new} to {to}: {done.returncode} (3 and: {text}) {done.stderr}")
        done = tool.run("verify", bad, check=False)
        tally.check(done.returncode == 1 and text in done.stdout,
                    f"verify {new}: {done.returncode} (1 and: {text}) {done.stdout}")
        done = tool.run("convert", shard, "-o", work.at("o.safetensors"), "--to", "w4a8-ct",
                        "--quiet", "--force", check=False)
        tally.check(done.returncode == file, f"a shard {new}, of more: {done.returncode} ({file})")


def experts_without_end(work):
    """So many experts of so many pieces that their product is the number of pieces again."""
    path, bad = work.at("pieces.safetensors"), work.at("bad.safetensors")
    stfile.save(work.at("plain.safetensors"), {
        f"{name}{i}.weight": stfile.from_f32("BF16", np.ones((16, 128), np.float32))
        for name in "abc" for i in range(4)})
    tool.run("convert", work.at("plain.safetensors"), "-o", path, "--to", "w4a8-ct", "--include",
             ".", "--quiet")
    tensors, meta = stfile.load(path)
    units = json.loads(meta["tilepack.units"])
    for unit in units:
        name, i = unit["prefix"][0], int(unit["prefix"][1])
        unit["from"] = [{"name": name + ".weight", "rows": 16, "row": 16 * i,
                         "shape": [(1 << 62) + 1, 64, 128], "expert": "abc".index(name)}]
    stfile.save(bad, tensors, {**meta, "tilepack.units": json.dumps(units)})
    done = tool.run("unpack", bad, "-o", work.at("back.safetensors"), "--quiet", check=False)
    tally.check(done.returncode == 3 and "only parts of this tensor" in done.stderr,
                f"2^62 + 1 experts of four pieces: {done.returncode} {done.stderr}")


def excluded(work, path, to, text):
    """What is kept beside another weight, which is converted, is copied byte for byte (text None),
    or refused in these words."""
    out, beside = work.at("out.safetensors"), work.at("beside.safetensors")
    if os.path.exists(out):
        os.remove(out)
    tensors, meta = stfile.load(path)
    other = stfile.from_f32("BF16", np.ones((256, 256), np.float32))
    stfile.save(beside, {**tensors, "other.weight": other}, meta)
    convert = ("convert", beside, "-o", out, "--to", to, "--exclude", "^(?!other)", "--plain",
               "convert", "--quiet", "--force")
    done = tool.run(*convert, check=False)
    if text is None:
        tally.check(done.returncode == 0 and
                    {k: v for k, v in content(out).items() if k[:5] != "other"} == content(path),
                    f"kept: {done.returncode} {done.stderr}")
    else:
        tally.check(done.returncode == 3 and text in done.stderr and not os.path.exists(out),
                    f"kept: {done.returncode} (3 and: {text}) {done.stderr}")
    return convert


def global_scales(work):
    bad = work.at("bad.safetensors")
    for to, suffix in (("nvfp4-ct", "global_scale"), ("fp8-tensor-ct", "weight_scale")):
        good = packed(work, to, (128, 256))
        excluded(work, good, "mxfp8-ct", None)
        for value in (b"\0\0\xc0\x7f", b"\0\0\x80\x7f", bytes(4), b"\0\0\x80\xbf"):
            change(good, suffix, 0, value, bad)
            convert = excluded(work, bad, "mxfp8-ct", "a global scale is no positive number")
            done = tool.run(*convert, "--nonfinite", "keep", check=False)
            tally.check(done.returncode == 0, f"{to}: {value}, --nonfinite keep: {done.stderr}")


def orders(work):
    path, dice = work.at("order.safetensors"), np.random.default_rng(2)
    codes, scales = random_codes(dice, 64, 512), f16_scales(dice, 64, 4)
    for group in (3, 4, -1, 2 ** 31 - 1):
        order = dice.permutation(np.arange(512) // 128)
        order[7] = group
        stfile.save(path, gptq_file("x", codes, scales, 0x77777777, order))
        text = None if group == 3 else f"g_idx[7] is {group}, but there are only 4 groups"
        for to in ("mxfp8-ct", "gptq"):
            excluded(work, path, to, text)
        done = tool.run("verify", path, check=False)
        tally.check(done.returncode == (0 if group == 3 else 1) and
                    (text is None or f"'x.g_idx': {text}" in done.stdout),
                    f"verify: {text}: {done.returncode} {done.stdout} {done.stderr}")


def main():
    with tool.Workdir() as work:
        global_scales(work)
        orders(work)
        experts_without_end(work)
        wrong_eights(work)
        all_folders(work)
        origins(work)
        case(work, "w4a8-cutlass", (128, 256), "layout", 0, b"\x07", "word 0 is 7")
        case(work, "w4a8-cutlass", (128, 256), "group_scale", 16, b"\x7e\x01", "eight multiples")
        case(work, "nvfp4-blocked", (16, 64), "weight_scale", -1, b"\x01", "padding")
        case(work, "mxfp8-blocked", (16, 64), "scale", -1, b"\x01", "padding")
        for to in ("mxfp4-ct", "mxfp4-trtllm", "mxfp8-blocked", "mxfp8-ct"):
            case(work, to, (128, 256), "scale", 0, b"\xff", "scale")
        change(packed(work, "w4a16-ct", (128, 256)), "weight_scale", 1, b"\xbc", work.at("minus"))
        os.rename(work.at("minus"), work.at("minus.safetensors"))
        done = tool.run("convert", work.at("minus.safetensors"), "-o", work.at("m.safetensors"),
                        "--to", "w4a16-ct", "--quiet", check=False)
        tally.check(done.returncode == 0 and content(work.at("m.safetensors")) ==
                    content(work.at("minus.safetensors")),
                    f"a scale below zero is copied: {done.stderr}")
        # Where e8m0 is stored as F8_E4M3, what is NaN there is the scale 1.
        change(packed(work, "mxfp4-trtllm", (128, 256)), "scale", 0, b"\x7f", work.at("one"))
        os.rename(work.at("one"), work.at("one.safetensors"))
        done = tool.run("convert", work.at("one.safetensors"), "-o", work.at("1.safetensors"),
                        "--to", "mxfp4-trtllm", "--quiet", check=False)
        tally.check(done.returncode == 0, f"mxfp4-trtllm: a scale of 1: {done.stderr}")
        case(work, "w4a8-cutlass", (128, 256), "group_scale", 0, b"\x7f" * 8, "NaN")
        for to, suffix in (("mxfp8-ct", "weight"), ("fp8-deepseek", "weight")):
            case(work, to, (128, 256), suffix, 5, b"\xff", "a code is NaN")
        for to, suffix, at, value, then in (
                ("fp8-deepseek", "weight", 5, b"\x7f", "fp8-marlin"),
                ("fp8-deepseek", "weight", 100, b"\xff", "fp8-trtllm"),
                ("mxfp8-ct", "weight", -1, b"\x7f", "mxfp8-marlin"),
                ("w4a8-cutlass", "chan_scale", 0, b"\0\0\xc0\x7f", "w4a8-ct"),
                ("w4a8-cutlass", "group_scale", 0, b"\x7f" * 8, "w4a16-ct")):
            taken_over(work, packed(work, to, (128, 256)), suffix, at, value, then)
        for to, suffix, text in (("w4a8-ct", "shape", "word 0 is 7"),
                                 ("w4a8-cutlass", "layout", "word 0 is 7"),
                                 ("gptq", "qzeros", "word 0 is 2004317959"),
                                 ("gptq", "g_idx", "word 0 is 7"),
                                 ("awq", "qzeros", "word 0 is 2290649")):
            taken_apart(work, packed(work, to, (128, 256)), suffix, text)
        bad = case(work, "fp8-deepseek", (128, 256), "scale_inv", 0, b"\x00\x00\xc0\x7f",
                   "scale")
        done = tool.run("convert", bad, "-o", work.at("kept.safetensors"), "--to", "fp8-deepseek",
                        "--nonfinite", "keep", "--quiet", check=False)
        tally.check(done.returncode == 0, f"--nonfinite keep: {done.stderr}")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
