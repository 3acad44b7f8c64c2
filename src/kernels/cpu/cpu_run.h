/* Runs of consecutive values: largest magnitudes, and e4m3 codes.
 *
 * Values are finite where codes are made; blocks that hold NaN or infinity go to encode_slow().
 */
#ifndef TP_KERNELS_CPU_RUN_H
#define TP_KERNELS_CPU_RUN_H

#include "kernels/cpu/cpu_words.h"

/* Rounds finite floats to bf16, nearest even. */
V vu round_bf16(vu u)
{
    vu odd = v_and(v_srl(u, 16), v_set(1));
    return v_and(v_add(v_add(u, v_set(0x7FFF)), odd), v_set(0xFFFF0000u));
}

V unsigned value_bytes(enum tp_dtype dtype) { return dtype == TP_F32 ? 4 : 2; }

/* Words of four bytes of four rows, 16 bytes each, to rows of words: x[i] has word i of
 * every row. Its own inverse; acts within lanes. */
V void transpose_words(vu x[4])
{
    vu a = v_unpack_lo(x[0], x[2]), b = v_unpack_hi(x[0], x[2]);
    vu c = v_unpack_lo(x[1], x[3]), d = v_unpack_hi(x[1], x[3]);
    x[0] = v_unpack_lo(a, c);
    x[1] = v_unpack_hi(a, c);
    x[2] = v_unpack_lo(b, d);
    x[3] = v_unpack_hi(b, d);
}

/* VL values from place i on. */
V vf load_values(enum tp_dtype dtype, const void *p, uint64_t i)
{
    if (dtype == TP_F32)
        return f_load_f32((const float *)p + i);
    if (dtype == TP_BF16)
        return f_load_bf16((const uint16_t *)p + i);
    return f_load_f16((const uint16_t *)p + i);
}

#ifndef HAVE_LOAD_PART
/* The first `bytes` < VBYTES of a register, zeros behind. */
V vu v_load_part(const void *p, uint64_t bytes)
{
    vu x = v_set(0);
    memcpy(&x, p, bytes);
    return x;
}
#endif

/* A short run of bytes, and zeros up to a whole register: only such stores can be loaded
 * again at once. */
V void copy_run(void *to, const void *from, uint64_t bytes)
{
    uint64_t i = 0;
    for (; i + VBYTES <= bytes; i += VBYTES)
        v_store((uint8_t *)to + i, v_load((const uint8_t *)from + i));
    if (i < bytes)
        v_store((uint8_t *)to + i, v_load_part((const uint8_t *)from + i, bytes - i));
}

/* A magnitude in the dtype's own bits to bits of a float. */
V uint32_t widen(enum tp_dtype dtype, uint32_t m)
{
    if (dtype == TP_BF16)
        return m << 16;
    return dtype == TP_F16 ? tp_f32_bits(tp_f16_to_f32((uint16_t)m)) : m;
}

/* max(m, magnitudes of 128 values), lanes of the dtype's width. */
V vu amax_step128(enum tp_dtype dtype, vu m, const void *p)
{
    const uint8_t *b = p;
    UNROLL
    for (unsigned i = 0; i < 128 * value_bytes(dtype); i += VBYTES)
        m = dtype == TP_F32 ? v_max(m, v_and(v_load(b + i), v_set(0x7FFFFFFFu)))
                            : w_max(m, v_and(v_load(b + i), v_set(0x7FFF7FFFu)));
    return m;
}

V uint32_t amax_end(enum tp_dtype dtype, vu m)
{
    return widen(dtype, dtype == TP_F32 ? v_hmax(m) : w_hmax(m));
}

/* Largest magnitude of a run of any length, as bits of a float. */
V uint32_t run_amax(enum tp_dtype dtype, const void *p, uint64_t count)
{
    vu m = v_set(0);
    uint64_t i = 0, step = VBYTES / value_bytes(dtype);
    uint32_t amax;
    for (; i + step <= count; i += step) {
        vu x = v_load((const uint8_t *)p + i * value_bytes(dtype));
        m = dtype == TP_F32 ? v_max(m, v_and(x, v_set(0x7FFFFFFFu)))
                            : w_max(m, v_and(x, v_set(0x7FFF7FFFu)));
    }
    amax = amax_end(dtype, m);
    for (; i < count; i++) {
        uint32_t a = tp_abs_bits(tp_load_value(p, dtype, i));
        amax = a > amax ? a : amax;
    }
    return amax;
}

/* Values of VL e4m3 codes, exact. */
V vf f_of_e4m3(vu code)
{
    vu m = v_and(code, v_set(0x7F)), bits = v_sll(m, 20);
    vu normal = v_add(bits, v_set(120u << 23));
    /* 2^-6 (1 + m / 8) less 2^-6 */
    vu small = v_bits(f_sub(v_floats(v_add(bits, v_set(121u << 23))), f_set(0x1p-6f)));
    vu x = v_pick(m, v_set(7), normal, small);
    x = v_pick(m, v_set(0x7E), v_set(TP_F32_NAN_BITS), x);
    return v_floats(v_or(x, v_sll(v_and(code, v_set(0x80)), 24)));
}

/* Floats that are no NaN to e4m3: adding 2^(e+20) rounds to multiples of 2^(e-3), where e
 * is the exponent but at least that of the smallest normal code. */
V vu v_e4m3(vf y)
{
    vu u = v_bits(y), m = v_and(u, v_set(0x7FFFFFFFu)), c, big, t, r;
    m = v_min(m, v_set(0x43E00000u)); /* 448: saturate first, nothing rounds above */
    c = v_max(v_and(m, v_set(0x7F800000u)), v_set(0x3C800000u));
    big = v_add(c, v_set(20u << 23));
    t = v_bits(f_add(v_floats(m), v_floats(big)));
    r = v_add(v_sub(t, big), v_sub(v_srl(c, 20), v_set(121u << 3)));
    return v_or(r, v_and(v_srl(u, 24), v_set(0x80)));
}

/* Factors of e4m3_64(): the first 32 places have a, the others b. */
V void two_factors(vf f[64 / VL], float a, float b)
{
    for (unsigned i = 0; i < 64 / VL; i++)
        f[i] = f_set(i < 32 / VL ? a : b);
}

/* Largest magnitudes of up to 16 consecutive blocks of `size` values; places that
 * have no block become 0. */
V void block_amax16(enum tp_dtype dtype, const void *p, unsigned size, unsigned blocks,
                    uint32_t amax[16])
{
#ifdef HAVE_AMAX_BLOCKS
    if (blocks == 16) {
        for (unsigned i = 0; i < 16; i += VL)
            v_store(amax + i,
                    amax_blocks(dtype,
                                (const uint8_t *)p + (uint64_t)i * size * value_bytes(dtype),
                                size));
        return;
    }
#endif
    for (unsigned b = 0; b < 16; b++)
        amax[b] = b < blocks ? run_amax(dtype, (const uint8_t *)p +
                                                   (uint64_t)b * size * value_bytes(dtype), size)
                             : 0;
}

/* A block that the fast paths leave out, by the codec itself. Codes go to `codes`,
 * row after row. `values` has room for the block. */
NOINLINE void encode_slow(const struct tp_op *op, struct tp_args *args, uint64_t first,
                          uint64_t stride, uint64_t rows, uint64_t columns, float *values,
                          uint8_t *codes, uint32_t *scale)
{
    uint64_t i = 0;
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < columns; c++)
            values[i++] = tp_load_value(args->in[0], args->dtype, first + r * stride + c);
    if (tp_codec_encode(op, values, i, args->global, codes, scale))
        args->flags |= TP_SAW_NONFINITE;
}

/* 16 rows of 64 bytes, `pitch` apart, to columns of 16 bytes, `stride` apart. Four times:
 * interleave the first half of the registers with the second. */
NOINLINE void transpose16(const uint8_t *rows, uint64_t pitch, uint8_t *dst, uint64_t stride)
{
    for (unsigned c = 0; c < 64; c += VBYTES) {
        vu a[16], b[16];
        UNROLL
        for (unsigned i = 0; i < 16; i++)
            a[i] = v_load(rows + i * pitch + c);
        UNROLL
        for (unsigned round = 0; round < 2; round++) {
            UNROLL
            for (unsigned i = 0; i < 8; i++) {
                b[2 * i] = b_unpack_lo(a[i], a[i + 8]);
                b[2 * i + 1] = b_unpack_hi(a[i], a[i + 8]);
            }
            UNROLL
            for (unsigned i = 0; i < 8; i++) {
                a[2 * i] = b_unpack_lo(b[i], b[i + 8]);
                a[2 * i + 1] = b_unpack_hi(b[i], b[i + 8]);
            }
        }
        UNROLL
        for (unsigned i = 0; i < 16; i++)
            v_store_lanes(dst + (c + i) * stride, 16 * stride, a[i]);
    }
}

V vu v_canonical(vf x)
{
    vu u = v_bits(x);
    return v_pick(v_and(u, v_set(0x7FFFFFFFu)), v_set(TP_F32_INF_BITS), v_set(TP_F32_NAN_BITS), u);
}

#endif
