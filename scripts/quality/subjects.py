"""The two models that are quantized, each with the task that shows what it lost.

A Subject has
    label, checkpoint    the directory that is converted; its matrices are padded
    config, source       config.json, and {name: float32[N,K]} of the matrices, not padded
    importance           {name: E[x_k^2]} of their inputs over the calibration text
    measure(values)      figures of the same matrices with other values
Work is spread over threads by window or sentence; numpy's BLAS should have one of its own.
Figures do not depend on the number of threads.
"""
import json
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from safetensors.numpy import load_file
from tokenizers import Tokenizer

import bert
import figures
import llama
import smollm2

MULTIPLE = 128  # of N and K, which every format of linear layers takes
WINDOW = 320    # tokens; eight of them in 2,560
HERE = os.path.dirname(os.path.abspath(__file__))


def text(name):
    with open(os.path.join(HERE, name + ".txt"), encoding="utf-8") as f:
        return figures.paragraphs(f.read())


class Collector:
    """Sums of the squares of what matrices are multiplied with."""

    def __init__(self):
        self.sums, self.counts = {}, {}

    def __call__(self, name, x):
        self.add(name, np.einsum("mk,mk->k", x, x, dtype=np.float64), len(x))

    def add(self, name, squares, count):
        self.sums[name] = self.sums.get(name, 0) + squares
        self.counts[name] = self.counts.get(name, 0) + count

    def means(self):
        return {n: (self.sums[n] / self.counts[n]).astype(np.float32) for n in self.sums}


class Subject:
    def __init__(self, label, checkpoint, config, source):
        self.label, self.checkpoint, self.config = label, checkpoint, config
        self.source, self.importance = source, {}
        self.pool = ThreadPoolExecutor(len(os.sched_getaffinity(0)))

    def collect(self, run, inputs):
        """Sets the importance; run(input, observe) is the forward pass. Sums are added in
        the order of the inputs."""
        def of(one):
            part = Collector()
            run(one, part)
            return part

        total = Collector()
        for part in self.pool.map(of, inputs):
            for name, squares in part.sums.items():
                total.add(name, squares, part.counts[name])
        self.importance = total.means()

    def weight_figures(self, values):
        """Signal to noise of the matrices in dB: mean, least, and mean weighted by importance."""
        def of(name):
            return (figures.snr_db(self.source[name], values[name]),
                    figures.snr_db(self.source[name], values[name], self.importance[name]))

        plain, weighted = np.array(list(self.pool.map(of, self.source))).T
        return {"snr": plain.mean(), "snr_least": plain.min(), "snr_weighted": weighted.mean()}


class LanguageModel(Subject):
    """Perplexity, and divergence from the source's predictions, of each next token."""

    def __init__(self, gguf_path, directory):
        self.gguf, self.plain = gguf_path, os.path.join(directory, "smollm2")
        padded = os.path.join(directory, "smollm2-padded")
        config, tensors, tokenizer = smollm2.prepare(gguf_path, self.plain, padded, MULTIPLE)
        super().__init__("SmolLM2-135M", padded, config,
                         {name: tensors[name] for name in llama.linear_names(config)})
        self.model = llama.Llama(config, tensors)
        self.tokens, calibration = (
            figures.windows(tokenizer.encode("\n\n".join(text(name))).ids, WINDOW)
            for name in ("evaluation", "calibration"))
        self.collect(lambda w, observe: self.model.hidden(w[None], self.source, observe),
                     calibration)
        self.calibration_tokens = calibration.size
        self.reference = list(self.pool.map(self.predictions(self.source), self.tokens))

    def predictions(self, values):
        """Log-probabilities [window - 1, vocabulary] of one window."""
        def run(window):
            hidden = self.model.hidden(window[None], values)[0, :-1]
            return figures.log_softmax(self.model.logits(hidden))
        return run

    def measure(self, values):
        predict = self.predictions(values)

        def of(i):
            changed = predict(self.tokens[i])
            return (figures.divergence(self.reference[i], changed),
                    figures.surprise(changed, self.tokens[i, 1:]))

        kl, surprise = (np.concatenate(parts)
                        for parts in zip(*self.pool.map(of, range(len(self.tokens)))))
        return self.weight_figures(values) | {
            "perplexity": figures.perplexity(surprise), "kl": kl.mean(),
            "kl_error": figures.standard_error(kl), "positions": len(kl)}


class SentenceModel(Subject):
    """1 - cosine between the embeddings of each sentence before and after."""

    def __init__(self, checkpoint):
        with open(os.path.join(checkpoint, "config.json"), encoding="utf-8") as f:
            config = json.load(f)
        tensors = load_file(os.path.join(checkpoint, "model.safetensors"))
        super().__init__("MiniLM-L6", checkpoint, config,
                         {name: tensors[name] for name in bert.linear_names(config)})
        self.model = bert.Bert(config, tensors)
        tokenizer = Tokenizer.from_file(os.path.join(checkpoint, "tokenizer.json"))
        tokenizer.no_padding()
        self.sentences, calibration = (
            [np.array(tokenizer.encode(s).ids) for p in text(name) for s in sentences(p)]
            for name in ("evaluation", "calibration"))
        self.collect(lambda s, observe: self.model.sentence(s, self.source, observe), calibration)
        self.reference = self.embed(self.source)

    def embed(self, values):
        return np.stack(list(self.pool.map(lambda s: self.model.sentence(s, values),
                                           self.sentences)))

    def measure(self, values):
        distance = figures.cosine_distance(self.reference, self.embed(values))
        return self.weight_figures(values) | {
            "distance": distance.mean(), "distance_error": figures.standard_error(distance)}


def sentences(paragraph):
    return [part.strip(" .") + "." for part in paragraph.split(". ")]
