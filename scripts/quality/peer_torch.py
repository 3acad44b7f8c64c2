"""compressed-tensors and AutoRound, their own functions, on torch; see peer.py.

compressed-tensors: the weights of its preset schemes by minimum and maximum, in the dtype of
the checkpoint and on the CPU, as llm-compressor does without data. AutoRound: rounding to
nearest, and its search of 200 scales (what it calls opt-rtn), with and without E[x^2].
"""
import importlib.metadata
import os

import torch
from auto_round.data_type.int import quant_tensor_opt_rtn_sym, quant_tensor_rtn_sym
from compressed_tensors.quantization.lifecycle.forward import dequantize, quantize
from compressed_tensors.quantization.quant_scheme import PRESET_SCHEMES
from compressed_tensors.quantization.utils.helpers import (
    calculate_qparams, generate_gparam, maybe_pad_tensor_for_block_quant)
from safetensors.torch import load_file, save_file

import peer


def version(package):
    return f"{package} {importlib.metadata.version(package)}"


# ---- compressed-tensors -----------------------------------------------------------------

def blocks_of(matrix, args):
    """The matrix with each block in the last dimension."""
    n, k = matrix.shape
    if args.strategy == "block":
        rows, columns = args.block_structure
        parts = matrix.reshape(n // rows, rows, k // columns, columns)
        return parts.permute(0, 2, 1, 3).flatten(2)
    return matrix.reshape(n, k // args.group_size, args.group_size)


def preset(name):
    def run(matrix, _importance):
        args = PRESET_SCHEMES[name]["weights"]
        padded = matrix
        if args.strategy == "block":
            padded = maybe_pad_tensor_for_block_quant(matrix, tuple(args.block_structure))
        blocks = blocks_of(padded, args)
        total = None
        if args.strategy == "tensor_group":
            total = generate_gparam(matrix.min(), matrix.max())
        scale, zero = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args, total)
        codes = quantize(padded, scale, zero, args, global_scale=total)
        values = dequantize(codes.float(), scale.float(), None, args, torch.float32, total)
        return values[:matrix.shape[0], :matrix.shape[1]].contiguous()
    return run


# ---- AutoRound --------------------------------------------------------------------------

def nearest(matrix, _importance):
    return quant_tensor_rtn_sym(matrix.float(), 4, 128)[0]


def searched(matrix, importance):
    """Some rows after the other: 200 passes over what stays in the cache take a third of
    the time, and rows do not depend on each other."""
    return torch.cat([quant_tensor_opt_rtn_sym(rows, 4, 128, imatrix=importance)[0]
                      for rows in matrix.float().split(64)])


# ---- all --------------------------------------------------------------------------------

CT, AR = version("compressed-tensors"), version("auto-round")
METHODS = {
    "W4AFP8": (CT, 4 + 16 / 128, preset("W4AFP8")),
    "RTN, int4 g128": (AR, 4 + 16 / 128, nearest),
    "opt-rtn, int4 g128": (AR, 4 + 16 / 128, lambda w, _: searched(w, None)),
    "opt-rtn, int4 g128, imatrix": (AR, 4 + 16 / 128, searched),
    "MXFP4": (CT, 4 + 8 / 32, preset("MXFP4")),
    "NVFP4": (CT, 4 + 8 / 16, preset("NVFP4A16")),
    "FP8_BLOCK": (CT, 8 + 16 / 128**2, preset("FP8_BLOCK")),
    "MXFP8": (CT, 8 + 8 / 32, preset("MXFP8")),
}


def load(path):
    return load_file(os.path.join(path, "model.safetensors") if os.path.isdir(path) else path)


if __name__ == "__main__":
    torch.set_num_threads(1)  # a matrix is too small for more; several at a time are not
    peer.serve(METHODS, load, save_file, len(os.sched_getaffinity(0)))
