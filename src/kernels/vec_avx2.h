/* AVX2 (with F16C): the vector operations that cpu_*.inc are written in; see
 * vec_avx512.h for what each means.
 */
#ifndef TP_KERNELS_VEC_AVX2_H
#define TP_KERNELS_VEC_AVX2_H

#include "kernels/vec_common.h"

#include <immintrin.h>

enum { VL = 8, VBYTES = 32, LANES = 2 };
typedef __m256i vu;
typedef __m256 vf;

V vu v_set(uint32_t x) { return _mm256_set1_epi32((int)x); }
V vu v_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
V void v_store(void *p, vu a) { _mm256_storeu_si256((__m256i *)p, a); }
V vf v_floats(vu a) { return _mm256_castsi256_ps(a); }
V vu v_bits(vf a) { return _mm256_castps_si256(a); }
V vu v_and(vu a, vu b) { return _mm256_and_si256(a, b); }
V vu v_or(vu a, vu b) { return _mm256_or_si256(a, b); }
V vu v_add(vu a, vu b) { return _mm256_add_epi32(a, b); }
V vu v_sub(vu a, vu b) { return _mm256_sub_epi32(a, b); }
V vu v_max(vu a, vu b) { return _mm256_max_epi32(a, b); }
V vu v_min(vu a, vu b) { return _mm256_min_epi32(a, b); }
V vu v_srl(vu a, unsigned n) { return _mm256_srli_epi32(a, (int)n); }
V vu v_sll(vu a, unsigned n) { return _mm256_slli_epi32(a, (int)n); }
V vu v_pick(vu a, vu b, vu x, vu y)
{
    return _mm256_blendv_epi8(y, x, _mm256_cmpgt_epi32(a, b));
}
V bool v_any_gt(vu a, vu b) { return _mm256_movemask_epi8(_mm256_cmpgt_epi32(a, b)) != 0; }
V uint32_t v_hmax(vu a)
{
    __m128i m = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4E));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0xB1));
    return (uint32_t)_mm_cvtsi128_si32(m);
}

V vf f_set(float x) { return _mm256_set1_ps(x); }
V vf f_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
V vf f_div(vf a, vf b) { return _mm256_div_ps(a, b); }
V vf f_add(vf a, vf b) { return _mm256_add_ps(a, b); }
V vf f_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
V vf f_min(vf a, vf b) { return _mm256_min_ps(a, b); }

V vf f_load_f32(const void *p) { return _mm256_loadu_ps(p); }
V vf f_load_bf16(const void *p)
{
    __m128i h = _mm_loadu_si128((const __m128i *)p);
    return v_floats(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}
V vf f_load_f16(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
V vu v_load_u8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
/* Low words of the lanes, in order, in the low half. */
V __m128i v_words(vu a)
{
    a = _mm256_packus_epi32(v_and(a, v_set(0xFFFF)), v_and(a, v_set(0xFFFF)));
    return _mm256_castsi256_si128(_mm256_permute4x64_epi64(a, 0x08));
}
V void v_store_u16(uint16_t *p, vu a) { _mm_storeu_si128((__m128i *)p, v_words(a)); }
V void v_store_u8(uint8_t *p, vu a)
{
    __m128i w = v_words(v_and(a, v_set(0xFF)));
    _mm_storel_epi64((__m128i *)p, _mm_packus_epi16(w, w));
}

V vu w_max(vu a, vu b) { return _mm256_max_epu16(a, b); }
V uint32_t w_hmax(vu a)
{
    __m128i m = _mm_max_epu16(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    m = _mm_minpos_epu16(_mm_xor_si128(m, _mm_set1_epi16(-1)));
    return 0xFFFFu & ~(uint32_t)_mm_cvtsi128_si32(m);
}

V vu b_table(const uint8_t table[16])
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
}
V vu b_lookup(vu table, vu index) { return _mm256_shuffle_epi8(table, index); }
V vu b_unpack_lo(vu a, vu b) { return _mm256_unpacklo_epi8(a, b); }
V vu b_unpack_hi(vu a, vu b) { return _mm256_unpackhi_epi8(a, b); }
V vu w_unpack_lo(vu a, vu b) { return _mm256_unpacklo_epi16(a, b); }
V vu w_unpack_hi(vu a, vu b) { return _mm256_unpackhi_epi16(a, b); }
V vu v_unpack_lo(vu a, vu b) { return _mm256_unpacklo_epi32(a, b); }
V vu v_unpack_hi(vu a, vu b) { return _mm256_unpackhi_epi32(a, b); }
V void v_store_lanes(uint8_t *p, uint64_t stride, vu a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(a));
    _mm_storeu_si128((__m128i *)(p + stride), _mm256_extracti128_si256(a, 1));
}
V vu v_load_lanes(const uint8_t *p, uint64_t stride)
{
    return _mm256_set_m128i(_mm_loadu_si128((const __m128i *)(p + stride)),
                            _mm_loadu_si128((const __m128i *)p));
}

V vu v_load_nibbles(const uint8_t *p)
{
    int bytes;
    __m256i x;
    memcpy(&bytes, p, 4);
    x = _mm256_cvtepu8_epi64(_mm_cvtsi32_si128(bytes));
    return v_and(_mm256_or_si256(x, _mm256_slli_epi64(x, 28)), v_set(15));
}
struct table16 {
    vu low, high;
};
V struct table16 v_table16(const uint32_t entry[16])
{
    return (struct table16){v_load(entry), v_load(entry + 8)};
}
V vu v_lookup16(const struct table16 *table, vu index)
{
    vu low = _mm256_permutevar8x32_epi32(table->low, index);
    vu high = _mm256_permutevar8x32_epi32(table->high, index);
    return v_pick(index, v_set(7), high, low);
}

V void v_store_nibbles(uint8_t *p, const vu code[32 / VL])
{
    __m256i a = _mm256_packus_epi32(code[0], code[1]), b = _mm256_packus_epi32(code[2], code[3]);
    __m256i bytes = _mm256_packus_epi16(a, b); /* dwords 0 2 4 6 | 1 3 5 7 of the 32 bytes */
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    bytes = _mm256_maddubs_epi16(bytes, _mm256_set1_epi16(0x1001));
    bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(bytes, bytes), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(bytes));
}

#endif
