"""Error feedback once more, in numpy, written from section 14.7 of formats/README.md.

Beside refsearch, whose scales it takes; like that it shares nothing with the tool. Weights come in
as float32 [N, K], h as float32 [K], v as float32 [K, r]; results are codes and the bits of scales,
as from refsearch's functions of the same codecs.
"""
import numpy as np

import refquant as rq
import refsearch as rs
from refquant import E2M1, E4M3, F32, bits_of, from_bits, quiet
from stfile import bf16_to_f32

F64 = np.float64
MOST = np.finfo(F32).max


@quiet
def prepare(h, v):
    """(order [K], g [K,r] and v [K,r] in that order, d f32 [K] by column of W)."""
    k, r = v.shape
    order = np.argsort(-h, kind="stable")
    total = F64(0)
    for x in h:
        total += F64(x)
    damp = total / k * 30 / 1000
    own = np.zeros(k, F64)
    for a in range(r):
        own += v[:, a].astype(F64) * v[:, a].astype(F64)
    c = np.maximum(h.astype(F64) - own, h.astype(F64) / 1024) + damp
    c[c == 0] = 1
    m = np.eye(r)
    g, weight = np.empty((k, r), F32), np.empty(k, F32)
    for i in range(k - 1, -1, -1):
        x = v[order[i]].astype(F64)
        q = np.zeros(r)
        for b in range(r):
            q += m[:, b] * x[b]
        d = c[order[i]]
        for a in range(r):
            d += x[a] * q[a]
        t = q / d
        g[i] = t.astype(F32)
        upper = np.triu(q[:, None] * t[None, :])
        m = m - (upper + np.triu(upper, 1).T)
        weight[order[i]] = min(F32(d), MOST) if d > 0 else 0
    return order, g, v[order].astype(F32), weight


@quiet
def feed(x, prepared, live, encode):
    """encode(k, y) -> (codes, values) of column k. Codes [N,K]; those of blocks that are not live
    (live bool [N,K]) are left at 255."""
    order, g, v, _ = prepared
    z = np.zeros((v.shape[1], len(x)), F32)
    codes = np.full(x.shape, 255, np.uint8)
    for i, k in enumerate(order):
        y = x[:, k].copy()
        for a in range(len(z)):
            y = y + z[a] * g[i, a]
        y = np.where(np.isfinite(y), y, x[:, k])
        found, value = encode(k, y)
        codes[:, k] = np.where(live[:, k], found, 255)
        e = np.where(live[:, k], x[:, k] - value, F32(0))
        z = z + e[None, :] * v[i][:, None]
    return codes


def padded(x, size):
    """Zeros behind the last column, up to whole blocks: they change neither scales nor errors."""
    pad = -x.shape[-1] % size
    return np.concatenate([x, np.zeros(x.shape[:-1] + (pad,), x.dtype)], -1) if pad else x


def finish(codes, plain):
    return np.where(codes == 255, plain, codes)


def columns(blocks, size, k):
    return np.repeat(blocks, size, axis=-1)[..., :k]


@quiet
def int4_mse(x, h, v, quotient="fp32", signed=False, group=128, scales="bf16"):
    k = x.shape[1]
    ready = prepare(h, v)
    plain, scale = rs.int4_mse(padded(x, group), quotient, signed, padded(ready[3], group), group,
                               scales)
    to_bits, value_of, _ = rq.INT_SCALES[scales]
    amax = rs.amax_of(rs.blocks_of(padded(x, group), group))
    live = rs.live_blocks(amax)
    if scales == "f16":
        live &= (amax >= 0x38800000) & (amax < 0x48800000)
    s = columns(value_of(scale), group, k)

    def encode(j, y):
        q = y / s[:, j]
        if quotient == "bf16":
            q = value_of(to_bits(q))
        q = np.rint(np.minimum(np.maximum(q, F32(-8)), F32(7)))
        return (q + 8).astype(np.uint8), q * s[:, j]
    return finish(feed(x, ready, columns(live, group, k), encode), plain[:, :k]), scale


@quiet
def int4_w4a8(x, h, v, quotient="fp32", signed=False, rule="cpu"):
    """The codes are those of what the W4A8 kernel computes."""
    k = x.shape[1]
    ready = prepare(h, v)
    plain, scale = rs.int4_w4a8(padded(x, 128), quotient, signed, padded(ready[3], 128), rule)
    amax = rs.amax_of(rs.blocks_of(padded(x, 128), 128))
    g, channel = rq.channel_scale(scale[None], rule)
    g, channel = g[0].T, channel[0, :, 0]
    reciprocal = F32(1) / channel
    a = from_bits(amax) * reciprocal[:, None]
    alive = (rs.live_blocks(amax) & rs.live_blocks(amax.max(axis=-1))[:, None] &
             (rq.to_e4m3(a / F32(8 if signed else 7.5)) > 0))
    e = np.where(alive, rs.exponent(bits_of(a)), 0)
    negative = (g & 0x80) != 0
    values = rs.multiples(np.where(alive, g & 0x7F, 8), e)

    def encode(j, y):
        b = j // 128
        scaled = rs.times_power(y * reciprocal, 11 - e[:, b])
        ints = np.clip(np.rint(scaled), F32(-16384), F32(16384)).astype(np.int64)
        ints = np.where(negative[:, b], -ints, ints)
        codes = rs.nearest_code(ints[:, None], values[:, b])[:, 0]
        q = codes.astype(F32) - F32(8)
        w = E4M3[rq.to_e4m3(E4M3[g[:, b]] * np.abs(q))]
        return codes, np.where(q < 0, -w, w) * channel
    return finish(feed(x, ready, columns(alive, 128, k), encode), plain[:, :k]), scale


@quiet
def nvfp4(x, h, v, g, rule="ct"):
    k, g = x.shape[1], F32(g)
    ready = prepare(h, v)
    plain, scale = rs.nvfp4(padded(x, 16), g, rule, importance=padded(ready[3], 16))
    live = columns(rs.live_blocks(rs.amax_of(rs.blocks_of(padded(x, 16), 16))), 16, k)
    t = columns(E4M3[scale], 16, k)

    def encode(j, y):
        s = t[:, j]
        u = y / (s / g) if rule == "ct" else y * (F32(1) / g / s) if rule == "torchao" else \
            y / (s * g)
        codes = rq.to_e2m1(u)
        if rule == "modelopt":
            codes = np.where(y == 0, np.uint8(0), codes)
        return codes, E2M1[codes] * (s / g if rule == "ct" else s * g)
    return finish(feed(x, ready, live, encode), plain[:, :k]), scale


@quiet
def mxfp4_mse(x, h, v, rule="even"):
    k = x.shape[1]
    ready = prepare(h, v)
    plain, scale = rs.mxfp4_mse(padded(x, 32), rule, padded(ready[3], 32))
    live = columns(rs.live_blocks(rs.amax_of(rs.blocks_of(padded(x, 32), 32))), 32, k)
    s = columns(scale, 32, k)

    def encode(j, y):
        codes = rq.to_e2m1(y * rq.mx_reciprocal(s[:, j]))
        return codes, E2M1[codes] * rq.e8m0_value(s[:, j])
    return finish(feed(x, ready, live, encode), plain[:, :k]), scale
