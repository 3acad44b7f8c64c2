"""The arithmetic of `make quality`: padding, signal to noise, perplexity and divergence.

Pure functions of arrays; sums are formed in float64. Nothing here reads a file or knows a
model. A matrix is W[N,K]; logits are [positions, vocabulary].
"""
import math

import numpy as np


# ---- padding ----------------------------------------------------------------------------

def pad_columns(values, multiple):
    """The last dimension filled with zeros up to a multiple; the array itself if it is one."""
    missing = -values.shape[-1] % multiple
    if not missing:
        return values
    return np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)])


def pad(values, multiple):
    """Every dimension filled with zeros up to a multiple; the array itself if all are."""
    missing = [-size % multiple for size in values.shape]
    return np.pad(values, [(0, more) for more in missing]) if any(missing) else values


def crop(values, like):
    """What was made of an array of the shape of `like`, without the padding."""
    if values.ndim != like.ndim or any(n < m for n, m in zip(values.shape, like.shape)):
        raise ValueError(f"{values.shape} is no padded form of {like.shape}")
    return values[tuple(slice(size) for size in like.shape)]


# ---- weights ----------------------------------------------------------------------------

def snr_db(source, values, column_weights=None):
    """10 log10 of the squares of the source over the squares of the error; infinite without
    an error. With column weights E[x_k^2] each square of column k counts so many times: the
    error of the layer's output, as far as the inputs are not correlated."""
    source = source.astype(np.float64)
    error = source - values
    weights = 1.0 if column_weights is None else column_weights.astype(np.float64)
    noise = float((error * error * weights).sum())
    signal = float((source * source * weights).sum())
    return 10 * math.log10(signal / noise) if noise else math.inf


# ---- outputs ----------------------------------------------------------------------------

def log_softmax(logits):
    """Of each row, in float64."""
    wide = logits.astype(np.float64)
    wide -= wide.max(axis=-1, keepdims=True)
    wide -= np.log(np.exp(wide).sum(axis=-1, keepdims=True))
    return wide


def divergence(reference, changed):
    """KL(reference || changed) of each row of log-probabilities, in nats."""
    return (np.exp(reference) * (reference - changed)).sum(axis=-1)


def surprise(log_probabilities, targets):
    """-log of the probability of each row's target, in nats."""
    return -np.take_along_axis(log_probabilities, targets[:, None], axis=-1)[:, 0]


def perplexity(surprises):
    return math.exp(np.mean(surprises, dtype=np.float64))


def standard_error(values):
    return float(np.std(values, ddof=1, dtype=np.float64) / math.sqrt(len(values)))


def cosine_distance(a, b):
    """1 - cosine of the rows of two matrices."""
    a, b = a.astype(np.float64), b.astype(np.float64)
    return 1 - (a * b).sum(-1) / (np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1))


# ---- text -------------------------------------------------------------------------------

def paragraphs(text):
    """Paragraphs are apart by an empty line; the line ends inside them are blanks."""
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]


def windows(tokens, length):
    """[windows, length]: as many whole ones as there are; what is left over is not used."""
    count = len(tokens) // length
    return np.array(tokens[:count * length], dtype=np.int64).reshape(count, length)
