"""The quantizers and layouts once more, in numpy, written from their descriptions.

Shares nothing with the tool: no code, no table, no format file. Weights come in as
float32 (widened from bf16 or fp16, which is exact) in [N,K] or [E,N,K]; results are
the bits that a file holds. numpy's float32 operations are single correctly rounded
IEEE operations with subnormals, which is what the formats are defined with.
oracle_selfcheck.py proves these functions against the golden data.
"""
import numpy as np

from stfile import bf16_to_f32, f32_to_bf16

F32 = np.float32
NAN8 = 0x7F


def ceil_div(a, b):
    return -(-a // b)


def align(a, b):
    return ceil_div(a, b) * b


def bits_of(values):
    return np.ascontiguousarray(values, dtype=F32).view(np.uint32)


def from_bits(bits):
    return np.ascontiguousarray(bits, dtype=np.uint32).view(F32)


def round_bf16(values):
    return bf16_to_f32(f32_to_bf16(values))


def quiet(function):
    """Overflow and invalid operations are part of the definitions, not mistakes."""
    def wrapped(*args, **named):
        with np.errstate(all="ignore"):
            return function(*args, **named)
    wrapped.__doc__ = function.__doc__
    return wrapped


# ---- scalars -------------------------------------------------------------------

def e4m3_table():
    """Value of every e4m3fn byte."""
    code = np.arange(256)
    exponent, mantissa = (code >> 3) & 15, code & 7
    value = np.where(exponent == 0, mantissa * 2.0 ** -9,
                     (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    value[(code & 0x7F) == 0x7F] = np.nan
    return np.where(code & 0x80, -value, value).astype(F32)


E4M3 = e4m3_table()
_POSITIVE = E4M3[:0x7F].astype(np.float64)
_MIDDLE = (_POSITIVE[:-1] + _POSITIVE[1:]) / 2


def to_e4m3(values, saturate=True):
    """Nearest e4m3fn, ties to even; NaN -> 0x7F. By searching the table of values."""
    values = np.asarray(values, dtype=F32)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        size = np.abs(values.astype(np.float64))
    low = np.searchsorted(_MIDDLE, size, side="left")   # a tie goes to the lower code,
    high = np.searchsorted(_MIDDLE, size, side="right")  # or to the upper one:
    code = np.where(low & 1, high, low)                  # whichever is even
    if not saturate:
        code = np.where(size > 464, NAN8, code)
    code = code | (np.signbit(values).astype(np.int64) << 7)
    return np.where(np.isnan(values), NAN8, code).astype(np.uint8)


E2M1 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0., -.5, -1, -1.5, -2, -3, -4, -6], dtype=F32)


def to_e2m1(values):
    """Nearest e2m1 code 0..15, ties to even, saturating; the sign of zero is kept, NaN -> 7."""
    values = np.asarray(values, dtype=F32)
    a = np.abs(values)
    code = ((a > 0.25).astype(np.uint8) + (a >= 0.75) + (a > 1.25) + (a >= 1.75) + (a > 2.5)
            + (a >= 3.5) + (a > 5))
    code = (code | (np.signbit(values).astype(np.uint8) << 3)).astype(np.uint8)
    return np.where(np.isnan(values), np.uint8(7), code)


def ue8m0_ceil(values):
    """The power of two at or above, as float32; 2^-126 .. 2^127."""
    u = bits_of(values) & 0x7FFFFFFF
    e = (u >> 23).astype(np.int64) + ((u & 0x7FFFFF) != 0)
    return from_bits((np.clip(e, 1, 254) << 23).astype(np.uint32))


def e8m0_value(byte):
    byte = np.asarray(byte).astype(np.int64)
    value = np.ldexp(F32(1), (byte - 127).astype(np.int32)).astype(F32)
    return np.where(byte == 255, F32(np.nan), value)


# ---- blocks --------------------------------------------------------------------

def pad_to(values, bn, bk):
    n, k = values.shape[-2:]
    width = [(0, 0)] * (values.ndim - 2) + [(0, align(n, bn) - n), (0, align(k, bk) - k)]
    return np.pad(values, width)


def block_amax(values, bn, bk):
    """max |x| of every bn x bk block [.., N/bn, K/bk]; NaN wins, then infinity."""
    p = bits_of(pad_to(values, bn, bk)) & np.uint32(0x7FFFFFFF)
    n, k = p.shape[-2:]
    p = p.reshape(p.shape[:-2] + (n // bn, bn, k // bk, bk))
    return from_bits(p.max(axis=(-3, -1)))


def spread(blocks, bn, bk, n, k):
    """Every block's value at each of its elements, cut to [.., n, k]."""
    return np.repeat(np.repeat(blocks, bn, axis=-2), bk, axis=-1)[..., :n, :k]


# ---- int4 ----------------------------------------------------------------------

def f16_bits(values):
    return np.asarray(values, dtype=F32).astype(np.float16).view(np.uint16)


def f16_value(bits):
    return np.asarray(bits, dtype=np.uint16).view(np.float16).astype(F32)


# how the scales of integers are rounded and read, and what stands for a scale of zero
INT_SCALES = {"bf16": (f32_to_bf16, bf16_to_f32, 0x3C00), "f16": (f16_bits, f16_value, 0x1400)}


@quiet
def integers(values, bits, quotient="fp32", group=128, scales="bf16"):
    """(codes q + 2^(bits-1) [.., N, K] uint8, scale bits [.., N, K/group])."""
    n, k = values.shape[-2:]
    round_scale, value, eps = INT_SCALES[scales]
    half = 1 << bits - 1
    scale = round_scale(block_amax(values, 1, group) / F32(half - 0.5))
    scale = np.where(scale == 0, np.uint16(eps), scale)
    q = values / spread(value(scale), 1, group, n, k)
    if quotient == "bf16":
        q = value(round_scale(q))
    q = np.rint(np.minimum(np.maximum(q, F32(-half)), F32(half - 1)))
    return (q.astype(np.int64) + half).astype(np.uint8), scale


def int4(values, quotient="fp32", group=128):
    return integers(values, 4, quotient, group)


def pack_nibbles(codes):
    """Eight codes along K to one int32, the lowest k in the lowest bits."""
    c = codes.astype(np.uint32).reshape(codes.shape[:-1] + (codes.shape[-1] // 8, 8))
    word = np.zeros(c.shape[:-1], dtype=np.uint32)
    for i in range(8):
        word |= c[..., i] << np.uint32(4 * i)
    return word.view(np.int32)


def unpack_nibbles(words):
    w = np.ascontiguousarray(words).view(np.uint32)
    c = np.stack([(w >> np.uint32(4 * i)) & 15 for i in range(8)], axis=-1)
    return c.reshape(words.shape[:-1] + (words.shape[-1] * 8,)).astype(np.uint8)


def w4a8_encode(codes):
    """Codes q+8 -> the nibbles of the kernel: sign in bit 3, else index 8-|q|."""
    two = (codes ^ 8).astype(np.uint8)
    return np.where((two >= 1) & (two <= 7), 8 - two, two).astype(np.uint8)


def w4a8_reorder(nibbles):
    """[E,N,K] nibbles -> the int32 words [E,N,K/8] of the kernel's order."""
    e, n, k = nibbles.shape
    v = nibbles.reshape(e, n // 16, 2, 8, k // 32, 2, 4, 4)
    # e, n tile, n half, n row, k tile, k half, k quad, k  ->  kt, nt, row, quad, k half, n half, k
    v = v.transpose(0, 4, 1, 3, 6, 5, 2, 7).reshape(e, n, k)
    return pack_nibbles(v)


def w4a8_layout_words(e, n, k):
    return np.tile(np.array([n // 16, k // 32, 32 * n], dtype=np.int32), (e, 1))


@quiet
def channel_scale(scale_bits, how="gpu", zero_groups=None):
    """bf16 group scales [E,N,G] -> (e4m3 [E,G,N], channel fp32 [E,N,1]).

    how: gpu, cpu or div, the channel rule. zero_groups: None, or True where a group is all
    zero and is left out of the maximum."""
    if how not in ("gpu", "cpu", "div"):
        raise ValueError(f"there is no channel rule {how}")
    s = bf16_to_f32(scale_bits)
    size = np.abs(s)
    if zero_groups is not None:
        size = np.where(zero_groups, F32(0), size)
    amax = size.max(axis=-1, keepdims=True)
    part = amax * from_bits(0x3B124925) if how == "gpu" else amax / F32(448)
    sc = np.maximum(part, F32(1 / (448 * 512)))
    f = s / sc if how == "div" else s * (F32(1) / sc)
    f = to_e4m3(np.clip(f, F32(-448), F32(448)))
    g = to_e4m3(E4M3[f] / F32(8))
    return g.transpose(0, 2, 1), sc * F32(8)


@quiet
def group8(scales):
    """e4m3 bytes -> their multiples by -8 .. -1, eight bytes each."""
    factors = np.arange(-8, 0).astype(F32)
    out = to_e4m3(E4M3[scales][..., None] * factors)
    nan = (scales & 0x7F) == 0x7F
    return np.where(nan[..., None], np.uint8(NAN8), out)


def zero_groups(codes):
    return (codes.reshape(codes.shape[:-1] + (codes.shape[-1] // 128, 128)) == 8).all(axis=-1)


def w4a8_cutlass(codes, scale, how="gpu", zero="keep"):
    """Codes q+8 [E,N,K] and bf16 scales [E,N,G] -> the four tensors of the format."""
    e, n, k = codes.shape
    skip = zero_groups(codes) if zero == "skip" else None
    g, chan = channel_scale(scale, how, skip)
    return {"weight_packed": w4a8_reorder(w4a8_encode(codes)),
            "weight_layout": w4a8_layout_words(e, n, k),
            "weight_group_scale": group8(g), "weight_chan_scale": chan}


def w4a8_values(codes, group_scale8, chan):
    """What the kernel multiplies with: e4m3(q * g) * channel. [E,N,K] float32."""
    q = codes.astype(np.int64) - 8
    g8 = np.repeat(group_scale8.transpose(0, 2, 1, 3), 128, axis=2)  # [E,N,K,8]
    negative = E4M3[np.take_along_axis(g8, np.clip(8 - np.abs(q), 0, 7)[..., None], -1)[..., 0]]
    value = np.where(q < 0, negative, -negative)
    return np.where(q == 0, F32(0), value) * chan


# ---- fp8 -----------------------------------------------------------------------

@quiet
def fp8_block(values, variant="cuda", scale="fp32", bn=128, bk=128, saturate=True):
    """(codes [.., N, K], scale fp32 [.., N/bn, K/bk]) as DeepGEMM and DeepSeek define it."""
    n, k = values.shape[-2:]
    amax = np.maximum(block_amax(values, bn, bk), F32(1e-4))  # NaN stays NaN
    s = amax * F32(1 / 448) if variant in ("cuda", "seed-cuda") else amax / F32(448)
    if scale == "ue8m0":
        s = ue8m0_ceil(s)
    if variant == "div":
        y = values / spread(s, bn, bk, n, k)
    elif variant in ("seed", "seed-cuda"):
        y = values * spread(F32(1) / amax * F32(448), bn, bk, n, k)
    else:
        y = values * spread(F32(1) / s, bn, bk, n, k)
    return to_e4m3(y, saturate), s


@quiet
def fp8_ct(values, quotient="fp32", bn=128, bk=128):
    """(codes, scale bits bf16) as compressed-tensors' FP8_BLOCK, or of other blocks."""
    n, k = values.shape[-2:]
    s = f32_to_bf16(block_amax(values, bn, bk) / F32(448))
    s = np.where(s == 0, np.uint16(0x3C00), s)
    y = values / spread(bf16_to_f32(s), bn, bk, n, k)
    if quotient == "bf16":
        y = round_bf16(y)
    return to_e4m3(np.clip(y, F32(-448), F32(448))), s


@quiet
def fp8_dequant(codes, scale, bn=128, bk=128):
    return E4M3[codes] * spread(scale, bn, bk, *codes.shape[-2:])


def requant_ue8m0(codes, scale, through):
    """fp8 with fp32 scales -> fp8 with power-of-two scales, through f32 or bf16 values."""
    values = fp8_dequant(codes, scale)
    if through == "bf16":
        values = round_bf16(values)
    return fp8_block(values, "v2", "ue8m0")


def mn_aligned(sf):
    """[.., mn, sk] fp32 -> physical [.., sk, align(mn,4)], zero padding."""
    t = np.swapaxes(sf, -1, -2)
    extra = align(t.shape[-1], 4) - t.shape[-1]
    return np.pad(t, [(0, 0)] * (t.ndim - 1) + [(0, extra)])


def mn_packed4(sf_bytes):
    """[.., mn, sk] exponent bytes -> int32 [.., ceil(sk/4), align(mn,4)], zero padding."""
    sk = sf_bytes.shape[-1]
    pad = [(0, 0)] * (sf_bytes.ndim - 1) + [(0, align(sk, 4) - sk)]
    b = np.ascontiguousarray(np.pad(sf_bytes.astype(np.uint8), pad))
    return mn_aligned(b.view(np.int32))


def exponent_byte(scale):
    return (bits_of(scale) >> 23).astype(np.uint8)


def sm100_scales(scale, n):
    """fp32 powers of two [.., N/128, K/128] -> packed physical words for n rows."""
    rows = np.repeat(exponent_byte(scale), 128, axis=-2)[..., :n, :]
    return mn_packed4(rows)


# ---- mx ------------------------------------------------------------------------

@quiet
def mx_scale(amax, rule, emax=8, inverse_max=1 / 448):
    """e8m0 byte of blocks with that largest size. emax 8, 1/448: e4m3; 2, 1/6: e2m1."""
    ab = bits_of(amax).astype(np.int64) & 0x7FFFFFFF
    e = ab >> 23
    if rule == "rceil":
        b = bits_of(from_bits(ab.astype(np.uint32)) * F32(inverse_max)).astype(np.int64)
        e2, m = b >> 23, b & 0x7FFFFF
        up = np.where(e2 == 0, m > 0x400000, m != 0)
        return np.where(e2 == 255, 255, e2 + up).astype(np.uint8)
    if rule == "floor":
        return np.where(e == 255, 255, np.maximum(e - emax, 0)).astype(np.uint8)
    if rule == "ct":  # one binade up from 1.75 on
        e = (ab + (0x20 << 16)) >> 23
        return np.where((e >= 255) & (emax == 8), 127, np.clip(e - emax, 0, 254)).astype(np.uint8)
    if rule == "even":
        return np.where(e == 255, 255, np.maximum(((ab + (1 << 21)) >> 23) - emax, 0)) \
            .astype(np.uint8)
    if rule == "ceil":
        up = (ab & 0x7FFFFF) != 0
        return np.where(e == 255, 255, np.maximum(e + up - emax, 0)).astype(np.uint8)
    raise ValueError(rule)


def mx_reciprocal(scale):
    r = 254 - scale.astype(np.int64)
    bits = np.where(r == 0, 0x00400000, np.where(r < 0, 0x7FC00000, r << 23))
    return from_bits(bits.astype(np.uint32))


@quiet
def mxfp8(values, rule="rceil", bn=1, bk=32):
    """(codes [.., N, K], scale [.., N/bn, K/bk]) of bn x bk blocks; N, K are multiples."""
    n, k = values.shape[-2:]
    amax = block_amax(values, bn, bk)
    s = mx_scale(amax, rule)
    r = mx_reciprocal(s)
    if rule == "ct":  # from 1.75 * 2^127 on its scale is infinite, though stored as 127
        r = np.where(amax >= F32(1.75 * 2.0 ** 127), F32(0), r)
    codes = to_e4m3(values * spread(r, bn, bk, n, k))
    return np.where(spread(s, bn, bk, n, k) == 255, np.uint8(NAN8), codes), s


@quiet
def mxfp4(values, rule="floor"):
    """(codes 0..15 [N,K], scale [N,K/32]); rule ct is compressed-tensors'."""
    n, k = values.shape[-2:]
    s = mx_scale(block_amax(values, 1, 32), rule, emax=2, inverse_max=1 / 6)
    return to_e2m1(values * spread(mx_reciprocal(s), 1, 32, n, k)), s


@quiet
def nvfp4_ct(values_bf16):
    """compressed-tensors: (codes [N,K], e4m3 scale [N,K/16], global fp32 divisor)."""
    v = bf16_to_f32(values_bf16)
    n, k = v.shape
    g = round_bf16(round_bf16(F32(1) / np.abs(v).max()) * F32(2688))
    s = to_e4m3(round_bf16(block_amax(v, 1, 16) / F32(6)) * g)
    s = np.where(s == 0, np.uint8(0x20), s)
    return to_e2m1(v / spread(E4M3[s] / g, 1, 16, n, k)), s, g


@quiet
def nvfp4_torchao(values, g):
    """torchao with global multiplier g: (codes [N,K], e4m3 scale [N,K/16])."""
    n, k = values.shape
    s = block_amax(values, 1, 16) / F32(6) / F32(g)
    s = to_e4m3(np.clip(s, F32(2 ** -6), F32(448)))
    y = values * spread(F32(1) / F32(g) / E4M3[s], 1, 16, n, k)
    return to_e2m1(np.clip(y, F32(-6), F32(6))), s


def pack_pairs(codes):
    """Two 4-bit codes along K to a byte, the first in the low half."""
    return (codes[..., 0::2] | (codes[..., 1::2] << 4)).astype(np.uint8)


def tiles_128x4(scale):
    """[.., R, C] -> the 128x4 tiled order, flat per matrix, zero padding."""
    r, c = scale.shape[-2:]
    rows, cols = align(r, 128), align(c, 4)
    lead = scale.shape[:-2]
    p = np.pad(scale, [(0, 0)] * len(lead) + [(0, rows - r), (0, cols - c)])
    p = p.reshape(lead + (rows // 128, 4, 32, cols // 4, 4))
    d = len(lead)
    p = p.transpose(tuple(range(d)) + (d, d + 3, d + 2, d + 1, d + 4))
    return np.ascontiguousarray(p).reshape(lead + (rows * cols,))


def mx_nwise(values, rule, block="32x1"):
    """[E,N,K] -> (codes stored [E,K,N], tiled scales [E, R*C])."""
    codes, s = mxfp8(values, rule, 32, 32 if block == "32x32" else 1)
    if block == "32x32":
        s = np.repeat(s, 32, axis=-1)
    return codes.swapaxes(-1, -2), tiles_128x4(np.ascontiguousarray(s.swapaxes(-1, -2)))
