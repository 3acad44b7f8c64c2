/* AVX2 (with F16C): the vector operations that cpu_*.inc are written in; see
 * vec_avx512.h for what each means.
 */
#ifndef TP_KERNELS_VEC_AVX2_H
#define TP_KERNELS_VEC_AVX2_H

#include "kernels/cpu/vec_common.h"

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
V vu v_xor(vu a, vu b) { return _mm256_xor_si256(a, b); }
V vu v_or_and(vu a, vu b, vu c) { return v_or(a, v_and(b, c)); }
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

V vf f_lower_upper(vf a, vf b) { return _mm256_blend_ps(a, b, 0xF0); }
V vf f_set(float x) { return _mm256_set1_ps(x); }
V vf f_mul(vf a, vf b) { return _mm256_mul_ps(a, b); }
V vf f_div(vf a, vf b) { return _mm256_div_ps(a, b); }
V vf f_add(vf a, vf b) { return _mm256_add_ps(a, b); }
V vf f_sub(vf a, vf b) { return _mm256_sub_ps(a, b); }
V vf f_min(vf a, vf b) { return _mm256_min_ps(a, b); }
V vf f_max(vf a, vf b) { return _mm256_max_ps(a, b); }
V vf f_sqrt(vf a) { return _mm256_sqrt_ps(a); }
V vf f_of_ints(vu a) { return _mm256_cvtepi32_ps(a); }
V vu v_rint(vf a) { return _mm256_cvtps_epi32(a); }

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

V vu w_add(vu a, vu b) { return _mm256_add_epi16(a, b); }
V vu w_sub(vu a, vu b) { return _mm256_sub_epi16(a, b); }
V vu w_subs(vu a, vu b) { return _mm256_subs_epu16(a, b); }
V vu w_min(vu a, vu b) { return _mm256_min_epu16(a, b); }
V vu w_srl(vu a, unsigned n) { return _mm256_srli_epi16(a, (int)n); }
V vu w_sll(vu a, unsigned n) { return _mm256_slli_epi16(a, (int)n); }
/* 2^c: its low byte is looked up at c, its high byte at c ^ 8, which lies behind the end
 * for one of the two. */
V vu w_power(vu c)
{
    const __m256i table = _mm256_set1_epi64x((long long)0x8040201008040201);
    const __m256i ends = _mm256_set_epi64x(0, -1, 0, -1);
    c = v_or(c, _mm256_slli_epi16(_mm256_xor_si256(c, _mm256_set1_epi16(8)), 8));
    return _mm256_shuffle_epi8(v_and(table, ends), c);
}
V vu w_srl_by(vu a, vu c)
{
    return _mm256_mulhi_epu16(a, w_power(_mm256_sub_epi16(_mm256_set1_epi16(16), c)));
}
V vu w_pack_signed(vu a, vu b) { return _mm256_packs_epi32(a, b); }
V vu w_abs(vu a) { return _mm256_abs_epi16(a); }
V vu w_max_signed(vu a, vu b) { return _mm256_max_epi16(a, b); }
V vu w_mul(vu a, vu b) { return _mm256_mullo_epi16(a, b); }
V vu w_dot(vu a, vu b) { return _mm256_madd_epi16(a, b); }
V vu w_dot_more(vu sum, vu a, vu b) { return v_add(sum, w_dot(a, b)); }
V vu w_pick(vu a, vu b, vu x, vu y)
{
    return _mm256_blendv_epi8(y, x, _mm256_cmpgt_epi16(a, b));
}
V vu w_count(vu n, vu a, vu b) { return w_sub(n, _mm256_cmpgt_epi16(a, b)); }
typedef __m256i w_ones;
V w_ones w_any(vu a, vu b) { return w_min(v_and(a, b), _mm256_set1_epi16(1)); }
V vu w_add_ones(vu a, w_ones ones) { return w_add(a, ones); }
V vu w_high(vu even, vu odd) { return _mm256_blend_epi16(v_srl(even, 16), odd, 0xAA); }
V vu w_low(vu even, vu odd) { return _mm256_blend_epi16(even, v_sll(odd, 16), 0xAA); }
V void v_store_sums(uint32_t sum[4], vu a)
{
    __m128i b = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    _mm_storeu_si128((__m128i *)sum, b);
}
V vu d_pairs(vu a)
{
    return _mm256_add_epi64(_mm256_srli_epi64(a, 32),
                            _mm256_blend_epi32(a, _mm256_setzero_si256(), 0xAA));
}
V vu d_add(vu a, vu b) { return _mm256_add_epi64(a, b); }
V void d_store_sums(uint64_t sum[4], vu a, vu b)
{
    vu c = d_add(_mm256_permute2x128_si256(a, b, 0x20), _mm256_permute2x128_si256(a, b, 0x31));
    _mm256_storeu_si256((__m256i *)sum, c);
}
V vu w_load_u8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)p));
}
V vf f_of_lower_f16(vu a) { return _mm256_cvtph_ps(_mm256_castsi256_si128(a)); }
V vf f_of_upper_f16(vu a) { return _mm256_cvtph_ps(_mm256_extracti128_si256(a, 1)); }
V vu w_of_high(vu a, vu b)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(v_srl(a, 16), v_srl(b, 16)), 0xD8);
}

V vu b_table(const uint8_t table[16])
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
}
V void b_split_lanes(const vu x[16 / VL], vu *low, vu *high)
{
    vu w = _mm256_packus_epi32(v_and(x[0], v_set(0xFFFF)), v_and(x[1], v_set(0xFFFF)));
    w = _mm256_packus_epi16(v_and(w, v_set(0x00FF00FF)), _mm256_srli_epi16(w, 8));
    *low = _mm256_permutevar8x32_epi32(w, _mm256_setr_epi32(0, 4, 1, 5, 0, 4, 1, 5));
    *high = _mm256_permutevar8x32_epi32(w, _mm256_setr_epi32(2, 6, 3, 7, 2, 6, 3, 7));
}
V vu b_sum_lanes(vu a) { return _mm256_add_epi8(a, _mm256_permute2x128_si256(a, a, 1)); }
V vu b_lookup(vu table, vu index) { return _mm256_shuffle_epi8(table, index); }
V vu b_unpack_lo(vu a, vu b) { return _mm256_unpacklo_epi8(a, b); }
V vu b_unpack_hi(vu a, vu b) { return _mm256_unpackhi_epi8(a, b); }
V vu w_unpack_lo(vu a, vu b) { return _mm256_unpacklo_epi16(a, b); }
V vu w_unpack_hi(vu a, vu b) { return _mm256_unpackhi_epi16(a, b); }
V vu d_unpack_lo(vu a, vu b) { return _mm256_unpacklo_epi64(a, b); }
V vu d_unpack_hi(vu a, vu b) { return _mm256_unpackhi_epi64(a, b); }
V vu v_unpack_lo(vu a, vu b) { return _mm256_unpacklo_epi32(a, b); }
V vu v_unpack_hi(vu a, vu b) { return _mm256_unpackhi_epi32(a, b); }
V void v_store_lanes(uint8_t *p, uint64_t stride, vu a)
{
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(a));
    _mm_storeu_si128((__m128i *)(p + stride), _mm256_extracti128_si256(a, 1));
}
V void b_store_turns(uint8_t *p, vu a, vu b)
{
    vu low = b_unpack_lo(a, b), high = b_unpack_hi(a, b);
    v_store(p, _mm256_permute2x128_si256(low, high, 0x20));
    v_store(p + 32, _mm256_permute2x128_si256(low, high, 0x31));
}
V vu v_load_lanes(const uint8_t *p, uint64_t stride)
{
    return _mm256_set_m128i(_mm_loadu_si128((const __m128i *)(p + stride)),
                            _mm_loadu_si128((const __m128i *)p));
}
V vu v_load_each(const uint8_t *p, const uint64_t at[LANES])
{
    return _mm256_set_m128i(_mm_loadu_si128((const __m128i *)(p + at[1])),
                            _mm_loadu_si128((const __m128i *)(p + at[0])));
}
V void v_store_each(uint8_t *p, const uint64_t at[LANES], vu a)
{
    _mm_storeu_si128((__m128i *)(p + at[0]), _mm256_castsi256_si128(a));
    _mm_storeu_si128((__m128i *)(p + at[1]), _mm256_extracti128_si256(a, 1));
}

V void v_transpose_lanes(vu x[LANES])
{
    vu low = _mm256_permute2x128_si256(x[0], x[1], 0x20);
    x[1] = _mm256_permute2x128_si256(x[0], x[1], 0x31);
    x[0] = low;
}
V vu b_add(vu a, vu b) { return _mm256_add_epi8(a, b); }
V bool b_any_gt(vu a, vu b)
{
    __m256i at_most = _mm256_cmpeq_epi8(_mm256_min_epu8(a, b), a);
    return _mm256_movemask_epi8(at_most) != -1;
}
V vu b_min(vu a, vu b) { return _mm256_min_epu8(a, b); }
V vu b_sub(vu a, vu b) { return _mm256_sub_epi8(a, b); }
V vu b_count(vu n, vu a, vu b) { return b_sub(n, _mm256_cmpgt_epi8(a, b)); }
V vu b_pack_unsigned(vu a, vu b) { return _mm256_packus_epi16(a, b); }
V vu b_pack_signed(vu a, vu b) { return _mm256_packs_epi16(a, b); }
V bool b_any_below8(vu a, vu b)
{
    __m256i high = v_and(a, _mm256_set1_epi8((char)0xF8));
    return !_mm256_testz_si256(_mm256_cmpeq_epi8(high, _mm256_setzero_si256()), b);
}
V bool b_any_without(vu a, vu mask)
{
    __m256i none = _mm256_cmpeq_epi8(v_and(a, mask), _mm256_setzero_si256());
    return _mm256_movemask_epi8(none) != 0;
}
/* An index with its highest bit set looks up 0. */
V vu b_lookup32(const uint8_t table[32], vu index)
{
    __m256i low = b_lookup(b_table(table), _mm256_add_epi8(index, _mm256_set1_epi8(0x70)));
    __m256i high = _mm256_sub_epi8(index, _mm256_set1_epi8(16));
    return v_or(low, b_lookup(b_table(table + 16), high));
}
V vu b_in_order(vu a, bool halves)
{
    const __m256i apart = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15));
    if (!halves)
        return _mm256_permute4x64_epi64(a, 0xD8);
    return _mm256_permutevar8x32_epi32(_mm256_shuffle_epi8(a, apart),
                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
V void b_store_pairs(uint8_t *p, vu codes)
{
    codes = _mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x1001));
    codes = _mm256_permute4x64_epi64(_mm256_packus_epi16(codes, codes), 0x08);
    _mm_storeu_si128((__m128i *)p, _mm256_castsi256_si128(codes));
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

/* ---- faster than the common form ---------------------------------------- */

V __m256i vm_max(enum tp_dtype dtype, __m256i a, __m256i b)
{
    return dtype == TP_F32 ? _mm256_max_epi32(a, b) : _mm256_max_epu16(a, b);
}
/* Half as many dwords of each, a's and b's in turns within lanes. */
V __m256i vm_two(enum tp_dtype dtype, __m256i a, __m256i b)
{
    return vm_max(dtype, v_bits(_mm256_shuffle_ps(v_floats(a), v_floats(b), 0x88)),
                  v_bits(_mm256_shuffle_ps(v_floats(a), v_floats(b), 0xDD)));
}
V __m256i vm_block(enum tp_dtype dtype, const uint8_t *p, unsigned bytes)
{
    const vu magnitude = v_set(dtype == TP_F32 ? 0x7FFFFFFFu : 0x7FFF7FFFu);
    __m256i m = v_and(v_load(p), magnitude);
    UNROLL
    for (unsigned i = 32; i < bytes; i += 32)
        m = vm_max(dtype, m, v_and(v_load(p + i), magnitude));
    return m;
}
/* Four blocks, each one dword of both lanes. */
V __m256i vm_four(enum tp_dtype dtype, const uint8_t *p, unsigned bytes)
{
    return vm_two(dtype,
                  vm_two(dtype, vm_block(dtype, p, bytes), vm_block(dtype, p + bytes, bytes)),
                  vm_two(dtype, vm_block(dtype, p + 2 * bytes, bytes),
                         vm_block(dtype, p + 3 * bytes, bytes)));
}

#define HAVE_B_E2M1
V vu w_mul_high(vu a, vu b) { return _mm256_mulhi_epu16(a, b); }
V vu v_mul(vu a, vu b) { return _mm256_mullo_epi32(a, b); }
V vu v_srl_by(vu a, vu c) { return _mm256_srlv_epi32(a, c); }
V vu v_sll_by(vu a, vu c) { return _mm256_sllv_epi32(a, c); }
V vu b_dot(vu sum, vu a, vu b) { return _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, b)); }
V vu b_dot_lanes(vu sum, unsigned power)
{
    return _mm256_madd_epi16(sum, _mm256_set1_epi16((short)(1 << power)));
}
/* Bounds are 1 3 5 7 10 14 and 20; from 10 on every second number will do. */
V vu b_e2m1(vu k)
{
    const __m256i nearest = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 6, 6, 8, 8, 8, 12));
    __m256i half = _mm256_avg_epu8(k, _mm256_set1_epi8(9)); /* (k + 10) / 2 */
    k = _mm256_min_epu8(_mm256_min_epu8(k, half), _mm256_set1_epi8(15));
    return _mm256_shuffle_epi8(nearest, k);
}
/* Bounds are 2 6 10 14 20 and 28; 5 to 20 are all different in the low four bits. */
V vu b_e2m1_of_twice(vu k)
{
    const __m256i nearest = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(6, 6, 6, 8, 8, 0, 1, 1, 2, 2, 3, 3, 4, 4, 4, 6));
    return _mm256_shuffle_epi8(nearest, _mm256_avg_epu8(k, _mm256_set1_epi8(9)));
}

#define HAVE_AMAX_BLOCKS
/* See vec_avx512.h. */
V vu amax_blocks(enum tp_dtype dtype, const uint8_t *p, unsigned size)
{
    const unsigned bytes = size * (dtype == TP_F32 ? 4 : 2);
    __m256i a = vm_four(dtype, p, bytes), b = vm_four(dtype, p + 4 * bytes, bytes);
    a = vm_max(dtype, _mm256_permute2x128_si256(a, b, 0x20),
               _mm256_permute2x128_si256(a, b, 0x31));
    if (dtype == TP_F32)
        return a;
    a = v_max(v_srl(a, 16), v_and(a, v_set(0xFFFF)));
    return dtype == TP_BF16 ? v_sll(a, 16) : v_bits(_mm256_cvtph_ps(v_words(a)));
}

#endif
