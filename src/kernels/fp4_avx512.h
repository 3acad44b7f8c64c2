/* Values to e2m1 codes, 64 at a time as words: the AVX-512 part of cpu_fp4.inc.
 *
 * Counted in quarters of a binade from 1/4 on, every bound between two codes is a whole
 * number, so that what a quotient or product rounds to is one look at a table.
 * Invariant: the same codes as tp_e2m1_of(), for finite values.
 */
#ifndef TP_KERNELS_FP4_AVX512_H
#define TP_KERNELS_FP4_AVX512_H

#include "kernels/vec_avx512.h"

#define HAVE_E2M1_64

enum {
    QUARTER_WORD = 0x3E80, /* bf16 1/4 */
    E2M1_ODD_BIT = 0x00400040, /* of both words: a quarter of a binade is 2^5, a half 2^6 */
    E2M1_BIAS = QUARTER_WORD - 0x1F, /* half way goes to even, */
    E2M1_BIAS_CLEAR = E2M1_BIAS - 1, /* or nothing is half way and all that is above goes up */
};

/* Codes of 0, of more than 1/4 and up to 6/16, ...: bounds 1/4, 3/4, 5/4, 7/4, 5/2, 7/2, 5. */
static const uint8_t e2m1_of_quarters[64] = {
    0, 1, 1, 1, 1, 1, 1, 2, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
};

V void b_store_e2m1(uint8_t *dst, const struct words64 *w, bool clear)
{
    __m512i r[2], codes, signs;
    UNROLL
    for (int i = 0; i < 2; i++) {
        r[i] = _mm512_subs_epu16(v_and(w->h[i], v_set(0x7FFF7FFFu)), w->bias[i]);
        if (!clear)
            r[i] = _mm512_mask_add_epi16(r[i], w->up[i], r[i], _mm512_set1_epi16(1));
        r[i] = _mm512_srli_epi16(r[i], 5);
    }
    codes = _mm512_min_epu8(_mm512_packus_epi16(r[0], r[1]), _mm512_set1_epi8(63));
    codes = _mm512_permutexvar_epi8(codes, v_load(e2m1_of_quarters));
    signs = _mm512_srli_epi16(_mm512_packs_epi16(w->h[0], w->h[1]), 4); /* 0 only for +0 */
    codes = _mm512_ternarylogic_epi32(codes, signs, _mm512_set1_epi8(8), 0xF8);
    codes = _mm512_permutexvar_epi8(w->order, codes);
    codes = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x1001));
    _mm256_storeu_si256((__m256i *)dst, _mm512_cvtepi16_epi8(codes));
}

/* 64 values times (or by) as many factors, see w_scaled(). */
V void e2m1_64(enum tp_dtype dtype, int how, bool unsigned_zero, const void *p, uint8_t *dst,
               const vf f[4])
{
    const bool clear = how == HOW_MUL_CLEAR;
    struct words64 w;
    w_scaled(&w, dtype, how, unsigned_zero, p, f, E2M1_ODD_BIT);
    w.bias[0] = w.bias[1] = _mm512_set1_epi16(clear ? E2M1_BIAS_CLEAR : E2M1_BIAS);
    b_store_e2m1(dst, &w, clear);
}

/* 64 bf16 values as two blocks times 2^(127-s), 12 <= s: only exponents move. */
V void e2m1_64_pow2(const void *p, uint8_t *dst, const uint8_t scale[2])
{
    struct words64 w;
    UNROLL
    for (int i = 0; i < 2; i++) {
        w.h[i] = _mm512_loadu_si512((const uint16_t *)p + 32 * i);
        w.up[i] = _mm512_test_epi16_mask(w.h[i], v_set(E2M1_ODD_BIT));
        w.bias[i] = _mm512_set1_epi16((short)(E2M1_BIAS + ((scale[i] - 127) << 7)));
    }
    w.order = v_load(order_words);
    b_store_e2m1(dst, &w, false);
}

/* Factors of 64 values in blocks of 16 or 32, in the order of w_scaled(). */
V void e2m1_factors(enum tp_dtype dtype, unsigned size, const float *factor, vf f[4])
{
    UNROLL
    for (unsigned i = 0; i < 4; i++)
        f[i] = f_set(factor[16 * i / size]);
    if (dtype == TP_BF16 && size == 16) { /* two blocks to a register */
        f[0] = f[1] = _mm512_mask_blend_ps(0xFF00, f[0], f[1]);
        f[2] = f[3] = _mm512_mask_blend_ps(0xFF00, f[2], f[3]);
    }
}

#endif
