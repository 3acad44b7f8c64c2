#!/usr/bin/env python3
"""What each file of quantizers/ is for: without it something is not read, or not refused by its name.

    quantizer_files.py [NAME ...]

The program is copied, and in the copy the text of one file makes room for one that says nothing. A
checkpoint of that quantizer, which the program reads (see sources.py) or refuses with its title,
must then fail. Ends with `N passed, N failed`.
"""
import contextlib
import glob
import io
import json
import os
import sys

import numpy as np

import sources
import stfile
import tool

FILES = sorted(glob.glob(os.path.join(tool.REPO, "quantizers", "*.json")))
# Of those that are read: a row of sources.py.
ROWS = {"auto-round": "autoround-int8", "awq": "awq-beside-only", "comfyui": "comfy-scaled",
        "compressed-tensors": "ct-w8a8", "fbgemm": "fbgemm", "fp8": "deepseek-v4", "gpt-oss": "gpt-oss",
        "gptq": "gptq-beside-only", "mistral": "mistral-native", "modelopt": "modelopt-mixed",
        "quark": "quark-ptpc"}
NAME = "model.layers.0.self_attn.o_proj"


def without(path, to):
    """A copy of the program in which that file says nothing."""
    with open(path, "rb") as f:
        text = f.read()
    with open(tool.binary(), "rb") as f:
        program = f.read()
    name = os.path.basename(path)[:-len(".json")]
    nothing = json.dumps({"name": name, "title": "-", "source": "-", "refused": "-"}).encode()
    if program.count(text) != 1 or len(nothing) > len(text):
        raise SystemExit(f"{tool.binary()} has not the text of {path}")
    with open(to, "wb") as f:
        f.write(program.replace(text, nothing.ljust(len(text))))
    os.chmod(to, 0o755)


def row_fails(row):
    """Whether something of the row is not as it has to be."""
    tally = tool.Tally()
    with contextlib.redirect_stdout(io.StringIO()):
        sources.one(tally, row)
    return tally.failed > 0


def said(work, number, tensors, config):
    """What the program says of such a checkpoint."""
    path = work.at(f"src{number}")
    if not os.path.exists(path):
        os.makedirs(path)
        stfile.save(os.path.join(path, "model.safetensors"), tensors)
        with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
            json.dump({"model_type": "llama", **config}, f)
    done = tool.run("unpack", path, "-o", work.at("out"), "--progress", "none", check=False)
    return done.returncode, done.stderr


def cases(facts):
    """Checkpoints that the file alone names: by each method, and by each sign."""
    codes = stfile.tensor("U8", np.arange(256 * 128, dtype=np.uint32).astype(np.uint8).reshape(256, 128))
    for method in facts.get("methods", ()):
        yield {NAME + ".codes": codes}, {"quantization_config": {"quant_method": method}}
    for sign in facts.get("signs", ()):
        yield {NAME + ".codes": codes, f"{NAME}.{sign}": stfile.tensor("F32", np.ones(256, np.float32))}, {}


def mxfp8():
    """MXFP8 by the name that vLLM has for it."""
    rng = np.random.default_rng(8)
    return ({NAME + ".weight": stfile.tensor("F8_E4M3", rng.integers(0, 0x7F, (256, 256), dtype=np.uint8)),
             NAME + ".weight_scale": stfile.tensor("U8", rng.integers(118, 124, (256, 8), dtype=np.uint8))},
            {"quantization_config": {"quant_method": "mxfp8"}})


def names(facts, text):
    """Whether it is refused by its title, and not by the word of config.json alone."""
    return facts["title"] in text.replace(f'"quant_method": "{facts["name"]}"', "")


def check(tally, path, work):
    """With the file all is well, and without it nothing that it alone says."""
    with open(path, encoding="utf-8") as f:
        facts = json.load(f)
    whole, part = tool.binary(), work.at("tilepack")
    without(path, part)
    name, answers = facts["name"], []
    for program in (whole, part):
        os.environ["TILEPACK"] = program
        if name in ROWS:
            row = next(row for row in sources.ROWS if row.name == ROWS[name])
            answers.append([not row_fails(row)])
        elif "refused" in facts:
            told = [said(work, i, *case) for i, case in enumerate(cases(facts))]
            answers.append([code in (3, 4) and names(facts, text) for code, text in told])
        else:
            code, text = said(work, 0, *mxfp8())
            answers.append([code == 0])
    os.environ["TILEPACK"] = whole
    tally.check(answers[0] and all(answers[0]), f"{name}: with its file: {answers[0]}")
    tally.check(not any(answers[1]), f"{name}: without its file: {answers[1]}")


def main():
    tally = tool.Tally()
    known = {os.path.basename(path)[:-len(".json")] for path in FILES}
    tally.check(set(ROWS) <= known, "each row is of a file that there is")
    for path in FILES:
        if sys.argv[1:] and os.path.basename(path)[:-len(".json")] not in sys.argv[1:]:
            continue
        with tool.Workdir() as work:
            check(tally, path, work)
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
