#!/usr/bin/env python3
"""The check behind cli/new_format.sh: TILEPACK knows one format more."""
import sys

import numpy as np

import lib_path  # noqa: F401  pylint: disable=unused-import
import oracle
import refquant as rq
import stfile
import tool


MOVED = [31, 30, 29, 28, 27, 26, 25, 24, 0, 1, 2, 3, 4, 5, 6, 7,
         9, 8, 11, 10, 13, 12, 15, 14, 23, 16, 22, 17, 21, 18, 20, 19]


def place_moved(codes, scales, stretches):
    """The bytes of mxfp4-moved, step by step."""
    e, n, k = codes.shape
    most = 24 if stretches == 2 else 32
    rows, padded, columns = n // stretches, -(-n // stretches // most) * most, -(-k // 64) * 64
    nibbles = np.zeros((e, padded // 8, stretches, 8, columns), dtype=np.uint8)
    tile = np.full((e, stretches, padded, columns // 32), 127, dtype=np.uint8)
    for h in range(stretches):
        for r in range(rows):
            nibbles[:, r // 8, h, r % 8, :k] = codes[:, h * rows + r]
            tile[:, h, r, :k // 32] = scales[:, h * rows + r]
    flat = nibbles.reshape(-1, 2)
    words = (flat[:, 0] | flat[:, 1] << 4).view(np.uint32)
    stored = np.zeros_like(words)
    for i, bit in enumerate(MOVED):
        stored |= (words >> np.uint32(bit) & np.uint32(1)) << np.uint32(i)
    return [stored.tobytes(), tile.tobytes()]


def moved(rng):
    """Rows [up; gate], each padded, every bit moved; there and back, from codes and from values."""
    x = stfile.from_f32("BF16", rng.standard_normal((2, 40, 96)).astype(np.float32))
    codes, scale = rq.mxfp4(x.f32(), "even")
    order = np.r_[20:40, 0:20]
    bias = stfile.from_f32("BF16", rng.standard_normal((2, 40)).astype(np.float32))
    biases = {"w13": np.zeros((2, 48), dtype=np.float32), "w2": np.zeros((2, 64), dtype=np.float32)}
    biases["w13"][:, :20], biases["w13"][:, 24:44] = bias.f32()[:, 20:], bias.f32()[:, :20]
    biases["w2"][:, :40] = bias.f32()
    checks = {}
    with tool.Workdir() as work:
        src, ct, dst = (work.at(name + ".safetensors") for name in ("in", "ct", "out"))
        stacks = {"m.experts.gate_up_proj": x, "m.experts.down_proj": x}
        stfile.save(src, stacks)
        tool.convert(src, ct, "mxfp4-ct")
        stfile.save(src, stacks | {"m.experts.gate_up_proj_bias": bias,
                                   "m.experts.down_proj_bias": bias})
        for name, source in (("values", src), ("codes", ct)):
            out, _ = tool.convert(source, dst, "mxfp4-moved", None, ("--force",))
            for part, rows, stretches in (("w13", order, 2), ("w2", slice(None), 1)):
                want = place_moved(codes[:, rows], scale[:, rows], stretches)
                got = [out[f"m.experts.{part}_{s}"].data for s in ("weight", "weight_scale")]
                checks[f"{part} moved, from {name}"] = want == got
                if source == src:
                    checks[f"the bias of {part}"] = (
                        out[f"m.experts.{part}_bias"].data == biases[part].tobytes())
            tool.run("verify", dst, "--against", source, "--quiet")
        back, _ = tool.convert(dst, work.at("back.safetensors"), "mxfp4-ct")
        straight, _ = tool.load(ct)
        checks["and back again"] = {k: t.data for k, t in back.items()} == {
            k: t.data for k, t in straight.items()}
    return checks


def lifted(rng):
    """Scales as e5m3 bytes, twice as large as often as e4m3 has room, and the global scale."""
    scales = rng.integers(0x08, 0x61, (24, 6), dtype=np.uint8)  # up to 32, so times 8
    scales[3, 2], scales[7, 5] = 0x60, 0
    source = {"x.weight": stfile.tensor("U8", rng.integers(0, 256, (24, 48), dtype=np.uint8)),
              "x.weight_scale": stfile.tensor("F8_E4M3", scales),
              "x.weight_scale_2": stfile.Tensor("F32", (), np.float32(0.3).tobytes())}
    with tool.Workdir() as work:
        src, dst, back = (work.at(name + ".safetensors") for name in ("in", "out", "back"))
        stfile.save(src, source)
        out, _ = tool.convert(src, dst, "nvfp4-lifted")
        tool.run("verify", dst, "--against", src, "--quiet")
        tool.run("unpack", dst, "-o", back, "--dtype", "f32", "--quiet")
        plain, values = tool.load(back)[0]["x.weight"], oracle.Checkpoint([dst]).unit("x.").values()
    want = np.where(scales == 0, 0, scales + (15 << 3) + (3 << 3)).astype(np.uint8).T
    return {"scales of five exponent bits": np.array_equal(out["x.weight_scale"].bits, want),
            "a global scale times a power of two":
                np.frombuffer(out["x.weight_scale_2"].data, np.float32)[0]
                == np.float32(0.3) * np.float32(2.0 ** -6),
            "the values that it stands for": np.array_equal(plain.f32(), values[0])}


def ungated(rng):
    """Two experts without a gate, calibrated: one activation scale, and another padding of w2."""
    source, acts = {}, {}
    for e in range(2):
        for proj, n, k in (("up_proj", 48, 32), ("down_proj", 32, 48)):
            at, acts[e, proj] = f"m.experts.{e}.{proj}.", np.float32(rng.uniform(.1, 1))
            source |= {
                at + "weight": stfile.tensor("U8", rng.integers(0, 256, (n, k // 2), dtype=np.uint8)),
                at + "weight_scale": stfile.tensor("F8_E4M3", rng.integers(8, 97, (n, k // 16), dtype=np.uint8)),
                at + "weight_scale_2": stfile.Tensor("F32", (), np.float32(0.3).tobytes()),
                at + "input_scale": stfile.Tensor("F32", (), acts[e, proj].tobytes())}
    with tool.Workdir() as work:
        src, dst = work.at("in.safetensors"), work.at("out.safetensors")
        stfile.save(src, source)
        tool.run("convert", src, "-o", dst, "--to", "nvfp4-lifted", "--quiet")
        tool.run("verify", dst, "--against", src, "--quiet")
        out, _ = tool.load(dst)
        bare = {name: t for name, t in source.items() if "input" not in name}
        stfile.save(src, bare)
        done = tool.run("convert", src, "-o", dst, "--to", "nvfp4-lifted", "--quiet", "--force", check=False)
    checks = {"needed activation scales": done.returncode == 4 and "none for it: a test" in done.stderr,
              "the padding of experts without a gate": out["m.experts.w2_weight"].shape == (2, 32, 32)
              and out["m.experts.w13_weight"].shape == (2, 48, 16)}
    for part, proj in (("w13", "up_proj"), ("w2", "down_proj")):
        act = out[f"m.experts.{part}_act"]
        checks[f"the activation scale of {part}"] = act.shape == () and act.data == max(
            acts[e, proj] for e in range(2)).tobytes()
    return checks


def products(rng):
    """Zero points times minus their scales, rounded to the type of these; there and back."""
    codes = rng.integers(0, 256, (64, 128), dtype=np.uint8)
    zeros = rng.integers(0, 256, (64, 2), dtype=np.uint8)
    scale = rng.uniform(0.001, 0.1, (64, 2)).astype(np.float16)
    zeros[0, 0], scale[5, 1] = 0, 0
    words = np.ascontiguousarray(zeros.reshape(16, 4, 2).transpose(0, 2, 1)).view(np.int32)[..., 0]
    source = {"x.weight_packed": stfile.tensor("I32", codes.view(np.int32)),
              "x.weight_scale": stfile.tensor("F16", scale),
              "x.weight_zero_point": stfile.tensor("I32", np.ascontiguousarray(words)),
              "x.weight_shape": stfile.tensor("I64", np.array([64, 128], dtype=np.int64))}
    f32 = scale.astype(np.float32)
    added = (-f32 * zeros).astype(np.float16)
    want = codes * np.repeat(f32, 64, axis=1) + np.repeat(added.astype(np.float32), 64, axis=1)
    with tool.Workdir() as work:
        src, dst, other, back = (work.at(n + ".safetensors") for n in ("in", "out", "other", "back"))
        stfile.save(src, source)
        out, _ = tool.convert(src, dst, "w8a16-products")
        tool.run("verify", dst, "--against", src, "--quiet")
        unit = oracle.Checkpoint([dst]).unit("x.")
        tool.run("unpack", dst, "-o", work.at("plain.safetensors"), "--dtype", "f32", "--quiet")
        plain = tool.load(work.at("plain.safetensors"))[0]["x.weight"]
        tool.convert(dst, other, "w8a16-marlin", {"group": "64", "scales": "f16"})
        again, _ = tool.convert(other, back, "w8a16-products")
        shown = tool.run("dump", dst, "x.added", "--at", "0,7,100").stdout
        big = stfile.tensor("F16", np.full((64, 2), 60000, dtype=np.float16))
        stfile.save(src, source | {"x.weight_scale": big})
        done = tool.run("convert", src, "-o", work.at("no.safetensors"), "--to", "w8a16-products",
                        "--quiet", check=False)
    return {"zero points times their scales": np.array_equal(out["x.added"].bits, added.T.view(
                out["x.added"].bits.dtype)),
            "in the type of the scales": out["x.added"].dtype == "F16",
            "what a kernel adds them to": np.array_equal(unit.values()[0], want),
            "and unpacked": np.array_equal(plain.f32(), want),
            "zero points from them and back": all(again[k].data == t.data for k, t in out.items()),
            "how the value comes about": "canonical code * scale + zero" in shown,
            "a product that is infinite": done.returncode == 4
                and "one of its zero points is infinite times its scale" in done.stderr}


def main():
    rng = np.random.default_rng(11)
    x = stfile.from_f32("BF16", rng.standard_normal((3, 48, 384)).astype(np.float32))
    codes, scale = rq.int4(x.f32())
    want = (codes.astype(np.float32) - 8) * rq.spread(rq.bf16_to_f32(scale), 1, 128, 48, 384)
    with tool.Workdir() as work:
        src, dst = work.at("in.safetensors"), work.at("out.safetensors")
        stfile.save(src, {"x.weight": x})
        tool.convert(src, dst, "w4a16-cutlass", None, ("--include", "."))
        tool.run("verify", dst, "--against", src, "--quiet")
        unit = oracle.Checkpoint([dst]).unit("x.")
    checks = {"values from the descriptor": np.array_equal(unit.values(), want)}
    # The atom once more, as printed by CUTLASS: (n,k) of a 16x16 tile to a nibble.
    e, n, k = np.meshgrid(np.arange(3), np.arange(48), np.arange(384), indexing="ij")
    off = (e * 48 * 384 + n // 16 * 256 + k // 16 * 16 * 48 + n % 8 * 32 + n // 8 % 2 * 2
           + k % 2 + k // 2 % 4 * 8 + k // 8 % 2 * 4)
    raw = np.frombuffer(unit.data["weight_packed"], np.uint8)
    nibble = raw[off >> 1] >> ((off & 1) * 4).astype(np.uint8) & 15
    checks["nibbles in the atom's order"] = np.array_equal(nibble, codes ^ 8)
    checks["scales n-major"] = np.array_equal(
        np.frombuffer(unit.data["weight_scale"], np.uint16).reshape(3, 3, 48),
        scale.transpose(0, 2, 1))
    checks |= moved(rng)
    checks |= lifted(rng)
    checks |= ungated(rng)
    checks |= products(rng)
    for name, good in checks.items():
        print(f"{'ok  ' if good else 'FAIL'} {name}")
    bad = sum(not good for good in checks.values())
    print(f"{len(checks) - bad} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
