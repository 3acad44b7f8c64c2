"""Writes the models of zoo.py with random values, as transformers saves them.

    make.py DIR [NAME ...]

Prints `@{"name", "error"}` for a model that this version of transformers cannot make.
"""
import json
import os
import sys
import warnings

import zoo

warnings.simplefilter("ignore")


def config_of(kind, changes):
    from transformers import CONFIG_MAPPING

    known = CONFIG_MAPPING[kind]
    fixed = {key for key in zoo.COMMON
             if isinstance(getattr(known, key, None), property)
             and getattr(known, key).fset is None}
    return known(**{key: value for key, value in {**zoo.COMMON, **changes}.items()
                    if key not in fixed})


def build(config, name):
    import torch
    import transformers

    usual = ("AutoModelForCausalLM", "AutoModelForImageTextToText")
    for of in (zoo.CLASSES[name],) if name in zoo.CLASSES else usual:
        auto = getattr(transformers, of)
        if type(config) in auto._model_mapping:
            torch.manual_seed(14)
            return auto.from_config(config, dtype=torch.bfloat16)
    raise ValueError(f"no model of language for {type(config).__name__}")


def spread(model):
    """Rows of different sizes, and norms and biases that are not all alike."""
    import torch

    with torch.no_grad():
        for name, values in model.named_parameters():
            if values.dim() == 1 and ("norm" in name or name.endswith("bias")):
                values += 0.1 * torch.randn_like(values)
            elif values.dim() > 1:
                values *= torch.exp(0.25 * torch.randn(values.shape[0])).to(values.dtype).view(
                    -1, *[1] * (values.dim() - 1))
    return model


def as_published(path, name):
    from safetensors import torch as files

    file = os.path.join(path, "model.safetensors")
    tensors = {}
    for key, values in files.load_file(file).items():
        if name in zoo.TRANSPOSED and ".experts." in key and values.dim() == 3:
            values = values.transpose(1, 2).contiguous()
        for old, new in zoo.RENAMED.get(name, ()):
            there = old in new and new in key
            key = key if there else key.replace(old, new)
        tensors[key] = values
    files.save_file(tensors, file, {"format": "pt"})


def merge(config, keys):
    for key, value in keys.items():
        if isinstance(value, dict) and isinstance(config.get(key), dict):
            merge(config[key], value)
        else:
            config[key] = value


def retype(path, keys):
    file = os.path.join(path, "config.json")
    with open(file, encoding="utf-8") as f:
        config = json.load(f)
    merge(config, keys)
    with open(file, "w", encoding="utf-8") as f:
        json.dump(config, f)


def main(out, *names):
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for name, (kind, changes) in zoo.MODELS.items():
        if names and name not in names:
            continue
        try:
            model = spread(build(config_of(kind, changes), name))
            model.save_pretrained(os.path.join(out, name))
            if name in zoo.RENAMED or name in zoo.TRANSPOSED:
                as_published(os.path.join(out, name), name)
            if name in zoo.RETYPED:
                retype(os.path.join(out, name), zoo.RETYPED[name])
        except Exception as error:  # pylint: disable=broad-except
            text = f"{type(error).__name__}: {error}".split("\n", maxsplit=1)[0]
            print("@" + json.dumps({"name": name, "error": text}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
