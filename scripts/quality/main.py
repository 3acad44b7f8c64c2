#!/usr/bin/env python3
"""Quality of quantized weights: formats and searches of tilepack, and other quantizers.

    main.py --program build/tilepack --dir build/quality --models build/models
            [--page docs/quality.md] [--as-is] [--model LABEL] [--windows 8] [--only REGEX]
            [--again REGEX] [--mixtures]

../quality.sh makes the environment and runs this. DIR/LABEL/rows.json keeps what was measured on a
model: a later run measures what is not in it, and the rows whose "program method search" --again
matches. --only: the rows that match, for a quick look; --model: one model alone; --windows: of the
evaluation. --mixtures: what is missing of mixtures of formats (mixtures.py) alone; else they are
measured where there are none. --page writes the page from what DIR holds, with --as-is without a run,
which needs numpy and safetensors alone. DIR/choose.md is its shortest form, for the README.
"""
import os
import re
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

# pylint: disable=wrong-import-position
import conversions
import measure
import page
from results import Results, title

MODELS = ["smollm2", "gemma3", "qwen2.5"]
TRAINED = "gemma3"  # by AutoRound: the smallest whose shapes kernels take as they are


def subject_of(label, opt):
    import subjects  # pylint: disable=import-outside-toplevel # torch, which the page does not need
    return subjects.Subject(label, opt.models, os.path.join(opt.dir, label), opt.windows)


def convert(program, results, opt):
    for v in conversions.compared():
        row = {"program": "tilepack", "method": " ".join([v.format, *v.settings]),
               "search": v.search}
        if re.search(opt.only, title(row)):
            row["bits"] = program.bits(v.format, v.settings)
            results.add(row, lambda subject, v=v: program.values(v, subject))


def run_model(label, opt):
    directory = os.path.join(opt.dir, label)
    os.makedirs(directory, exist_ok=True)
    program = conversions.Program(opt.program, directory)
    results = Results(os.path.join(directory, "rows.json"), lambda: subject_of(label, opt),
                      lambda line: print(line, flush=True), opt.again, opt.windows)
    convert(program, results, opt)
    import peers  # pylint: disable=import-outside-toplevel # torch
    for row, values_of in peers.methods(program, label == TRAINED):
        if re.search(opt.only, title(row)):
            results.add(row, values_of)
    if results.made:
        results.facts = results.made.facts() | {"version": program.ask("--version").strip()}
        results.remember()


def run_mixtures(label, opt):
    import mixtures  # pylint: disable=import-outside-toplevel # torch
    directory = os.path.join(opt.dir, label)
    os.makedirs(directory, exist_ok=True)
    mixtures.measure(conversions.Program(opt.program, directory), subject_of(label, opt),
                     os.path.join(directory, "mixtures.json"), lambda line: print(line, flush=True))


def main(argv):
    p = measure.options(__doc__, rounds=1)
    p.add_argument("--models", required=True)
    p.add_argument("--page")
    p.add_argument("--model", choices=MODELS)
    p.add_argument("--windows", type=int, default=8)
    p.add_argument("--only", default="")
    p.add_argument("--again")
    p.add_argument("--as-is", action="store_true")
    p.add_argument("--mixtures", action="store_true")
    opt = p.parse_args(argv)
    os.environ |= {"TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error"}
    for label in [] if opt.as_is else [opt.model] if opt.model else MODELS:
        if not opt.mixtures:
            run_model(label, opt)
        if opt.mixtures or not (opt.only or os.path.exists(os.path.join(opt.dir, label, "mixtures.json"))):
            run_mixtures(label, opt)
    if opt.page:
        program = conversions.Program(opt.program, opt.dir)
        page.write(opt.dir, MODELS, conversions.same_values(program), opt.page)


if __name__ == "__main__":
    main(sys.argv[1:])
