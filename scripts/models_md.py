#!/usr/bin/env python3
"""docs/models.md: the families of models by the formats that stock engines load, from what
`tilepack models --json` says.

usage: models_md.py PROGRAM [--check PAGE]

Prints the page; with --check, prints how PAGE differs from it instead and ends with status
1 if it does. Facts stand in models/*.json and engines/*.json alone, so nothing is added here.
"""
import sys

import generated_page

FORMATS = ["w4a16-ct", "w8a16-ct", "gptq", "awq", "w4a8-ct", "int8-ct", "fp8-dynamic-ct", "fp8-tensor-ct",
           "fp8-deepseek", "fp8-ct", "mxfp8-ct", "mxfp4-ct", "nvfp4-ct"]
HEAD = """# The models, by the formats that engines load

This page lists for each family of models what vLLM VERSION does with each interchange format of it, and below the table
what `tilepack` does with its weights. `tilepack models NAME` prints the file of one.

| word | means |
|---|---|
| right | vLLM loaded the output on a CPU that it took for an H200, and `make test-models` decoded every parameter and compared it with the source |
| kept | the same, and `tilepack` keeps weights plain which vLLM would refuse or misread in this format |
| refused | vLLM does not load it; `tilepack plan` says so, with the reason, before a byte is written |
| part | some models of the family are right, and vLLM refuses others, or weights of them stay plain |
| - | nothing was run: names and shapes come from the sources that the file names |

A weight that every format keeps, such as a router, is counted in none of these words. The text below the table and
[engines.md](engines.md) have the reasons, and what transformers and others refuse.

`python3 scripts/models_md.py build/tilepack > docs/models.md` makes this page from the files of `models/` and
`engines/`, and a test compares it. [models/README.md](../models/README.md) defines the files.
"""


def of_model(rules, model):
    """Rules of a file of an engine that name the model."""
    types = set(model.get("model_type", []))
    return [rule for rule in rules if model["name"] in rule.get("models", []) or
            types & set(rule.get("types", []))]


def verdicts(model, fmt, engine):
    """Those of rules that name the model and are about the format, and "part" of one that names some of its
    types. What is about some modules in every format is about what the files of models keep."""
    return {rule["verdict"] if names_all(rule, model) else "part" for rule in of_model(engine["families"], model)
            if fmt in rule.get("formats", [] if "modules" in rule else FORMATS) and "gpus" not in rule}


def names_all(rule, model):
    return model["name"] in rule.get("models", []) or set(model["model_type"]) <= set(rule["types"])


def cell(model, fmt, engine):
    said = verdicts(model, fmt, engine)
    if "part" in said and engine_ran(model, engine):
        return "part"
    if any(fmt in run.get("formats", []) for run in of_model(engine["ran"], model)):
        return "kept" if "kept" in said else "right"
    return "refused" if said & {"refused", "wrong"} else "-"


def engine_ran(model, engine):
    """Whether some models of the family were loaded in some format."""
    return any(run.get("formats") for run in of_model(engine["ran"], model))


def facts(model, engines):
    """What the file says, as list items."""
    yield f"model_type: {', '.join(f'`{t}`' for t in model.get('model_type', ['any']))}"
    for engine in engines:
        for run in of_model(engine.get("ran", []), model):
            yield f"{engine['title']} {engine['version']}: {run['says']}"
    for source in model["source"]:
        yield f"from: {source}"
    if "convert" in model:
        yield f"converted: {', '.join(f'`{m}`' for m in model['convert'])}"
    if "integers" in model:
        yield f"integers that are no codes: {', '.join(f'`{m}`' for m in model['integers'])}"
    for keep in model.get("keep", []):
        names = ", ".join(f"`{m}`" for m in keep["modules"])
        yield f"kept: {names}: {keep['why']}"
    for stack in model.get("stacks", []):
        if "kept" in stack:
            yield f"kept: `{stack['name']}`: {stack['kept']}"
        elif "layout" in stack:
            rows = ", rows of gate and up interleaved" if "rows" in stack else ""
            yield f"stacks: `{stack['name']}` is [{','.join(stack['layout'].upper())}]{rows}"
    for fused in model.get("fused", []):
        yield f"one matrix in engines: {', '.join(f'`{p}`' for p in fused['parts'])}"
    for cut in model.get("parallel", []):
        names = ", ".join(f"`{m}`" for m in cut["modules"])
        along = "not cut" if cut["cut"] == "none" else f"cut along {cut['cut']}"
        yield f"tensor parallel: {names}: {along}"
    for labels in model.get("experts", []):
        parts = "gate, up and down" if "gate" in labels else "up and down"
        yield f"experts: {parts} are {', '.join(f'`{m}`' for m in labels.values())}"
    for rename in model.get("renamed", []):
        yield f"listed under both names: `{rename['from']}`, `{rename['to']}`"
    for engine in engines:
        for rule in of_model(engine.get("families", []), model):
            which = f" ({', '.join(rule['formats'])})" if "formats" in rule else ""
            yield f"{rule['verdict']}, {engine['title']} {engine['version']}{which}: {rule['says']}"


def page(models, engines):
    engine = next(engine for engine in engines if engine["name"] == "vllm")
    lines = HEAD.replace("VERSION", engine["version"]).splitlines() + [
        "", "| family | " + " | ".join(FORMATS) + " |", "|---" * (len(FORMATS) + 1) + "|"]
    own = [m for m in models if m["name"] != "default"]
    for model in own:
        cells = [cell(model, fmt, engine) for fmt in FORMATS]
        lines.append(f"| [{model['title']}](#{model['name']}) | " + " | ".join(cells) + " |")
    for model in own + [m for m in models if m["name"] == "default"]:
        lines += ["", f"## {model['name']}", "", model["title"] + ".", ""]
        lines += [f"- {fact}" for fact in facts(model, engines)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(generated_page.main(__doc__, "models", page, "engines"))
