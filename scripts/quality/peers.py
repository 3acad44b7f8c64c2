"""Other quantizers: llama.cpp's types, llm-compressor's GPTQ and AutoRound.

llama.cpp is its own C code, as the package libgguf holds it; rows get zero columns up to the
block of a type, where llama.cpp itself would take another type. Of llm-compressor its
function of GPTQ is called, with the moments of the same calibration, by the source's activations, and the
scales of its W4A16 preset. AutoRound writes a checkpoint of GPTQ's form, and tilepack converts it.
Seconds are of processors; for GPTQ and AutoRound they hold the calibration, for llama.cpp not.
"""
import importlib.metadata
import os
import shutil
import time

import libgguf
import numpy as np
import torch
from auto_round import AutoRound
from compressed_tensors.quantization import ActivationOrdering
from compressed_tensors.quantization.quant_scheme import PRESET_SCHEMES
from compressed_tensors.quantization.utils.helpers import calculate_qparams
from llmcompressor.modifiers.gptq.gptq_quantize import quantize_weight
from safetensors.numpy import load_file
from transformers import AutoModelForCausalLM

import conversions
import figures
import subjects

TYPES = libgguf.GGMLQuantizationType
KINDS = {"MXFP4": (False,), "Q4_0": (False,), "IQ4_XS": (False, True), "Q4_K": (False, True),
         "Q8_0": (False,)}
# Small settings: the defaults are 200 iterations of 8 samples of 2048 tokens.
AUTOROUND = {"iters": 30, "nsamples": 32, "seqlen": 256, "batch_size": 4, "amp": False}


def version(package):
    return f"{package} {importlib.metadata.version(package)}"


# ---- llama.cpp --------------------------------------------------------------------------

def llama(kind, imatrix):
    block, size = libgguf.GGML_QUANT_SIZES[TYPES[kind]]

    def one(matrix, importance):
        rows = figures.pad_columns(matrix, block)
        weights = figures.pad_columns(importance[:matrix.shape[1]], block) if imatrix else None
        codes = libgguf.quantize_rows(rows, TYPES[kind], weights)
        return np.ascontiguousarray(figures.crop(
            libgguf.dequantize_rows(codes, TYPES[kind]).reshape(rows.shape), matrix))

    def values_of(subject):
        importance, start = load_file(subject.file("importance")), time.process_time()
        values = {n: one(w, importance[n]) for n, w in subject.source.items()}
        return values, time.process_time() - start

    return {"program": "llama.cpp", "method": kind + ", imatrix" * imatrix, "search": "",
            "bits": 8 * size / block}, values_of


# ---- llm-compressor ---------------------------------------------------------------------

def second_moments(subject):
    """{the first weight of those with the same input: [K, K]}, and {weight: that one}."""
    sums, first, last = {}, {}, [None, None]

    def watch(name):
        def hook(_module, inputs):
            x = inputs[0].flatten(0, -2)
            if last[0] is not inputs[0]:
                last[:] = inputs[0], name
                sums[name] = sums.get(name, 0) + x.T @ x
            first[name] = last[1]
        return hook

    hooks = [module.register_forward_pre_hook(watch(name))
             for name, module in subject.linears.items()]
    windows = subject.calibration[:subjects.CALIBRATION]
    with torch.no_grad():
        for window in windows:
            subject.model.base_model(window[None], use_cache=False)
    for hook in hooks:
        hook.remove()
    return {name: total / windows.numel() for name, total in sums.items()}, first


def gptq(subject):
    start = time.process_time()
    moments, first = second_moments(subject)
    args = PRESET_SCHEMES["W4A16"]["weights"].model_copy(
        update={"actorder": ActivationOrdering.WEIGHT})
    values = {}
    for name, source in subject.source.items():
        weight, moment = torch.from_numpy(source), moments[first[name]]
        n, k = weight.shape
        weight = torch.nn.functional.pad(weight, (0, -k % args.group_size))
        moment = torch.nn.functional.pad(moment, (0, -k % args.group_size) * 2)
        blocks = weight.reshape(n, -1, args.group_size)
        scale, zero = calculate_qparams(blocks.amin(-1), blocks.amax(-1), args)
        with torch.no_grad():
            found, _, failed = quantize_weight(weight[None].clone(), moment[None].clone(),
                                               scale[None], zero[None], None, args)
        if failed.any():
            raise SystemExit(f"quality: {name}: GPTQ cannot factorize its moments")
        values[name] = found[0, :, :k].contiguous().numpy()
    return values, time.process_time() - start


# ---- AutoRound --------------------------------------------------------------------------

def autoround(subject, path):
    """The checkpoint at `path`, made once; processor seconds."""
    stamp = path + ".seconds"
    if not os.path.isdir(path):
        start, text = time.process_time(), subject.calibration.flatten()
        windows = figures.windows(text.tolist(), AUTOROUND["seqlen"])[:AUTOROUND["nsamples"]]
        model = AutoModelForCausalLM.from_pretrained(subject.plain, dtype=torch.float32)
        AutoRound(model, tokenizer=subject.tokenizer, scheme="W4A16", device_map="cpu",
                  dataset=list(torch.from_numpy(windows)[:, None]), **AUTOROUND).quantize_and_save(
                      path + ".new", format="auto_gptq")
        [folder] = os.listdir(path + ".new")  # named after the model and the scheme
        os.rename(os.path.join(path + ".new", folder), path)
        shutil.rmtree(path + ".new")
        with open(stamp, "w", encoding="ascii") as f:
            f.write(str(time.process_time() - start))
    with open(stamp, encoding="ascii") as f:
        return float(f.read())


def converted(program, name):
    """AutoRound's checkpoint as tilepack's format `name`; '' for what AutoRound wrote."""
    def values_of(subject):
        path = os.path.join(os.path.dirname(subject.plain), "autoround")
        seconds = autoround(subject, path)
        if not name:
            return program.unpacked(path, subject), seconds
        return program.values(conversions.Variant(name, *conversions.NONE), subject, path)

    method = f"`{name}` of AutoRound's checkpoint" if name else "AutoRound, its own checkpoint"
    return {"program": "tilepack" if name else version("auto-round"), "method": method,
            "search": "", "bits": program.bits(name or "gptq")}, values_of


# ---- all --------------------------------------------------------------------------------

def methods(program, trained):
    """(row, values_of) of each; `trained`: with AutoRound."""
    yield ({"program": version("llmcompressor"), "method": "GPTQ, int4 g128", "search": "",
            "bits": program.bits("w4a16-ct")}, gptq)
    for kind, kinds in KINDS.items():
        for imatrix in kinds:
            yield llama(kind, imatrix)
    if trained:
        for name in ("", "w4a16-marlin", "w4a8-cutlass"):
            yield converted(program, name)
