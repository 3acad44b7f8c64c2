#!/usr/bin/env python3
"""action.py ACTION.YML FOLDER INPUT=VALUE ...

Runs the steps of a composite action as a runner does: the expressions that action.yml uses
(inputs and a comparison with one), `shell: bash`, the files GITHUB_OUTPUT and GITHUB_PATH, which
stay in FOLDER as `outputs` and `path`. Prints the name of each step. Status 1 where one fails.
Knows YAML as far as that file uses it: mappings, a list of steps, texts of several lines.
"""
import os
import re
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

    def filled(text):
        text = re.sub(r"\$\{\{ inputs\.(\w+) \}\}", lambda m: inputs[m[1]], text)
        if "${{" in text:
            sys.exit(f"an expression that this runner does not know: {text}")
        return text

    os.makedirs(folder, exist_ok=True)
    outputs, paths = os.path.join(folder, "outputs"), os.path.join(folder, "path")
    for name in (outputs, paths):
        with open(name, "w", encoding="utf-8"):
            pass
    environment = {**os.environ, "GITHUB_ACTION_PATH": os.path.dirname(os.path.abspath(path)),
                   "GITHUB_OUTPUT": outputs, "GITHUB_PATH": paths, "RUNNER_TEMP": folder}
    for step in action["runs"]["steps"]:
        condition = re.fullmatch(r"inputs\.(\w+) == '(.*)'", step.get("if", "inputs.to == ''"))
        if "if" in step and inputs[condition[1]] != condition[2]:
            print(f"skipped: {step['name']}")
            continue
        print(step["name"], flush=True)
        with open(paths, encoding="utf-8") as f:
            search = os.pathsep.join(f.read().split("\n")[:-1][::-1] + [os.environ["PATH"]])
        own = {name: filled(text) for name, text in step.get("env", {}).items()}
        done = subprocess.run(["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c",
                               filled(step["run"])], env={**environment, **own, "PATH": search},
                              stdout=sys.stderr, check=False)
        if done.returncode:
            sys.exit(f"failed: {step['name']}, status {done.returncode}")


main()
