"""What tilepack is asked for: every format it writes, with every search that the format has.

The table SEARCHES names the searches of each codec; of these, what the program does not offer
(`convert --help` tells) is left out, and named. A Conversion is timed, and its values are
what `unpack` gives: what the reader of the format computes with.
"""
import json
import os
import shutil
import statistics
import subprocess
from collections import namedtuple

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file

import figures
import measure

# Words of the label, options. FILE stands for the file of E[x^2].
PLAIN, MAGNITUDE, FILE = ("plain", "none"), ("magnitude", "magnitude"), ("importance", "FILE")


def search(kind, importance, *more):
    word, value = importance
    return (", ".join([kind, word, *(option.lstrip("-") for option in more)]),
            ("--search", kind, "--importance", value, *more))


NONE = ("none", ())
INT4 = [NONE, search("mse", PLAIN), search("mse", MAGNITUDE), search("mse", MAGNITUDE, "--signed"),
        search("mse", FILE), search("mse", FILE, "--signed")]
FP4 = [NONE, search("mse", PLAIN), search("mse", MAGNITUDE), search("mse", FILE)]
SEARCHES = {"int4": INT4, "nvfp4": FP4, "mxfp4": FP4, "fp8": [NONE], "mxfp8": [NONE],
            "int8": [NONE]}
# Codes chosen for the kernel that the checkpoint is packed for later.
MORE = {"w4a8-ct": [search("w4a8", MAGNITUDE), search("w4a8", MAGNITUDE, "--signed"),
                    search("w4a8", FILE), search("w4a8", FILE, "--signed")]}

# Formats with a parameter that counts here: its settings, each with every search.
SET = {"w4a16-ct": [(f"group={group}",) for group in ("128", "64", "32", "channel")]}

Variant = namedtuple("Variant", "format codec search options settings", defaults=((),))


def variants(formats, help_text):
    """(those that can be run, those that the program does not offer), by codec, the form of
    compressed-tensors first; `formats` as in `tilepack formats --json`. Not those that only move
    the source's numbers: nothing is lost in them."""
    able, unable = [], []
    written = [entry for entry in formats
               if not entry.get("input_only") and entry["codec"] != "float"]
    for entry in sorted(written, key=lambda e: (e["codec"], not e["name"].endswith("-ct"))):
        name, codec = entry["name"], entry["codec"]
        searches = SEARCHES[codec] + MORE.get(name, [])
        for settings in SET.get(name, [()]):
            for words, options in searches:
                offered = all(o in help_text for o in options if o.startswith("--"))
                (able if offered else unable).append(
                    Variant(name, codec, words, options, settings))
    return able, unable


def to_set(settings):
    return [word for setting in settings for word in ("--set", setting)]


class Program:
    """The command, and a directory for what it writes."""

    def __init__(self, path, directory, rounds):
        self.path, self.directory, self.rounds = path, directory, rounds
        self.packed = os.path.join(directory, "packed")
        self.plain = os.path.join(directory, "plain")

    def ask(self, *args):
        return subprocess.run([self.path, *args], stdout=subprocess.PIPE, check=True,
                              text=True).stdout

    def variants(self):
        return variants(json.loads(self.ask("formats", "--json"))["formats"],
                        self.ask("convert", "--help"))

    def bits(self, name, settings=()):
        """Bits for each weight of a matrix of 4096 x 4096, scales included."""
        path = os.path.join(self.directory, "square.safetensors")
        if not os.path.exists(path):
            save_file({"model.layers.0.mlp.up_proj.weight":
                       np.zeros((4096, 4096), dtype=ml_dtypes.bfloat16)}, path)
        unit, = json.loads(self.ask("plan", path, "--to", name, *to_set(settings), "--weights-only",
                                    "--json", "--quiet"))["units"]
        return 8 * sum(output["bytes"] for output in unit["outputs"]) / 4096**2

    def values(self, variant, subject, importance_file):
        """({name: float32[N,K]}, seconds of the conversion) of the subject's matrices."""
        options = [importance_file if o == "FILE" else o for o in variant.options]
        seconds = []
        for _ in range(self.rounds):
            shutil.rmtree(self.packed, ignore_errors=True)
            seconds.append(measure.run(
                self.path, "convert", subject.checkpoint, "-o", self.packed, "--to",
                variant.format, "--device", "cpu", "--quiet", "--weights-only",
                *to_set(variant.settings), *options).seconds)
        shutil.rmtree(self.plain, ignore_errors=True)
        self.ask("unpack", self.packed, "-o", self.plain, "--dtype", "f32", "--quiet")
        stored = {}
        for path in measure.files_of(self.plain):
            stored |= load_file(path)
        self.check_converted(subject)
        for directory in (self.packed, self.plain):
            shutil.rmtree(directory)
        return ({name: figures.crop(stored[name], like)
                 for name, like in subject.source.items()}, statistics.median(seconds))

    def takes(self, variant, subject):
        """Whether every matrix of the subject would be converted: some formats hold experts
        alone, or certain shapes."""
        plan = json.loads(self.ask("plan", subject.checkpoint, "--to", variant.format, "--json",
                                   "--quiet", "--weights-only", *to_set(variant.settings)))
        return not subject.source.keys() & {kept["name"] for kept in plan["kept"]}

    def check_converted(self, subject):
        """A matrix that was kept as it is would be measured without an error."""
        kept = set()
        for path in measure.files_of(self.packed):
            with open(path, "rb") as f:
                header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
            kept |= {n for n in subject.source if header.get(n, {}).get("dtype") in
                     ("F32", "BF16")}
        if kept:
            raise SystemExit(f"quality: {len(kept)} matrices were not converted: {min(kept)}")


def save_importance(path, subject, multiple):
    """The file that --importance takes: one F32 [K] for each matrix, K as in the checkpoint."""
    save_file({name: figures.pad(h, multiple) for name, h in subject.importance.items()},
              path)
