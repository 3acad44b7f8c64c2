/* bf16 to e4m3 with a power-of-two scale for every column, and the transposition of
 * the codes: the AVX-512 part of cpu_nwise.inc.
 *
 * Two rows share a register from the start (codes of one in the low bytes of the
 * words, of the other in the high bytes), so that transposing begins with words.
 * Invariant: the same codes as tp_e4m3_of(), for finite values and scales >= 12.
 */
#ifndef TP_KERNELS_NWISE_AVX512_H
#define TP_KERNELS_NWISE_AVX512_H

#include "kernels/vec_avx512.h"

#define HAVE_NWISE_BF16

/* Codes of two rows of 32 columns. `bias` as in struct words64. */
V __m512i nwise_pair(const uint8_t *first, const uint8_t *second, __m512i bias, bool saturate)
{
    const __m512i one = _mm512_set1_epi16(1), last = _mm512_set1_epi16(0x10);
    __m512i h0 = v_load(first), h1 = v_load(second);
    __m512i a0 = v_and(h0, v_set(0x7FFF7FFFu)), a1 = v_and(h1, v_set(0x7FFF7FFFu));
    __m512i t0 = _mm512_subs_epu16(a0, bias), t1 = _mm512_subs_epu16(a1, bias), w;
    t0 = _mm512_mask_add_epi16(t0, _mm512_test_epi16_mask(h0, last), t0, one);
    t1 = _mm512_mask_add_epi16(t1, _mm512_test_epi16_mask(h1, last), t1, one);
    if (saturate) {
        t0 = _mm512_min_epu16(t0, _mm512_set1_epi16(0x7EF));
        t1 = _mm512_min_epu16(t1, _mm512_set1_epi16(0x7EF));
    }
    t0 = _mm512_srli_epi16(t0, 4);
    w = _mm512_ternarylogic_epi32(t0, _mm512_slli_epi16(t1, 4), _mm512_set1_epi16(0x7F00), 0xF8);
    if (__builtin_expect(_mm512_testn_epi8_mask(w, _mm512_set1_epi8(0x78)) != 0, 0)) {
        /* Zeros or subnormals among the codes. */
        __m512i adjust = _mm512_add_epi16(bias, _mm512_set1_epi16(7));
        __m512i zero = _mm512_setzero_si512();
        t0 = w_subnormal(a0, zero, t0, adjust);
        t1 = w_subnormal(a1, zero, _mm512_srli_epi16(t1, 4), adjust);
        w = _mm512_or_si512(t0, _mm512_slli_epi16(t1, 8));
    }
    w = _mm512_ternarylogic_epi32(w, _mm512_srli_epi16(h0, 8), _mm512_set1_epi16(0x80), 0xF8);
    return _mm512_ternarylogic_epi32(w, h1, _mm512_set1_epi16((short)0x8000), 0xF8);
}

/* 16 rows x 32 columns to 8 registers, one every `step` bytes of `out`: lane l of
 * register x holds the 16 codes of column 8 l + x. Asks for the rows of `ahead`. */
V void nwise_half(const uint8_t *p, uint64_t stride, const uint8_t *ahead, __m512i bias,
                  bool saturate, uint8_t *out, uint64_t step)
{
    __m512i a[8], b[8];
    UNROLL
    for (unsigned i = 0; i < 8; i++) {
        v_prefetch_far(ahead + 2 * i * stride);
        v_prefetch_far(ahead + (2 * i + 1) * stride);
        a[i] = nwise_pair(p + 2 * i * stride, p + (2 * i + 1) * stride, bias, saturate);
    }
    UNROLL
    for (unsigned i = 0; i < 4; i++) {
        b[2 * i] = w_unpack_lo(a[i], a[i + 4]);
        b[2 * i + 1] = w_unpack_hi(a[i], a[i + 4]);
    }
    UNROLL
    for (unsigned i = 0; i < 4; i++) {
        a[2 * i] = w_unpack_lo(b[i], b[i + 4]);
        a[2 * i + 1] = w_unpack_hi(b[i], b[i + 4]);
    }
    UNROLL
    for (unsigned i = 0; i < 4; i++) {
        b[2 * i] = w_unpack_lo(a[i], a[i + 4]);
        b[2 * i + 1] = w_unpack_hi(a[i], a[i + 4]);
    }
    UNROLL
    for (unsigned i = 0; i < 8; i++)
        v_store(out + i * step, b[i]);
}

/* Four registers of one x (64 rows) to 64 bytes of each of their four columns. */
V void nwise_columns(const uint8_t *in, uint8_t *q, uint64_t stride)
{
    __m512i a = v_load(in), b = v_load(in + 64), c = v_load(in + 128), d = v_load(in + 192);
    __m512i ab = _mm512_shuffle_i32x4(a, b, 0x44), cd = _mm512_shuffle_i32x4(c, d, 0x44);
    __m512i ef = _mm512_shuffle_i32x4(a, b, 0xEE), gh = _mm512_shuffle_i32x4(c, d, 0xEE);
    v_store(q, _mm512_shuffle_i32x4(ab, cd, 0x88));
    v_store(q + 8 * stride, _mm512_shuffle_i32x4(ab, cd, 0xDD));
    v_store(q + 16 * stride, _mm512_shuffle_i32x4(ef, gh, 0x88));
    v_store(q + 24 * stride, _mm512_shuffle_i32x4(ef, gh, 0xDD));
}

#endif
