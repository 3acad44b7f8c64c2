"""What tilepack is asked for: the formats and searches of the tables, and every format once.

A conversion is timed, and its values are what `unpack` gives: what the reader of the format
computes with.
"""
import json
import os
import shutil
import subprocess
from collections import namedtuple

import numpy as np
from safetensors import safe_open
from safetensors.numpy import save_file

import figures
import measure
from results import digest

Variant = namedtuple("Variant", "format search options settings", defaults=((),))


def search(words, importance, *more):
    """`importance` is an option's value, or the name of a file of the subject's."""
    return (", ".join([words, *(option.lstrip("-") for option in more)]),
            ("--search", "mse", "--importance", importance, *more))


NONE = ("none", ("--search", "none"))
UNSAID = ("unsaid", ())  # the format's default
PLAIN, MAGNITUDE = search("plain", "none"), search("magnitude", "magnitude")
IMPORTANCE, FEEDBACK = search("importance", "importance"), search("feedback", "moments")


def signed(one):
    return one[0] + ", signed", (*one[1], "--signed")


# What the tables compare, on every model.
COMPARED = {
    "w4a16-ct": [NONE, MAGNITUDE, signed(MAGNITUDE), IMPORTANCE, signed(IMPORTANCE), FEEDBACK,
                 signed(FEEDBACK)],
    "w4a8-cutlass": [NONE, MAGNITUDE, signed(MAGNITUDE), signed(IMPORTANCE), signed(FEEDBACK)],
    "nvfp4-ct": [NONE, PLAIN, IMPORTANCE, FEEDBACK],
    "mxfp4-ct": [NONE, PLAIN, IMPORTANCE, FEEDBACK],
    "fp8-dynamic-ct": [NONE], "fp8-deepseek": [NONE], "mxfp8-ct": [NONE], "int8-ct": [NONE],
    "w8a16-machete": [NONE]}
# Formats with a parameter that counts here, and its settings.
SET = {"w4a16-ct": [("group=128",), ("group=64",), ("group=32",), ("group=channel",)]}


def compared():
    return [Variant(name, *one) for name, searches in COMPARED.items() for one in searches]


def everything(formats):
    """Every format that quantizes, without a search, the forms of compressed-tensors first;
    `formats` as in `tilepack formats --json`. Not those that only move the source's numbers:
    nothing is lost in them."""
    in_order = sorted(formats, key=lambda entry: not entry["name"].endswith("-ct"))
    return [Variant(entry["name"], *NONE, settings) for entry in in_order
            if not entry.get("input_only") and entry["codec"] != "float"
            for settings in SET.get(entry["name"], [()])]


def to_set(settings):
    return [word for setting in settings for word in ("--set", setting)]


class Program:
    """The command, and a directory for what it writes."""

    def __init__(self, path, directory):
        self.path, self.directory = path, directory
        self.packed = os.path.join(directory, "packed")
        self.plain = os.path.join(directory, "plain")

    def ask(self, *args):
        return subprocess.run([self.path, *args], stdout=subprocess.PIPE, check=True,
                              text=True).stdout

    def formats(self):
        return json.loads(self.ask("formats", "--json"))["formats"]

    def bits(self, name, settings=()):
        """Bits for each weight of a matrix of 4096 x 4096, scales included."""
        path = os.path.join(self.directory, "square.safetensors")
        if not os.path.exists(path):
            save_file({"model.layers.0.mlp.up_proj.weight":
                       np.zeros((4096, 4096), dtype=np.float16)}, path)
        unit, = json.loads(self.ask("plan", path, "--to", name, *to_set(settings), "--weights-only",
                                    "--json", "--quiet"))["units"]
        return 8 * sum(output["bytes"] for output in unit["outputs"]) / 4096**2

    def values(self, variant, subject, checkpoint=None):
        """({name: float32[N,K]}, processor seconds of the conversion) of the subject's matrices,
        or of a checkpoint of the same model that others have quantized."""
        options = [subject.file(o) if before == "--importance" else o
                   for before, o in zip(("", *variant.options), variant.options)]
        for directory in (self.packed, self.plain):
            shutil.rmtree(directory, ignore_errors=True)
        done = measure.run(self.path, "convert", checkpoint or subject.checkpoint, "-o",
                           self.packed, "--to", variant.format, "--device", "cpu", "--quiet",
                           "--weights-only", *to_set(variant.settings), *options)
        values = self.unpacked(self.packed, subject)
        self.check_converted(subject)
        shutil.rmtree(self.packed)
        return values, done.cpu

    def unpacked(self, checkpoint, subject):
        self.ask("unpack", checkpoint, "-o", self.plain, "--dtype", "f32", "--quiet")
        values = {}
        for path in measure.files_of(self.plain):
            with safe_open(path, "np") as f:
                values |= {name: figures.crop(f.get_tensor(name), subject.source[name])
                           for name in f.keys() if name in subject.source}
        shutil.rmtree(self.plain)
        return values

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


# ---- formats of the same values ---------------------------------------------------------

class Matrix:
    """A model of one matrix of random numbers."""

    def __init__(self, directory):
        name = "model.layers.0.mlp.up_proj.weight"
        values = np.random.default_rng(1).standard_normal((512, 512), dtype=np.float32) * 0.02
        self.source, self.file = {name: values}, str
        self.checkpoint = os.path.join(directory, "matrix.safetensors")
        save_file(self.source, self.checkpoint)


def same_values(program):
    """[(bits, formats that give the same values)] of the formats that take a matrix alone, without
    a search."""
    subject, groups = Matrix(program.directory), {}
    for v in everything(program.formats()):
        if program.takes(v, subject):
            groups.setdefault(digest(program.values(v, subject)[0]), []).append(v)
    return sorted((program.bits(vs[0].format, vs[0].settings),
                   [" ".join([v.format, *v.settings]) for v in vs]) for vs in groups.values())
