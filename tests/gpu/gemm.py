#!/usr/bin/env python3
"""The FP8 GEMM of the plug-in, as `tilepack schedule` plans it: right numbers, and how fast.

    gemm.py numbers [--only TEXT]             every shape below, planned by both planners
    gemm.py speed [--rounds N] [--only TEXT]  beside DeepGEMM and torch where they are installed
    gemm.py speed --peer DIR                  beside kernels that gemm_peer.py compiled
    gemm.py warm I N                          has DeepGEMM compile part I of N of what `speed` runs

Numbers: unit vectors along all of k must give the decoded weights exactly (along parts of it where
that takes more than 2048 launches), random ones a calc_diff (DeepGEMM's measure) of at most 1e-3 to
fp32, and the bits of DeepGEMM where it is installed. The result is
poisoned beforehand, and nothing behind it may change. Speed: launches as a graph, copies of the
weight in turn, the median of three runs with the order reversed in each.
TILEPACK names the program, TILEPACK_PROVE the plug-in (build/ by default). Ends with `N passed,
N failed`.
"""
import argparse
import ctypes
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys

try:
    import torch
except ImportError:
    torch = None  # gemm_peer.py compiles without it

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TILEPACK = os.environ.get("TILEPACK", os.path.join(ROOT, "build", "tilepack"))
PLUGIN = os.environ.get("TILEPACK_PROVE", os.path.join(ROOT, "build", "libtilepack_prove.so"))
PLANNERS = "deepgemm", "deepgemm-2025"
ONE, CONTIGUOUS, MASKED = range(3)

# n, k, and every m of them. The first are edges: of tiles, of scales, of 16 bytes.
NUMBERS = [
    (8, 16, (1, 3)), (24, 48, (5, 64)), (64, 128, (1, 63, 64, 65)), (200, 272, (7, 129, 300)),
    (72, 208, (5, 70)), (104, 400, (17, 33, 1000)), (576, 512, (1, 16, 17, 32, 33, 128)),
    (1000, 1040, (40, 515)),
    (2112, 7168, (1, 16, 64, 128, 300, 1024, 4096)), (4096, 7168, (1, 8, 64, 128, 777, 4096)),
    (7168, 2048, (1, 32, 64, 128, 511, 513, 4096)), (24576, 1536, (1, 48, 64, 128, 1024)),
    (7168, 16384, (1, 64, 128, 1024)), (1536, 7168, (16, 192, 640, 2000)),
    (32768, 512, (64, 128, 4096)), (1280, 8192, (96, 224, 1111)), (136, 4096, (4096, 8191))]
GROUPED = [  # layout, groups, m (rows of each, masked: at most), n, k
    (CONTIGUOUS, 4, 512, 576, 512), (CONTIGUOUS, 8, 256, 4096, 7168),
    (CONTIGUOUS, 4, 1024, 7168, 2048), (CONTIGUOUS, 3, 128, 200, 272),
    (MASKED, 4, 64, 576, 512), (MASKED, 8, 192, 4096, 7168), (MASKED, 2, 512, 7168, 2048),
    (MASKED, 3, 40, 256, 272), (MASKED, 1, 1024, 4096, 7168)]
SPEED = [(m, n, k) for n, k in ((4096, 7168), (7168, 2048), (24576, 1536), (7168, 16384),
                                (2112, 7168)) for m in (64, 128, 1024, 4096, 8192)]
SPEED_GROUPED = [(CONTIGUOUS, g, m, n, k) for g, m in ((4, 8192), (8, 4096))
                 for n, k in ((4096, 7168), (7168, 2048))] + [
                     (MASKED, g, m, n, k) for g, m in ((1, 1024), (2, 512), (4, 256))
                     for n, k in ((4096, 7168), (7168, 2048))]
LAUNCHES = 2048  # that walk all of k with unit vectors; where it takes more, three do not
ONE_CODE = 0x38  # 1 in e4m3


# ---- the plug-in -------------------------------------------------------------------------

U64, I64, P = ctypes.c_uint64, ctypes.c_int64, ctypes.c_void_p


ABI = 2  # TILEPACK_PROVE_ABI: of the structs below


class Config(ctypes.Structure):  # struct tp_sched_config
    _fields_ = [("name", ctypes.c_char_p)] + [
        (n, U64) for n in ("block_m", "block_n", "block_k", "stages", "cluster_m", "cluster_n")] + [
        ("swap_ab", ctypes.c_bool), ("multicast_on_a", ctypes.c_bool)] + [
        (n, U64) for n in ("smem", "swizzle", "padding", "threads", "sms", "blocks", "waves",
                           "last_wave")] + [("cost", I64)]

    def __str__(self):
        return (f"{self.block_m}x{self.block_n}_{self.cluster_m}x{self.cluster_n} "
                f"s{self.stages} w{self.swizzle}")


class Problem(ctypes.Structure):
    _fields_ = [(n, U64) for n in ("e", "n", "k", "m")] + [("layout", ctypes.c_uint32)]


class Operands(ctypes.Structure):
    _fields_ = [(n, P) for n in ("codes", "groups", "scales", "rows", "row_scales",
                                 "row_groups")] + [("shared_rows", ctypes.c_int), ("out", P)]


RUN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Config), ctypes.POINTER(Problem),
                       ctypes.POINTER(Operands), ctypes.c_size_t, ctypes.c_uint32,
                       ctypes.c_uint32, ctypes.POINTER(ctypes.c_double), ctypes.c_char_p,
                       ctypes.c_size_t)
OPEN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint32, P, ctypes.c_char_p, ctypes.c_size_t)


class Plugin(ctypes.Structure):  # the beginning of it
    _fields_ = [("abi", ctypes.c_uint32), ("kernels", ctypes.c_uint32), ("kernel", P),
                ("built", ctypes.c_char_p), ("can_run", P), ("run", RUN), ("open", OPEN)]


def load_plugin():
    library = ctypes.CDLL(PLUGIN)
    library.tilepack_prove_plugin.restype = ctypes.POINTER(Plugin)
    plugin = library.tilepack_prove_plugin().contents
    if plugin.abi != ABI:
        raise SystemExit(f"{PLUGIN} speaks version {plugin.abi} of its interface, this {ABI}")
    text = ctypes.create_string_buffer(512)
    torch.zeros(1, device="cuda")  # the same context
    if plugin.open(0, ctypes.create_string_buffer(1024), text, 512):
        raise SystemExit(text.value.decode())
    return plugin


def plan(planner, m, n, k, layout=ONE, groups=1):
    """The planner's configuration, or None where it refuses."""
    command = [TILEPACK, "schedule", "--kernel", planner, "--shape", f"{n},{k}", "--m", str(m),
               "--gpu", "h200", "--json"]
    if layout == CONTIGUOUS:
        command[5] = f"{groups},{n},{k}"
        command += ["--groups", "contiguous"]
    elif layout == MASKED:
        command[5] = f"{groups},{n},{k}"
        command += ["--groups", "masked", "--num-groups", str(groups)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    made = json.loads(done.stdout)
    if "error" in made:
        raise SystemExit(f"{' '.join(command)}: {made['error']}")
    found = made["schedules"][0]["plan"]
    if not found:
        return None
    return Config(**{f: (found[f] or 0) for f, _ in Config._fields_ if f not in ("name", "cost")})


# ---- operands ----------------------------------------------------------------------------

def up(x, to):
    return -(-x // to) * to


class Case:
    """Operands of one problem on the GPU. rows: of all groups, MASKED: room of each."""

    def __init__(self, layout, groups, m, n, k, seed=1):
        self.layout, self.e, self.m, self.n, self.k = layout, groups, m, n, k
        g = torch.Generator("cuda").manual_seed(seed)
        blocks, lines = -(-k // 128), -(-n // 128)
        self.stacks = groups if layout == MASKED else 1
        self.rows = m * groups if layout == CONTIGUOUS else m
        a = torch.randn((self.stacks, self.rows, k), generator=g, device="cuda") * 60
        self.a = a.clamp(-448, 448).to(torch.float8_e4m3fn)
        b = torch.randn((groups, n, k), generator=g, device="cuda") * 60
        self.b = b.clamp(-448, 448).to(torch.float8_e4m3fn)
        del a, b
        # as they lie: [stacks][blocks][rows to 4s]
        self.sa = torch.rand((self.stacks, blocks, up(self.rows, 4)), generator=g,
                             device="cuda") / 256 + 1 / 512
        self.sb = torch.rand((groups, lines, blocks), generator=g, device="cuda") / 256 + 1 / 512
        self.row_groups = None
        if layout == CONTIGUOUS:
            self.row_groups = torch.arange(groups, device="cuda", dtype=torch.int32)
            self.row_groups = self.row_groups.repeat_interleave(m)
        elif layout == MASKED:
            self.row_groups = torch.full((groups,), m, device="cuda", dtype=torch.int32)
        self.guard = torch.empty((self.stacks * self.rows + 8, n), device="cuda",
                                 dtype=torch.bfloat16)
        self.out = self.guard[:-8].view(self.stacks, self.rows, n)
        self.copies = [self.b]

    def uneven(self):
        """Groups of other sizes, one of them empty, rows of none."""
        if self.layout == MASKED:
            sizes = [(self.m, 1, 0, self.m // 2 + 1)[i % 4] for i in range(self.e)]
            self.row_groups = torch.tensor(sizes, device="cuda", dtype=torch.int32)
        elif self.layout == CONTIGUOUS:
            parts = torch.arange(self.rows // 128, device="cuda") % max(self.e - 1, 1)
            rows = parts.sort().values.to(torch.int32).repeat_interleave(128)
            rows[123:128] = -1   # the end of a half tile,
            rows[192:256] = -1   # a half,
            rows[-128:] = -1     # and a tile, of which its neighbour in a cluster has rows
            self.row_groups = rows
        return self

    def rotate(self, cache):
        count = min(32, up(4 * cache, self.b.numel()) // self.b.numel())
        self.copies = [self.b] + [self.b.clone() for _ in range(max(count, 2) - 1)]

    def poison(self):
        self.guard.view(torch.int16).fill_(-1)

    def weights(self, e):
        """Decoded, in fp32."""
        s = self.sb[e].repeat_interleave(128, 0)[:self.n].repeat_interleave(128, 1)[:, :self.k]
        return self.b[e].float() * s

    def decoded_rows(self, stack):
        s = self.sa[stack, :, :self.rows].t().repeat_interleave(128, 1)[:, :self.k]
        return self.a[stack].float() * s

    def used(self):
        """(stack, rows, expert) of all that must come out."""
        if self.layout == ONE:
            return [(0, slice(0, self.rows), 0)]
        if self.layout == MASKED:
            return [(e, slice(0, int(c)), e) for e, c in enumerate(self.row_groups.tolist())]
        parts = self.row_groups.tolist()
        return [(0, slice(i, i + parts[i:i + 64].count(parts[i])), parts[i])
                for i in range(0, self.rows, 64) if parts[i] >= 0]

    def problem(self):
        return Problem(self.e, self.n, self.k, self.m, self.layout)

    def operands(self):
        sets = (Operands * len(self.copies))()
        for i, b in enumerate(self.copies):
            sets[i] = Operands(b.data_ptr(), None, self.sb.data_ptr(), self.a.data_ptr(),
                               self.sa.data_ptr(),
                               None if self.row_groups is None else self.row_groups.data_ptr(), 0,
                               self.out.data_ptr())
        return sets


def run_ours(plugin, config, case, rounds=0, launches=0):
    """None, or what went wrong; with rounds the microseconds."""
    text = ctypes.create_string_buffer(1024)
    times = (ctypes.c_double * max(rounds, 1))()
    torch.cuda.synchronize()
    if plugin.run(ctypes.byref(config), ctypes.byref(case.problem()), case.operands(),
                  len(case.copies), rounds, launches, times, text, 1024):
        return text.value.decode()
    return list(times) if rounds else None


# ---- the others --------------------------------------------------------------------------

def deep_gemm(peer=None):
    if peer:
        return importlib.import_module("gemm_peer").Peer(
            peer, plan, lambda: torch.cuda.current_stream().cuda_stream)
    if importlib.util.find_spec("deep_gemm") is None:
        return None
    return importlib.import_module("deep_gemm")


def run_deep(library, case, b):
    sa = case.sa.transpose(1, 2)[:, :case.rows]
    if case.layout == ONE:
        library.fp8_gemm_nt((case.a[0], sa[0]), (b[0], case.sb[0]), case.out[0])
    elif case.layout == CONTIGUOUS:
        library.m_grouped_fp8_gemm_nt_contiguous((case.a[0], sa[0]), (b, case.sb), case.out[0],
                                                 case.row_groups)
    else:
        masked = getattr(library, "m_grouped_fp8_gemm_nt_masked", None) or (
            library.fp8_m_grouped_gemm_nt_masked)
        masked((case.a, sa), (b, case.sb), case.out, case.row_groups, case.m)


def same_bits(library, case):
    """Whether DeepGEMM gives what ours has given."""
    ours = case.out.clone()
    case.poison()
    run_deep(library, case, case.b)
    return all(bool((ours[s, r].view(torch.int16) == case.out[s, r].view(torch.int16)).all())
               for s, r, _ in case.used())


def run_torch(case, b):
    f = torch.nn.functional
    kinds = f.ScalingType.BlockWise1x128, f.ScalingType.BlockWise128x128
    return f.scaled_mm(case.a[0], b[0].t(), case.sa[0].t()[:case.rows], kinds[0], case.sb[0].t(),
                       kinds[1], output_dtype=torch.bfloat16)


# ---- numbers -----------------------------------------------------------------------------

class Counts:
    def __init__(self):
        self.passed = self.failed = 0
        self.weights, self.whole = {}, set()  # of problems: weights that came back, and whether all

    def exact(self, problem, weights, whole):
        """Another configuration gets the same weights of a problem back: they count once."""
        self.weights[problem] = max(weights, self.weights.get(problem, 0))
        if whole:
            self.whole.add(problem)

    def check(self, good, text):
        self.passed += bool(good)
        self.failed += not good
        if not good:
            print("FAIL", text, flush=True)


def calc_diff(x, y):
    x, y = x.double(), y.double()
    total = (x * x + y * y).sum()
    return float(1 - 2 * (x * y).sum() / total) if float(total) else 0.0


def intact(case):
    return bool((case.guard[-8:].view(torch.int16) == -1).all())


def check_random(plugin, config, case, counts, title, library):
    case.poison()
    wrong = run_ours(plugin, config, case)
    if wrong:
        counts.check(False, f"{title}: {wrong}")
        return
    worst, nan = 0.0, False
    for stack, rows, e in case.used():
        want = case.decoded_rows(stack)[rows] @ case.weights(e).t()
        got = case.out[stack, rows]
        nan |= bool(got.isnan().any())
        if got.numel():
            worst = max(worst, calc_diff(got, want))
    counts.check(not nan and worst <= 1e-3 and intact(case),
                 f"{title}: nan {nan}, calc_diff {worst:.2e}, behind it intact {intact(case)}")
    if library is not None and case.n % 8 == 0:
        counts.check(same_bits(library, case), f"{title}: not the bits of DeepGEMM")


def check_units(plugin, config, case, counts, problem, title):
    """Unit vectors along all of k, as many at a time as a group has rows. Where that takes too
    many launches: at the beginning of k, in its middle and at its end."""
    rows, k = min(case.m, case.k), case.k
    firsts = range(0, k, rows)
    if len(firsts) > LAUNCHES:
        firsts = 0, (k - rows) // 2, k - rows
    want = torch.stack([case.weights(e).t().to(torch.bfloat16) for e in range(case.e)])
    units = torch.zeros((case.e, case.m, k), device="cuda", dtype=torch.uint8)
    case.a = units.view(torch.float8_e4m3fn).view(case.stacks, case.rows, k)
    case.sa.fill_(1)
    out = case.out.view(case.e, case.m, case.n)
    differing = torch.zeros((), device="cuda", dtype=torch.int64)
    columns, wrong = set(), None
    for first in firsts:
        at = torch.arange(min(rows, k - first), device="cuda")
        units.zero_()
        units[:, at, first + at] = ONE_CODE
        case.poison()
        wrong = run_ours(plugin, config, case)
        if wrong:
            break
        differing += (out[:, :len(at)] != want[:, first:first + len(at)]).sum()
        differing += (out[:, len(at):] != 0).sum()
        differing += (case.guard[-8:].view(torch.int16) != -1).sum()
        columns.update(range(first, first + len(at)))
    good = not wrong and int(differing) == 0
    counts.check(good, f"{title}: unit vectors: {wrong or f'{int(differing)} differ'}")
    if good:
        counts.exact(problem, case.e * case.n * len(columns), len(columns) == k)


def numbers(opt):
    plugin, library, counts = load_plugin(), deep_gemm(), Counts()
    torch.backends.cuda.matmul.allow_tf32 = False
    cases = [(ONE, 1, m, n, k) for n, k, ms in NUMBERS for m in ms] + GROUPED
    seen = set()
    for layout, groups, m, n, k in cases:
        for planner in PLANNERS:
            title = f"{('dense', 'contiguous', 'masked')[layout]} {groups} m={m} {n}x{k} {planner}"
            if opt.only not in title:
                continue
            total = m * groups if layout == CONTIGUOUS else m
            config = plan(planner, total, n, k, layout, groups)
            if config is None:
                continue
            title += f" {config}"
            seen.add((layout, str(config)))
            deep = library if planner == "deepgemm" and opt.deep else None
            check_random(plugin, config, Case(layout, groups, m, n, k), counts, title, deep)
            if layout != ONE:
                check_random(plugin, config, Case(layout, groups, m, n, k).uneven(), counts,
                             title + " uneven", deep)
            check_units(plugin, config, Case(layout, groups, m, n, k), counts,
                        (layout, groups, m, n, k), title)
    print(f"{len(counts.weights)} problems in {len(seen)} configurations: "
          f"{sum(counts.weights.values())} different weights by themselves, every weight of "
          f"{len(counts.whole)} problems")
    print(f"{counts.passed} passed, {counts.failed} failed")
    return 1 if counts.failed else 0


# ---- speed -------------------------------------------------------------------------------

def graph_time(work, copies, launches, rounds):
    """Microseconds of one launch of work(copy), for each round."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        work(copies[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(launches):
            work(copies[i % len(copies)])
    times = []
    for _ in range(rounds + 1):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / launches)
    return times[1:]


def speed_cases(only):
    cases = [(ONE, 1, m, n, k) for m, n, k in SPEED] + SPEED_GROUPED
    names = "dense", "contiguous", "masked"
    return [c for c in cases if only in f"{names[c[0]]} m={c[2]} {c[3]}x{c[4]}"]


def ways(plugin, library, case, torch_too):
    """Name and function of (launches, rounds) of all that can run the case."""
    total = case.m * case.e if case.layout == CONTIGUOUS else case.m
    config = plan("deepgemm", total, case.n, case.k, case.layout, case.e)
    found = {"tilepack": lambda n, r: run_ours(plugin, config, case, r, n)}
    if library is not None:
        found["DeepGEMM"] = lambda n, r: graph_time(lambda b: run_deep(library, case, b),
                                                    case.copies, n, r)
    if torch_too and case.layout == ONE and case.k % 512 == 0:
        found["torch"] = lambda n, r: graph_time(lambda b: run_torch(case, b), case.copies, n, r)
    return config, found


def speed(opt):
    plugin, library = load_plugin(), deep_gemm(opt.peer) if opt.deep else None
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    ratios = []
    print("| layout | m | n x k | configuration | us | TFLOPS | GB/s | DeepGEMM us | ratio | "
          "bits | torch us |")
    for layout, groups, m, n, k in speed_cases(opt.only):
        case = Case(layout, groups, m, n, k)
        case.rotate(cache)
        config, found = ways(plugin, library, case, opt.deep)
        flops = 2e-6 * groups * m * n * k
        launches = max(2, min(100, int(2000 / max(flops / 1000, 5))))
        taken = {name: [] for name in found}
        for turn in range(opt.runs):
            for name in list(found)[::1 if turn % 2 == 0 else -1]:
                times = found[name](launches, opt.rounds)
                if isinstance(times, str):
                    raise SystemExit(f"{name}: {times}")
                taken[name].append(statistics.median(times))
        us = {name: statistics.median(times) for name, times in taken.items()}
        moved = groups * n * k + groups * m * (k + 2 * n)
        deep, ratio, bits = us.get("DeepGEMM"), "", ""
        if deep:
            run_ours(plugin, config, case)
            bits = "same" if same_bits(library, case) else "other"
            ratios.append(deep / us["tilepack"])
            ratio = f"{ratios[-1]:.3f}"
        name = ("dense", "contiguous", "masked")[layout]
        print(f"| {name} {groups} | {m} | {n}x{k} | {config} | "
              f"{us['tilepack']:.2f} | {flops / us['tilepack']:.0f} | "
              f"{moved / us['tilepack'] / 1e3:.0f} | {f'{deep:.2f}' if deep else '-'} | {ratio} | "
              f"{bits} | "
              f"{us.get('torch', float('nan')):.2f} |", flush=True)
        del case
        torch.cuda.empty_cache()
    if ratios:
        print(f"DeepGEMM's time over ours: geometric mean {statistics.geometric_mean(ratios):.3f}, "
              f"least {min(ratios):.3f}, of {len(ratios)}")
    return 0


def warm(opt):
    library = deep_gemm()
    cases = speed_cases(opt.only)
    if opt.all:
        cases += [(ONE, 1, m, n, k) for n, k, ms in NUMBERS for m in ms] + GROUPED
    for layout, groups, m, n, k in cases[opt.part::opt.parts] if library else []:
        case = Case(layout, groups, m, n, k)
        run_deep(library, case, case.b)
        torch.cuda.synchronize()
    return 0


def main(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    p.add_argument("what", choices=["numbers", "speed", "warm"])
    p.add_argument("part", nargs="?", type=int, default=0)
    p.add_argument("parts", nargs="?", type=int, default=1)
    p.add_argument("--only", default="", help="cases whose title holds this")
    p.add_argument("--rounds", type=int, default=9)
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--all", action="store_true", help="warm: those of `numbers`, too")
    p.add_argument("--peer", help="speed: kernels of gemm_peer.py in DeepGEMM's place")
    p.add_argument("--no-deep", dest="deep", action="store_false", help="not beside DeepGEMM")
    opt = p.parse_args(argv)
    if torch is None or not torch.cuda.is_available():
        print("skipped: torch " + ("sees no GPU" if torch else "is not installed"))
        return 0
    return {"numbers": numbers, "speed": speed, "warm": warm}[opt.what](opt)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
