/* e4m3 codes times a scale to bf16: the AVX-512 part of cpu_decode.inc.
 *
 * Invariant: what the common form gives, for scales of less magnitude than DECODE_SCALES.
 */
#ifndef TP_KERNELS_DECODE_AVX512_H
#define TP_KERNELS_DECODE_AVX512_H

#include "kernels/vec_avx512.h"

#define HAVE_BF16_OF_E4M3

#define DECODE_SCALES (246u << 23) /* bits of 2^119: 256 times less is finite */

/* The high halves of floats that are no NaN, rounded to nearest even; in bits 16 to 31. */
V __m512i v_bf16_high(vf x)
{
    __m512i u = v_bits(x), odd = v_and(v_srl(u, 16), v_set(1));
    return v_add(v_add(u, v_set(0x7FFF)), odd);
}

/* 32 codes; s is 256 times their scale. As bits of an f16, a code without its sign stands
 * for a 256th of its value, subnormals too: only the exponents' biases differ. */
V void bf16_of_e4m3_32(const uint8_t *codes, uint16_t *out, vf s)
{
    const __m512i high_words = _mm512_set_epi16(
        63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21,
        19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    __m512i w = _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)codes));
    __m512i half = _mm512_slli_epi16(w, 7), sign = _mm512_slli_epi16(w, 8), x;
    __mmask32 nan = _mm512_testn_epi16_mask(_mm512_andnot_si512(w, v_set(0x007F007Fu)),
                                            v_set(0x007F007Fu));
    vf a, b;
    half = _mm512_ternarylogic_epi32(v_and(half, v_set(0x3F803F80u)), sign,
                                     v_set(0x80008000u), 0xF8);
    a = f_mul(_mm512_cvtph_ps(_mm512_castsi512_si256(half)), s);
    b = f_mul(_mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1)), s);
    x = _mm512_permutex2var_epi16(v_bf16_high(a), high_words, v_bf16_high(b));
    _mm512_storeu_si512(out, _mm512_mask_mov_epi16(x, nan, _mm512_set1_epi16(TP_BF16_NAN)));
}

#endif
