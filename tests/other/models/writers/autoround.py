"""Checkpoints of AutoRound, one for each of its schemes in each format that it exports, and beside
them the values of their weights.

    autoround.py DIR [SCHEME.FORMAT ...]

Writes DIR/NAME/ and DIR/NAME.values. Prints `@{"name", "error"}`; the error is null, or why the
writer does not write it. _ASYM behind a scheme has zero points.
"""
import json
import os
import sys

import formulas
import tiny

FORMATS = {"W4A16": ("auto_round", "auto_gptq", "auto_awq", "llm_compressor"),
           "W4A16_ASYM": ("auto_round", "auto_gptq", "auto_awq"), "W8A16": ("auto_round", "auto_gptq"),
           **{scheme: ("auto_round", "llm_compressor")
              for scheme in ("MXFP4", "MXFP8", "NVFP4", "FP8_BLOCK", "FP8_STATIC", "MXINT4")},
           **{scheme: ("llm_compressor",) for scheme in ("INT8", "INT4")},
           **{scheme: ("auto_round",) for scheme in ("W2A16", "W3A16", "FPW8A16", "NVFP4_E5M3", "MXFP6",
                                                     "MXFP4_RCEIL")}}


def written(path, plain, scheme, export):
    from auto_round import AutoRound
    from transformers import AutoTokenizer

    AutoRound(tiny.loaded(plain), tokenizer=AutoTokenizer.from_pretrained(plain), device_map="cpu",
              scheme=scheme.removesuffix("_ASYM"), **({"sym": False} if scheme.endswith("_ASYM") else {}),
              iters=0, disable_opt_rtn=True, nsamples=4, seqlen=64,
              dataset=list(tiny.tokens()[:, None])).quantize_and_save(path + ".new", format=export)
    [folder] = os.listdir(path + ".new")  # named after the model and the scheme
    os.rename(os.path.join(path + ".new", folder), path)
    os.rmdir(path + ".new")


def values(path):
    with open(os.path.join(path, "config.json"), encoding="utf-8") as f:
        bits = json.load(f)["quantization_config"].get("bits")
    if bits not in (4, 8):
        return {}
    return formulas.of_file(os.path.join(path, "model.safetensors"), lambda t: (
        formulas.of_packed(t, bits) if "qweight" in t else formulas.of_scaled(t)))


def main(out, *names):
    from safetensors.torch import save_file

    plain = tiny.saved(os.path.join(out, "plain"))
    for name in names or [f"{scheme}.{to}" for scheme, all_of in FORMATS.items() for to in all_of]:
        path, error = os.path.join(out, name), None
        try:
            written(path, plain, *name.split("."))
            save_file(values(path), path + ".values")
        except Exception as found:  # pylint: disable=broad-except
            error = " ".join(f"{type(found).__name__}: {found}".split())[:200]
        print("@" + json.dumps({"name": name, "error": error}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
