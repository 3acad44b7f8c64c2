#!/usr/bin/env python3
"""Quantizes a tensor in memory through libtilepack, no file involved.

    quantize_torch.py [--format NAME]... [--shape E,N,K] [--library libtilepack.so]

With torch and a GPU the tensor lives on the GPU: the kernels read and write torch's own
memory on torch's current stream, and the result is compared byte by byte with what the
library makes on the host. Without them a numpy array is quantized on the host, and the
result is decoded and compared with the values.
"""
import argparse
import ctypes
import os
import sys

import numpy as np

try:
    import torch
except ImportError:
    torch = None

# dtype of safetensors: numpy's (the raw bits where it has none), torch's
DTYPES = {"F32": ("f4", "float32"), "BF16": ("u2", "bfloat16"),
          "F16": ("f2", "float16"),
          "F8_E4M3": ("u1", "float8_e4m3fn"), "U8": ("u1", "uint8"), "I8": ("i1", "int8"),
          "I32": ("i4", "int32"), "I64": ("i8", "int64")}
F32, BF16 = 1, 2  # enum tilepack_dtype
MAX_RANK, MESSAGE = 8, 400


class Error(Exception):
    pass


class Library:
    """tilepack.h by ctypes: calls that fail raise Error with the library's message."""

    def __init__(self, path):
        self.lib = lib = ctypes.CDLL(path)
        word, handle, text = ctypes.c_uint64, ctypes.c_void_p, ctypes.c_char_p
        lib.tilepack_weight_tensors.restype = ctypes.c_size_t
        lib.tilepack_weight_shape.restype = ctypes.c_size_t
        lib.tilepack_weight_bytes.restype = word
        for name in ("format_name", "version", "weight_suffix", "weight_role", "weight_dtype"):
            getattr(lib, "tilepack_" + name).restype = text
        lib.tilepack_weight_free.argtypes = lib.tilepack_weight_tensors.argtypes = [handle]
        for name in ("suffix", "role", "dtype", "bytes"):
            getattr(lib, "tilepack_weight_" + name).argtypes = [handle, ctypes.c_size_t]
        lib.tilepack_weight_shape.argtypes = [handle, ctypes.c_size_t, ctypes.POINTER(word)]
        lib.tilepack_format_name.argtypes = [ctypes.c_size_t]
        self.path = path

    def call(self, name, *args):
        message = ctypes.create_string_buffer(MESSAGE)
        if getattr(self.lib, "tilepack_" + name)(*args, message, ctypes.c_size_t(MESSAGE)):
            raise Error(message.value.decode())

    def formats(self):
        names = []
        while (name := self.lib.tilepack_format_name(len(names))) is not None:
            names.append(name)
        return [n.decode() for n in names if self.lib.tilepack_format_is_written(n)]


class Weight:
    """One format, applied to one size."""

    def __init__(self, library, fmt, shape, parameters=None):
        self.library, self.shape = library, shape
        handle = ctypes.c_void_p()
        library.call("weight_new", fmt.encode(), parameters and parameters.encode(),
                     *map(ctypes.c_uint64, shape), ctypes.byref(handle))
        self.handle = handle
        self.count = library.lib.tilepack_weight_tensors(handle)

    def __del__(self):
        if hasattr(self, "handle"):
            self.library.lib.tilepack_weight_free(self.handle)

    def text(self, what, i):
        return getattr(self.library.lib, "tilepack_weight_" + what)(self.handle, i).decode()

    def tensor_shape(self, i):
        shape = (ctypes.c_uint64 * MAX_RANK)()
        rank = self.library.lib.tilepack_weight_shape(self.handle, i, shape)
        return tuple(shape[:rank])

    # ---- numpy, on the host ----

    def empty(self):
        return [np.empty(self.tensor_shape(i), DTYPES[self.text("dtype", i)][0])
                for i in range(self.count)]

    def quantize(self, values):
        """values: float32, or uint16 holding bf16; returns {suffix: array}."""
        out, nonfinite = self.empty(), ctypes.c_int()
        self.library.call("quantize", self.handle, F32 if values.dtype == np.float32 else BF16,
                          pointer(values), pointers(out), ctypes.byref(nonfinite))
        if nonfinite.value:
            raise Error("the weight holds NaN or infinity")
        return {self.text("suffix", i): out[i] for i in range(self.count)}

    def decode(self, tensors):
        values = np.empty(self.shape, np.float32)
        self.library.call("decode", self.handle, pointers(tensors.values()), F32,
                          pointer(values))
        return values

    # ---- torch, on a GPU ----

    def quantize_cuda(self, values):
        """values: a contiguous CUDA tensor; returns {suffix: torch tensor on that GPU}."""
        device = values.device
        kind = {torch.float32: F32, torch.bfloat16: BF16}[values.dtype]
        out = [torch.empty(self.tensor_shape(i), device=device,
                           dtype=getattr(torch, DTYPES[self.text("dtype", i)][1]))
               for i in range(self.count)]
        for i, tensor in enumerate(out):
            if self.text("role", i) == "words":
                host = np.empty(tensor.shape, DTYPES[self.text("dtype", i)][0])
                self.library.call("weight_constant", self.handle, ctypes.c_size_t(i),
                                  pointer(host))
                tensor.copy_(torch.from_numpy(host))
        amax = float(values.abs().max()) if any(
            self.text("role", i) == "global" for i in range(self.count)) else 0.0
        flags = torch.zeros(1, dtype=torch.int32, device=device)
        array = (ctypes.c_void_p * self.count)(*[t.data_ptr() for t in out])
        self.library.call("quantize_cuda", self.handle, kind, ctypes.c_void_p(values.data_ptr()),
                          array, ctypes.c_float(amax), ctypes.c_void_p(flags.data_ptr()),
                          device.index or 0,
                          ctypes.c_void_p(torch.cuda.current_stream(device).cuda_stream))
        if int(flags):  # waits for the stream
            raise Error("the weight holds NaN or infinity")
        return {self.text("suffix", i): out[i] for i in range(self.count)}


def pointer(array):
    if not array.flags["C_CONTIGUOUS"]:
        raise Error("the array is not contiguous")
    return ctypes.c_void_p(array.ctypes.data)


def pointers(arrays):
    arrays = list(arrays)
    return (ctypes.c_void_p * len(arrays))(*[a.ctypes.data for a in arrays])


def to_bf16(values):
    """float32 to the bits of bf16, to nearest, ties to even."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def relative(a, b):
    return float(np.linalg.norm(a - b) / np.linalg.norm(a))


def on_gpu(weight, values):
    """Number of bytes, after every one was compared with the host's."""
    bits = to_bf16(values)
    host = weight.quantize(bits)
    tensor = torch.from_numpy(bits.view(np.int16)).cuda().view(torch.bfloat16)
    result = weight.quantize_cuda(tensor)
    for suffix, array in host.items():
        made = result[suffix].contiguous().view(torch.uint8).cpu().numpy()
        if made.tobytes() != array.tobytes():
            raise Error(f"{suffix}: the GPU's bytes are not the host's")
    return sum(a.nbytes for a in host.values())


def on_host(weight, values):
    """Number of bytes and relative error of the decoded values."""
    packed = weight.quantize(values)
    again = weight.quantize(values.copy())
    if any(packed[s].tobytes() != again[s].tobytes() for s in packed):
        raise Error("two runs differ")
    error = relative(values, weight.decode(packed))
    if not error < 0.2:
        raise Error(f"the decoded values are {error:.3f} off")
    return sum(a.nbytes for a in packed.values()), error


def main(argv):
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--format", action="append", help="default: every format")
    p.add_argument("--shape", default="1,512,1024", help="E,N,K")
    p.add_argument("--library", default=os.environ.get("TILEPACK_LIBRARY", "libtilepack.so.0"))
    opt = p.parse_args(argv)
    library = Library(opt.library)
    shape = tuple(map(int, opt.shape.split(",")))
    values = np.random.default_rng(1).standard_normal(shape, np.float32) * np.float32(0.02)
    gpu = torch is not None and torch.cuda.is_available() and \
        library.lib.tilepack_cuda_devices() > 0
    print(f"tilepack {library.lib.tilepack_version().decode()}, "
          f"{torch.cuda.get_device_name() if gpu else 'on the host'}, W{list(shape)}")
    failed = 0
    for name in opt.format or library.formats():
        try:
            weight = Weight(library, name, shape)
            if gpu:
                print(f"{name:20} {on_gpu(weight, values):10} bytes, GPU = host")
            else:
                size, error = on_host(weight, values)
                print(f"{name:20} {size:10} bytes, relative error {error:.4f}")
        except Error as error:
            failed += 1
            print(f"{name:20} {error}")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
