"""Loads checkpoints with the real loader of vLLM, as one rank of a pretended machine, and saves
every operand that a kernel would get.

    load.py DRIVER CAPABILITY RANKS RANK PORT OUT NAME=DIR[,KEY=VALUE]...

KEY=VALUE are further arguments of the engine, or
    strict=no     vLLM itself does not look whether all parameters were loaded, as it does not by
                  default for quantized models
    sleep=LEVELS  the worker sleeps at level 1 or 2, for each digit, and wakes up (sleeping.py)
    counted=yes   what is read and copied is counted (counted.py)
    handed=yes    vLLM's reader brings packed tensors, as readers do that map no files
Writes OUT/NAME.RANK.pt: {layer: {operand: tensor}}, and prints a line of JSON for each: calls of
operators, bytes in new storage after processing, or the error.
"""
import contextlib
import json
import os
import sys
import traceback
from unittest import mock

import pretend


def engine(path, ranks, options, strict=True):
    from vllm.engine.arg_utils import EngineArgs

    options = {key: value == "yes" if value in ("yes", "no")
               else int(value) if (value or "").isdigit() else value
               for key, value in options.items()}
    stages = options.get("pipeline_parallel_size", 1)
    return EngineArgs(
        model=path, skip_tokenizer_init=True, enforce_eager=True, max_model_len=64,
        tensor_parallel_size=ranks // stages,
        disable_custom_all_reduce=True,
        model_loader_extra_config={"enable_weights_track": True} if strict else {},
        distributed_executor_backend="mp" if ranks > 1 else None,
        **{"attention_backend": "TRITON_ATTN", "load_format": "safetensors", **options}).create_engine_config()


def build(config, ranks, rank, port):
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype

    config.load_config.device = "cpu"
    if not torch.distributed.is_initialized():
        with set_current_vllm_config(config):
            init_distributed_environment(ranks, rank, f"tcp://127.0.0.1:{port}", 0,
                                         backend="gloo")
            stages = config.parallel_config.pipeline_parallel_size
            initialize_model_parallel(ranks // stages, stages, backend="gloo")
    with set_default_torch_dtype(config.model_config.dtype), torch.device("cpu"):
        return initialize_model(config)


def load(config, model):
    """Bytes of parameters that processing has put into new storage, but for what vLLM makes of
    weights that lie in any format: W_UV and W_UK_T of kv_b_proj, for latent attention, and
    products of scales, a number for each expert."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.model_executor.model_loader.utils import process_weights_after_loading

    with set_current_vllm_config(config):
        get_model_loader(config.load_config).load_weights(model, config.model_config)
        before = {p.data_ptr() for p in model.parameters()}
        for module in model.modules():
            method = getattr(module, "quant_method", None)
            if hasattr(method, "moe"):
                method.moe.device = torch.device("cpu")
        process_weights_after_loading(model, config.model_config, torch.device("cpu"))
    codes = [(name, value.storage.data) for name, module in model.named_modules()
             for value in vars(module).values() if is_wrapped(value)]
    return sum(p.numel() * p.element_size() for name, p in [*model.named_parameters(), *codes]
               if p.numel() and p.data_ptr() not in before
               and not any(made in name for made in (".W_U", ".g1_scale_c")))


def tensors_of(thing, depth=3):
    """What an object of vLLM's kernels holds, and what is inside of that."""
    import torch

    for value in vars(thing).values() if hasattr(thing, "__dict__") else ():
        if isinstance(value, torch.Tensor):
            yield value
        elif depth and "fused_moe" in type(value).__module__ or is_wrapped(value):
            yield from tensors_of(value.storage if is_wrapped(value) else value, depth - 1)


def addresses(model):
    """{tensor's name: address} of everything that CUDA graphs would have recorded."""
    found = {name: p for name, p in model.named_parameters() if p.numel()}
    for name, module in model.named_modules():
        kernel = getattr(getattr(module, "quant_method", None), "moe_kernel", None)
        for i, tensor in enumerate(tensors_of(kernel.fused_experts) if kernel else ()):
            found[f"{name} {i}"] = tensor
        for key, value in vars(module).items():
            if is_wrapped(value):
                found[f"{name}.{key}"] = value.storage.data
    return {name: tensor for name, tensor in found.items() if tensor.numel()}


def sleep(config, model, levels):
    """The worker sleeps at each of the levels, and wakes up. Bytes of parameters, and of what
    kernels hold, that have another address then, or none."""
    import sleeping

    before = addresses(model)
    awake = sleeping.sleep(config, model, map(int, levels))
    if awake:
        raise RuntimeError(f"{awake[:3]} did not sleep")
    after = addresses(model)
    return sum(after[name].nbytes if name in after else before[name].nbytes for name in before
               if name not in after or after[name].data_ptr() != before[name].data_ptr())


EXPERTS = ("w1_scale", "w2_scale", "g1_alphas", "g2_alphas", "b_strides1", "b_strides2",
           "a_strides1", "a_strides2", "c_strides1", "c_strides2", "s_strides1", "s_strides2",
           "group_size", "w1_zp", "w2_zp", "per_act_token_quant", "per_out_ch_quant", "block_shape",
           "quant_dtype")


MORE = ("w1_bias", "w2_bias", "w1_precision", "w2_precision", "gemm1_alpha", "gemm1_beta",
        "gemm1_clamp_limit")


# Of kernels that quantize activations with given scales.
ACTIVATIONS = ("a1_gscale", "a2_gscale", "g1_scale_c", "a1_scale", "a2_scale", "_g1_alphas",
               "_g2_alphas", "_g1_scale_c")


def held(kernel, key):
    """What it has of that name; vLLM asserts that scales are asked for as what they are."""
    try:
        return getattr(kernel, key, None)
    except AssertionError:
        return None


def is_wrapped(value):
    return hasattr(getattr(value, "storage", None), "layout")


def opened(name, value):
    """(name, value); of what triton_kernels wrap, what is inside."""
    value = getattr(value, "weight_scale", value)
    if not is_wrapped(value):
        return [(name, value)]
    storage = value.storage
    return [(name, storage.data), (name + " layout", type(storage.layout).__name__),
            (name + " sizes", str((list(value.shape), vars(storage.layout))))]


def operands(module, method, capability, name):
    """{operand: value} of one quantized layer; None for others."""
    import torch

    if getattr(method, "moe_kernel", None) is not None:
        kernel = method.moe_kernel.fused_experts
        found = {"w13": module.w13_weight, "w2": module.w2_weight}
        found["kernel"] = [type(kernel).__name__, method.moe.hidden_dim,
                           method.moe.intermediate_size_per_partition,
                           held(kernel, "intermediate_size_per_partition")]
        found.update({key: held(kernel, key) for key in EXPERTS})
        found.update({key: held(kernel.quant_config, key) for key in MORE})
        configs = held(kernel, "humming_configs") or {}
        found.update({part + " config": config.to_str() for part, config in configs.items()})
        found.update({key: held(kernel, key) for key in ACTIVATIONS
                      if held(kernel, key) is not None})
        return {key: one for name, value in found.items() for key, one in opened(name, value)}
    kind = type(method).__name__
    if capability < 100 and kind in ("CompressedTensorsLinearMethod", "TilepackLinearMethod",
                                     "AutoAWQMarlinLinearMethod", "Fp8LinearMethod"):
        seed = torch.Generator().manual_seed(len(name))
        x = torch.randn(3, getattr(module, "input_size_per_partition", module.input_size), dtype=torch.bfloat16, generator=seed)
        method.apply(module, x, None)
        return dict(pretend.kernel_arguments)
    if method is not None and module._parameters:
        return {key: p for key, p in module._parameters.items() if p is not None and p.numel()}
    return None


def plain(value):
    import torch

    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone(memory_format=torch.preserve_format)


def one(path, options, capability, ranks, rank, port, out):
    import counted
    import torch
    from tilepack_llm.vllm import reading

    pretend.calls.clear()
    levels = options.pop("sleep", "")
    watched = options.pop("counted", "no") == "yes"
    mapped = () if options.pop("handed", "no") == "yes" else reading.MAPPED
    config = engine(path, ranks, options, options.pop("strict", "yes") == "yes")
    model = build(config, ranks, rank, port)
    counts = counted.expected(path, model) if watched else {}
    with mock.patch.object(reading, "MAPPED", mapped):
        with counted.counting(counts) if watched else contextlib.nullcontext():
            moved = load(config, model)
        moved += sleep(config, model, levels) if levels else 0
    found = {}
    for name, module in model.named_modules():
        values = operands(module, getattr(module, "quant_method", None), capability, name)
        if values:
            found[name] = {key: plain(value) for key, value in values.items()}
    torch.save(found, out)
    return {"ok": True, "calls": dict(pretend.calls), "moved": moved, **counts}


def main(driver, capability, ranks, rank, port, out, *jobs):
    capability, ranks, rank = int(capability), int(ranks), int(rank)
    pretend.platform(driver, capability, ranks)
    import torch
    from vllm.plugins import load_general_plugins

    torch.set_num_threads(1)
    load_general_plugins()
    pretend.operators()
    for job in jobs:
        name, _, rest = job.partition("=")
        path, *options = rest.split(",")
        try:
            result = one(path, dict(o.split("=", 1) for o in options), capability, ranks, rank,
                         port, os.path.join(out, f"{name}.{rank}.pt"))
        except Exception as error:  # pylint: disable=broad-except
            traceback.print_exc()
            result = {"ok": False, "error": f"{type(error).__name__}: {error}"}
        print("@" + json.dumps({"name": name, **result}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stdout.flush()
    os._exit(0)  # vLLM's threads have nothing to finish
