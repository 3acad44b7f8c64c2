"""The scale search once more, in numpy, written from section 14 of formats/README.md.

Beside refquant.py, whose conversions it uses; like that it shares nothing with the tool.
Weights come in as float32 [.., N, K]; results are codes and the bits of scales, as from
refquant's functions of the same codecs. Errors are summed as integers of 64 bits.
oracle_selfcheck.py proves it against the golden data.

importance: None, "magnitude", or h as float32 [K] (or [.., K], broadcast over rows).
"""
import numpy as np

import refquant as rq
from refquant import E2M1, E4M3, F32, bits_of, from_bits, quiet
from stfile import bf16_to_f32, f32_to_bf16

LEAST = 0x0D800000
FLOOR = F32(1) / F32(229376)
NO_ERROR = np.iinfo(np.int64).max


# ---- integers --------------------------------------------------------------------

def blocks_of(values, size):
    """[.., N, K] -> [.., N, K/size, size]; K is a multiple."""
    values = np.ascontiguousarray(values, dtype=F32)
    return values.reshape(values.shape[:-1] + (values.shape[-1] // size, size))


def amax_of(x):
    return (bits_of(x) & np.uint32(0x7FFFFFFF)).max(axis=-1)


def live_blocks(amax):
    return (amax >= LEAST) & (amax < 0x7F800000)


def exponent(bits):
    return (bits >> np.uint32(23)).astype(np.int64) - 127


def times_power(values, power):
    """values * 2^power, exact or rounded once, as one float32 operation."""
    return values * from_bits(((power + 127) << 23).astype(np.uint32))


def integers(y, e, live):
    scaled = times_power(y, (11 - np.where(live, e, 0))[..., None])
    return np.where(live[..., None], np.rint(scaled), F32(0)).astype(np.int64)


def root(ratio):
    return np.maximum(np.rint(F32(15) * np.sqrt(ratio)), F32(1)).astype(np.int64)


def roots(x, importance, size):
    """Root weights of integer blocks x [.., G, size]; 1 where there is no importance."""
    if importance is None:
        return np.ones_like(x)
    if isinstance(importance, str):
        square = x * x
        w = square + square.sum(axis=-1, keepdims=True) // size
        most = np.maximum(w.max(axis=-1, keepdims=True), 1)
        return root(w.astype(F32) / most.astype(F32))
    h = blocks_of(importance, size)
    most = h.max(axis=-1, keepdims=True)
    tiny = most < F32(2.0 ** -100)
    return np.broadcast_to(np.where(tiny, 1, root(h / np.where(tiny, F32(1), most))), x.shape)


def errors(x, weight, values):
    """Sum over each block of (weight * distance to the nearest of `values` [.., V])^2."""
    nearest = np.full(x.shape, NO_ERROR)
    for v in range(values.shape[-1]):
        nearest = np.minimum(nearest, np.abs(x - values[..., v, None]))
    return ((weight * nearest) ** 2).sum(axis=-1)


def whole(values):
    """Numbers that the text says are integers."""
    out = values.astype(np.int64)
    if (out != values).any():
        raise ValueError("a candidate's value is no integer")
    return out


def flipped(x, signed, live):
    size = bits_of(x) & np.uint32(0x7FFFFFFF)
    negative = np.signbit(x)
    up, down = (np.where(m, size, 0).max(axis=-1) for m in (~negative, negative))
    return live & (up > down) & bool(signed)


class Best:
    """The first candidate of the least error, for each block."""

    def __init__(self, start):
        self.scale, self.error = start.copy(), np.full(start.shape, NO_ERROR)

    def offer(self, scale, error, possible):
        better = possible & (error < self.error)
        self.scale = np.where(better, scale, self.scale)
        self.error = np.where(better, error, self.error)


# ---- int4 ------------------------------------------------------------------------

def shrunk(amax, signed, thousandths, scales="bf16"):
    """Bits of am / d, or of am * (c / (1000 d)), as a number of the type of the scales."""
    d = F32(8 if signed else 7.5)
    to_bits = rq.INT_SCALES[scales][0]
    if thousandths is None:
        return to_bits(from_bits(amax) / d)
    return to_bits(from_bits(amax) * (F32(thousandths) / (F32(1000) * d)))


@quiet
def int4_mse(values, quotient="fp32", signed=False, importance=None, group=128, scales="bf16"):
    """(codes q+8 uint8, scale bits [.., K/group])."""
    x = blocks_of(values, group)
    amax = amax_of(x)
    live = live_blocks(amax)
    if scales == "f16":
        live &= (amax >= 0x38800000) & (amax < 0x48800000)
    _, value_of, _ = rq.INT_SCALES[scales]
    safe = np.where(live, amax, np.uint32(0x3F800000))
    e = exponent(safe)
    flip = flipped(x, signed, live)
    ints = integers(x, e, live) * np.where(flip, -1, 1)[..., None]
    weight = roots(ints, importance, group)
    plain_codes, plain_scale = rq.integers(values, 4, quotient, group, scales)
    best = Best(plain_scale)
    for thousandths in [None, 1030] + list(range(970, 579, -30)):
        scale = shrunk(safe, signed, thousandths, scales)
        step = whole(np.rint(times_power(value_of(scale), 11 - e)))
        best.offer(scale, errors(ints, weight, step[..., None] * np.arange(-8, 8)), live)
    scale = np.where(flip, best.scale | 0x8000, best.scale).astype(np.uint16)
    q = x / value_of(scale)[..., None]
    if quotient == "bf16":
        q = value_of(rq.INT_SCALES[scales][0](q))
    q = np.rint(np.minimum(np.maximum(q, F32(-8)), F32(7)))
    codes = np.where(live[..., None], q + 8, 8).astype(np.uint8).reshape(values.shape)
    return np.where(np.repeat(live, group, axis=-1), codes, plain_codes), scale


def multiples(t, e):
    """Values of the codes 0, 1..7, -1..-7, -8 for group scales t (bytes), [.., 16]."""
    m = np.arange(9).astype(F32)
    size = E4M3[rq.to_e4m3(E4M3[t][..., None] * m)]
    size = whole(times_power(size, (11 - e)[..., None]))
    return np.concatenate([size[..., :8], -size[..., 1:]], axis=-1)


Q_OF = np.array(list(range(8)) + list(range(-1, -9, -1)))


def nearest_code(x, values):
    """q + 8 of the nearest value; of two the smaller |q|, which comes first here."""
    order = np.argsort(np.abs(Q_OF), kind="stable")
    distance = np.abs(x[..., None] - values[..., None, order])
    return (Q_OF[order][distance.argmin(axis=-1)] + 8).astype(np.uint8)


class Channel:
    """The channel scale for one scale of the largest groups; arrays over rows [.., N]."""

    def __init__(self, top_amax, signed, thousandths, rule):
        self.top = shrunk(top_amax, signed, thousandths)
        s = bf16_to_f32(self.top)
        quotient = s * from_bits(0x3B124925) if rule == "gpu" else s / F32(448)
        self.floor = quotient <= FLOOR
        self.scale = np.maximum(quotient, FLOOR) * F32(8)
        self.reciprocal = F32(1) / self.scale


class Fit:
    """All groups of all rows with one channel scale: t (0 where dead), e, errors, integers."""

    def __init__(self, x, amax, channel, signed, importance):
        is_top = np.arange(x.shape[-2]) == amax.argmax(axis=-1)[..., None]
        a = from_bits(amax) * channel.reciprocal[..., None]
        t = np.minimum(rq.to_e4m3(a / F32(8 if signed else 7.5)), 0x66).astype(np.int64)
        self.alive = live_blocks(amax) & (t > 0)
        self.e = np.where(self.alive, exponent(bits_of(a)), 0)
        ints = integers(x * channel.reciprocal[..., None, None], self.e, self.alive)
        self.flip = flipped(x, signed, self.alive)
        self.ints = np.where(self.flip[..., None], -ints, ints)
        weight = roots(self.ints, importance, x.shape[-1])
        pinned = is_top & ~channel.floor[..., None]
        best, spare = Best(np.zeros_like(t)), np.where(self.alive, t, 8)
        for step in range(4):
            candidate = np.where(pinned, 0x66, t - step)
            possible = self.alive & (candidate > 0) & ~(pinned & (step > 0))
            values = multiples(np.where(possible, candidate, spare), self.e)
            best.offer(candidate, errors(self.ints, weight, values), possible)
        self.t = best.scale
        self.error = np.where(self.alive, best.error, 0)

    def cost(self, channel):
        most = np.where(self.alive, self.e, -1000).max(axis=-1)
        most = np.where(self.alive.any(axis=-1), most, 0)
        shift = np.minimum(2 * (most[..., None] - self.e), 63)
        total = np.where(self.alive, self.error >> np.maximum(shift, 0), 0).sum(axis=-1)
        chan = channel.scale.astype(np.float64)
        return total.astype(np.float64) * (chan * chan) * np.ldexp(1.0, (2 * most).astype(int))


@quiet
def int4_w4a8(values, quotient="fp32", signed=False, importance=None, rule="cpu"):
    """(codes q+8, scale bits bf16): what the W4A8 kernel computes is e4m3(q * g) * channel.

    rule: the channel rule of the output; "cpu" or "div" for one without a channel scale."""
    x = blocks_of(values, 128)
    amax = amax_of(x)
    top = amax.max(axis=-1)
    searched = live_blocks(top)
    safe = np.where(searched[..., None], amax, np.uint32(0x3F800000))
    x_safe = np.where(searched[..., None, None], x, F32(1))
    codes, scales = rq.int4(values, quotient)
    codes, scales = codes.reshape(x.shape), scales.copy()
    least = np.full(top.shape, np.inf)
    for r, thousandths in enumerate((None, 920, 840, 760)):
        channel = Channel(safe.max(axis=-1), signed, thousandths, rule)
        fit = Fit(x_safe, safe, channel, signed, importance)
        cost = fit.cost(channel)
        take = searched & ((cost < least) | (r == 0)) & ~(channel.floor & (r > 0))
        least = np.where(take, cost, least)
        made = nearest_code(fit.ints, multiples(np.where(fit.alive, fit.t, 8), fit.e))
        made = np.where(fit.alive[..., None], made, 8)
        scale = f32_to_bf16(E4M3[fit.t] * channel.scale[..., None])
        scale = np.where(fit.flip, scale | 0x8000, scale)
        scale = np.where(fit.alive, scale, channel.top[..., None])
        codes = np.where(take[..., None, None], made, codes).astype(np.uint8)
        scales = np.where(take[..., None], scale, scales).astype(np.uint16)
    return codes.reshape(values.shape), scales


# ---- fp4 -------------------------------------------------------------------------

def e2m1_values(unit):
    """unit * v for the numbers of e2m1; unit [..] is that of v = 1, a whole number of halves."""
    half = whole(unit * F32(0.5))
    return half[..., None] * whole(E2M1 * F32(2))


def nvfp4_plain(values, g, rule):
    """The scale bytes of 5.5."""
    am = from_bits(amax_of(blocks_of(values, 16)))
    if rule == "ct":
        t = rq.to_e4m3(rq.round_bf16(am / F32(6)) * g)
        return np.where(t == 0, np.uint8(0x20), t)
    if rule == "torchao":
        return rq.to_e4m3(np.maximum(am / F32(6) / g, F32(2.0 ** -6)))
    u = am / (F32(6) * g)
    return rq.to_e4m3(np.maximum(np.where(u == 0, F32(1), u), F32(2.0 ** -9)))


@quiet
def nvfp4(values, g, rule="ct", search=True, importance=None):
    """(codes 0..15, scale bytes) with the global scale g; without a search as 5.5 has it."""
    g = F32(g)
    x = blocks_of(values, 16)
    amax = amax_of(x)
    plain = nvfp4_plain(values, g, rule)
    factor = g if rule == "ct" else F32(1) / g
    a = from_bits(amax) * factor
    live = live_blocks(amax) & (a > 0) & (a < 4096) & (rq.to_e4m3(a / F32(6)) > 0) & search
    e = np.where(live, exponent(bits_of(a)), 0)
    ints = integers(x * factor, e, live)
    weight = roots(ints, importance, 16)
    best = Best(plain.astype(np.int64))
    for offset in (0, -1, 1, -2, 2, 3, 4, 5, 6):
        t = plain.astype(np.int64) + offset
        possible = live & (t >= 1) & (t <= 0x7E)
        unit = times_power(E4M3[np.where(possible, t, 0x40)], 11 - e)
        best.offer(t, errors(ints, weight, e2m1_values(unit)), possible)
    t = E4M3[best.scale][..., None]
    if rule == "ct":
        y = x / (t / g)
    else:
        y = x * (F32(1) / g / t) if rule == "torchao" else x / (t * g)
    codes = rq.to_e2m1(y)
    if rule == "modelopt":
        codes = np.where(x == 0, np.uint8(0), codes)
    return codes.reshape(values.shape), best.scale.astype(np.uint8)


@quiet
def mxfp4_mse(values, rule="even", importance=None):
    """(codes 0..15, scale bytes [.., K/32])."""
    x = blocks_of(values, 32)
    amax = amax_of(x)
    live = live_blocks(amax)
    rule = "even" if rule == "ct" else rule  # the same for e2m1
    plain = rq.mx_scale(from_bits(amax), rule, emax=2, inverse_max=1 / 6).astype(np.int64)
    e = np.where(live, exponent(amax), 0)
    ints = integers(x, e, live)
    weight = roots(ints, importance, 32)
    low = np.maximum((amax >> np.uint32(23)).astype(np.int64) - 2, 0)
    best = Best(plain)
    for b in (plain, low, low + 1):
        unit = np.ldexp(F32(1), np.where(live, b - 127 + 11 - e, 1).astype(int))
        best.offer(b, errors(ints, weight, e2m1_values(unit)), live)
    scale = best.scale.astype(np.uint8)
    return rq.to_e2m1(x * rq.mx_reciprocal(scale)[..., None]).reshape(values.shape), scale
