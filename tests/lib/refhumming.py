"""What humming-kernels 0.1.19 makes of int4 and FP4 weights when vLLM 0.33 loads them, in numpy.

Index arithmetic written from the text of humming/include/humming/kernel/process.cuh (where a code
goes: 206-267, nibbles of a word: 8-52, words of a row: 283-322) and humming/transform.py (padding:
177-205, scales 514-527, zero points 530-568, bias 571). vLLM pads N to 256 and K to 128
(quantization/utils/humming/moe.py:411, linear.py:141). No tile of a kernel's schedule takes part.
"""
import numpy as np

import refquant as rq

ROWS, COLUMNS = 256, 128  # what vLLM pads to


def padded(array, n, k, value=0):
    """[E,N,K] with `value` behind its rows and columns, up to n and k."""
    rows, columns = array.shape[1:]
    return np.pad(array, ((0, 0), (0, n - rows), (0, k - columns)), constant_values=value)


def offsets(n, k, activation_bits, packed_k):
    """The nibble at which the code of each (n,k) lies, [n,k]: of one expert, sizes padded."""
    a, row, col = activation_bits, np.arange(n)[:, None], np.arange(k)
    each = 32 // a  # codes of a thread in 8x8, 8x16 of one tile
    i, j = row % 64 // 8, col % 64 // (128 // a)
    lane = row % 8 * 4 + col % (128 // a) // each
    place = j // 2
    for size, at in ((16 // a, i * 8 // (a * 4)), (a // 4, i * 8 % (a * 4) // 16),
                     *((2, at) for at in ((j % 2, i % 2) if packed_k else (i % 2, j % 2))),
                     (each, col % each)):
        place = place * size + at
    word, inside = place // 8, place % 8
    nibble = inside % each * (8 // each) + inside // each  # the order in which a kernel widens them
    tile, word = word // (64 // a), word % (64 // a)
    half, register = word // 4, word % 4
    if packed_k:
        region = row // 64 * 4 + half * 2 + register // 2
        at = col // 64 * (8 * n) + region * 128 + lane * 4 + tile * 2 + register % 2
    else:
        block = col // 64 * (a // 4) + tile
        at = block * (256 // a * n // 8) + row // 64 * (64 * 32 // a)
        at = at + half * 128 + lane * 4 + register
    return at * 8 + nibble


def codes(nibbles, activation_bits=16, packed_k=False):
    """Nibbles [E,N,K] -> I32 [E, rows of tiles, words], as repack_weight returns them."""
    e, n, k = nibbles.shape
    flat = np.empty((e, n * k), dtype=np.uint8)
    flat[:, offsets(n, k, activation_bits, packed_k)] = nibbles
    tall = k // (64 if packed_k else 256 // activation_bits)
    return rq.pack_nibbles(flat).reshape(e, tall, -1)


def for_fp8(nibbles):
    """Codes of int4 as the kernel with FP8 activations widens them (process.cuh:242-254)."""
    return np.where(nibbles >= 8, nibbles - 8, 15 - nibbles).astype(np.uint8)


def permuted(rows, by):
    """[E,N,J] -> [E,J,N], where each run of `by` rows is put in the order of the threads."""
    own = np.arange(by).reshape((8, 8) if by == 64 else (4, 4, 2))
    own = own.T if by == 64 else own.transpose(1, 0, 2)
    lying = rows.swapaxes(1, 2)
    return np.ascontiguousarray(
        lying.reshape(lying.shape[:2] + (-1, by))[..., own.reshape(-1)].reshape(lying.shape))


def scales(stored, n, groups, fill=0):
    return permuted(padded(stored, n, groups, fill), 64)


def zeros(zero, n, groups):
    """Zero points [E,N,J] -> I32 [E,J,N/8]."""
    return rq.pack_nibbles(scales(zero, n, groups))


def bias(values, n):
    """[E,N] -> [E,n]"""
    return permuted(padded(values[:, :, None], n, 1), 32)[:, 0]
