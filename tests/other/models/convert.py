"""Converts the models that make.py made, to every format, and asks tilepack who reads the result.

    convert.py TILEPACK WORK

WORK/out/MODEL/FORMAT is the output, WORK/back/MODEL/FORMAT what is unpacked of it again; kernel-ready
formats (zoo.PLUGGED) are made of the interchange checkpoint with the same codes. Prints `not ok` for
what ends with an error. WORK/families gets a line of JSON for each model and WORK/said one for each
format: {"name", "format", "gpus", "why"}: on which GPUs tilepack says that vLLM reads it, and why on no
others; "kept" where nothing is converted.
"""
import concurrent.futures
import json
import os
import subprocess
import sys

import zoo

NOTHING = "no weight would be converted"


class Failed(Exception):
    """What tilepack said."""


def run(program, *args):
    done = subprocess.run([program, *args], capture_output=True, text=True, check=False)
    if done.returncode and NOTHING not in done.stderr:
        raise Failed(f"{' '.join(args[:1] + args[-6:])}: {done.stderr.strip()[-500:]}")
    return done


def promised(made, engine="vllm"):
    """What tilepack says of the reader."""
    for reader in made["readers"]:
        if reader["engine"] == engine:
            weight = f"{reader['weight']}: " if "weight" in reader else ""
            return {"gpus": reader["gpus"], "why": weight + reader.get("why", "it is not read there")}
    return {"gpus": [], "why": "it reads no such format"}


class Model:
    def __init__(self, program, work, name):
        self.program, self.name = program, name
        self.source = os.path.join(work, "zoo", name)
        self.out, self.back = (os.path.join(work, at, name) for at in ("out", "back"))
        os.makedirs(self.out, exist_ok=True)
        os.makedirs(self.back, exist_ok=True)

    def convert(self, source, to, at, *args):
        """Whether anything is converted."""
        out = os.path.join(self.out, at)
        done = run(self.program, "convert", source, "-o", out, "--to", to, *args, "--quiet", "--force")
        return done.returncode == 0

    def interchange(self, to):
        done = run(self.program, "plan", self.source, "--to", to, "--json")
        if done.returncode or not self.convert(self.source, to, to):
            return {"gpus": [], "why": "kept"}
        run(self.program, "unpack", os.path.join(self.out, to), "-o", os.path.join(self.back, to),
            "--quiet", "--force")
        return promised(json.loads(done.stdout))

    def recipe(self):
        """By what `tilepack recipe` chooses, which is to be some of both formats."""
        path = os.path.join(self.out, zoo.RECIPE + ".json")
        out, back = (os.path.join(at, zoo.RECIPE) for at in (self.out, self.back))
        done = run(self.program, "recipe", self.source, "--bits", "6", "--formats", "mxfp4-ct,mxfp8-ct",
                   "--engine", "vllm", "-o", path, "--json")
        if not all(one["sets"] for one in json.loads(done.stdout)["formats"]):
            raise Failed("the recipe has one format alone")
        run(self.program, "convert", self.source, "-o", out, "--recipe", path, "--quiet", "--force")
        run(self.program, "unpack", out, "-o", back, "--quiet", "--force")

    def plugged(self, to, of, told, ours):
        stock = of
        if told:
            stock = f"{of}-for-{to}"
            self.convert(self.source, of, stock, *told)
        source = os.path.join(self.out, stock)
        if not os.path.exists(os.path.join(source, "config.json")):
            return {"gpus": [], "why": "kept"}
        self.convert(source, to, to, *ours)
        done = run(self.program, "plan", source, "--to", to, *ours, "--json")
        return promised(json.loads(done.stdout), "vllm-tilepack")

    def family(self):
        made = json.loads(run(self.program, "plan", self.source, "--to", "mxfp8-ct", "--json").stdout
                          or '{"model": {"files": [null]}, "units": []}')
        return {"name": self.name, "file": made["model"]["files"][0],
                "experts": any(".experts." in unit["name"] for unit in made["units"])}


def convert(program, work, name):
    """(lines of `said`, family, errors)."""
    model, said, errors = Model(program, work, name), [], []
    for to in zoo.EVERY:
        try:
            said.append({"name": name, "format": to, **model.interchange(to)})
        except Failed as error:
            errors.append(f"{name} to {to}: {error}")
    for to, (of, _, told, ours) in zoo.PLUGGED.items():
        try:
            said.append({"name": name, "format": to, **model.plugged(to, of, told, ours)})
        except Failed as error:
            said.append({"name": name, "format": to, "gpus": [], "why": str(error)})
    if name in zoo.BY_RECIPE:
        try:
            model.recipe()
        except Failed as error:
            errors.append(f"{name} by a recipe: {error}")
    return said, model.family(), errors


def main(program, work):
    names = sorted(os.listdir(os.path.join(work, "zoo")))
    with (concurrent.futures.ThreadPoolExecutor(2) as pool,
          open(os.path.join(work, "said"), "w", encoding="utf-8") as said,
          open(os.path.join(work, "families"), "w", encoding="utf-8") as families):
        for lines, family, errors in pool.map(lambda name: convert(program, work, name), names):
            said.writelines(json.dumps(line) + "\n" for line in lines)
            families.write(json.dumps(family) + "\n")
            for error in errors:
                print("not ok " + error)


if __name__ == "__main__":
    main(*sys.argv[1:])
