#!/usr/bin/env python3
"""README's table of GPUs: what `tilepack suggest` answers for a plain dense model in BF16.

usage: readme_gpus.py PROGRAM [--check]

Writes the table behind its marker in README.md; with --check prints nothing, and exits with 1 where
the table is another one. What is said stands in engines/*.json alone.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
README = os.path.join(ROOT, "README.md")
MARKER = "<!-- made by scripts/readme_gpus.py -->\n"
GPUS = (("a100", "A100"), ("l40s", "L40S, RTX 4090"), ("h100", "H100, H200"), ("b200", "B200"),
        ("5090", "RTX 50"))


def suggested(program, model, *options):
    answer = subprocess.run([program, "suggest", model, "--no-sample", "--json", *options], check=True,
                            capture_output=True, text=True)
    return json.loads(answer.stdout)["suggestions"]


def names(formats):
    return ", ".join(f"`{name}`" for name in formats) or "-"


def table(program):
    yield "| GPU | take first | half of that | kernel-ready, with the plugin |"
    yield "|---|---|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        model = os.path.join(folder, "model")
        subprocess.run([sys.executable, os.path.join(ROOT, "samples", "gen_checkpoint.py"), model,
                        "--preset", "tiny-llama"], check=True, stdout=subprocess.DEVNULL)
        for gpu, title in GPUS:
            stock = suggested(program, model, "--gpu", gpu)
            plugin = suggested(program, model, "--gpu", gpu, "--engine", "vllm-tilepack")
            first = [s["format"] for s in stock if s["preferred"]]
            small = [s["format"] for s in stock if s["format"] not in first]
            yield f"| {title} | {names(first)} | {names(small)} | {names(s['format'] for s in plugin)} |"


def main():
    with open(README, encoding="utf-8") as file:
        text = file.read()
    made = MARKER + "\n".join(table(sys.argv[1])) + "\n"
    new = re.sub(re.escape(MARKER) + r"(\|.*\n)*", lambda _: made, text)
    if sys.argv[2:]:
        return int(new != text or MARKER not in text)
    with open(README, "w", encoding="utf-8") as file:
        file.write(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
