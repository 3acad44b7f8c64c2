#!/usr/bin/env python3
"""The jobs of a run, for jobs.py, and what is compared in the end, for show.py.

    plan.py MODELS JOBS.json [GROUP...]     only jobs of these groups, of `GROUPS`; all without

A model of MODELS/KIND-FORMAT is made by models.sh, of the kinds that were asked for. Groups come in
the order of their value.
"""
import json
import os
import subprocess
import sys

COMPILED = 1e-4  # of logprobs: kernels that are compiled twice need not add up in the same order
GRAPHS = {"enforce_eager": False, "compilation_config": {"cudagraph_capture_sizes": [1, 8]}}
MARLIN = {"linear_backend": "marlin"}
MARLIN_BOTH = {**MARLIN, "moe_backend": "marlin"}
HUMMING = {"moe_backend": "humming"}
FP8_MARLIN = {"VLLM_TEST_FORCE_FP8_MARLIN": "1"}


# What stock vLLM serves, too, where it is told which kernels: packed format, its checkpoint, arguments.
OTHERS = [
    ("w8a16-machete", "w8a16-ct", {}), ("w8a16-marlin", "w8a16-ct", MARLIN),
    ("w4a16-marlin-channel", "w4a16-ct-channel", MARLIN),
    ("w8a16-marlin-channel", "w8a16-ct-channel", MARLIN), ("mxfp8-marlin", "mxfp8-ct", MARLIN),
    ("nvfp4-marlin", "nvfp4-ct", MARLIN), ("fp8-marlin", "fp8-deepseek", MARLIN),
]
OTHERS_OF_EXPERTS = [
    ("w4a16-marlin", "w4a16-ct"), ("w8a16-marlin", "w8a16-ct"), ("mxfp8-marlin", "mxfp8-ct"),
    ("nvfp4-marlin", "nvfp4-ct"), ("fp8-marlin", "fp8-deepseek"),
    ("fp8-marlin-channel", "fp8-dynamic-ct"),
]


def load(name, model, **more):
    return {"name": name, "do": "load", "model": model, "timeout": 60, **more}


def tokens(name, model, args=None, **more):
    return {"name": name, "do": "generate", "model": model, "args": args or {}, "together": True,
            "timeout": 300, **more}


def compiled(name, model, args=None, **more):
    return tokens(name, model, {**GRAPHS, **(args or {})}, **{"off": COMPILED, **more})


def products(name, model, args=None, **more):
    """`bound` of linear layers, whose products are rounded to BF16, and of `experts`, whose activations
    are rounded twice."""
    return {"name": name, "do": "products", "model": model, "args": args or {}, "together": True,
            "timeout": 200, "bound": 2.0 ** -8, "experts": 2.0 ** -6, **more}


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
        tokens("fp8", "small-fp8-marlin-channel"),
        tokens("fp8-stock", "small-fp8-dynamic-ct", MARLIN, env=FP8_MARLIN),
    ],
    "others": [
        tokens(f"{kind}-{packed}{end}", f"{kind}-{name}", args if end else {},
               env=FP8_MARLIN if end else {})
        for kind, rows in (("small", OTHERS),
                           ("few", [(*names, MARLIN_BOTH) for names in OTHERS_OF_EXPERTS]))
        for packed, stock, args in rows
        for end, name in (("", packed), ("-stock", stock))
    ],
    # Experts whose kernels are Humming's, which stock vLLM takes for int4 by itself.
    "humming": [
        tokens("w4a16-humming", "few-w4a16-humming"), tokens("w4a16-humming-stock", "few-w4a16-ct"),
        tokens("w4a8-humming", "few-w4a8-humming"),
        tokens("w4a8-humming-stock", "few-w4a8-ct", HUMMING),
        # Stock vLLM hands no checkpoint of this model to it.
        products("mxfp4-humming", "few-mxfp4-humming"),
    ],
    # The weights of a server that runs.
    "updates": [
        tokens("sleep", "small-w4a8-cutlass", then="sleep"),
        tokens("reload", "small-w4a8-cutlass", then="reload"),
        tokens("reload-experts", "few-w4a8-cutlass", then="reload"),
        tokens("sleep-experts", "few-w4a8-cutlass", then="sleep"),
    ],
    # Negative scales: linear layers, and experts.
    "signed": [
        # W4A8 is what the kernel makes of its scales, as the packed checkpoint has them.
        products("signed-w4a8-ct", "signed-w4a8-ct", values="signed-w4a8-ct-packed"),
        *(products(f"signed-{name}", f"signed-{name}") for name in (
            "w4a8-cutlass", "w4a16-machete", "w4a16-marlin", "w4a16-ct", "few-w4a16-humming",
            "few-w4a16-marlin")),
        products("signed-w4a16-ct-with-marlin", "signed-w4a16-ct", MARLIN),
        # Activations of the kernel are FP8.
        *(products(f"signed-{name}", f"signed-{name}", experts=2.0 ** -3)
          for name in ("few-w4a8-cutlass", "few-w4a8-humming")),
        # Scales are F16 in the file, and rounded to BF16, too.
        *(products(f"signed-{name}{end}", f"signed-{name}", args, bound=2.0 ** -7)
          for name in ("gptq", "awq") for end, args in (("", {}), ("-with-marlin", MARLIN))),
    ],
    # Compiled, with CUDA graphs, as vLLM does by default; the server too.
    "graphs": [
        compiled("w4a8-graphs", "small-w4a8-cutlass-gpu"),
        compiled("w4a8-graphs-stock", "small-w4a8-ct"),
        compiled("machete-graphs", "small-w4a16-machete"),
        compiled("machete-graphs-stock", "small-w4a16-ct"),
        compiled("mxfp4-graphs", "small-mxfp4-marlin"),
        compiled("mxfp4-graphs-stock", "small-mxfp4-ct", MARLIN),
        compiled("fp8-graphs", "small-fp8-marlin-channel"),
        compiled("fp8-graphs-stock", "small-fp8-dynamic-ct", MARLIN, env=FP8_MARLIN),
        compiled("experts-graphs", "few-w4a8-cutlass-gpu"),
        compiled("experts-graphs-stock", "few-w4a8-ct"),
        compiled("mxfp4-experts-graphs", "few-mxfp4-marlin"),
        compiled("mxfp4-experts-graphs-stock", "few-mxfp4-ct", MARLIN_BOTH),
        compiled("served", "small-w4a8-cutlass-gpu", do="serve", off=0),
        compiled("served-stock", "small-w4a8-ct", do="serve", off=0),
        compiled("mixture-graphs", "mixture-w4a8-cutlass-gpu"),
        compiled("mixture-graphs-stock", "mixture-w4a8-ct"),
    ],
    # On two GPUs, where there are two.
    "ranks": [
        tokens(f"{name}-{ranks}{end}", model, {**args, "tensor_parallel_size": 2, **more}, cards=2)
        for ranks, more in (("tp", {}), ("ep", {"enable_expert_parallel": True}))
        for name, end, model, args in (
            ("w4a8", "", "few-w4a8-cutlass", {}), ("w4a8", "-stock", "few-w4a8-ct", {}),
            ("mxfp4", "", "few-mxfp4-marlin", {}),
            ("mxfp4", "-stock", "few-mxfp4-ct", MARLIN_BOTH))
    ],
}
# (stock, packed) with the same tokens.
JOBS = {job["name"]: job for group in GROUPS.values() for job in group}
PAIRS = [(job["name"] + "-stock", job["name"]) for group in GROUPS.values() for job in group
         if any(one["name"] == job["name"] + "-stock" for one in group)]


def cards():
    listed = subprocess.run(["nvidia-smi", "-L"], check=False, capture_output=True, text=True)
    return len(listed.stdout.splitlines())


def main(models, out, *groups):
    jobs, here = [], cards()
    for group in groups or GROUPS:
        for job in GROUPS[group]:
            paths = {key: os.path.join(models, job[key]) for key in ("model", "values") if key in job}
            if job.get("cards", 1) > here:
                print(f"left out  {job['name']}: it needs {job['cards']} GPUs")
            elif not all(map(os.path.exists, paths.values())):
                print(f"left out  {job['name']}: its model was not made")
            else:
                jobs.append({**job, **paths})
    with open(out + ".part", "w", encoding="utf-8") as file:
        json.dump(jobs, file, indent=1)
    os.rename(out + ".part", out)


if __name__ == "__main__":
    if len(sys.argv) < 3 or set(sys.argv[3:]) - set(GROUPS):
        sys.exit(__doc__.strip())
    main(*sys.argv[1:])
