"""llama.cpp's quantizers, its own C code, as the package libgguf holds it; see peer.py.

Rows get zero columns up to the block of a type (32 or 256), as llama.cpp itself would not do:
it takes another type for a row that does not fit. Where a method says imatrix, the weights are
the E[x^2] that tilepack gets too.
"""
import importlib.metadata
import os

import libgguf
import ml_dtypes  # noqa: F401  pylint: disable=unused-import # makes bfloat16 known to numpy
import numpy as np
from safetensors.numpy import load_file, save_file

import figures
import peer

PROGRAM = f"llama.cpp, libgguf {importlib.metadata.version('libgguf')}"
TYPES = libgguf.GGMLQuantizationType


def method(kind, imatrix=False):
    block, size = libgguf.GGML_QUANT_SIZES[TYPES[kind]]

    def quantize(matrix, importance):
        rows = figures.pad_columns(matrix.astype(np.float32), block)
        weights = figures.pad_columns(importance, block) if imatrix else None
        codes = libgguf.quantize_rows(rows, TYPES[kind], weights)
        values = libgguf.dequantize_rows(codes, TYPES[kind])
        return np.ascontiguousarray(figures.crop(values.reshape(rows.shape), matrix))

    return PROGRAM, 8 * size / block, quantize


def load(path):
    return load_file(os.path.join(path, "model.safetensors") if os.path.isdir(path) else path)


METHODS = {kind: method(kind) for kind in ("MXFP4", "IQ4_XS", "Q4_0", "IQ4_NL", "Q4_K", "Q8_0")}
METHODS |= {f"{kind}, imatrix": method(kind, True) for kind in ("IQ4_XS", "IQ4_NL", "Q4_K")}

if __name__ == "__main__":
    peer.serve(METHODS, load, save_file)
