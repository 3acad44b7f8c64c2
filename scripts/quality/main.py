#!/usr/bin/env python3
"""Quality of quantized weights: every format and search of tilepack, and other quantizers.

    main.py --program build/tilepack --dir build/quality --models build/models
            [--llama PYTHON] [--torch PYTHON] [--page docs/quality.md] [--only REGEX]
            [--again REGEX]

../quality.sh makes the environments and runs this. Two models are quantized (subjects.py),
and what is lost is measured on both. PYTHON are the interpreters of the environments that
hold the other quantizers; what has none is left out, and the page says so. DIR gets
quality.md (the page), choose.md (its shortest form, for the README) and quality.json; --page
copies the page. --only: the methods whose name matches, for a quick look. DIR/rows.json keeps
what was measured: a later run measures only what is not in it, such as a new format, and the
rows whose "program method search" --again matches ('' for all, '^tilepack' for those of tilepack).
"""
import json
import os
import re
import shutil
import subprocess
import sys
import time

import numpy as np
from safetensors.numpy import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.dirname(HERE))

# pylint: disable=wrong-import-position
import conversions
import figures
import measure
import page
import peer
import subjects
from results import Results


def convert_all(program, results, files, only):
    """Every variant of tilepack; returns those that it does not offer, and the formats that do
    not take every matrix of every model."""
    able, unable = program.variants()
    partial = {v.format for v in able if v.search == "none"
               and not all(program.takes(v, subject) for subject in results.models)}
    for v in able:
        if v.format not in partial and re.search(only, " ".join([v.format, *v.settings,
                                                                 v.search])):
            results.add({"program": "tilepack", "method": " ".join([v.format, *v.settings]),
                         "search": v.search,
                         "codec": v.codec, "bits": program.bits(v.format, v.settings)},
                        lambda subject, v=v: program.values(v, subject, files[subject.label]))
    return unable, sorted(partial)


def quantize_elsewhere(python, script, results, files, opt):
    """Every method of one environment."""
    if not python:
        raise peer.Ended("not installed")
    child, out = peer.Peer(python, os.path.join(HERE, script)), os.path.join(opt.dir, "peer.st")

    def values_of(method):
        def run(subject):
            seconds = child.quantize(method, subject.checkpoint, files[subject.label], out)
            values = load_file(out)
            os.unlink(out)
            return {name: figures.crop(values[name], like)
                    for name, like in subject.source.items()}, seconds
        return run

    for entry in child.methods:
        if re.search(opt.only, entry["method"]):
            results.add(entry | {"search": "", "codec": ""}, values_of(entry["method"]))
    child.close()


def check(opt, language, sentence):
    """The figures of check_torch.py."""
    at = {name: os.path.join(opt.dir, name) for name in
          ("checks.npz", "calibration.txt", "importance-plain.safetensors")}
    np.savez(at["checks.npz"], tokens=language.tokens[0],
             log_probabilities=language.reference[0], sentence=sentence.sentences[0],
             embedding=sentence.reference[0])
    with open(at["calibration.txt"], "w", encoding="utf-8") as f:
        f.write("\n\n".join(subjects.text("calibration")))
    save_file(language.importance, at["importance-plain.safetensors"])
    done = subprocess.run(
        [opt.torch, os.path.join(HERE, "check_torch.py"), opt.dir, language.plain,
         language.gguf, sentence.checkpoint], stdout=subprocess.PIPE, text=True, check=True)
    result = json.loads(done.stdout.splitlines()[-1])
    print(f"transformers: {result}", flush=True)
    return result


def main(argv):
    p = measure.options(__doc__, rounds=3)
    p.add_argument("--models", required=True)
    p.add_argument("--llama", help="interpreter of the environment with libgguf")
    p.add_argument("--torch", help="interpreter of the environment with torch")
    p.add_argument("--page")
    p.add_argument("--only", default="")
    p.add_argument("--again")
    opt = p.parse_args(argv)
    os.environ |= {"TQDM_DISABLE": "1", "TRANSFORMERS_VERBOSITY": "error"}  # of the others
    os.makedirs(opt.dir, exist_ok=True)
    start = time.monotonic()
    language = subjects.LanguageModel(os.path.join(opt.models, "smollm2", "model.gguf"), opt.dir)
    sentence = subjects.SentenceModel(os.path.join(opt.models, "minilm"))
    models, files = [language, sentence], {}
    for subject in models:
        files[subject.label] = os.path.join(opt.dir, f"importance-{subject.label}.safetensors")
        conversions.save_importance(files[subject.label], subject, subjects.MULTIPLE)
    result = {"perplexity": language.measure(language.source)["perplexity"],
              "calibration_tokens": language.calibration_tokens, "rounds": opt.rounds,
              "window": subjects.WINDOW, "sentences": len(sentence.sentences)}
    print(f"source: perplexity {result['perplexity']:.4f}", flush=True)
    if opt.torch:
        result["check"] = check(opt, language, sentence)
    results = Results(models, lambda line: print(line, flush=True),
                      os.path.join(opt.dir, "rows.json"), opt.again)
    program = conversions.Program(opt.program, opt.dir, opt.rounds)
    result["version"] = program.ask("--version").strip()
    result["not_offered"], result["partial"] = convert_all(program, results, files, opt.only)
    result["left_out"] = []
    for name in ("llama", "torch"):
        try:
            quantize_elsewhere(getattr(opt, name), f"peer_{name}.py", results, files, opt)
        except peer.Ended as problem:
            result["left_out"].append(f"`{name}`: {problem}")
    result |= {"rows": results.rows, "processors": len(measure.processors()),
               "seconds": time.monotonic() - start + results.spared}
    measure.save(opt.dir, "quality", page.page(result), result)
    with open(os.path.join(opt.dir, "choose.md"), "w", encoding="utf-8") as f:
        f.write(page.choice(result))
    if opt.page:
        shutil.copyfile(os.path.join(opt.dir, "quality.md"), opt.page)


if __name__ == "__main__":
    main(sys.argv[1:])
