/* Four 32-column tiles of 16 rows of nibbles into CUTLASS' order: the AVX-512 form of
 * the inner loop of w4a8_place() in cpu_int4.inc. Whole lines of 64 bytes are
 * written, two row pairs at a time.
 */
#ifndef TP_KERNELS_W4A8_AVX512_H
#define TP_KERNELS_W4A8_AVX512_H

#include "kernels/codec.h"
#include "kernels/vec_avx512.h"

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

/* Magnitudes of e4m3 times 2, where that is a code too: the exponent grows by one, or what
 * has none doubles. */
V __m512i b_twice(__m512i m)
{
    return _mm512_add_epi8(m, _mm512_min_epu8(m, _mm512_set1_epi8(8)));
}

/* 64 codes to 8 bytes each, see tp_group8_odd(): eight registers of bytes, interleaved.
 * q[j] has places 2 j and 2 j + 1 of every lane. */
V void w4a8_multiples(const uint8_t odd[4][128], __m512i codes, __m512i q[8])
{
    const __m512i sign = _mm512_set1_epi8((char)0x80);
    __m512i m[8], w[8], d[8];
    UNROLL
    for (int i = 0; i < 4; i++) /* 7, 5, 3, 1 times */
        m[2 * i + 1] = _mm512_permutex2var_epi8(v_load(odd[3 - i]), codes, v_load(odd[3 - i] + 64));
    m[6] = b_twice(m[7]);
    m[4] = b_twice(m[6]);
    m[0] = b_twice(m[4]);
    m[2] = b_twice(m[5]);
    UNROLL
    for (int i = 0; i < 8; i++)
        m[i] = v_or(m[i], sign);
    UNROLL
    for (int i = 0; i < 4; i++) {
        w[i] = b_unpack_lo(m[2 * i], m[2 * i + 1]);
        w[4 + i] = b_unpack_hi(m[2 * i], m[2 * i + 1]);
    }
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        d[i / 4 * 4 + i % 4 / 2] = w_unpack_lo(w[i], w[i + 1]);
        d[i / 4 * 4 + 2 + i % 4 / 2] = w_unpack_hi(w[i], w[i + 1]);
    }
    UNROLL
    for (int i = 0; i < 8; i += 2) {
        q[i] = v_unpack_lo(d[i], d[i + 1]);
        q[i + 1] = v_unpack_hi(d[i], d[i + 1]);
    }
}

/* Where the codes of rows 0..15, four groups each, go: place 2 j and 2 j + 1 of lane l are
 * rows 8 (j % 2) + 2 l and the next, of group j / 2. */
static const uint8_t group8_order[64] = {
    0, 4, 32, 36, 1, 5, 33, 37, 2, 6, 34, 38, 3, 7, 35, 39,
    8, 12, 40, 44, 9, 13, 41, 45, 10, 14, 42, 46, 11, 15, 43, 47,
    16, 20, 48, 52, 17, 21, 49, 53, 18, 22, 50, 54, 19, 23, 51, 55,
    24, 28, 56, 60, 25, 29, 57, 61, 26, 30, 58, 62, 27, 31, 59, 63,
};

/* 16 rows of codes, `padded` bytes apart, of up to 16 groups: 128 bytes for each group,
 * `stride` apart. Returns how many groups it did: as many fours as there are, 0 where
 * codes are negative or NaN. 16 bytes of each row are read. */
V uint64_t w4a8_group8(const uint8_t odd[4][128], const uint8_t *codes, uint64_t padded,
                       uint64_t groups, uint8_t *out, uint64_t stride)
{
    __m512i x[4], any, q[8];
    UNROLL
    for (unsigned i = 0; i < 4; i++)
        x[i] = v_load_lanes(codes + i * padded, 4 * padded);
    any = _mm512_max_epu8(_mm512_max_epu8(x[0], x[1]), _mm512_max_epu8(x[2], x[3]));
    if (_mm512_cmpgt_epu8_mask(any, _mm512_set1_epi8(0x7E)) != 0)
        return 0;
    transpose_words(x);
    for (unsigned i = 0; 4 * i + 4 <= groups; i++) {
        w4a8_multiples(odd, _mm512_permutexvar_epi8(v_load(group8_order), x[i]), q);
        UNROLL
        for (unsigned j = 0; j < 8; j++) {
            uint8_t *p = out + (4 * i + j / 2) * stride + 64 * (j % 2);
            v_prefetch_write(p + 128); /* the next 16 rows' */
            v_store(p, q[j]);
        }
    }
    return groups / 4 * 4;
}

#endif
