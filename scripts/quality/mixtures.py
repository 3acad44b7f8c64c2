"""Mixtures of two formats within a budget of bits: what `tilepack recipe` chooses, beside the line
between the two formats alone, random assignments and "worst SNR first".

A format is converted once. An assignment only puts the values of each set into the model, which
then predicts the evaluation in bfloat16; so does the source that it is compared with.
DIR/LABEL/mixtures.json keeps what was measured.
"""
import itertools
import json
import os
import re

import numpy as np
import torch

import conversions
import figures
from mixtures_page import BUDGETS, FILES, MIXTURES, RANDOM, WORST, key


def recipe(program, subject, mixture, bits, file):
    """What `recipe --json` says, or None where the budget is below the smaller format."""
    options = ["--importance", subject.file(file)] if file else []
    try:
        said = program.ask("recipe", subject.checkpoint, "--bits", str(bits), "--formats", ",".join(mixture), "-o",
                           os.path.join(program.directory, "recipe.json"), "--json", "--quiet", *options)
    except conversions.subprocess.CalledProcessError:
        return None
    return json.loads(said)


class Mixture:
    """Two formats of a subject, set by set: bytes[set] = (low, high)."""

    def __init__(self, program, subject, mixture):
        values = [program.values(conversions.Variant(name, *conversions.UNSAID), subject)[0] for name in mixture]
        self.program, self.subject, self.mixture = program, subject, mixture
        said = recipe(program, subject, mixture, 16, "")
        self.values = said["values"]
        self.names, self.bytes, self.snr = {}, {}, {}
        for one in said["sets"]:
            names = [n for n in subject.source if re.search(one["match"], n)]
            self.names[one["name"]] = names
            self.bytes[one["name"]] = [choice["bytes"] for choice in one["choices"]]
            self.snr[one["name"]] = np.mean([figures.snr_db(subject.source[n], values[0][n]) for n in names])
        self.stored = [{n: torch.from_numpy(v[n]).bfloat16() for n in subject.source} for v in values]

    def bits(self, high):
        return 8 * sum(size[name in high] for name, size in self.bytes.items()) / self.values

    def in_order(self, names, bits):
        """Sets become the larger format in that order, each that still fits."""
        high = set()
        for name in names:
            if self.bits(high | {name}) <= bits:
                high.add(name)
        return high

    def chosen(self, bits):
        """(label, sets in the larger format)"""
        for file, label in FILES.items():
            said = recipe(self.program, self.subject, self.mixture, bits, file)
            yield label, {one["name"] for one in said["sets"] if one["format"] == self.mixture[1]}
        yield WORST, self.in_order(sorted(self.snr, key=self.snr.get), bits)

    def random(self, bits):
        for i in range(RANDOM):
            order = np.random.default_rng(i).permutation(sorted(self.names))
            yield f"random {i}", self.in_order(list(order), bits)

    def put(self, high):
        for name, parts in self.names.items():
            for part in parts:
                self.subject.linears[part].weight.data = self.stored[name in high][part]


def predictions(model, tokens):
    """Log-probabilities of what follows each token, a window after the other."""
    with torch.no_grad():
        for window in tokens:
            hidden = model.base_model(window[None], use_cache=False).last_hidden_state[0, :-1]
            yield torch.log_softmax(model.get_output_embeddings()(hidden).float(), -1)


def divergence(reference, model, tokens):
    total = [(r.exp() * (r - p)).sum(-1) for r, p in zip(reference, predictions(model, tokens))]
    return float(torch.cat(total).double().mean())


def measure(program, subject, path, say):
    """Adds what is not in the file of that path."""
    rows = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            rows = json.load(f)

    def add(mixture, key, high):
        if key not in rows:
            mixture.put(high)
            rows[key] = {"bits": mixture.bits(high), "kl": divergence(reference, subject.model, subject.tokens)}
            with open(path, "w", encoding="utf-8") as f:
                json.dump(rows, f, indent=1)
            say(f"{subject.label}: {key}: {rows[key]['bits']:.3f} bits, KL {rows[key]['kl']:.4f}")

    for file in FILES:
        subject.file(file)
    mixtures = [Mixture(program, subject, mixture) for mixture in MIXTURES]
    subject.model.to(torch.bfloat16)
    reference = list(predictions(subject.model, subject.tokens))
    for mixture in mixtures:
        at = " + ".join(mixture.mixture)
        for i, name in enumerate(mixture.mixture):
            add(mixture, f"{at}: {name}", set(mixture.names) if i else set())
    for assignments in (Mixture.chosen, Mixture.random):
        for mixture, bits in itertools.product(mixtures, BUDGETS):
            if bits > mixture.bits(set()):
                for label, high in assignments(mixture, bits):
                    add(mixture, key(mixture.mixture, bits, label), high)
