"""What models.sh starts its readers with, and whether they found what has to be found.

    judge.py jobs WORK                 a line of JSON for each model that was made, to stdout
    judge.py READER WORK [MODELS]      prints `ok` or `not ok` for each line of WORK/READER

MODELS: the file engines/vllm.json, whose `ran` must name just what vLLM loads of each family; given
when all models were made.
"""
import collections
import json
import os
import sys

import zoo

# Normal values with rows of different sizes; a wrong scale or a swapped nibble is far beyond.
WORST = {"w4a16-ct": 0.125, "w8a16-ct": 0.01, "gptq": 0.125, "awq": 0.125, "w4a8-ct": 0.125,
         "int8-ct": 0.01, "fp8-dynamic-ct": 0.03, "fp8-tensor-ct": 0.03, "fp8-deepseek": 0.03,
         "fp8-ct": 0.03, "mxfp8-ct": 0.03, "mxfp4-ct": 0.13, "nvfp4-ct": 0.105,
         zoo.RECIPE: 0.13}
# Of logits; lowest where a router chooses other experts. What is decoded wrong is near 0.
NEAR = {fmt: 0.97 if error < 0.1 else 0.85 for fmt, error in WORST.items()}
# The same weights, decoded by another program, which quantizes activations of some, too.
SAME = {fmt: 0.9999 for fmt in ("w4a16-ct", "w8a16-ct", "mxfp4-ct", "nvfp4-ct")}
SAME.update({fmt: 0.98 for fmt in WORST if fmt not in SAME})


def jobs(work):
    for name in sorted(os.listdir(os.path.join(work, "zoo"))):
        job = {"name": name, "source": os.path.join(work, "zoo", name)}
        for key, folder in (("outputs", "out"), ("unpacked", "back")):
            at = os.path.join(work, folder, name)
            job[key] = {fmt: os.path.join(at, fmt) for fmt in WORST
                        if os.path.exists(os.path.join(at, fmt, "config.json"))}
        job["plugged"] = {fmt: [os.path.join(work, "out", name, at) for at in (
                              f"{of}-for-{fmt}" if told else of, fmt)]
                          for fmt, (of, _, told, _) in zoo.PLUGGED.items()
                          if os.path.exists(os.path.join(work, "out", name, fmt, "config.json"))}
        print(json.dumps(job))
        for gpu in ("sm80", "sm100") if name in zoo.EVERYWHERE else ():
            print(json.dumps({**job, "gpu": gpu, "unpacked": {}, "plugged": {}}))


def lines(*path):
    with open(os.path.join(*path), encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def wrong_of_vllm(found):
    if found.get("error"):
        return found["error"]
    if "worst" in found and found["worst"] > WORST[found["format"]]:
        return f"error {found['worst']}"
    return None


def wrong_of_transformers(found):
    if found["format"] == "source":
        return found["error"]
    noisy = found["name"] in zoo.NOISY
    near = min(NEAR[found["format"]], zoo.NOISY[found["name"]] if noisy else 1)
    same = min(SAME[found["format"]], 0.95 if noisy else 1)
    for key, least in (("unpacked", near), ("output", same)):
        value = found[key]
        if value is not None and not (isinstance(value, float) and value >= least):
            return f"{key}: {value}"
    return None


def announced(work):
    """{(name, format, gpu): why}: what tilepack says that vLLM does not load."""
    gpus = ("sm80", "sm90", "sm100")
    return {(said["name"], said["format"], gpu): said["why"] for said in lines(work, "said")
            for gpu in gpus if gpu not in said["gpus"]}


def judge(reader, work):
    """{name: formats that it loads}, on SM90."""
    wrong_of = wrong_of_vllm if reader == "vllm" else wrong_of_transformers
    experts = {found["name"]: found["experts"] for found in lines(work, "families")}
    refused, loads = announced(work), collections.defaultdict(set)
    for found in lines(work, reader):
        name, fmt, wrong = found["name"], found["format"], wrong_of(found)
        gpu = found.get("gpu")
        known = zoo.refused(reader, name, fmt, experts[name])
        good = wrong is None if known is None else wrong is not None and known in wrong
        if (name, fmt, gpu) in refused:
            # A kernel that vLLM was told to take may run where it would not be chosen.
            known, good = refused[name, fmt, gpu], (
                wrong is not None or fmt in zoo.PLUGGED or (fmt, gpu) in zoo.LATE)
        print(f"{'ok' if good else 'not ok'} {reader}{f' {gpu}' if gpu else ''}: {name} {fmt}"
              + (f": refuses: {known}" if known else "") + ("" if good else f": {wrong}"))
        if wrong is None and fmt in zoo.EVERY and gpu == "sm90":
            loads[name].add(fmt)
    return loads


def check_ran(loads, work, models):
    """`ran` of a family: what all of its models load that load at all."""
    with open(models, encoding="utf-8") as f:
        ran = {model: set(run.get("formats", [])) for run in json.load(f)["ran"] for model in run["models"]}
    family = collections.defaultdict(list)
    for found in lines(work, "families"):
        if loads.get(found["name"]) and found["file"] != "default":
            family[found["file"]].append(loads[found["name"]])
    for name, formats in sorted(family.items()):
        said = ran.get(name, set())
        both = set.intersection(*formats)
        good = said == both
        print(f"{'ok' if good else 'not ok'} {name}: `ran` says what vLLM loads"
              + ("" if good else f": {sorted(said)}, and it loads {sorted(both)}"))


def main(what, work, *more):
    if what == "jobs":
        jobs(work)
        return
    loads = judge(what, work)
    if what == "vllm" and more:
        check_ran(loads, work, *more)


if __name__ == "__main__":
    main(*sys.argv[1:])
