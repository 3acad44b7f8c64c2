/* W4A8: CUTLASS' order of int4 codes and packed group scales, a strip of 16 rows at a time. */
#ifndef TP_KERNELS_CPU_W4A8_H
#define TP_KERNELS_CPU_W4A8_H

#include "kernels/cpu/cpu_int4.h"
#include "kernels/cpu/cpu_run.h"
#include "kernels/cpu/cpu_words.h"
#ifdef HAVE_W4A8_AVX512
#include "kernels/cpu/w4a8_avx512.h"
#endif

/* ---- CUTLASS order ------------------------------------------------------ */

/* 16 rows of nibbles (`stride` bytes apart) of `tiles` x 32 columns into blocks of
 * 256 bytes, `block_stride` apart: words (4 nibbles) of rows r and r + 8 alternate,
 * and of the eight words of a row those that are 16 columns apart are neighbours.
 * `low` and `high` map nibbles, see b_nibbles(). */
V vu b_nibbles(vu low, vu high, vu x)
{
    vu mask = v_set(0x0F0F0F0Fu);
    return v_or(b_lookup(low, v_and(x, mask)), b_lookup(high, v_and(v_srl(x, 4), mask)));
}

static void w4a8_tile1(const uint8_t *rows, uint64_t stride, const uint8_t map[16],
                       uint8_t *block)
{
    for (unsigned r = 0; r < 16; r++)
        for (unsigned w = 0; w < 8; w++)
            for (unsigned b = 0; b < 2; b++) {
                uint8_t x = rows[r * stride + 2 * w + b];
                block[(r & 7) * 32 + (w & 3) * 8 + (w >> 2) * 4 + (r >> 3) * 2 + b] =
                    (uint8_t)(map[x & 15] | map[x >> 4] << 4);
            }
}

/* `next_rows`, `next_blocks`: where as many rows come from next, or NULL, and go. */
V void w4a8_place(const uint8_t *rows, uint64_t stride, const uint8_t *next_rows, uint64_t tiles,
                  const uint8_t map[16], uint8_t *blocks, uint64_t block_stride,
                  uint8_t *next_blocks)
{
    uint8_t map_high[16];
    vu low, high;
    uint64_t t = 0;
    for (int i = 0; i < 16; i++)
        map_high[i] = (uint8_t)(map[i] << 4);
    low = b_table(map);
    high = b_table(map_high);
    for (; t + LANES <= tiles; t += LANES) {
        uint8_t *q = blocks + t * block_stride;
        for (unsigned i = 0; i < LANES * 256; i += 64)
            v_prefetch_write(next_blocks + (t + i / 256) * block_stride + i % 256);
        for (unsigned r = 0; r < 16 && next_rows != NULL; r++)
            v_prefetch_far(next_rows + r * stride + 16 * t);
#ifdef HAVE_W4A8_FOUR_TILES
        w4a8_four_tiles(rows + 16 * t, stride, low, high, q, block_stride);
#else
        for (unsigned r = 0; r < 8; r++, q += 32) {
            vu a = b_nibbles(low, high, v_load(rows + r * stride + 16 * t));
            vu b = b_nibbles(low, high, v_load(rows + (r + 8) * stride + 16 * t));
            vu lo = w_unpack_lo(a, b), hi = w_unpack_hi(a, b);
            v_store_lanes(q, block_stride, v_unpack_lo(lo, hi));
            v_store_lanes(q + 16, block_stride, v_unpack_hi(lo, hi));
        }
#endif
    }
    for (; t < tiles; t++)
        w4a8_tile1(rows + 16 * t, stride, map, blocks + t * block_stride);
}

/* The inverse, into 16 rows; `map` takes stored nibbles to canonical codes. */
static void w4a8_untile1(const uint8_t *block, const uint8_t map[16], uint8_t *rows,
                         uint64_t stride)
{
    for (unsigned r = 0; r < 16; r++)
        for (unsigned w = 0; w < 8; w++)
            for (unsigned b = 0; b < 2; b++) {
                uint8_t x =
                    block[(r & 7) * 32 + (w & 3) * 8 + (w >> 2) * 4 + (r >> 3) * 2 + b];
                rows[r * stride + 2 * w + b] = (uint8_t)(map[x & 15] | map[x >> 4] << 4);
            }
}

V void w4a8_unplace(const uint8_t *blocks, uint64_t block_stride, uint64_t tiles,
                    const uint8_t map[16], uint8_t *rows, uint64_t stride)
{
    /* Words a0 b0 a4 b4 a1 b1 a5 b5 to a0 a1 a4 a5 b0 b1 b4 b5. */
    static const uint8_t apart[16] = {0, 1, 8, 9, 4, 5, 12, 13, 2, 3, 10, 11, 6, 7, 14, 15};
    uint8_t map_high[16];
    vu low, high, order = b_table(apart);
    uint64_t t = 0;
    for (int i = 0; i < 16; i++)
        map_high[i] = (uint8_t)(map[i] << 4);
    low = b_table(map);
    high = b_table(map_high);
    for (; t + LANES <= tiles; t += LANES) {
        const uint8_t *q = blocks + t * block_stride;
        for (unsigned r = 0; r < 8; r++, q += 32) {
            for (unsigned j = r % 2; j < LANES; j += 2) /* each line of the next 16 rows once */
                v_prefetch_far(q + 256 + j * block_stride);
            v_prefetch_write(rows + (r + 16) * stride + 16 * t);
            v_prefetch_write(rows + (r + 24) * stride + 16 * t);
            vu x = b_lookup(v_load_lanes(q, block_stride), order);
            vu y = b_lookup(v_load_lanes(q + 16, block_stride), order);
            v_store(rows + r * stride + 16 * t, b_nibbles(low, high, v_unpack_lo(x, y)));
            v_store(rows + (r + 8) * stride + 16 * t, b_nibbles(low, high, v_unpack_hi(x, y)));
        }
    }
    for (; t < tiles; t++)
        w4a8_untile1(blocks + t * block_stride, map, rows + 16 * t, stride);
}

/* Where the group and channel scales of a W4A8 operation go. */
struct w4a8_scales {
    uint8_t *group8; /* (E, groups, N) x 8 bytes */
    float *channel;  /* (E, N) */
    uint64_t n, groups;
};

static inline struct w4a8_scales w4a8_outputs(const struct tp_op *op, const struct tp_args *args)
{
    struct w4a8_scales s = {
        .group8 = args->out[tp_op_find(op, TP_ROLE_GROUP8)],
        .channel = args->out[tp_op_find(op, TP_ROLE_CHANNEL)],
        .n = args->box.n,
        .groups = args->box.k / 128,
    };
    return s;
}

/* What a strip of 16 rows needs until its rows are complete. */
struct w4a8_strip {
    uint8_t nibbles[16 * 1024]; /* 16 groups of each row */
    uint64_t padded;            /* groups of a row, rounded up to 64 */
    uint16_t *scale;            /* [16][padded]; zeros behind the groups */
    uint8_t *is_zero;           /* [16][padded] */
    uint8_t *codes;             /* [16][padded], e4m3 */
};

static inline struct w4a8_strip *w4a8_open_strip(void *scratch, uint64_t groups)
{
    struct w4a8_strip *strip = scratch;
    strip->padded = tp_round_up(groups, 64);
    strip->scale = (uint16_t *)(strip + 1);
    strip->is_zero = (uint8_t *)(strip->scale + 16 * strip->padded);
    strip->codes = strip->is_zero + 16 * strip->padded;
    memset(strip->scale, 0, 16 * strip->padded * sizeof *strip->scale);
    return strip;
}

/* Largest magnitudes of the scales of each row, as bits of floats. */
V void w4a8_amax(const struct tp_op *op, const struct w4a8_strip *strip, uint64_t groups,
                 uint32_t amax[16])
{
    if (!op->skip_zero_groups) {
        block_amax16(TP_BF16, strip->scale, (unsigned)strip->padded, 16, amax);
        return;
    }
    for (uint64_t r = 0; r < 16; r++) {
        const uint16_t *scale = strip->scale + r * strip->padded;
        const uint8_t *is_zero = strip->is_zero + r * strip->padded;
        uint16_t max = 0;
        for (uint64_t g = 0; g < groups; g++) {
            uint16_t m = scale[g] & 0x7FFF;
            max = m > max && !is_zero[g] ? m : max;
        }
        amax[r] = (uint32_t)max << 16;
    }
}

/* tp_channel_quotient() of 16 rows, and 1 by each. */
V void w4a8_quotients(const struct tp_op *op, const uint32_t amax[16], float sc[16],
                      float reciprocal[16])
{
    const vu min = v_bits(f_set(1.0f / (448.0f * 512.0f)));
    for (unsigned i = 0; i < 16; i += VL) { /* magnitudes, so that bits compare like numbers */
        vf m = v_floats(v_load(amax + i));
        vf part = op->channel_rule == TP_CHANNEL_GPU ? f_mul(m, f_set(TP_RCP_448))
                                                     : f_div(m, f_set(448.0f));
        vu x = v_max(v_bits(part), min);
        v_store(sc + i, x);
        v_store(reciprocal + i, v_bits(f_div(f_set(1.0f), v_floats(x))));
    }
}

/* One row's bf16 scales to e4m3 times 8. Returns its channel scale. */
V float w4a8_row_scales(const struct tp_op *op, const struct w4a8_strip *strip, uint64_t groups,
                        uint64_t r, float sc, float reciprocal)
{
    const uint16_t *scale = strip->scale + r * strip->padded;
    uint8_t *codes = strip->codes + r * strip->padded;
    const bool divide = op->channel_rule == TP_CHANNEL_DIV;
    const float factor = divide ? sc : reciprocal;
    vf f[64 / VL];
    if (tp_abs_bits(sc) >= TP_F32_INF_BITS || op->skip_zero_groups) {
        for (uint64_t g = 0; g < groups; g++) {
            float x = tp_bf16_to_f32(scale[g]);
            codes[g] = tp_e4m3_of(divide ? x / factor : x * factor);
        }
        return tp_canonical(sc * 8.0f);
    }
    two_factors(f, factor, factor);
    for (uint64_t g = 0; g < groups; g += 64)
        if (divide)
            e4m3_64(TP_BF16, HOW_DIV, scale + g, codes + g, f, true);
        else
            e4m3_64(TP_BF16, HOW_MUL, scale + g, codes + g, f, true);
    return sc * 8.0f;
}

#ifndef HAVE_W4A8_GROUP8
/* The codes of 16 rows of LANES groups to 128 bytes for each group: the multiples of all
 * codes one after another, each with the steps from the codes by their significands, and then
 * side by side. */
V void w4a8_multiples(const uint8_t steps[64], vu x, uint8_t *out, uint64_t stride)
{
    const vu low3 = v_and(x, b_set(7)), behind = v_or(low3, b_set(8));
    vu a[8], b[8];
    UNROLL
    for (unsigned i = 0; i < 8; i += 2) {
        vu table = b_table(steps + 8 * i);
        a[i] = b_add(x, b_lookup(table, low3));
        a[i + 1] = b_add(x, b_lookup(table, behind));
    }
    UNROLL
    for (unsigned i = 0; i < 4; i++) { /* multiples 2 i and 2 i + 1 of rows 0..7, 8..15 */
        b[i] = b_unpack_lo(a[2 * i], a[2 * i + 1]);
        b[4 + i] = b_unpack_hi(a[2 * i], a[2 * i + 1]);
    }
    UNROLL
    for (unsigned i = 0; i < 8; i += 4) {
        vu low[2] = {w_unpack_lo(b[i], b[i + 1]), w_unpack_hi(b[i], b[i + 1])};
        vu high[2] = {w_unpack_lo(b[i + 2], b[i + 3]), w_unpack_hi(b[i + 2], b[i + 3])};
        UNROLL
        for (unsigned j = 0; j < 2; j++, out += 32) {
            v_store_lanes(out, stride, v_unpack_lo(low[j], high[j]));
            v_store_lanes(out + 16, stride, v_unpack_hi(low[j], high[j]));
        }
    }
}

/* 16 rows of codes, `padded` (64 or a multiple) bytes apart: 128 bytes for each group, `stride`
 * apart. Returns how many groups it did, 0 where a code is not at least TP_GROUP8_MIN. */
V uint64_t w4a8_group8(const uint8_t steps[64], const uint8_t *codes, uint64_t padded,
                       uint64_t groups, uint8_t *out, uint64_t stride)
{
    const vu min = b_set(256 - TP_GROUP8_MIN), max = b_set(0x7E - TP_GROUP8_MIN);
    uint8_t columns[64 * 16];
    uint64_t g = 0;
    transpose16(codes, padded, columns, 16);
    for (; g + LANES <= tp_min_u64(64, groups); g += LANES) {
        vu x = v_load(columns + 16 * g);
        if (b_any_gt(b_add(x, min), max))
            break;
        for (unsigned i = 0; i < LANES; i++) { /* the next 16 rows' */
            v_prefetch_write(out + (g + i) * stride + 128);
            v_prefetch_write(out + (g + i) * stride + 192);
        }
        w4a8_multiples(steps, x, out + g * stride, stride);
    }
    return g;
}
#endif

/* The scales of 16 rows from `row` (= e * N + n) on: 128 bytes for each group. */
NOINLINE void w4a8_store_scales(const struct tp_op *op, const struct w4a8_scales *s,
                                const struct w4a8_strip *strip, uint64_t row)
{
    const uint64_t *table = tp_group8_of_eighth();
    const uint64_t n = s->n, groups = s->groups, padded = strip->padded;
    const uint8_t *codes = strip->codes;
    uint8_t *q = s->group8 + 8 * (row / n * groups * n + row % n);
    uint32_t amax[16];
    float sc[16], reciprocal[16];
    w4a8_amax(op, strip, groups, amax);
    w4a8_quotients(op, amax, sc, reciprocal);
    for (uint64_t r = 0; r < 16; r++)
        s->channel[row + r] = w4a8_row_scales(op, strip, groups, r, sc[r], reciprocal[r]);
    uint64_t g = 0;
    for (uint64_t done = 1; done && g < groups; g += done, codes += done, q += done * 8 * n)
        done = w4a8_group8(tp_group8_steps(), codes, padded, groups - g, q, 8 * n);
    for (; g < groups; g++, codes++, q += 8 * n)
        UNROLL
        for (unsigned r = 0; r < 16; r++)
            memcpy(q + 8 * r, &table[codes[r * padded]], 8);
}

static bool int4_is_w4a8(const struct tp_op *op)
{
    int i = tp_op_find(op, TP_ROLE_CHANNEL);
    return int4_has_groups(op, TP_ROLE_GROUP8, TP_ELEM_E4M3X8) && i >= 0 &&
           op->out[i].place == TP_PLACE_ROW;
}

#endif
