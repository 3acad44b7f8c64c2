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


def crop(values, like):
    """What was made of an array of the shape of `like`, without the padding."""
    if values.ndim != like.ndim or any(n < m for n, m in zip(values.shape, like.shape)):
        raise ValueError(f"{values.shape} is no padded form of {like.shape}")
    return values[tuple(slice(size) for size in like.shape)]


# ---- weights ----------------------------------------------------------------------------

def snr_db(source, values):
    """10 log10 of the squares of the source over the squares of the error; infinite without
    an error."""
    source = source.astype(np.float64)
    noise = float(((source - values) ** 2).sum())
    return 10 * math.log10(float((source * source).sum()) / noise) if noise else math.inf


# ---- outputs ----------------------------------------------------------------------------

def divergence(reference, changed):
    """KL(reference || changed) of each row of log-probabilities, in nats."""
    return np.array([np.dot(np.exp(row).astype(np.float64), (row - other).astype(np.float64))
                     for row, other in zip(reference, changed)])


def surprise(log_probabilities, targets):
    """-log of the probability of each row's target, in nats."""
    return -np.take_along_axis(log_probabilities, targets[:, None], axis=-1)[:, 0]


def perplexity(surprises):
    return math.exp(np.mean(surprises, dtype=np.float64))


def standard_error(values):
    return float(np.std(values, ddof=1, dtype=np.float64) / math.sqrt(len(values)))


# ---- text -------------------------------------------------------------------------------

def paragraphs(text):
    """Paragraphs are apart by an empty line; the line ends inside them are blanks."""
    return [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]


def windows(tokens, length):
    """[windows, length]: as many whole ones as there are; what is left over is not used."""
    count = len(tokens) // length
    return np.array(tokens[:count * length], dtype=np.int64).reshape(count, length)
