#!/usr/bin/env python3
"""DeepGEMM's own kernels for `gemm.py speed` where its library does not load (it is of another
torch): compiled by nvcc from the headers of its package, and launched by the driver.

    pip download --no-deps sgl-deep-gemm==0.2.5 && unzip sgl_deep_gemm-0.2.5*.whl -d DIR
    gemm_peer.py DIR/deep_gemm/include OUT [--only TEXT]     compiles; needs no GPU
    gemm.py speed --peer OUT                                 runs them beside ours

The configurations are those of `tilepack schedule --kernel deepgemm`, the flags those that DeepGEMM
gives NVCC itself. DeepGEMM's headers are read where they are; none of them is here.
"""
import argparse
import ctypes
import os
import subprocess
import sys

ONE, CONTIGUOUS, MASKED = range(3)
TYPES = "Normal", "MGroupedContiguous", "MGroupedMasked"
FLAGS = ("-std=c++20", "--diag-suppress=39,161,174,177,186,940", "-O3",
         "--ptxas-options=--register-usage-level=10", "--expt-relaxed-constexpr",
         "--expt-extended-lambda", "-gencode=arch=compute_90a,code=sm_90a")
U8, F32, BF16 = (0, 1), (7, 4), (9, 2)  # element types of tensor maps, and their bytes
SWIZZLES = {128: 3, 64: 2, 32: 1}
SHARED_BYTES, CLUSTER = 8, 4  # attributes: of a function, of a launch
BLOCK = 128


def name_of(layout, groups, n, k, c):
    groups = groups if layout == MASKED else 1
    return (f"{layout}_{groups}_{n}_{k}_{c.block_m}_{c.block_n}_{c.stages}_{c.cluster_m}_"
            f"{c.cluster_n}_{c.swizzle}")


def compile_kernel(include, out, layout, groups, n, k, c):
    path = os.path.join(out, name_of(layout, groups, n, k, c))
    if os.path.exists(path + ".cubin"):
        return
    numbers = (0, n, k, groups if layout == MASKED else 1, c.block_m, c.block_n, BLOCK, BLOCK,
               BLOCK, c.swizzle, c.stages, 128, 128 if c.block_m <= 64 else 256,
               c.cluster_m * c.cluster_n, "true" if c.cluster_m == 1 else "false", c.sms)
    kernel = (f"sm90_fp8_gemm_1d2d_impl<cute::UMMA::Major::K, {', '.join(map(str, numbers))}, "
              f"GemmType::{TYPES[layout]}, cutlass::bfloat16_t>")
    with open(path + ".cu", "w", encoding="utf-8") as f:
        f.write("#include <deep_gemm/impls/sm90_fp8_gemm_1d2d.cuh>\nusing namespace deep_gemm;\n"
                f"void *kernel() {{ return reinterpret_cast<void *>(&{kernel}); }}\n")
    subprocess.run([os.environ.get("NVCC", "nvcc"), *FLAGS, "-I" + include, "--cubin", "-o",
                    path + ".tmp", path + ".cu"], check=True)
    os.replace(path + ".tmp", path + ".cubin")


class Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_uint * 16)]


class Launch(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3),
                ("shared", ctypes.c_uint), ("stream", ctypes.c_void_p),
                ("attributes", ctypes.POINTER(Attribute)), ("count", ctypes.c_uint)]


class TensorMap(ctypes.Structure):
    _fields_ = [("opaque", ctypes.c_uint64 * 24)]  # with room to begin at a multiple of 64

    def at(self):
        return up(ctypes.addressof(self), 64)


def up(x, to):
    return -(-x // to) * to


def good(status, what):
    if status:
        raise SystemExit(f"{what}: error {status} of the driver")


class Peer:
    """The three functions of DeepGEMM that gemm.py calls. plan: gemm.plan; stream: the number of
    the stream that launches go to."""

    def __init__(self, folder, plan, stream):
        self.folder, self.plan, self.stream = folder, plan, stream
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.kernels, self.plans = {}, {}

    def kernel(self, layout, groups, n, k, c):
        name = name_of(layout, groups, n, k, c)
        if name not in self.kernels:
            with open(os.path.join(self.folder, name + ".cubin"), "rb") as f:
                image = f.read()
            module, count = ctypes.c_void_p(), ctypes.c_uint()
            good(self.driver.cuModuleLoadData(ctypes.byref(module), image), name)
            good(self.driver.cuModuleGetFunctionCount(ctypes.byref(count), module), name)
            functions = (ctypes.c_void_p * count.value)()
            good(self.driver.cuModuleEnumerateFunctions(functions, count, module), name)
            function = ctypes.c_void_p(functions[0])  # there is one
            good(self.driver.cuFuncSetAttribute(function, SHARED_BYTES, int(c.smem)), name)
            self.kernels[name] = function
        return self.kernels[name]

    def map(self, element, memory, size, stride, box, swizzle):
        made, pair = TensorMap(), ctypes.c_uint * 2
        kind, width = element
        good(self.driver.cuTensorMapEncodeTiled(
            ctypes.c_void_p(made.at()), kind, 2, ctypes.c_void_p(memory),
            (ctypes.c_uint64 * 2)(*size), (ctypes.c_uint64 * 1)(stride * width), pair(*box),
            pair(1, 1), 0, SWIZZLES.get(swizzle, 0), 3, 0), "a tensor map")
        return made

    def launch(self, layout, rows, activations, weight, out, groups_of_rows, expected=0):
        (a, sa), (b, sb) = activations, weight
        n, k = b.shape[-2:]
        groups = b.shape[0] if b.dim() == 3 else 1
        stacks, m = (groups if layout == MASKED else 1), expected or rows
        key = layout, groups, m, n, k
        if key not in self.plans:
            self.plans[key] = self.plan("deepgemm", m, n, k, layout, groups)
        c = self.plans[key]
        rows4 = up(rows, 4)
        maps = [self.map(U8, a.data_ptr(), (k, rows * stacks), k, (BLOCK, c.block_m), 128),
                self.map(U8, b.data_ptr(), (k, n * groups), k, (BLOCK, c.block_n), 128),
                self.map(BF16, out.data_ptr(), (n, rows * stacks), n,
                         (c.swizzle // 2 or c.block_n, c.block_m), c.swizzle),
                self.map(F32, sa.data_ptr(), (rows4, -(-k // BLOCK) * stacks), rows4,
                         (c.block_m, 1), 0)]
        plain = [ctypes.c_void_p(sb.data_ptr()), ctypes.c_void_p(groups_of_rows),
                 ctypes.c_uint(rows), ctypes.c_uint(n), ctypes.c_uint(k)]
        arguments = [ctypes.addressof(x) for x in plain] + [x.at() for x in maps]
        cluster = Attribute(CLUSTER)
        cluster.value[:3] = c.cluster_m * c.cluster_n, 1, 1
        launch = Launch((c.sms, 1, 1), (256 if c.block_m <= 64 else 384, 1, 1), c.smem,
                        self.stream(), ctypes.pointer(cluster), 1)
        good(self.driver.cuLaunchKernelEx(
            ctypes.byref(launch), self.kernel(layout, groups, n, k, c),
            (ctypes.c_void_p * len(arguments))(*arguments), None), "a launch")

    def fp8_gemm_nt(self, activations, weight, out):
        self.launch(ONE, activations[0].shape[0], activations, weight, out, 0)

    def m_grouped_fp8_gemm_nt_contiguous(self, activations, weight, out, rows):
        self.launch(CONTIGUOUS, activations[0].shape[0], activations, weight, out,
                    rows.data_ptr())

    def m_grouped_fp8_gemm_nt_masked(self, activations, weight, out, rows, expected):
        self.launch(MASKED, activations[0].shape[1], activations, weight, out, rows.data_ptr(),
                    expected)


def main(argv):
    import gemm  # which runs this file, too, and then is not imported
    p = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    p.add_argument("include")
    p.add_argument("out")
    p.add_argument("--only", default="", help="cases whose title holds this")
    opt = p.parse_args(argv)
    os.makedirs(opt.out, exist_ok=True)
    for layout, groups, m, n, k in gemm.speed_cases(opt.only):
        c = gemm.plan("deepgemm", m * groups if layout == CONTIGUOUS else m, n, k, layout, groups)
        compile_kernel(opt.include, opt.out, layout, groups, n, k, c)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
