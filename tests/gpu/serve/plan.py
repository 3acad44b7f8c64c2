#!/usr/bin/env python3
"""The jobs of a run, for jobs.py, and what is compared in the end, for show.py.

    plan.py MODELS JOBS.json [GROUP...]     only jobs of these groups, of `GROUPS`; all without

A model of MODELS/KIND-FORMAT is made by models.sh. Groups come in the order of their value.
"""
import json
import os
import sys

GRAPHS = {"enforce_eager": False, "compilation_config": {"cudagraph_capture_sizes": [1, 8]}}
MARLIN = {"linear_backend": "marlin"}


def load(name, model, **more):
    return {"name": name, "do": "load", "model": model, "timeout": 60, **more}


def tokens(name, model, args=None, **more):
    return {"name": name, "do": "generate", "model": model, "args": args or {}, "together": True,
            "timeout": 150, **more}


GROUPS = {
    # Times, one job after the other.
    "times": [
        load("mixture-packed", "mixture-w4a8-cutlass"),
        load("dense-packed", "dense-w4a8-cutlass"),
        load("dense-stock", "dense-w4a8-ct", rounds=2),
        load("small-packed", "small-w4a8-cutlass"),
        load("small-stock", "small-w4a8-ct"),
        load("mixture-packed-4-cores", "mixture-w4a8-cutlass", cores=4, rounds=2),
        load("dense-packed-4-cores", "dense-w4a8-cutlass", cores=4, rounds=2),
        load("small-packed-4-cores", "small-w4a8-cutlass", cores=4, rounds=2),
        load("mixture-stock", "mixture-w4a8-ct", rounds=1),
    ],
    # Tokens beside stock vLLM.
    "tokens": [
        tokens("mixture-tokens", "mixture-w4a8-cutlass", timeout=90),
        tokens("mixture-tokens-stock", "mixture-w4a8-ct", timeout=90),
        tokens("w4a8", "small-w4a8-cutlass"), tokens("w4a8-stock", "small-w4a8-ct"),
        tokens("machete", "small-w4a16-machete"), tokens("machete-stock", "small-w4a16-ct"),
        tokens("mxfp4", "small-mxfp4-marlin"),
        tokens("mxfp4-stock", "small-mxfp4-ct", MARLIN),
        tokens("experts", "few-w4a8-cutlass"), tokens("experts-stock", "few-w4a8-ct"),
        tokens("marlin", "small-w4a16-marlin"), tokens("marlin-stock", "small-w4a16-ct", MARLIN),
        tokens("fp8", "small-fp8-marlin"),
        tokens("fp8-stock", "small-fp8-dynamic-ct", MARLIN,
               env={"VLLM_TEST_FORCE_FP8_MARLIN": "1"}),
    ],
    # The weights of a server that runs.
    "updates": [
        tokens("sleep", "small-w4a8-cutlass", then="sleep"),
        tokens("reload", "small-w4a8-cutlass", then="reload"),
        tokens("reload-experts", "few-w4a8-cutlass", then="reload"),
        tokens("sleep-experts", "few-w4a8-cutlass", then="sleep"),
    ],
    # Negative scales.
    "signed": [
        {"name": f"signed-{name}", "do": "products", "model": f"signed-{name}", "together": True,
         "timeout": 90, "args": args}
        for name, args in (("w4a8-cutlass", {}), ("w4a16-machete", {}), ("w4a16-marlin", {}),
                           ("w4a16-ct", {}))
    ],
    # Compiled, with CUDA graphs, as vLLM does by default.
    "graphs": [
        tokens("w4a8-graphs", "small-w4a8-cutlass-gpu", GRAPHS),
        tokens("w4a8-graphs-stock", "small-w4a8-ct", GRAPHS),
        tokens("fp8-graphs", "small-fp8-marlin", GRAPHS),
        tokens("fp8-graphs-stock", "small-fp8-dynamic-ct", {**GRAPHS, **MARLIN},
               env={"VLLM_TEST_FORCE_FP8_MARLIN": "1"}),
    ],
}
# (stock, packed) with the same tokens.
PAIRS = [(job["name"] + "-stock", job["name"]) for group in GROUPS.values() for job in group
         if any(one["name"] == job["name"] + "-stock" for one in group) and job["do"] == "generate"]


def main(models, out, *groups):
    jobs = []
    for group in groups or GROUPS:
        for job in GROUPS[group]:
            jobs.append({**job, "model": os.path.join(models, job["model"])})
    with open(out + ".part", "w", encoding="utf-8") as file:
        json.dump(jobs, file, indent=1)
    os.rename(out + ".part", out)


if __name__ == "__main__":
    if len(sys.argv) < 3 or set(sys.argv[3:]) - set(GROUPS):
        sys.exit(__doc__.strip())
    main(*sys.argv[1:])
