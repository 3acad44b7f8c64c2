"""Loading W4A8 experts into one GPU for serving: vLLM's way and the packed way, side by side.

    serving.py TILEPACK GIGABYTES

vLLM's way: each tensor of the compressed-tensors checkpoint from the mapped file into stacked
parameters, then what vLLM 0.33 does to them after loading, by its own functions and operators
(oracle/w4a8.py, in its order). The packed way: tilepack_llm.load() of `w4a8-cutlass`, after which
nothing is left to do. Both from memory (tmpfs), in the same run; codes and layout words of every
layer must be equal.

VLLM_TREE names vLLM's sources, of which only functions are taken (an installed vllm where it is
missing), VLLM_LIBRARY its _C_stable_libtorch.abi3.so, as shipped or made small by
slim_library.py. Ends with `N passed, N failed`.
"""
import ast
import os
import shutil
import subprocess
import sys
import time

import load
import torch
from load import BASE, E, HIDDEN, INTER, check, tp

QUANTIZATION = "model_executor/layers/quantization"
HEAD = """import torch
import torch.nn.functional as F
from collections.abc import Callable
_FP8_DTYPE = torch.float8_e4m3fn
_FP8_MIN, _FP8_MAX = -448.0, 448.0
_FP8_MIN_SCALING_FACTOR = 1.0 / (_FP8_MAX * 512.0)
class GroupShape:
    PER_TOKEN = (1, -1)
class QuantFP8:
    is_group_quant = static = False
    num_token_padding = None
    group_shape = GroupShape.PER_TOKEN
"""


def cut(path, names, inside=None):
    """The text of functions of a source file, as it stands there."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    body = ast.parse(text).body
    if inside:
        body = next(n for n in body if isinstance(n, ast.ClassDef) and n.name == inside).body
    found = {n.name: ast.get_source_segment(text, n, padded=True) for n in body
             if isinstance(n, ast.FunctionDef)}
    return "\n\n".join(found[name] for name in names)


def vllm_functions():
    """vLLM's functions of processing, without vLLM."""
    tree = os.environ.get("VLLM_TREE")
    if not tree:
        import importlib.util
        tree = importlib.util.find_spec("vllm").submodule_search_locations[0]
    native = cut(f"{tree}/{QUANTIZATION}/input_quant_fp8.py", ["forward_native"], "QuantFP8")
    text = HEAD + native + "\n    __call__ = forward_native\n\n\n" + cut(
        f"{tree}/{QUANTIZATION}/utils/quant_utils.py",
        ["group_broadcast", "convert_bf16_scales_to_fp8",
         "convert_packed_uint4b8_to_signed_int4_inplace"])
    space = {}
    exec(compile(text, "vllm", "exec"), space)  # pylint: disable=exec-used
    return space


def stacked():
    """vLLM's parameters of one layer before processing."""
    def empty(*shape, dtype):
        return torch.empty(shape, dtype=dtype, device="cuda")
    return {
        "w13_packed": empty(E, 2 * INTER, HIDDEN // 8, dtype=torch.int32),
        "w2_packed": empty(E, HIDDEN, INTER // 8, dtype=torch.int32),
        "w13_scale": empty(E, 2 * INTER, HIDDEN // 128, dtype=torch.bfloat16),
        "w2_scale": empty(E, HIDDEN, INTER // 128, dtype=torch.bfloat16),
    }


def load_stock(path):
    """{layer: parameters}, each tensor copied from the mapped file to its place."""
    from safetensors import safe_open
    layers = {}
    for file in load.files(path):
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():
                parts = name.split(".")
                layer, expert, which, suffix = int(parts[2]), int(parts[5]), parts[6], parts[7]
                if suffix not in ("weight_packed", "weight_scale"):
                    continue
                if layer not in layers:
                    layers[layer] = stacked()
                kind = suffix.removeprefix("weight_")
                into = layers[layer][("w2_" if which == "w2" else "w13_") + kind][expert]
                if which != "w2":
                    into = into[INTER * (which == "w3"):][:INTER]
                into.copy_(opened.get_tensor(name))
    torch.cuda.synchronize()
    return layers


def process(layer, vllm):
    """What convert_to_w4a8_moe_kernel_format() does, on both stacks."""
    ops, out = torch.ops._C, {}
    quant = vllm["QuantFP8"]()
    for part in ("w13", "w2"):
        vllm["convert_packed_uint4b8_to_signed_int4_inplace"](layer[f"{part}_packed"])
        torch.cuda.synchronize()
        out[f"{part}_packed"], out[f"{part}_layout"] = (
            ops.cutlass_encode_and_reorder_int4b_grouped(layer[f"{part}_packed"]))
    for part in ("w13", "w2"):
        scales, out[f"{part}_chan"] = vllm["convert_bf16_scales_to_fp8"](
            quant, layer[f"{part}_scale"])
        out[f"{part}_group"] = ops.cutlass_pack_scale_fp8(scales.permute(0, 2, 1).contiguous())
    return out


def timed(name, work, size):
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.synchronize()
    start = time.perf_counter()
    held = work()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    print(f"{name:52s} {seconds:7.3f} s  {size / seconds / 1e9:6.1f} GB/s  peak "
          f"{torch.cuda.max_memory_allocated() / 1e9:5.1f} GB", flush=True)
    return held


def size_of(path):
    return sum(map(os.path.getsize, load.files(path)))


def process_all(layers, vllm):
    """Layer by layer, as vLLM replaces the parameters of each before the next."""
    for number in sorted(layers):
        layers[number] = process(layers[number], vllm)
    return layers


def side_by_side(stock, packed, vllm):
    layers = timed("vLLM: mapped file, tensor by tensor", lambda: load_stock(stock),
                   size_of(stock))
    layers = timed("vLLM: processing after loading", lambda: process_all(layers, vllm),
                   size_of(stock))
    codes = {}
    for number, made in layers.items():
        for part in ("w13", "w2"):
            name = f"model.layers.{number}.block_sparse_moe.experts.{part}_weight_"
            codes[name + "packed"] = made[f"{part}_packed"].cpu()
            codes[name + "layout"] = made[f"{part}_layout"].cpu()
    del layers, made
    for verify in (False, True):
        ours = timed(f"tilepack_llm.load(device='cuda', verify={verify})",
                     lambda v=verify: tp.load(packed, "cuda", verify=v), size_of(packed))
        wrong = [name for name, value in codes.items()
                 if not torch.equal(ours[name].cpu().view(-1), value.view(-1))]
        check(not wrong, f"codes and layout words of vLLM: {wrong[:3]}")
        del ours


def main():
    torch.ops.load_library(os.environ["VLLM_LIBRARY"])
    vllm = vllm_functions()
    shutil.rmtree(BASE, ignore_errors=True)
    os.makedirs(BASE)
    torch.zeros(1, device="cuda")
    try:
        source = load.make_source(float(sys.argv[2]))
        stock, packed = f"{BASE}/stock", f"{BASE}/experts"
        for path, name in ((stock, "w4a8-ct"), (packed, "w4a8-cutlass")):
            start = time.perf_counter()
            subprocess.run([sys.argv[1], "convert", source, "-o", path, "--to", name, "--search",
                            "none", "-q"], check=True)
            print(f"convert to {name}: {time.perf_counter() - start:.1f} s", flush=True)
        shutil.rmtree(source)
        side_by_side(stock, packed, vllm)
    finally:
        shutil.rmtree(BASE, ignore_errors=True)
    print(f"{load.passed} passed, {len(load.failed)} failed")
    return bool(load.failed)


if __name__ == "__main__":
    sys.exit(main())
