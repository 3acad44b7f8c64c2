#!/usr/bin/env python3
"""The original libraries' own functions on GPU tensors against `tilepack convert`.

    originals.py [--device cuda|cpu] [--seed N] [--only TEXT] [--small]

torch's e4m3 casts on all 65,536 patterns of bf16 and f16 and a large sample of f32;
the arithmetic of DeepGEMM's block cast in torch's operations; torchao's reference
functions (to_mx, 3-D quantization, to_blocked, nvfp4_quantize); compressed-tensors'
quantize and compressors. Every byte of codes and scales is compared. What may differ
is listed at each check, is checked to be exactly that, and is counted. A library that
is not installed is skipped with a line saying so. --device cpu runs the same on the
host, with what the libraries compute there. The command is TILEPACK.
"""
import argparse
import importlib
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "lib"))
import stfile  # noqa: E402  (tests/lib)
import tool  # noqa: E402

try:
    import torch
except ImportError:
    print("skipped: torch is not installed")
    sys.exit(0)

DTYPES = {torch.bfloat16: "BF16", torch.float16: "F16", torch.float32: "F32"}
KEEP = ("--nonfinite", "keep")


class Mismatch(Exception):
    pass


class Report:
    """Bytes of one check, and those that were allowed to differ."""

    def __init__(self):
        self.bytes = self.allowed = 0

    def equal(self, name, got, want, allowed=None):
        """got, want: uint8 tensors; allowed: places that may differ, or None."""
        got, want = got.reshape(-1), want.reshape(-1)
        if got.numel() != want.numel():
            raise Mismatch(f"{name}: {got.numel()} bytes, the original has {want.numel()}")
        bad = got != want
        if allowed is not None:
            self.allowed += int((bad & allowed.reshape(-1)).sum())
            bad &= ~allowed.reshape(-1)
        count = int(bad.sum())
        if count:
            at = int(bad.nonzero()[0])
            raise Mismatch(f"{name}: {count} of {got.numel()} bytes differ, the first at {at}: "
                           f"0x{int(got[at]):02x}, the original 0x{int(want[at]):02x}")
        self.bytes += got.numel()


# ---- inputs ----------------------------------------------------------------------

def random(shape, seed):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def integers(low, high, shape, seed):
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed))


def weights(shape, seed):
    """As trained weights are: a row has its own size; some blocks are zero."""
    x = random(shape, seed) * 0.02
    x *= torch.exp(random((*shape[:-1], 1), seed + 1) * 0.5)
    x[..., :1, :32] = 0.0
    x[..., -1:, -32:] = -0.0
    return x


def wide(shape, seed):
    """Blocks of 16 whose sizes go from 2^-60 to 2^60."""
    x = random(shape, seed)
    power = integers(-60, 61, (*shape[:-1], -(-shape[-1] // 16)), seed + 1).double()
    power = power.repeat_interleave(16, -1)[..., :shape[-1]]
    return (x.double() * torch.exp2(power)).float()


def edges(shape, seed):
    """Ties, limits, subnormals and zeros of every kind, at a size for each row."""
    values = torch.tensor([0.0, -0.0, 1.0, -1.0, 448.0, -448.0, 464.0, 480.0, 6.0, 5.0, -5.0,
                           7.0, 7.5, -7.5, 8.0, 0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 1.0625,
                           1.1875, 2 ** -6, 2 ** -9, 2 ** -10, 3 * 2 ** -10, 2 ** -30, 0.875])
    x = values[integers(0, len(values), shape, seed)]
    power = integers(-126, 110, (*shape[:-1], 1), seed + 1).double()
    return (x.double() * torch.exp2(power)).float()


def bits(shape, seed):
    """Every finite pattern whose block maximum the rules can hold."""
    x = integers(-2 ** 31, 2 ** 31, shape, seed).to(torch.int32)
    x = x & 0x7EFFFFFF | x & -2 ** 31
    return x.view(torch.float32)


CONTENTS = {"weights": weights, "wide": wide, "edges": edges, "bits": bits}


def make(content, shape, dtype, device, seed):
    return CONTENTS[content](shape, seed).to(dtype).to(device)


# ---- the tool --------------------------------------------------------------------

def as_bytes(t):
    return t.contiguous().view(torch.uint8).reshape(-1)


def to_file(t):
    return stfile.Tensor(DTYPES[t.dtype], tuple(t.shape), as_bytes(t).cpu().numpy().tobytes())


class Converted:
    """The tensors that tilepack made of one weight, as bytes on the device."""

    def __init__(self, x, fmt, sets=None, extra=()):
        self.device = x.device
        self.tensors, _ = tool.convert_tensors({"x.weight": to_file(x)}, fmt, sets, extra)

    def __getitem__(self, suffix):
        data = np.frombuffer(self.tensors["x." + suffix].data, np.uint8).copy()
        return torch.from_numpy(data).to(self.device)


def one_nan(codes):
    """e4m3 NaN has two codes: the sign of NaN says nothing."""
    return torch.where(codes & 0x7F == 0x7F, 0x7F, codes).to(torch.uint8)


def zero_signs(codes):
    """Two e2m1 codes to a byte, with a plain zero for each minus zero."""
    for zero, digit in ((0x08, 0x0F), (0x80, 0xF0)):
        codes = torch.where(codes & digit == zero, codes ^ zero, codes)
    return codes


# ---- torch -----------------------------------------------------------------------

def cast(y):
    """torch's own cast; its releases to 2.11 do not saturate, so the value is clamped."""
    return one_nan(y.clamp(-448.0, 448.0).to(torch.float8_e4m3fn).view(torch.uint8))


def cast_case(report, x):
    """The OCP rule makes the scale a plain exponent, so that codes are torch's casts of
    x times a power of two. x: (rows, 32)."""
    out = Converted(x, "mxfp8-ct", {"scale": "floor"}, KEEP)
    f = x.float()
    amax = (f.view(torch.int32) & 0x7FFFFFFF).amax(-1, keepdim=True)
    exponent = amax >> 23
    s = torch.where(exponent == 255, 255, (exponent - 8).clamp(min=0))
    y = torch.where(s == 255, float("nan"), f.double() * torch.exp2((127 - s).double()))
    report.equal("scales", out["weight_scale"], s.to(torch.uint8))
    report.equal("codes", out["weight"], cast(y.float()))


def patterns(dtype, device):
    return torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype).to(device)


def torch_patterns(report, dtype, opt):
    """In order; shuffled; and each that is at most 448 beside a 448, whose scale is 1."""
    x = patterns(dtype, opt.device)
    cast_case(report, x.view(-1, 32))
    finite = x[torch.isfinite(x)]
    order = torch.randperm(finite.numel(), generator=torch.Generator().manual_seed(opt.seed))
    cast_case(report, finite[order.to(x.device)].view(-1, 32))
    small = finite[finite.abs().float() <= 448]
    rows = -(-small.numel() // 31)
    block = torch.full((rows, 32), 448.0, dtype=dtype, device=x.device)
    inner = torch.zeros(rows * 31, dtype=dtype, device=x.device)
    inner[:small.numel()] = small
    block[:, 1:] = inner.view(rows, 31)
    out = Converted(block, "mxfp8-ct", {"scale": "floor"})
    report.equal("plain casts", out["weight"],
                 block.to(torch.float8_e4m3fn).view(torch.uint8))


def torch_sample(report, opt):
    """f32: random mantissas, a half of them ties or next to one, over 24 binades."""
    count = 1 << (18 if opt.small else 24)
    x = integers(0, 1 << 23, (count,), opt.seed)
    tie = integers(0, 1 << 4, (count,), opt.seed + 1) << 19 | 1 << 19
    near = (tie + integers(-1, 2, (count,), opt.seed + 2)) & 0x7FFFFF
    x = torch.where(integers(0, 2, (count,), opt.seed + 3) == 1, near, x)
    binade = integers(1, 230, (count // 32, 1), opt.seed + 4).expand(-1, 32).reshape(-1)
    x |= (binade + integers(0, 24, (count,), opt.seed + 5)) << 23
    x |= integers(0, 2, (count,), opt.seed + 6) << 31
    x = torch.where(x >= 1 << 31, x - (1 << 32), x).to(torch.int32).view(torch.float32)
    cast_case(report, x.to(opt.device).view(-1, 32))


def block_cast(report, dtype, content, shape, opt):
    """DeepGEMM's block cast (spelled in torch): on a GPU `amax / 448.0` multiplies by the
    rounded reciprocal, which is variant=cuda; a division by a tensor divides."""
    n, k = shape
    x = make(content, shape, dtype, opt.device, opt.seed)
    padded = torch.zeros((-(-n // 128) * 128, -(-k // 128) * 128), device=x.device)
    padded[:n, :k] = x.float()
    view = padded.view(padded.shape[0] // 128, 128, -1, 128)
    amax = view.abs().amax((1, 3), keepdim=True).clamp(1e-4)
    divided = amax / torch.full_like(amax, 448.0)
    by_scalar = amax / 448.0 if x.is_cuda else amax * np.float32(1 / 448)
    for variant, scale, value in (
            ("v2", divided, view * (1.0 / divided)), ("div", divided, view / divided),
            ("seed", divided, view * (448.0 / amax)),
            ("cuda", by_scalar, view * (1.0 / by_scalar)),
            ("seed-cuda", by_scalar, view * (448.0 / amax))):
        out = Converted(x, "fp8-deepseek", {"variant": variant})
        report.equal(variant + " scales", out["weight_scale_inv"], as_bytes(scale))
        report.equal(variant + " codes", out["weight"],
                     cast(value.view(padded.shape)[:n, :k].contiguous()))


# ---- torchao ---------------------------------------------------------------------

class Torchao:
    """Release 0.18 differs from tilepack in blocks whose scale byte is 0 (their codes are
    not compared), in blocks that hold infinity, and in f32 blocks whose maximum is a
    hair above a power of two times 448, which log2 in fp32 does not see."""

    def __init__(self):
        os.environ.setdefault("TORCHAO_FORCE_SKIP_LOADING_SO_FILES", "1")
        self.quant = importlib.import_module("torchao.prototype.moe_training.kernels.mxfp8.quant")
        self.mx = importlib.import_module("torchao.prototype.mx_formats.mx_tensor")
        self.nv = importlib.import_module("torchao.prototype.mx_formats.nvfp4_tensor")
        self.blocked = importlib.import_module("torchao.prototype.mx_formats.utils").to_blocked
        self.mode = importlib.import_module(
            "torchao.prototype.mx_formats.config").ScaleCalculationMode

    def hair(self, rule, amax):
        """Blocks whose maximum is a hair above."""
        wide = amax.double().clamp(min=1e-300) / 1.75
        ratio = wide / torch.exp2(torch.floor(torch.log2(wide)))
        return (ratio > 1) & (ratio < 1 + 2 ** -16) & torch.full_like(amax, rule == "rceil").bool()

    def scales_equal(self, report, rule, got, want, amax):
        """amax: of each block, in the scales' order. Returns where codes are not compared."""
        hair = self.hair(rule, amax) & (got.int() - want.int() == 1)
        inf = torch.isinf(amax) & (got == 255) & ((want == 254) | (want == 247))
        report.equal("scales", got, want, hair | inf)
        return (got == 0) | hair | inf

    def kwise(self, report, content, shape, dtype, rule, opt):
        x = make(content, shape, dtype, opt.device, opt.seed)
        scales, codes = self.mx.to_mx(x, torch.float8_e4m3fn, 32, self.mode(rule))
        skip = self.linear(report, x, "mxfp8-ct", rule, scales, codes.view(torch.uint8), 1)
        out = Converted(x, "mxfp8-blocked", {"scale": rule}, KEEP)
        report.equal("blocked codes", one_nan(out["weight"]), one_nan(as_bytes(codes)), skip)
        exact = Converted(x, "mxfp8-ct", {"scale": rule}, KEEP)["weight_scale"]
        report.equal("blocked scales", out["weight_scale"],
                     self.blocked(exact.view(shape[0], shape[1] // 32)))

    def linear(self, report, x, fmt, rule, scales, codes, per_byte):
        out = Converted(x, fmt, {"scale": rule}, KEEP)
        amax = x.float().view(-1, 32).abs().amax(-1)
        skip = self.scales_equal(report, rule, out["weight_scale"],
                                 as_bytes(scales.view(torch.uint8)), amax)
        skip = skip.repeat_interleave(32 // per_byte)
        got, want = out["weight" if per_byte == 1 else "weight_packed"], codes.reshape(-1)
        if per_byte == 1:
            got, want = one_nan(got), one_nan(want)
        report.equal("codes", got, want, skip)
        return skip

    def fp4(self, report, content, shape, dtype, rule, opt):
        x = make(content, shape, dtype, opt.device, opt.seed)
        scales, codes = self.mx.to_mx(x, torch.float4_e2m1fn_x2, 32, self.mode(rule))
        self.linear(report, x, "mxfp4-ct", rule, scales, codes.view(torch.uint8), 2)

    def nwise(self, report, content, shape, dtype, rule, block, opt):
        e, n, k = shape
        x = make(content, shape, dtype, opt.device, opt.seed)
        width = 32 if block == "32x32" else 1
        q, s = self.quant._mxfp8_quantize_reference_3d(
            x, block_size=32, scale_block_dim1=32, scale_block_dim2=width, scaling_mode=rule,
            blocked_scale_output=False)
        s = s.view(torch.uint8).reshape(e, n // 32, k // width)
        tiles = self.quant._to_blocked_per_group_3d_layout(s, scale_block_dim2=width)
        out = Converted(x, "mxfp8-torchao3d", {"scale": rule, "block": block}, KEEP)
        amax = x.float().view(e, n // 32, 32, k // width, width).abs().amax((2, 4))
        order = self.quant._to_blocked_per_group_3d_layout(amax, scale_block_dim2=width)
        self.scales_equal(report, rule, out["weight_scale"], tiles.reshape(-1), order.reshape(-1))
        low = (amax == 0) | (s == 0)  # in the order of E, N/32, K/width
        low |= torch.isinf(amax) | self.hair(rule, amax)
        skip = low.repeat_interleave(32, 1).repeat_interleave(width, 2).transpose(1, 2)
        report.equal("codes", one_nan(out["weight"]),
                     one_nan(as_bytes(q.view(torch.uint8).transpose(1, 2))),
                     skip.contiguous().reshape(-1))

    def nvfp4(self, report, content, shape, dtype, rule, opt):
        x = make(content, shape, dtype, opt.device, opt.seed)
        total = None
        if rule == "torchao":  # on a GPU torch multiplies by the rounded 1 / 2688
            total = self.nv.per_tensor_amax_to_scale(x.abs().amax().cpu()).to(x.device)
        scales, codes = self.nv.nvfp4_quantize(x, 16, total)
        out = Converted(x, "nvfp4-blocked", {"scale": rule})
        if total is not None:
            report.equal("global", out["weight_global_scale"], as_bytes(total.view(1)))
        report.equal("scales", out["weight_scale"],
                     self.blocked(as_bytes(scales).view(shape[0], shape[1] // 16)))
        report.equal("codes", out["weight_packed"], as_bytes(codes.view(torch.uint8)))


# ---- compressed-tensors ----------------------------------------------------------

class CompressedTensors:
    """model_free_ptq's steps: minima and maxima of the blocks, calculate_qparams, and the
    compressor. It drops the sign of zero: of FP4 quotients that are -0.0, and of FP8
    quotients where it adds a zero point (of zero)."""

    def __init__(self):
        self.helpers = importlib.import_module("compressed_tensors.quantization.utils.helpers")
        scheme = importlib.import_module("compressed_tensors.quantization.quant_scheme")
        self.preset = lambda name: scheme.preset_name_to_scheme(name, ["Linear"])
        base = importlib.import_module("compressed_tensors.compressors.base").BaseCompressor
        self.compressor = base.get_value_from_registry

    def compress(self, x, preset, fmt, zero_point=False):
        """The compressed state."""
        scheme, (n, k) = self.preset(preset), x.shape
        args = scheme.weights
        height, width = args.block_structure or (1, args.group_size)
        padded = torch.zeros((-(-n // height) * height, -(-k // width) * width), dtype=x.dtype,
                             device=x.device)
        padded[:n, :k] = x
        view = padded.view(padded.shape[0] // height, height, -1, width)
        low, high = view.amin((1, 3)), view.amax((1, 3))
        state = {"weight": x}
        total = None
        if fmt == "nvfp4-pack-quantized":
            total = state["weight_global_scale"] = self.helpers.generate_gparam(low.min(),
                                                                                high.max())
        state["weight_scale"], zero = self.helpers.calculate_qparams(low, high, args,
                                                                     global_scale=total)
        if zero_point:
            state["weight_zero_point"] = zero
        return self.compressor(fmt).compress(state, scheme)

    def int4(self, report, content, shape, opt):
        x = make(content, shape, torch.bfloat16, opt.device, opt.seed)
        want = self.compress(x, "W4A16", "pack-quantized")
        out = Converted(x, "w4a8-ct", {"quotient": opt.quotient})
        report.equal("scales", out["weight_scale"], as_bytes(want["weight_scale"]))
        report.equal("codes", out["weight_packed"], as_bytes(want["weight_packed"]))

    def fp8(self, report, content, shape, preset, opt):
        x = make(content, shape, torch.bfloat16, opt.device, opt.seed)
        fmt, out = "mxfp8-quantized", None
        if preset == "FP8_BLOCK":
            fmt, out = "float-quantized", Converted(x, "fp8-ct", {"quotient": opt.quotient})
        out = out or Converted(x, "mxfp8-ct", {"scale": "ct"})
        for zero_point in (False, True):
            want = self.compress(x, preset, fmt, zero_point)
            report.equal("scales", out["weight_scale"], as_bytes(want["weight_scale"]))
            got, codes = out["weight"], as_bytes(want["weight"])
            report.equal("codes", got, codes, (got == 0x80) & (codes == 0) if zero_point else None)

    def fp4(self, report, content, shape, preset, opt):
        x = make(content, shape, torch.bfloat16, opt.device, opt.seed)
        fmt = {"NVFP4A16": "nvfp4-pack-quantized", "MXFP4A16": "mxfp4-pack-quantized"}[preset]
        want = self.compress(x, preset, fmt)
        out = Converted(x, "nvfp4-ct" if preset == "NVFP4A16" else "mxfp4-ct")
        if preset == "NVFP4A16":
            report.equal("global", out["weight_global_scale"],
                         as_bytes(want["weight_global_scale"].float()))
        report.equal("scales", out["weight_scale"], as_bytes(want["weight_scale"]))
        got, codes = out["weight_packed"], as_bytes(want["weight_packed"])
        report.equal("codes", got, codes, zero_signs(got) == zero_signs(codes))


# ---- all of them -----------------------------------------------------------------

def torch_checks(opt):
    for dtype in (torch.bfloat16, torch.float16):
        yield f"torch casts of all {DTYPES[dtype]} patterns", torch_patterns, (dtype, opt)
    yield "torch casts of an F32 sample", torch_sample, (opt,)
    for dtype in (torch.bfloat16, torch.float32):
        for content in ("weights", "wide"):
            yield (f"torch block cast {DTYPES[dtype]} {content}", block_cast,
                   (dtype, content, opt.odd, opt))


def torchao_checks(opt):
    ao = Torchao()
    for dtype in (torch.bfloat16, torch.float32):
        name = DTYPES[dtype]
        for content in CONTENTS:
            for rule in ("rceil", "floor"):
                yield (f"torchao to_mx {name} {content} {rule}", ao.kwise,
                       (content, opt.flat, dtype, rule, opt))
                for block in ("32x1", "32x32"):
                    yield (f"torchao 3-D {block} {name} {content} {rule}", ao.nwise,
                           (content, opt.stack, dtype, rule, block, opt))
            for rule in ("rceil", "floor", "ceil"):
                yield (f"torchao fp4 {name} {content} {rule}", ao.fp4,
                       (content, opt.flat, dtype, rule, opt))
        for rule in ("torchao", "torchao-single"):
            yield (f"torchao nvfp4 {name} weights {rule}", ao.nvfp4,
                   ("weights", opt.flat, dtype, rule, opt))


def ct_checks(opt):
    ct = CompressedTensors()
    for content in CONTENTS:
        yield f"compressed-tensors W4A16 {content}", ct.int4, (content, opt.flat, opt)
        for preset, shape in (("FP8_BLOCK", opt.odd), ("MXFP8", opt.flat)):
            yield f"compressed-tensors {preset} {content}", ct.fp8, (content, shape, preset, opt)
        for preset in ("MXFP4A16", "NVFP4A16"):
            yield (f"compressed-tensors {preset} {content}", ct.fp4,
                   (content, opt.flat, preset, opt))


def run(library, checks, opt, counts):
    try:
        for name, function, args in checks(opt):
            if opt.only not in name:
                continue
            report = Report()
            try:
                function(report, *args)
            except (Mismatch, tool.ToolError) as error:
                counts["failed"] += 1
                print(f"FAIL {name}: {error}")
                continue
            counts["passed"] += 1
            counts["bytes"] += report.bytes
            note = f", {report.allowed} differ as listed" if report.allowed else ""
            print(f"ok   {name}: {report.bytes} bytes{note}")
    except ImportError as error:
        counts["skipped"] += 1
        print(f"skipped {library}: {error}")


def main(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only", default="", help="checks whose name holds this")
    p.add_argument("--small", action="store_true", help="small inputs, for a quick look")
    opt = p.parse_args(argv)
    os.environ["TILEPACK_DEVICE"] = opt.device
    opt.quotient = "fp32" if opt.device == "cuda" else "bf16"
    opt.flat = (96, 512) if opt.small else (1056, 4096)
    opt.odd = (130, 392) if opt.small else (1090, 4104)
    opt.stack = (2, 96, 160) if opt.small else (3, 544, 1120)
    if opt.device == "cuda" and not torch.cuda.is_available():
        print("skipped: torch sees no GPU")
        return 0
    print("torch", torch.__version__,
          torch.cuda.get_device_name() if opt.device == "cuda" else "on the host")
    counts = {"passed": 0, "failed": 0, "skipped": 0, "bytes": 0}
    run("torch", torch_checks, opt, counts)
    run("torchao", torchao_checks, opt, counts)
    run("compressed-tensors", ct_checks, opt, counts)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} libraries "
          f"skipped, {counts['bytes']} bytes")
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
