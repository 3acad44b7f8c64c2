"""Checkpoints of llm-compressor, one for each preset scheme of compressed-tensors, and beside them
the values that compressed-tensors decompresses, in its dtype: float32, of NVFP4 bfloat16.

    llm_compressor.py DIR [SCHEME ...]

Writes DIR/SCHEME/ and DIR/SCHEME.values. Prints `@{"name", "error"}`; the error is null, or why
the writer does not write that scheme.
"""
import json
import os
import sys

import tiny


def written(path, plain, scheme):
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.quantization import QuantizationModifier

    model = tiny.loaded(plain)
    rows = [{"input_ids": row, "attention_mask": [1] * len(row)} for row in tiny.tokens().tolist()]
    oneshot(model=model, processor=plain, dataset=Dataset.from_list(rows), num_calibration_samples=len(rows),
            max_seq_length=len(rows[0]["input_ids"]), log_dir=None,
            recipe=QuantizationModifier(targets="Linear", scheme=scheme, ignore=["lm_head"]))
    schemes = {name: module.quantization_scheme for name, module in model.named_modules()
               if getattr(module, "quantization_scheme", None)}
    model.save_pretrained(path, save_compressed=True)
    return schemes


def values(path, schemes):
    """{name of a weight: values}: scales are widened first, so that nothing is rounded."""
    import torch
    from compressed_tensors.compressors import BaseCompressor
    from safetensors.torch import load_file

    tensors = load_file(os.path.join(path, "model.safetensors"))
    found = {}
    for name, scheme in schemes.items():
        state = {key[len(name) + 1:]: value for key, value in tensors.items()
                 if key.startswith(name + ".")}
        for key in ("weight_scale", "weight_global_scale"):
            if key in state and state[key].dtype in (torch.bfloat16, torch.float16):
                state[key] = state[key].float()
        kind = BaseCompressor.get_value_from_registry(scheme.format.value)
        found[name + ".weight"] = kind.decompress(state, scheme)["weight"].contiguous()
    return found


def main(out, *names):
    from compressed_tensors.quantization.quant_scheme import PRESET_SCHEMES
    from safetensors.torch import save_file

    plain = tiny.saved(os.path.join(out, "plain"))
    for name in names or [name for name in PRESET_SCHEMES if name != "UNQUANTIZED"]:
        path, error = os.path.join(out, name), None
        try:
            save_file(values(path, written(path, plain, name)), path + ".values")
        except Exception as found:  # pylint: disable=broad-except
            error = " ".join(f"{type(found).__name__}: {found}".split())[:200]
        print("@" + json.dumps({"name": name, "error": error}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
