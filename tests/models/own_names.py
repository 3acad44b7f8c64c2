#!/usr/bin/env python3
"""Names that a user's own file of a model gives to the matrices of experts and to what engines
divide: experts are stacked and schedules are made by them."""
import json
import os
import sys

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(1, os.path.join(HERE, "..", "lib"))
import stfile  # noqa: E402
import tool  # noqa: E402

OWN = {"name": "own", "title": "mine", "source": ["me"],
       "model_type": ["mine"],
       "experts": [{"gate": "wg", "up": "wu", "down": "wd"}],
       "parallel": [{"modules": ["mix_in$", "wg$", "wu$"], "cut": "N"},
                    {"modules": ["mix_out$", "wd$"], "cut": "K"},
                    {"modules": ["o_proj$"], "cut": "none"}]}
LAYER = "model.layers.0."
SHAPES = {LAYER + "mix_in": (512, 256), LAYER + "mix_out": (256, 512),
          LAYER + "self_attn.o_proj": (256, 256)}
SHAPES.update({LAYER + f"ffn.experts.{e}.{m}": (256, 256)
               for e in range(2) for m in ("wg", "wu", "wd")})

tally = tool.Tally()


def make(work):
    dice = np.random.default_rng(5)
    os.makedirs(work.at("src"))
    stfile.save(work.at("src", "model.safetensors"), {
        name + ".weight": stfile.from_f32("BF16", dice.standard_normal(shape, dtype=np.float32))
        for name, shape in SHAPES.items()})
    with open(work.at("src", "config.json"), "w", encoding="utf-8") as f:
        json.dump({"model_type": "mine", "num_attention_heads": 2}, f)
    with open(work.at("own.json"), "w", encoding="utf-8") as f:
        json.dump(OWN, f)


def boxes(work, *extra):
    made = json.loads(tool.run("plan", work.at("src"), "--to", "w4a8-cutlass", "--json",
                               *extra).stdout)
    return {u["name"]: u["box"] for u in made["units"]}


def cuts(work, *extra):
    done = tool.run("schedule", work.at("src"), "--gpu", "h100", "--tp", "2", "--m", "64", "--json",
                    *extra, check=False)
    return {(s["n"], s["k"]) for s in json.loads(done.stdout)["schedules"]}


def main():
    with tool.Workdir() as work:
        make(work)
        own = ["--model-file", work.at("own.json")]
        without, found = boxes(work), boxes(work, *own)
        tally.check(LAYER + "ffn.experts.0.wg" in without, "unknown names stay apart")
        tally.check(found.get(LAYER + "ffn.experts.w13") == [2, 512, 256] and
                    found.get(LAYER + "ffn.experts.w2") == [2, 256, 256], f"known ones {found}")
        tally.check(cuts(work) != cuts(work, *own), "schedule knows the cuts")
    return tally.finish()


if __name__ == "__main__":
    sys.exit(main())
