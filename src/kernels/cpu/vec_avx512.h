/* AVX-512 (F, BW, VL, VBMI, VBMI2, VNNI): the vector operations that the other files
 * are written in.
 *
 * A `vu` is one register of 32-bit lanes (or of words or bytes where a name says
 * w_ or b_), a `vf` the same of floats. What is faster here than in terms of the
 * common operations replaces it: HAVE_* macros tell the templates.
 */
#ifndef TP_KERNELS_VEC_AVX512_H
#define TP_KERNELS_VEC_AVX512_H

#include "kernels/cpu/vec_common.h"

#include <immintrin.h>

enum { VL = 16, VBYTES = 64 };
typedef __m512i vu;
typedef __m512 vf;

V vu v_set(uint32_t x) { return _mm512_set1_epi32((int)x); }
V vu v_load(const void *p) { return _mm512_loadu_si512(p); }
V void v_store(void *p, vu a) { _mm512_storeu_si512(p, a); }
V vf v_floats(vu a) { return _mm512_castsi512_ps(a); }
V vu v_bits(vf a) { return _mm512_castps_si512(a); }
V vu v_and(vu a, vu b) { return _mm512_and_si512(a, b); }
V vu v_or(vu a, vu b) { return _mm512_or_si512(a, b); }
V vu v_xor(vu a, vu b) { return _mm512_xor_si512(a, b); }
V vu v_or_and(vu a, vu b, vu c) { return _mm512_ternarylogic_epi32(a, b, c, 0xF8); }
V vu v_add(vu a, vu b) { return _mm512_add_epi32(a, b); }
V vu v_sub(vu a, vu b) { return _mm512_sub_epi32(a, b); }
V vu v_max(vu a, vu b) { return _mm512_max_epi32(a, b); } /* signed */
V vu v_min(vu a, vu b) { return _mm512_min_epi32(a, b); }
V vu v_srl(vu a, unsigned n) { return _mm512_srli_epi32(a, n); }
V vu v_sll(vu a, unsigned n) { return _mm512_slli_epi32(a, n); }
/* a > b ? x : y, by signed lanes */
V vu v_pick(vu a, vu b, vu x, vu y)
{
    return _mm512_mask_blend_epi32(_mm512_cmpgt_epi32_mask(a, b), y, x);
}
V bool v_any_gt(vu a, vu b) { return _mm512_cmpgt_epi32_mask(a, b) != 0; }
V uint32_t v_hmax(vu a) { return (uint32_t)_mm512_reduce_max_epi32(a); }

/* a in the lower half of the places, b in the upper. */
V vf f_lower_upper(vf a, vf b) { return _mm512_mask_blend_ps(0xFF00, a, b); }
V vf f_set(float x) { return _mm512_set1_ps(x); }
V vf f_mul(vf a, vf b) { return _mm512_mul_ps(a, b); }
V vf f_div(vf a, vf b) { return _mm512_div_ps(a, b); }
V vf f_add(vf a, vf b) { return _mm512_add_ps(a, b); }
V vf f_sub(vf a, vf b) { return _mm512_sub_ps(a, b); }
V vf f_min(vf a, vf b) { return _mm512_min_ps(a, b); }
V vf f_max(vf a, vf b) { return _mm512_max_ps(a, b); }

V vf f_sqrt(vf a) { return _mm512_sqrt_ps(a); }
/* About 1 / sqrt(a), wrong by 2^-14 of it; of 0, what is not finite. */
V vf f_inverse_root(vf a) { return _mm512_rsqrt14_ps(a); }
V vf f_of_ints(vu a) { return _mm512_cvtepi32_ps(a); }
V vu v_rint(vf a) { return _mm512_cvtps_epi32(a); } /* ties to even */

/* VL values, widened. */
V vf f_load_f32(const void *p) { return _mm512_loadu_ps(p); }
V vf f_load_bf16(const void *p)
{
    __m256i h = _mm256_loadu_si256((const __m256i *)p);
    return v_floats(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
V vf f_load_f16(const void *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
/* VL bytes as numbers; the low bytes or words of VL lanes. */
V vu v_load_u8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
V void v_store_u8(uint8_t *p, vu a)
{
    _mm_storeu_si128((__m128i *)p, _mm512_cvtepi32_epi8(a));
}
V void v_store_u16(uint16_t *p, vu a)
{
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi32_epi16(a));
}

/* Words. */
V vu w_max(vu a, vu b) { return _mm512_max_epu16(a, b); }
V uint32_t w_hmax(vu a)
{
    vu m = v_max(_mm512_srli_epi32(a, 16), v_and(a, v_set(0xFFFF)));
    return (uint32_t)_mm512_reduce_max_epi32(m);
}

V vu w_add(vu a, vu b) { return _mm512_add_epi16(a, b); }
V vu w_sub(vu a, vu b) { return _mm512_sub_epi16(a, b); }
V vu w_subs(vu a, vu b) { return _mm512_subs_epu16(a, b); } /* not below 0 */
V vu w_min(vu a, vu b) { return _mm512_min_epu16(a, b); }
V vu w_srl(vu a, unsigned n) { return _mm512_srli_epi16(a, n); }
V vu w_sll(vu a, unsigned n) { return _mm512_slli_epi16(a, n); }
V vu w_power(vu c) { return _mm512_sllv_epi16(_mm512_set1_epi16(1), c); } /* 2^c, c < 16 */
V vu w_srl_by(vu a, vu c) { return _mm512_srlv_epi16(a, c); } /* 0 < c < 16 */
/* Lanes to words with saturation: in every quarter of 128 bits those of a first. */
V vu w_pack_signed(vu a, vu b) { return _mm512_packs_epi32(a, b); }
V vu w_abs(vu a) { return _mm512_abs_epi16(a); }
V vu w_max_signed(vu a, vu b) { return _mm512_max_epi16(a, b); } /* signed */
V vu w_mul(vu a, vu b) { return _mm512_mullo_epi16(a, b); }
/* a0 b0 + a1 b1 of the two signed words of each lane. */
V vu w_dot(vu a, vu b) { return _mm512_madd_epi16(a, b); }
/* `sum` and w_dot(a, b). */
V vu w_dot_more(vu sum, vu a, vu b) { return _mm512_dpwssd_epi32(sum, a, b); }
V vu w_pick(vu a, vu b, vu x, vu y)
{
    return _mm512_mask_blend_epi16(_mm512_cmpgt_epi16_mask(a, b), y, x);
}
/* n, and one more for the words where a > b (signed) */
V vu w_count(vu n, vu a, vu b)
{
    return _mm512_mask_add_epi16(n, _mm512_cmpgt_epi16_mask(a, b), n, _mm512_set1_epi16(1));
}
/* 1 for the words where a & b is not 0, and adding that. */
typedef __mmask32 w_ones;
V w_ones w_any(vu a, vu b) { return _mm512_test_epi16_mask(a, b); }
V vu w_add_ones(vu a, w_ones ones)
{
    return _mm512_mask_add_epi16(a, ones, a, _mm512_set1_epi16(1));
}
/* High (low) words of the lanes of `even` in even places, those of `odd` in odd ones. */
V vu w_high(vu even, vu odd)
{
    return _mm512_mask_blend_epi16(0xAAAAAAAAu, _mm512_shrdi_epi32(even, odd, 16), odd);
}
V vu w_low(vu even, vu odd)
{
    return _mm512_mask_blend_epi16(0xAAAAAAAAu, even, _mm512_shrdi_epi32(even, odd, 16));
}
/* The sums of every fourth lane. */
V void v_store_sums(uint32_t sum[4], vu a)
{
    __m256i b = _mm256_add_epi32(_mm512_castsi512_si256(a), _mm512_extracti64x4_epi64(a, 1));
    __m128i c = _mm_add_epi32(_mm256_castsi256_si128(b), _mm256_extracti128_si256(b, 1));
    _mm_storeu_si128((__m128i *)sum, c);
}
/* Sums of 64 bits: of the two lanes of each, and of two registers. */
V vu d_pairs(vu a)
{
    return _mm512_add_epi64(_mm512_srli_epi64(a, 32),
                            _mm512_maskz_mov_epi32(0x5555, a));
}
V vu d_add(vu a, vu b) { return _mm512_add_epi64(a, b); }
/* The sums of a's even and odd places of 64 bits, then of b's. */
V void d_store_sums(uint64_t sum[4], vu a, vu b)
{
    __m512i c = d_add(_mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xEE));
    c = d_add(c, _mm512_shuffle_i64x2(c, c, 0xB1));
    c = _mm512_shuffle_i64x2(c, c, 0x08);
    _mm256_storeu_si256((__m256i *)sum, _mm512_castsi512_si256(c));
}
/* VBYTES / 2 bytes as words. */
V vu w_load_u8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)p));
}
/* The words in the lower (upper) half of the places as f16. */
V vf f_of_lower_f16(vu a) { return _mm512_cvtph_ps(_mm512_castsi512_si256(a)); }
V vf f_of_upper_f16(vu a) { return _mm512_cvtph_ps(_mm512_extracti64x4_epi64(a, 1)); }
/* High words of the lanes of a, then of those of b. */
V vu w_of_high(vu a, vu b)
{
    const __m512i high_words = _mm512_set_epi16(
        63, 61, 59, 57, 55, 53, 51, 49, 47, 45, 43, 41, 39, 37, 35, 33, 31, 29, 27, 25, 23, 21,
        19, 17, 15, 13, 11, 9, 7, 5, 3, 1);
    return _mm512_permutex2var_epi16(a, high_words, b);
}

/* Bytes; table operations and interleaving act within lanes of 128 bits. */
enum { LANES = 4 };
V vu b_table(const uint8_t table[16])
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table));
}
/* The lowest bytes of 16 lanes, and the second ones, as such tables. */
V void b_split_lanes(const vu x[16 / VL], vu *low, vu *high)
{
    *low = _mm512_broadcast_i32x4(_mm512_cvtepi32_epi8(x[0]));
    *high = _mm512_broadcast_i32x4(_mm512_cvtepi32_epi8(v_srl(x[0], 8)));
}
/* The sum of the lanes of 128 bits, in each of them. */
V vu b_sum_lanes(vu a)
{
    a = _mm512_add_epi8(a, _mm512_shuffle_i32x4(a, a, 0x4E));
    return _mm512_add_epi8(a, _mm512_shuffle_i32x4(a, a, 0xB1));
}
V vu b_lookup(vu table, vu index) { return _mm512_shuffle_epi8(table, index); }
V vu b_unpack_lo(vu a, vu b) { return _mm512_unpacklo_epi8(a, b); }
V vu b_unpack_hi(vu a, vu b) { return _mm512_unpackhi_epi8(a, b); }
V vu w_unpack_lo(vu a, vu b) { return _mm512_unpacklo_epi16(a, b); }
V vu w_unpack_hi(vu a, vu b) { return _mm512_unpackhi_epi16(a, b); }
V vu d_unpack_lo(vu a, vu b) { return _mm512_unpacklo_epi64(a, b); }
V vu d_unpack_hi(vu a, vu b) { return _mm512_unpackhi_epi64(a, b); }
V vu v_unpack_lo(vu a, vu b) { return _mm512_unpacklo_epi32(a, b); }
V vu v_unpack_hi(vu a, vu b) { return _mm512_unpackhi_epi32(a, b); }
/* Lane i goes to p + i * stride. */
V void v_store_lanes(uint8_t *p, uint64_t stride, vu a)
{
    _mm_storeu_si128((__m128i *)p, _mm512_castsi512_si128(a));
    _mm_storeu_si128((__m128i *)(p + stride), _mm512_extracti32x4_epi32(a, 1));
    _mm_storeu_si128((__m128i *)(p + 2 * stride), _mm512_extracti32x4_epi32(a, 2));
    _mm_storeu_si128((__m128i *)(p + 3 * stride), _mm512_extracti32x4_epi32(a, 3));
}
/* The bytes of a and b in turns, VBYTES of each. */
V void b_store_turns(uint8_t *p, vu a, vu b)
{
    vu low = b_unpack_lo(a, b), high = b_unpack_hi(a, b);
    v_store(p, _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high));
    v_store(p + 64,
            _mm512_permutex2var_epi64(low, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), high));
}
V vu v_load_lanes(const uint8_t *p, uint64_t stride)
{
    vu a = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)p));
    a = _mm512_inserti32x4(a, _mm_loadu_si128((const __m128i *)(p + stride)), 1);
    a = _mm512_inserti32x4(a, _mm_loadu_si128((const __m128i *)(p + 2 * stride)), 2);
    return _mm512_inserti32x4(a, _mm_loadu_si128((const __m128i *)(p + 3 * stride)), 3);
}
/* Lane i from or to p + at[i]. */
V vu v_load_each(const uint8_t *p, const uint64_t at[LANES])
{
    vu a = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(p + at[0])));
    a = _mm512_inserti32x4(a, _mm_loadu_si128((const __m128i *)(p + at[1])), 1);
    a = _mm512_inserti32x4(a, _mm_loadu_si128((const __m128i *)(p + at[2])), 2);
    return _mm512_inserti32x4(a, _mm_loadu_si128((const __m128i *)(p + at[3])), 3);
}
V void v_store_each(uint8_t *p, const uint64_t at[LANES], vu a)
{
    _mm_storeu_si128((__m128i *)(p + at[0]), _mm512_castsi512_si128(a));
    _mm_storeu_si128((__m128i *)(p + at[1]), _mm512_extracti32x4_epi32(a, 1));
    _mm_storeu_si128((__m128i *)(p + at[2]), _mm512_extracti32x4_epi32(a, 2));
    _mm_storeu_si128((__m128i *)(p + at[3]), _mm512_extracti32x4_epi32(a, 3));
}

/* Transposes lanes: x[i] gets lane i of every register. */
V void v_transpose_lanes(vu x[LANES])
{
    vu ab = _mm512_shuffle_i32x4(x[0], x[1], 0x44), cd = _mm512_shuffle_i32x4(x[2], x[3], 0x44);
    vu ef = _mm512_shuffle_i32x4(x[0], x[1], 0xEE), gh = _mm512_shuffle_i32x4(x[2], x[3], 0xEE);
    x[0] = _mm512_shuffle_i32x4(ab, cd, 0x88);
    x[1] = _mm512_shuffle_i32x4(ab, cd, 0xDD);
    x[2] = _mm512_shuffle_i32x4(ef, gh, 0x88);
    x[3] = _mm512_shuffle_i32x4(ef, gh, 0xDD);
}
V vu b_min(vu a, vu b) { return _mm512_min_epu8(a, b); }
V vu b_sub(vu a, vu b) { return _mm512_sub_epi8(a, b); }
/* n, and one more for the bytes where a > b (signed) */
V vu b_count(vu n, vu a, vu b)
{
    return _mm512_mask_add_epi8(n, _mm512_cmpgt_epi8_mask(a, b), n, _mm512_set1_epi8(1));
}
/* Words to bytes with saturation, those of a and b as b_in_order() expects them. */
V vu b_pack_unsigned(vu a, vu b) { return _mm512_packus_epi16(a, b); }
V vu b_pack_signed(vu a, vu b) { return _mm512_packs_epi16(a, b); }
/* Whether any byte of a is below 8 where that of b is not 0. */
V bool b_any_below8(vu a, vu b)
{
    __mmask64 small = _mm512_cmplt_epu8_mask(a, _mm512_set1_epi8(8));
    return _mm512_mask_test_epi8_mask(small, b, b) != 0;
}
/* Whether any byte has no bit of the mask. */
V bool b_any_without(vu a, vu mask) { return _mm512_testn_epi8_mask(a, mask) != 0; }
V vu b_lookup32(const uint8_t table[32], vu index)
{
    vu t = _mm512_broadcast_i64x4(_mm256_loadu_si256((const __m256i *)table));
    return _mm512_permutexvar_epi8(index, t);
}
/* Undoes the order of packed bytes: eight from each register in turns, and where words come
 * from two registers of 32-bit lanes (`halves`), those in turns too. */
V vu b_in_order(vu a, bool halves)
{
    static const uint8_t order[2][64] = {
        {0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23,
         32, 33, 34, 35, 36, 37, 38, 39, 48, 49, 50, 51, 52, 53, 54, 55,
         8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31,
         40, 41, 42, 43, 44, 45, 46, 47, 56, 57, 58, 59, 60, 61, 62, 63},
        {0, 2, 4, 6, 16, 18, 20, 22, 32, 34, 36, 38, 48, 50, 52, 54,
         1, 3, 5, 7, 17, 19, 21, 23, 33, 35, 37, 39, 49, 51, 53, 55,
         8, 10, 12, 14, 24, 26, 28, 30, 40, 42, 44, 46, 56, 58, 60, 62,
         9, 11, 13, 15, 25, 27, 29, 31, 41, 43, 45, 47, 57, 59, 61, 63},
    };
    return _mm512_permutexvar_epi8(v_load(order[halves]), a);
}
/* VBYTES codes in bytes to half as many, the first in the low nibble. */
V void b_store_pairs(uint8_t *p, vu codes)
{
    codes = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x1001));
    _mm256_storeu_si256((__m256i *)p, _mm512_cvtepi16_epi8(codes));
}

/* VL nibbles from VL / 2 bytes, low ones first, as numbers. */
V vu v_load_nibbles(const uint8_t *p)
{
    __m512i x = _mm512_cvtepu8_epi64(_mm_loadl_epi64((const __m128i *)p));
    return v_and(_mm512_or_si512(x, _mm512_slli_epi64(x, 28)), v_set(15));
}
/* A table of 16 lanes. */
struct table16 {
    vu entry;
};
V struct table16 v_table16(const uint32_t entry[16])
{
    return (struct table16){v_load(entry)};
}
V vu v_lookup16(const struct table16 *table, vu index)
{
    return _mm512_permutexvar_epi32(index, table->entry);
}

/* 32 codes in the low bytes of lanes, in order, to 16 bytes, the first in the low
 * nibble. */
V void v_store_nibbles(uint8_t *p, const vu code[32 / VL])
{
    __m256i bytes = _mm256_set_m128i(_mm512_cvtepi32_epi8(code[1]), _mm512_cvtepi32_epi8(code[0]));
    __m256i pairs = _mm256_maddubs_epi16(bytes, _mm256_set1_epi16(0x1001));
    _mm_storeu_si128((__m128i *)p, _mm256_cvtepi16_epi8(pairs));
}

/* ---- faster than the common form ---------------------------------------- */

#define HAVE_LOAD_PART
/* The first `bytes` < VBYTES of a register, zeros behind. */
V vu v_load_part(const void *p, uint64_t bytes)
{
    return _mm512_maskz_loadu_epi8((UINT64_C(1) << bytes) - 1, p);
}

#define HAVE_B_E2M1
V vu v_mul(vu a, vu b) { return _mm512_mullo_epi32(a, b); }
/* `sum` and the products of unsigned with signed bytes; what each lane has of that, times a
 * power of two. */
V vu b_dot(vu sum, vu a, vu b) { return _mm512_dpbusd_epi32(sum, a, b); }
V vu b_dot_lanes(vu sum, unsigned power) { return v_sll(sum, power); }
/* The e2m1 value, in half steps of 0 1 2 3 4 6 8 12, next to k half steps or a little more. */
V vu b_e2m1(vu k)
{
    static const uint8_t nearest[64] = {
        0,  1,  1,  2,  2,  3,  3,  4,  4,  4,  6,  6,  6,  6,  8,  8,  8,  8,  8,  8,  12, 12,
        12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12,
        12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12, 12,
    };
    return _mm512_permutexvar_epi8(k, v_load(nearest));
}
/* The same for steps twice as large, k of the single ones being below 32. */
V vu b_e2m1_of_twice(vu k)
{
    static const uint8_t nearest[32] = {0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4,
                                        4, 4, 4, 4, 6, 6, 6, 6, 6, 6, 6, 6, 8, 8, 8, 8};
    return b_lookup32(nearest, k);
}

#define HAVE_W_TABLE64
/* (a * b) >> 16 of unsigned words; tables of 32 and 64 words, by the low bits of words. */
V vu w_mul_high(vu a, vu b) { return _mm512_mulhi_epu16(a, b); }
V vu w_lookup32(vu table, vu index) { return _mm512_permutexvar_epi16(index, table); }
/* The low words of 16 lanes, in the lower half of the places. */
V vu w_of_lanes(vu a) { return _mm512_castsi256_si512(_mm512_cvtepi32_epi16(a)); }
V vu w_of_two(vu a, vu b)
{
    return _mm512_inserti64x4(w_of_lanes(a), _mm512_cvtepi32_epi16(b), 1);
}
V vu w_min_signed(vu a, vu b) { return _mm512_min_epi16(a, b); } /* signed */
V vf f_abs(vf a) { return _mm512_abs_ps(a); }
/* a b + c, a b - c and c - a b, rounded once. */
V vf f_mul_add(vf a, vf b, vf c) { return _mm512_fmadd_ps(a, b, c); }
V vf f_mul_sub(vf a, vf b, vf c) { return _mm512_fmsub_ps(a, b, c); }
V vf f_sub_mul(vf c, vf a, vf b) { return _mm512_fnmadd_ps(a, b, c); }
V vu v_lower(vu a, vu b) { return _mm512_min_epu32(a, b); } /* unsigned */
/* x where a is b, else y. */
V vu v_pick_same(vu a, vu b, vu x, vu y)
{
    return _mm512_mask_blend_epi32(_mm512_cmpeq_epi32_mask(a, b), y, x);
}
V vu v_truncate(vf a) { return _mm512_cvttps_epi32(a); }
V vu v_srl_by(vu a, vu c) { return _mm512_srlv_epi32(a, c); } /* 0 where c > 31 */
/* `sum` and w_dot(a, b), at most 2^31 - 1. */
V vu w_dot_max(vu sum, vu a, vu b) { return _mm512_dpwssds_epi32(sum, a, b); }
/* Of four registers the sums of their lanes: half of them, each in two lanes of every quarter;
 * then parts of them in each quarter, and of four such, the sums, those of each in a quarter. */
V vu v_sums_of_halves(vu a, vu b)
{
    return v_add(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}
V vu v_sums_of_quarters(vu a, vu b)
{
    return v_add(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
V vu v_quarter_sums(const vu x[4])
{
    vu a = v_add(_mm512_shuffle_i64x2(x[0], x[1], 0x44), _mm512_shuffle_i64x2(x[0], x[1], 0xEE));
    vu b = v_add(_mm512_shuffle_i64x2(x[2], x[3], 0x44), _mm512_shuffle_i64x2(x[2], x[3], 0xEE));
    return v_add(_mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
}
V vu v_sum_quarters(vu a) /* in each of them */
{
    a = v_add(a, _mm512_shuffle_i32x4(a, a, 0x4E));
    return v_add(a, _mm512_shuffle_i32x4(a, a, 0xB1));
}
/* The least number of each quarter, and one of each in lanes 0 .. 3. */
V vu v_quarter_min(vu a)
{
    a = _mm512_min_epu32(a, _mm512_shuffle_epi32(a, 0x4E));
    return _mm512_min_epu32(a, _mm512_shuffle_epi32(a, 0xB1));
}
V vu v_of_quarters(vu a)
{
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12), a);
}
/* Four bytes as lanes 0 .. 3, and back. */
V vu v_of_four(uint32_t bytes)
{
    return _mm512_castsi128_si512(_mm_cvtepu8_epi32(_mm_cvtsi32_si128((int)bytes)));
}
V uint32_t v_to_four(vu a)
{
    return (uint32_t)_mm_cvtsi128_si32(_mm_cvtepi32_epi8(_mm512_castsi512_si128(a)));
}
/* Lanes 0 .. 7 as numbers of 64 bits. */
V vu d_of_lanes(vu a) { return _mm512_cvtepu32_epi64(_mm512_castsi512_si256(a)); }
/* The high words of products of signed words. */
V vu w_mul_high_signed(vu a, vu b) { return _mm512_mulhi_epi16(a, b); }
V vu w_lookup64(const vu table[2], vu index)
{
    return _mm512_permutex2var_epi16(table[0], index, table[1]);
}

/* 128 values to int4 codes, see cpu_int4.h: x * r + 384 is the quotient snapped
 * to multiples of 2^-15, `shift` moves it to where the code is the low byte. */
#define HAVE_INT4_128_BF16
V void int4_128_bf16(const void *p, uint8_t *dst, vf r, vf snap, vf shift)
{
    __m512i words[4], nibbles[2];
    for (int i = 0; i < 4; i++) {
        __m512i x = _mm512_loadu_si512((const uint16_t *)p + 32 * i);
        vf even = _mm512_fmadd_ps(v_floats(_mm512_slli_epi32(x, 16)), r, snap);
        vf odd = _mm512_fmadd_ps(v_floats(v_and(x, v_set(0xFFFF0000u))), r, snap);
        words[i] = _mm512_mask_mov_epi16(_mm512_slli_epi32(v_bits(f_add(odd, shift)), 16),
                                         0x55555555u, v_bits(f_add(even, shift)));
    }
    for (int i = 0; i < 2; i++) {
        __m512i codes = _mm512_packus_epi16(words[2 * i], words[2 * i + 1]);
        codes = _mm512_min_epu8(codes, _mm512_set1_epi8(15)); /* 8 becomes 7 */
        nibbles[i] = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x1001));
    }
    /* Lanes hold dwords a0 b0 c0 d0 | a1 ... of the four registers. */
    nibbles[0] = _mm512_packus_epi16(nibbles[0], nibbles[1]);
    nibbles[0] = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15), nibbles[0]);
    _mm512_storeu_si512(dst, nibbles[0]);
}

/* Largest magnitude of 16 consecutive blocks of `size` (32 or 128) values, by a
 * tree that transposes while it reduces. Two functions of one shape: for words
 * and for lanes of 32 bits. */
V __m512i vm_load(enum tp_dtype dtype, const uint8_t *p, unsigned size)
{
    __m512i m = _mm512_setzero_si512();
    unsigned bytes = size * (dtype == TP_F32 ? 4 : 2);
    for (unsigned i = 0; i < bytes; i += 64) {
        __m512i x = _mm512_loadu_si512(p + i);
        m = dtype == TP_F32 ? _mm512_max_epi32(m, v_and(x, v_set(0x7FFFFFFFu)))
                            : _mm512_max_epu16(m, v_and(x, v_set(0x7FFF7FFFu)));
    }
    return m;
}
V __m512i vm_max(enum tp_dtype dtype, __m512i a, __m512i b)
{
    return dtype == TP_F32 ? _mm512_max_epi32(a, b) : _mm512_max_epu16(a, b);
}
V __m512i vm_two(enum tp_dtype dtype, const uint8_t *p, uint64_t step, unsigned size)
{
    __m512i a = vm_load(dtype, p, size), b = vm_load(dtype, p + 4 * step, size);
    return vm_max(dtype, _mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xEE));
}
V __m512i vm_four(enum tp_dtype dtype, const uint8_t *p, uint64_t step, unsigned size)
{
    __m512i a = vm_two(dtype, p, step, size), b = vm_two(dtype, p + 8 * step, step, size);
    return vm_max(dtype, _mm512_shuffle_i32x4(a, b, 0x88), _mm512_shuffle_i32x4(a, b, 0xDD));
}
V __m512i vm_eight(enum tp_dtype dtype, const uint8_t *p, uint64_t step, unsigned size)
{
    __m512i a = vm_four(dtype, p, step, size), b = vm_four(dtype, p + step, step, size);
    return vm_max(dtype, _mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}

/* The same of 16 blocks of 16 words: two blocks to a register, halved in turns. */
V vu amax16_words(enum tp_dtype dtype, const uint8_t *p)
{
    __m512i m[8];
    UNROLL
    for (int i = 0; i < 8; i++)
        m[i] = v_and(v_load(p + 64 * i), v_set(0x7FFF7FFFu));
    UNROLL
    for (int step = 4; step >= 2; step /= 2) /* m[i] gets dwords of m[2 i] and m[2 i + 1] */
        UNROLL
        for (int i = 0; i < step; i++) {
            __m512 a = v_floats(m[2 * i]), b = v_floats(m[2 * i + 1]);
            m[i] = _mm512_max_epu16(v_bits(_mm512_shuffle_ps(a, b, 0x88)),
                                    v_bits(_mm512_shuffle_ps(a, b, 0xDD)));
        }
    /* Lanes 0 and 1 (2 and 3) are halves of the even (odd) blocks. */
    m[0] = _mm512_max_epu16(_mm512_shuffle_i32x4(m[0], m[1], 0x88),
                            _mm512_shuffle_i32x4(m[0], m[1], 0xDD));
    m[0] = _mm512_max_epi32(_mm512_srli_epi32(m[0], 16), v_and(m[0], v_set(0xFFFF)));
    m[0] = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15), m[0]);
    if (dtype == TP_BF16)
        return _mm512_slli_epi32(m[0], 16);
    return v_bits(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(m[0])));
}

#define HAVE_W4A8_AVX512 /* w4a8_avx512.h */
#define HAVE_AMAX_BLOCKS
/* Largest magnitudes of VL consecutive blocks of `size` values, of 32 bytes at least, as bits
 * of floats. */
V vu amax_blocks(enum tp_dtype dtype, const uint8_t *values, unsigned size)
{
    uint64_t step = (uint64_t)size * (dtype == TP_F32 ? 4 : 2);
    if (step == 32)
        return amax16_words(dtype, values);
    __m512 a = _mm512_castsi512_ps(vm_eight(dtype, values, step, size));
    __m512 b = _mm512_castsi512_ps(vm_eight(dtype, values + 2 * step, step, size));
    __m512i m = vm_max(dtype, _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0x88)),
                       _mm512_castps_si512(_mm512_shuffle_ps(a, b, 0xDD)));
    if (dtype == TP_F32)
        return m;
    m = _mm512_max_epi32(_mm512_srli_epi32(m, 16), v_and(m, v_set(0xFFFF)));
    if (dtype == TP_BF16)
        return _mm512_slli_epi32(m, 16);
    return v_bits(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(m)));
}

#endif
