/* Four 32-column tiles of 16 rows of nibbles into CUTLASS' order: the AVX-512 form of
 * the inner loop of w4a8_place() in cpu_w4a8.h. Whole lines of 64 bytes are
 * written, two row pairs at a time.
 */
#ifndef TP_KERNELS_W4A8_AVX512_H
#define TP_KERNELS_W4A8_AVX512_H

#include "kernels/op/codec.h"
#include "kernels/cpu/cpu_run.h"
#include "kernels/cpu/vec_avx512.h"

#define HAVE_W4A8_FOUR_TILES

/* Nibbles of both halves of every byte through tables, as b_nibbles(). */
V __m512i w4a8_map(__m512i low, __m512i high, const uint8_t *p)
{
    const __m512i mask = v_set(0x0F0F0F0Fu);
    __m512i x = v_load(p);
    return v_or(b_lookup(low, v_and(x, mask)), b_lookup(high, v_and(v_srl(x, 4), mask)));
}

/* Rows r (at `p`) and r + 8: halves[0] has tiles 0 and 1, halves[1] tiles 2 and 3, 32
 * bytes each. */
V void w4a8_row_pair(const uint8_t *p, uint64_t stride, __m512i low, __m512i high,
                     __m512i halves[2])
{
    __m512i a = w4a8_map(low, high, p), b = w4a8_map(low, high, p + 8 * stride);
    __m512i lo = w_unpack_lo(a, b), hi = w_unpack_hi(a, b);
    halves[0] = _mm512_permutex2var_epi32(
        lo, _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23), hi);
    halves[1] = _mm512_permutex2var_epi32(
        lo, _mm512_setr_epi32(8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31), hi);
}

V void w4a8_four_tiles(const uint8_t *rows, uint64_t stride, __m512i low, __m512i high,
                       uint8_t *q, uint64_t block_stride)
{
    for (unsigned r = 0; r < 8; r += 2, q += 64) {
        __m512i x[2], y[2];
        w4a8_row_pair(rows + r * stride, stride, low, high, x);
        w4a8_row_pair(rows + (r + 1) * stride, stride, low, high, y);
        v_store(q, _mm512_shuffle_i64x2(x[0], y[0], 0x44));
        v_store(q + block_stride, _mm512_shuffle_i64x2(x[0], y[0], 0xEE));
        v_store(q + 2 * block_stride, _mm512_shuffle_i64x2(x[1], y[1], 0x44));
        v_store(q + 3 * block_stride, _mm512_shuffle_i64x2(x[1], y[1], 0xEE));
    }
}

#define HAVE_W4A8_GROUP8

/* Bytes 4 r + `first` of eight rows r, eight times each, to their eight multiples. */
V __m512i w4a8_multiples(__m512i steps, __m512i codes, unsigned first)
{
    const uint64_t each = UINT64_C(0x0101010101010101);
    const __m512i which = _mm512_set1_epi64(0x3830282018100800);
    const __m512i at = _mm512_add_epi8(
        _mm512_set1_epi8((char)first),
        _mm512_setr_epi64(0, 4 * each, 8 * each, 12 * each, 16 * each, 20 * each, 24 * each,
                          28 * each));
    __m512i x = _mm512_permutexvar_epi8(at, codes);
    __m512i step = _mm512_ternarylogic_epi32(x, v_set(0x07070707), which, 0xEA);
    return _mm512_add_epi8(x, _mm512_permutexvar_epi8(step, steps));
}

/* See cpu_w4a8.h; up to 16 groups, as many fours as there are. */
V uint64_t w4a8_group8(const uint8_t steps[64], const uint8_t *codes, uint64_t padded,
                       uint64_t groups, uint8_t *out, uint64_t stride)
{
    const __m512i table = v_load(steps);
    __m512i x[4];
    __mmask64 bad = 0;
    groups = tp_min_u64(16, groups);
    UNROLL
    for (unsigned i = 0; i < 4; i++)
        x[i] = v_load_lanes(codes + i * padded, 4 * padded);
    transpose_words(x);
    for (unsigned i = 0; 4 * i + 4 <= groups; i++)
        bad |= _mm512_cmpgt_epu8_mask(_mm512_sub_epi8(x[i], _mm512_set1_epi8(TP_GROUP8_MIN)),
                                      _mm512_set1_epi8(0x7E - TP_GROUP8_MIN));
    if (bad != 0)
        return 0;
    for (unsigned i = 0; 4 * i + 4 <= groups; i++)
        UNROLL
        for (unsigned j = 0; j < 4; j++, out += stride) {
            v_prefetch_write(out + 128); /* the next 16 rows' */
            v_prefetch_write(out + 192);
            v_store(out, w4a8_multiples(table, x[i], j));
            v_store(out + 64, w4a8_multiples(table, x[i], 32 + j));
        }
    return groups / 4 * 4;
}

#endif
