#!/usr/bin/env python3
"""action.py ACTION.YML FOLDER INPUT=VALUE ...

Runs the steps of a composite action as a runner does: the expressions that action.yml uses
(inputs and a comparison with one, always(), outputs and outcomes of steps), `shell: bash`,
actions/cache, and the files GITHUB_OUTPUT and GITHUB_PATH, which stay in FOLDER as `outputs` and
`path` beside `summary` and `results`, the outputs of the action. The cache is CACHE, or FOLDER/cache.
Prints the name of each step. Status 1 where one fails.
Knows YAML as far as that file uses it: mappings, a list of steps, texts of several lines.
"""
import os
import re
import shutil
import subprocess
import sys


def parse(lines, indent=0):
    """The block of this indentation, taken from the front of the lines."""
    block = {}
    while lines:
        line = lines[0]
        depth = len(line) - len(line.lstrip())
        if not line.strip() or line.lstrip().startswith("#"):
            lines.pop(0)
            continue
        if depth < indent:
            break
        if line.lstrip().startswith("- "):
            if not isinstance(block, list):
                block = []
            lines[0] = line.replace("- ", "  ", 1)
            block.append(parse(lines, depth + 2))
            continue
        lines.pop(0)
        key, value = re.match(r"\s*([\w-]+):\s*(.*)$", line).groups()
        if value == "|":
            text = []
            while lines and (not lines[0].strip() or
                             len(lines[0]) - len(lines[0].lstrip()) > depth):
                text.append(lines.pop(0)[depth + 2:])
            block[key] = "\n".join(text) + "\n"
        elif value:
            block[key] = value[1:-1] if value[0] in "\"'" else value
        else:
            following = next((n for n in lines if n.strip()), "")
            block[key] = parse(lines, len(following) - len(following.lstrip()))
    return block


class Runner:
    """What the steps of one action share."""

    def __init__(self, action, inputs, folder, path):
        self.action, self.inputs, self.folder = action, inputs, folder
        self.steps, self.saved = {}, []
        self.cache = os.environ.get("CACHE", os.path.join(folder, "cache"))
        os.makedirs(folder, exist_ok=True)
        self.files = {name: os.path.join(folder, name) for name in ("outputs", "path", "summary")}
        for name in self.files.values():
            with open(name, "w", encoding="utf-8"):
                pass
        self.environment = {
            **os.environ, "GITHUB_ACTION_PATH": os.path.dirname(os.path.abspath(path)),
            "GITHUB_OUTPUT": self.files["outputs"], "GITHUB_PATH": self.files["path"],
            "GITHUB_STEP_SUMMARY": self.files["summary"], "RUNNER_TEMP": folder,
            "RUNNER_OS": "Linux", "RUNNER_ARCH": "X64"}

    def lines(self, name):
        with open(self.files[name], encoding="utf-8") as f:
            return f.read().split("\n")[:-1]

    def value(self, expression):
        """Of inputs.NAME, runner.temp, steps.ID.outputs.NAME and steps.ID.outcome."""
        kind, *names = expression.split(".")
        if kind == "inputs":
            return self.inputs[names[0]]
        if expression == "runner.temp":
            return self.folder
        if kind == "steps" and names[1:] == ["outcome"]:
            return self.steps.get(names[0], {}).get("outcome", "skipped")
        if kind == "steps" and names[1] == "outputs":
            return self.steps.get(names[0], {}).get("outputs", {}).get(names[2], "")
        sys.exit(f"an expression that this runner does not know: {expression}")

    def filled(self, text):
        return re.sub(r"\$\{\{ ([\w.]+) \}\}", lambda m: self.value(m[1]), text)

    def wanted(self, step, failed):
        condition = step.get("if")
        if condition == "always()":
            return True
        same = re.fullmatch(r"(inputs\.\w+) (==|!=) '(.*)'", condition or "inputs.to != ''")
        return not failed and (self.value(same[1]) == same[3]) == (same[2] == "==")

    def restore(self, step):
        """actions/cache: what was kept under the key comes back; else it is kept in the end."""
        if not step["uses"].startswith("actions/cache@"):
            sys.exit(f"an action that this runner does not know: {step['uses']}")
        place, key = (self.filled(step["with"][name]) for name in ("path", "key"))
        kept = os.path.join(self.cache, key)
        print(f"{step['name']}: {'hit' if os.path.exists(kept) else 'miss'}", flush=True)
        if os.path.exists(kept):
            os.makedirs(os.path.dirname(place), exist_ok=True)
            shutil.copy(kept, place)
        else:
            self.saved.append((place, kept))

    def run(self, step):
        """0, or the status of the step that failed."""
        if "uses" in step:
            self.restore(step)
            return 0
        print(step["name"], flush=True)
        search = os.pathsep.join(self.lines("path")[::-1] + [os.environ["PATH"]])
        own = {name: self.filled(text) for name, text in step.get("env", {}).items()}
        before = len(self.lines("outputs"))
        done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c",
                               self.filled(step["run"])], env={**self.environment, **own,
                                                               "PATH": search},
                              stdout=sys.stderr, check=False)
        self.steps[step.get("id")] = {
            "outcome": "failure" if done.returncode else "success",
            "outputs": dict(line.split("=", 1) for line in self.lines("outputs")[before:])}
        return done.returncode

    def all(self):
        """The step that failed, and its status, or None."""
        failed = None
        for step in self.action["runs"]["steps"]:
            if not self.wanted(step, failed):
                print(f"skipped: {step['name']}")
                continue
            status = self.run(step)
            failed = failed or (status and f"{step['name']}, status {status}")
        with open(os.path.join(self.folder, "results"), "w", encoding="utf-8") as f:
            for name, item in self.action["outputs"].items():
                f.write(f"{name}={self.filled(item['value'])}\n")
        for place, kept in self.saved if not failed else ():
            if os.path.exists(place):
                os.makedirs(self.cache, exist_ok=True)
                shutil.copy(place, kept)
        return failed


def main():
    path, folder, given = sys.argv[1], os.path.abspath(sys.argv[2]), sys.argv[3:]
    with open(path, encoding="utf-8") as f:
        action = parse(f.read().splitlines())
    inputs = {name: item.get("default", "") for name, item in action["inputs"].items()}
    inputs.update(pair.split("=", 1) for pair in given)
    for name in inputs.keys() - action["inputs"].keys():
        sys.exit(f"{name}: no such input")
    for name, item in action["inputs"].items():
        if item.get("required") == "true" and not inputs[name]:
            sys.exit(f"{name}: is required")
    failed = Runner(action, inputs, folder, path).all()
    if failed:
        sys.exit(f"failed: {failed}")


main()
