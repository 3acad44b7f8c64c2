"""Logits of models in transformers: what is unpacked again against the source, and what
transformers itself makes of the output against what is unpacked.

    logits.py < JOBS

JOBS: lines of JSON, {"name", "source": DIR, "unpacked": {FORMAT: DIR}, "outputs": {FORMAT: DIR}}.
Prints `@{"name", "format", "unpacked", "output"}`: cosines of logits; "output" is null for a format
that transformers does not load, or a text that says why it did not.
"""
import json
import os
import sys
import warnings

import zoo

warnings.simplefilter("ignore")


def class_of(config, name):
    import transformers

    if name in zoo.CLASSES:
        return getattr(transformers, zoo.CLASSES[name])
    if type(config) in transformers.AutoModelForCausalLM._model_mapping:
        return transformers.AutoModelForCausalLM
    return transformers.AutoModelForImageTextToText


def logits(path, name):
    import torch
    from transformers import AutoConfig

    auto = class_of(AutoConfig.from_pretrained(path), name)
    model, report = auto.from_pretrained(path, dtype=torch.bfloat16, output_loading_info=True)
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if report.get(what):
            raise ValueError(f"{what}: {sorted(map(str, report[what]))[:3]}")
    tokens = torch.arange(3, 35)[None]
    with torch.no_grad():
        return model.eval()(input_ids=tokens, use_cache=False).logits.float()


def cosine(a, b):
    import torch

    if not torch.isfinite(a).all():
        return "logits are not finite"
    return round(torch.cosine_similarity(a.flatten(), b.flatten(), dim=0).item(), 6)


def attempt(function, *args):
    try:
        return function(*args)
    except Exception as error:  # pylint: disable=broad-except
        return " ".join(f"{type(error).__name__}: {error}".split())[:300]


def job(name, source, unpacked, outputs, **_):
    def tell(what, **found):
        print("@" + json.dumps({"name": name, "format": what, **found}), flush=True)

    plain = attempt(logits, source, name)
    tell("source", error=plain if isinstance(plain, str) else None)
    if isinstance(plain, str):
        return
    for fmt, path in unpacked.items():
        back = attempt(logits, path, name)
        own = attempt(logits, outputs[fmt], name) if fmt in outputs and fmt not in zoo.UNREAD else None
        if isinstance(back, str):
            tell(fmt, unpacked=back, output=None)
            continue
        tell(fmt, unpacked=cosine(back, plain),
             output=own if own is None or isinstance(own, str) else cosine(own, back))


def main():
    import torch
    import transformers

    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    for line in map(json.loads, sys.stdin):
        if "gpu" not in line:
            job(**line)


if __name__ == "__main__":
    main()
