"""Checkpoints of NVIDIA's ModelOpt, one for each of its configurations, as it exports them for
Hugging Face, and beside them the values of their weights.

    nvidia.py DIR [CONFIG ...]

Writes DIR/CONFIG/ and DIR/CONFIG.values. Prints `@{"name", "error"}`; the error is null, or why the
writer does not write it. Configurations of the KV cache stand behind one of weights and a `+`.
"""
import copy
import json
import os
import sys

import formulas
import tiny

CACHES = ("FP8_DEFAULT+FP8_KV", "FP8_DEFAULT+FP8_AFFINE_KV", "NVFP4_DEFAULT+FP8_KV",
          "NVFP4_DEFAULT+NVFP4_KV")


def config_of(name):
    import modelopt.torch.quantization as mtq

    first, *others = (copy.deepcopy(getattr(mtq, part + "_CFG")) for part in name.split("+"))
    for other in others:
        first["quant_cfg"] = [*first["quant_cfg"], *other["quant_cfg"]]
    return first


def written(path, plain, name):
    import modelopt.torch.quantization as mtq
    import torch
    from modelopt.torch.export import export_hf_checkpoint

    model = tiny.loaded(plain)

    def calibrate(model):
        with torch.no_grad():
            model(tiny.tokens())
    mtq.quantize(model, config_of(name), calibrate)
    with torch.inference_mode():
        export_hf_checkpoint(model, export_dir=path)


def all_names():
    import modelopt.torch.quantization as mtq

    names = sorted(name[:-4] for name in mtq.config.choices if name.endswith("_CFG"))
    return [*(name for name in names if not name.endswith(("_KV", "_KV_ROTATE"))), *CACHES]


def main(out, *names):
    from safetensors.torch import save_file

    plain = tiny.saved(os.path.join(out, "plain"))
    for name in names or all_names():
        path, error = os.path.join(out, name), None
        try:
            written(path, plain, name)
            save_file(formulas.of_file(os.path.join(path, "model.safetensors"),
                                       formulas.of_scaled), path + ".values")
        except Exception as found:  # pylint: disable=broad-except
            error = " ".join(f"{type(found).__name__}: {found}".split())[:200]
        print("@" + json.dumps({"name": name, "error": error}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
