#!/usr/bin/env python3
"""The consumers' own kernels on the bytes that `tilepack convert` writes.

    consumers.py TILEPACK [--only TEXT] [--model PATH] [--small] [--speed [--graph]]

Consumers: vLLM's W4A8 operators, dense and grouped, with all their schedules, and its block FP8
GEMM (VLLM_LIBRARY names its _C_stable_libtorch.abi3.so, as shipped or made small by
slim_library.py; else that of an installed vllm); DeepGEMM where it is installed;
torch.nn.functional.scaled_mm with blocks of 128x128, per row and per tensor. What is not there
is skipped by name. Operands are those that the Python package hands out.

Two proofs for each weight. Unit vectors as activations: what comes out must be the weight as
`tilepack unpack --dtype f32` has it, rounded to bf16, for every weight. Random activations: the
result of fp64 on the unpacked weights, with a relative error of at most MOST_ERROR. --speed adds
microseconds and TFLOPS; --graph takes them of launches replayed as a graph, as `tilepack prove`
does. --model: each weight of a checkpoint, beside the shapes here.
Ends with `N passed, N failed`; TILEPACK_LIBRARY names the library where it is not built here.
"""
import argparse
import functools
import glob
import importlib
import importlib.util
import os
import shutil
import statistics
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(HERE, "..", "lib"), os.path.join(ROOT, "python")]
import stfile  # noqa: E402  (tests/lib)

try:
    import torch
    from torch.nn import functional as F
except ImportError:
    print("skipped: torch is not installed")
    sys.exit(0)

# Hopper's FP8 tensor cores keep 13 bits behind the largest of 32 products and the sum: with
# K of 16,384 that is 3.2e-3 of the result; bf16 alone is 1.7e-3.
MOST_ERROR = 4e-3
UNITS = 1024  # unit vectors of one call

TILES = {16: (128, 256), 32: (256,), 64: (256,), 128: (256,)}
GROUPED = [f"Kernel_{rows}x{m}_{cluster}x1x1_Coop" for m, tiles in TILES.items()
           for rows in tiles for cluster in (1, 2)] + ["Kernel_128x256_2x1x1_Coop"]
DENSE = [f"{rows}x{m}_1x1x1" for m in (16, 32, 64) for rows in (256, 128)] + [
    "256x128_1x1x1", "128x256_2x1x1", "128x256_1x1x1", "128x128_1x1x1"]

# (experts, N, K); 0 experts: a plain weight. The last of each are edges of the kernel's grid.
W4A8 = [(0, 4096, 7168), (0, 7168, 2048), (0, 2112, 7168), (0, 208, 384), (8, 4096, 2048),
        (4, 2112, 640), (4, 416, 384)]
FP8 = [(0, 4096, 7168), (0, 2112, 7168), (0, 576, 7168), (0, 256, 512)]
GROUPED_FP8 = [(4, 4096, 7168), (3, 256, 512)]
ROWS = (1, 16, 64, 300)


class Skip(Exception):
    """A consumer that is not there, or does not take a shape."""


class Counts:
    def __init__(self):
        self.passed = self.failed = self.weights = 0

    def check(self, good, text):
        self.passed += bool(good)
        self.failed += not good
        print("ok  " if good else "FAIL", text, flush=True)


# ---- weights -----------------------------------------------------------------------------

def make_values(shape, seed):
    """bf16: rows of their own sizes, some large values, a group and a row of zeros."""
    generator = torch.Generator("cuda").manual_seed(seed)
    x = torch.randn(shape, generator=generator, device="cuda") * 0.02
    x *= torch.exp(torch.randn((*shape[:-1], 1), generator=generator, device="cuda") * 0.5)
    x[..., ::97] *= 8
    x[..., 1, :128] = 0
    x[..., 2, :] = 0
    return x.to(torch.bfloat16)


def to_file(x):
    return stfile.Tensor("BF16", tuple(x.shape), x.view(torch.int16).cpu().numpy().tobytes())


class Packed:
    """One weight in a format: its operands and what they mean, on the GPU."""

    def __init__(self, folder, fmt, shape, seed=1, sets=None):
        experts, n, k = shape
        self.shape, self.fmt = shape, fmt
        name = "x.experts.{}.down_proj.weight" if experts else "x.o_proj.weight"
        tensors = {name.format(e): to_file(make_values((n, k), seed + e))
                   for e in range(max(experts, 1))}
        source = os.path.join(folder, "in.safetensors")
        packed = os.path.join(folder, "packed.safetensors")
        stfile.save(source, tensors)
        tp.convert(source, packed, to=fmt, force=True, **({"set": sets} if sets else {}))
        self.take(tp.open(packed), None)

    def take(self, checkpoint, name):
        weight = checkpoint.weight(name or next(iter(checkpoint.weights)))
        self.operands = {key: value.cuda() for key, value in weight.torch().items()}
        self.values = torch.from_numpy(weight.values().copy()).cuda()
        self.values = self.values.reshape(-1, *self.values.shape[-2:])
        self.experts, self.n, self.k = self.values.shape
        return self

    @classmethod
    def of(cls, checkpoint, name):
        self = cls.__new__(cls)
        self.fmt = checkpoint.weight(name).format
        self.take(checkpoint, name)
        self.shape = (self.experts if checkpoint.weight(name).stacked else 0, self.n, self.k)
        return self


def fp8_rows(m, k, seed):
    generator = torch.Generator("cuda").manual_seed(seed)
    x = torch.randn((m, k), generator=generator, device="cuda") * 100
    return x.clamp(-448, 448).to(torch.float8_e4m3fn)


def units(first, count, k):
    x = torch.zeros((count, k), device="cuda")
    x[torch.arange(count), torch.arange(first, first + count)] = 1
    return x.to(torch.float8_e4m3fn)


# ---- consumers ---------------------------------------------------------------------------
# Each is called with experts' rows [m_0 + m_1 + .., K] in e4m3, the number of rows of each
# expert, their scales as scales() makes them, and a schedule or None; it returns bf16 [.., N].

class VllmDense:
    name, formats, shapes, schedules = "vLLM cutlass_w4a8_mm", ["w4a8-cutlass"], \
        [s for s in W4A8 if not s[0]], DENSE

    def __init__(self):
        self.op = vllm().cutlass_w4a8_mm

    def scales(self, total, k, value):
        del k
        return value(total, 1)

    def __call__(self, packed, rows, counts, scale, schedule):
        o = packed.operands
        return self.op(rows, o["b"], o["b_group_scales"], 128, o["b_scales"].reshape(-1), scale,
                       torch.bfloat16, schedule)


class VllmGrouped(VllmDense):
    name, shapes, schedules = "vLLM cutlass_w4a8_moe_mm", [s for s in W4A8 if s[0]], GROUPED

    def __init__(self):
        self.op = vllm().cutlass_w4a8_moe_mm

    def __call__(self, packed, rows, counts, scale, schedule):
        o = packed.operands
        out = torch.empty((sum(counts), packed.n), dtype=torch.bfloat16, device="cuda")
        sizes = torch.tensor([[packed.n, m, packed.k] for m in counts], dtype=torch.int32)
        begins = torch.tensor([sum(counts[:e]) for e in range(len(counts))])
        self.op(out, rows, o["b"], scale, o["b_scales"], o["b_group_scales"], 128, begins.cuda(),
                sizes.cuda(), o["a_strides"], o["b_strides"], o["c_strides"],
                o["group_scale_strides"], schedule)
        return out


class VllmBlock:
    name, formats, shapes, schedules = "vLLM cutlass_scaled_mm, 128x128", ["fp8-deepseek"], \
        [s for s in FP8 if s[1] % 128 == 0], []

    def __init__(self):
        self.op = vllm().cutlass_scaled_mm

    def scales(self, total, k, value):
        return value(k // 128, total).t()

    def __call__(self, packed, rows, counts, scale, schedule):
        out = torch.empty((len(rows), packed.n), dtype=torch.bfloat16, device="cuda")
        o = packed.operands
        self.op(out, rows, o["weight"].t(), scale, o["scale"].t(), None)
        return out


class TorchBlock:
    rows = 16, 64, 300  # cuBLAS takes no single row
    name, formats, shapes, schedules = "torch scaled_mm, 128x128", ["fp8-deepseek"], \
        [s for s in FP8 if s[2] % 512 == 0], []

    def __init__(self):
        if not hasattr(F, "scaled_mm"):
            raise Skip("this torch has no torch.nn.functional.scaled_mm")
        self.kinds = F.ScalingType.BlockWise1x128, F.ScalingType.BlockWise128x128

    def scales(self, total, k, value):
        return value(k // 128, total).t()

    def weight_scale(self, packed):
        return packed.operands["scale"].t()

    def __call__(self, packed, rows, counts, scale, schedule):
        return F.scaled_mm(rows, packed.operands["weight"].t(), scale, self.kinds[0],
                           self.weight_scale(packed), self.kinds[1],
                           output_dtype=torch.bfloat16)


class TorchRows(TorchBlock):
    name, formats, shapes = "torch scaled_mm, per row", ["fp8-dynamic-ct"], \
        [s for s in FP8 if s[1] % 16 == 0]

    def __init__(self):
        super().__init__()
        self.kinds = F.ScalingType.RowWise, F.ScalingType.RowWise

    def scales(self, total, k, value):
        return value(total, 1)

    def weight_scale(self, packed):
        return packed.operands["weight_scale"].float().reshape(1, -1)


class TorchTensor(TorchRows):
    name, formats = "torch scaled_mm, per tensor", ["fp8-tensor-ct"]

    def __init__(self):
        super().__init__()
        self.kinds = F.ScalingType.TensorWise, F.ScalingType.TensorWise

    def scales(self, total, k, value):
        return value(1, 1)

    def weight_scale(self, packed):
        return packed.operands["weight_scale"].float().reshape(1, 1)


class DeepGemm:
    name, formats, shapes, schedules = "DeepGEMM fp8_gemm_nt", ["fp8-deepseek"], FP8, []

    def __init__(self):
        if importlib.util.find_spec("deep_gemm") is None:
            raise Skip("deep_gemm is not installed")
        self.library = importlib.import_module("deep_gemm")
        self.op = getattr(self.library, "fp8_gemm_nt", None) or (
            self.library.gemm_fp8_fp8_bf16_nt)

    def scales(self, total, k, value):
        lines = -(-total // 4) * 4  # TMA reads lines of whole 16 bytes
        return value(-(-k // 128), lines).t()[:total]

    def __call__(self, packed, rows, counts, scale, schedule):
        out = torch.empty((len(rows), packed.n), dtype=torch.bfloat16, device="cuda")
        self.op((rows, scale), (packed.operands["weight"], packed.operands["scale"]), out)
        return out


class DeepGemmGrouped(DeepGemm):
    """Contiguous groups: each expert's rows fill whole blocks of 128."""
    name, formats, shapes = "DeepGEMM grouped, contiguous", ["fp8-deepgemm-sm90"], GROUPED_FP8

    def __init__(self):
        super().__init__()
        self.op = getattr(self.library, "m_grouped_fp8_gemm_nt_contiguous", None) or (
            self.library.m_grouped_gemm_fp8_fp8_bf16_nt_contiguous)

    def __call__(self, packed, rows, counts, scale, schedule):
        padded = [-(-m // 128) * 128 for m in counts]
        total, places = sum(padded), []
        for e, m in enumerate(counts):
            places += range(sum(padded[:e]), sum(padded[:e]) + m)
        place = torch.tensor(places, device="cuda")
        wide = torch.zeros((total, packed.k), device="cuda").to(torch.float8_e4m3fn)
        wide.view(torch.uint8)[place] = rows.view(torch.uint8)
        factors = torch.ones((scale.shape[1], total), device="cuda").t()
        factors[place] = scale
        group = torch.repeat_interleave(torch.arange(len(counts), dtype=torch.int32),
                                        torch.tensor(padded)).cuda()
        out = torch.empty((total, packed.n), dtype=torch.bfloat16, device="cuda")
        self.op((wide, factors), (packed.operands["weight"], packed.operands["scale"]), out,
                group)
        return out[place]


CONSUMERS = [VllmDense, VllmGrouped, VllmBlock, TorchBlock, TorchRows, TorchTensor, DeepGemm,
             DeepGemmGrouped]
loaded = []


def vllm():
    """vLLM's operators, from its shipped library."""
    if not loaded:
        path = os.environ.get("VLLM_LIBRARY")
        if not path and (spec := importlib.util.find_spec("vllm")):
            found = glob.glob(os.path.join(os.path.dirname(spec.origin), "_C_stable*.so"))
            path = found[0] if found else None
        if not path:
            raise Skip("VLLM_LIBRARY is not set and vllm is not installed")
        torch.ops.load_library(path)
        loaded.append(path)
    if not hasattr(torch.ops._C, "cutlass_w4a8_mm"):
        raise Skip(f"{loaded[0]} has no W4A8 operators")
    return torch.ops._C


# ---- proofs ------------------------------------------------------------------------------

def ones(*shape):
    return torch.ones(shape, device="cuda")


def spread(seed):
    def value(*shape):
        generator = torch.Generator("cuda").manual_seed(seed)
        return torch.rand(shape, generator=generator, device="cuda") + 0.5
    return value


def prove_units(consumer, packed, schedule, counts):
    """How many weights differ from what they must be, and the first of them."""
    experts = max(packed.shape[0], 1)
    wrong, first = 0, ""
    for begin in range(0, packed.k, UNITS):
        size = min(UNITS, packed.k - begin)
        rows = units(begin, size, packed.k).repeat(experts, 1)
        scale = consumer.scales(len(rows), packed.k, ones)
        out = consumer(packed, rows, [size] * experts, scale, schedule)
        want = packed.values[:, :, begin:begin + size].to(torch.bfloat16).transpose(1, 2)
        got = out.reshape(experts, size, packed.n)
        differs = got != want
        if not wrong and differs.any():
            e, i, n = (int(x) for x in differs.nonzero()[0])
            first = f"weight ({e},{n},{begin + i}) is {got[e, i, n]:g}, not {want[e, i, n]:g}"
        wrong += int(differs.sum())
    counts.weights += packed.values.numel()
    return wrong, first


def expected(packed, rows, counts, scale):
    """In fp64; scale: (rows, 1), (1, 1) or (rows, K/128)."""
    x = rows.double()
    if scale.shape[1] > 1:
        x = x * scale.double().repeat_interleave(128, 1)[:, :packed.k]
    else:
        x = x * scale.double()
    parts, at = [], 0
    for e, m in enumerate(counts):
        parts.append(x[at:at + m] @ packed.values[e].double().t())
        at += m
    return torch.cat(parts)


def relative_error(consumer, packed, counts, schedule, seed):
    # Not the weights' seed: rows that are weights' rows add up 7,168 products of one sign, which
    # the tensor cores get wrong by several percent.
    rows = fp8_rows(sum(counts), packed.k, seed + 100000)
    scale = consumer.scales(len(rows), packed.k, spread(seed + 200000))
    want = expected(packed, rows, counts, scale)
    got = consumer(packed, rows, counts, scale, schedule).double()
    return float((got - want).norm() / want.norm())


def uneven(experts, m):
    """Rows of each expert; some have none."""
    return [m] if experts == 0 else [(0, 1, m, 7, m + 5)[e % 5] for e in range(experts - 1)] + [m]


def microseconds(consumer, packed, m, schedule, graph):
    """The median of 9 rounds; copies of the weight take turns so that none stays in the L2."""
    experts = max(packed.shape[0], 1)
    rows = fp8_rows(m * experts, packed.k, 100000)
    scale = consumer.scales(len(rows), packed.k, spread(2))
    cache = 4 * torch.cuda.get_device_properties(0).L2_cache_size
    size = sum(t.numel() * t.element_size() for t in packed.operands.values())
    copies = []
    for _ in range(min(32, -(-cache // size))):
        copy = Packed.__new__(Packed)
        copy.__dict__.update(packed.__dict__)
        # clone() keeps the strides of a dense view
        copy.operands = {key: value.clone() for key, value in packed.operands.items()}
        copies.append(copy)

    def launch(count):
        for i in range(count):
            consumer(copies[i % len(copies)], rows, [m] * experts, scale, schedule)

    def round_of(count, work):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e3 / count

    launch(4)
    count = int(max(4, min(200, 2000 / round_of(4, lambda: launch(4)))))
    work = functools.partial(launch, count)
    if graph:
        recorded = torch.cuda.CUDAGraph()
        with torch.cuda.graph(recorded):
            work()
        work = recorded.replay
    return statistics.median(round_of(count, work) for _ in range(9))


def prove(consumer, packed, counts, opt, title):
    schedules = [None] + (consumer.schedules if not opt.small else consumer.schedules[:2])
    for schedule in schedules:
        wrong, first = prove_units(consumer, packed, schedule, counts)
        counts.check(wrong == 0, f"{title} {schedule or 'default'}: unit vectors, "
                     f"{packed.values.numel()} weights, {wrong} wrong {first}")
        several = getattr(consumer, "rows", ROWS)
        errors = [relative_error(consumer, packed, uneven(packed.shape[0], m), schedule, m)
                  for m in several]
        counts.check(max(errors) <= MOST_ERROR, f"{title} {schedule or 'default'}: "
                     f"m {','.join(map(str, several))}: relative error at most {max(errors):.2e}")
    if opt.speed:
        experts, n, k = max(packed.shape[0], 1), packed.n, packed.k
        for m in (16, 64, 256, 4096):
            us = microseconds(consumer, packed, m, None, opt.graph)
            print(f"     {title} m={m}: {us:.1f} us, {2e-6 * experts * m * n * k / us:.0f} TFLOPS",
                  flush=True)


def prove_shapes(consumer, counts, opt, folder):
    for fmt in consumer.formats:
        for shape in consumer.shapes[-1:] if opt.small else consumer.shapes:
            box = "x".join(str(s) for s in shape if s)
            prove(consumer, Packed(folder, fmt, shape), counts, opt,
                  f"{consumer.name} {fmt} {box}")


def prove_model(consumer, counts, opt, folder):
    """Every weight of the model that the consumer takes."""
    for fmt in consumer.formats:
        packed = os.path.join(folder, "model")
        tp.convert(opt.model, packed, to=fmt, force=True)
        checkpoint = tp.open(packed)
        grouped = any(s[0] for s in consumer.shapes)
        wrong = weights = 0
        for name in checkpoint.weights:
            weight = Packed.of(checkpoint, name)
            if weight.fmt != fmt or bool(weight.shape[0]) != grouped:
                continue
            bad, _ = prove_units(consumer, weight, None, counts)
            wrong, weights = wrong + bad, weights + weight.values.numel()
        if weights:
            counts.check(wrong == 0, f"{consumer.name} {fmt} {opt.model}: {weights} weights, "
                         f"{wrong} wrong")


def main(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("tilepack")
    p.add_argument("--only", default="", help="consumers whose name holds this")
    p.add_argument("--model", help="a checkpoint, each weight of which goes through")
    p.add_argument("--small", action="store_true", help="the last shape of each, two schedules")
    p.add_argument("--speed", action="store_true", help="microseconds, too")
    p.add_argument("--graph", action="store_true", help="of launches replayed as a graph")
    opt = p.parse_args(argv)
    if not torch.cuda.is_available():
        print("skipped: torch sees no GPU")
        return 0
    os.environ["TILEPACK_PROGRAM"] = os.path.abspath(opt.tilepack)
    globals()["tp"] = importlib.import_module("tilepack_llm")
    print("torch", torch.__version__, torch.cuda.get_device_name())
    counts = Counts()
    folder = tempfile.mkdtemp(prefix="tilepack-consumers-",
                              dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        for kind in CONSUMERS:
            if opt.only.lower() not in kind.name.lower():
                continue
            try:
                consumer = kind()
                prove_shapes(consumer, counts, opt, folder)
                if opt.model:
                    prove_model(consumer, counts, opt, folder)
            except Skip as reason:
                print(f"skipped: {kind.name}: {reason}")
    finally:
        shutil.rmtree(folder)
    print(f"{counts.weights} weights went through a kernel by themselves")
    print(f"{counts.passed} passed, {counts.failed} failed")
    return 1 if counts.failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
