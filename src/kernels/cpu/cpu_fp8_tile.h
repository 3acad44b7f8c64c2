/* The codes of FP8 tiles: one row of blocks, at most FP8_TILE of them.
 *
 * Full tiles are read for the magnitudes while the tile before them is encoded, so that memory and
 * arithmetic overlap.
 */
#ifndef TP_KERNELS_CPU_FP8_TILE_H
#define TP_KERNELS_CPU_FP8_TILE_H

#include "kernels/cpu/cpu_run.h"
#include "kernels/cpu/cpu_words.h"

enum {
    FP8_TILE = 4, /* a multiple of 4, as four scales may share a word; with 128 rows, two
                     tiles and the codes leave half of a 1 MiB cache free */
    FP8_FETCH_ROWS = 4, /* of the next tile are on their way from memory */
};

struct fp8_job {
    const struct tp_op *op;
    struct tp_args *args;
    struct tp_plane scale;
    bool columns; /* of words, see fp8_columns() */
    uint8_t *codes;
    void *scratch;
    uint64_t e;
    bool amax_known; /* of the tile to come, from fp8_codes() of the tile before: */
    uint32_t next_amax[FP8_TILE];
};

struct fp8_tile {
    uint64_t n0, k0, rows, width;
    const uint8_t *in, *next; /* next: the tile to be fetched meanwhile; the last one has itself,
                                 as what lies behind a box is another thread's */
    bool ahead; /* this tile and the next are full: its magnitudes are taken meanwhile */
    uint8_t *out;
    uint64_t stride; /* values from row to row */
    uint32_t amax[FP8_TILE], scale[FP8_TILE]; /* bits of floats */
    float factor[FP8_TILE];
};

/* max(m, magnitudes of a row of blocks), one m for each. */
V void fp8_amax_row(enum tp_dtype dtype, vu m[FP8_TILE], const uint8_t *p, uint64_t blocks)
{
    for (uint64_t j = 0; j < blocks; j++)
        m[j] = amax_step128(dtype, m[j], p + j * 128 * value_bytes(dtype));
}

/* 64 codes at column k of a row; asks for the same place of the next tile, some rows
 * further on, and for the output of the next row. */
V void fp8_64(enum tp_dtype dtype, int how, const struct fp8_tile *t, uint64_t row, uint64_t k,
              const vf f[64 / VL])
{
    const uint64_t at = (row + k) * value_bytes(dtype);
    const uint8_t *fetch = t->next + at + FP8_FETCH_ROWS * t->stride * value_bytes(dtype);
    UNROLL
    for (unsigned i = 0; i < 64 * value_bytes(dtype); i += 64)
        v_prefetch_far(fetch + i);
    v_prefetch_write(t->out + row + t->stride + k);
    e4m3_64(dtype, how, t->in + at, t->out + row + k, f, how != HOW_MUL);
}

/* Codes of the few values behind the last 64. */
NOINLINE void e4m3_rest(enum tp_dtype dtype, int how, const void *p, uint8_t *dst, uint64_t count,
                        float factor)
{
    for (uint64_t i = 0; i < count; i++) {
        float x = tp_load_value(p, dtype, i);
        x = how_divides(how) ? x / factor : x * factor;
        if (how == HOW_DIV_BF16 || how == HOW_MUL_BF16)
            x = tp_bf16_to_f32(tp_f32_to_bf16(x));
        else if (how == HOW_MUL_SNAP)
            x = tp_bits_f32((tp_f32_bits(x) + 0x80) & 0xFFFFFF00u);
        dst[i] = tp_e4m3_of(x);
    }
}

/* Products never exceed 448 by more than rounding, only quotients by a bf16 scale do. */
V void fp8_codes_row(enum tp_dtype dtype, int how, const struct fp8_tile *t, uint64_t row)
{
    uint64_t k = 0;
    vf f[64 / VL];
    for (; k + 64 <= t->width; k += 64) {
        two_factors(f, t->factor[k / 128], t->factor[k / 128]);
        fp8_64(dtype, how, t, row, k, f);
    }
    if (k < t->width)
        e4m3_rest(dtype, how, t->in + (row + k) * value_bytes(dtype), t->out + row + k,
                  t->width - k, t->factor[k / 128]);
}

/* The codes of a tile and, if it is to look ahead, the magnitudes of the next one. */
V void fp8_codes(enum tp_dtype dtype, int how, const struct fp8_tile *t,
                 uint32_t next_amax[FP8_TILE])
{
    vu m[FP8_TILE];
    for (unsigned j = 0; j < FP8_TILE; j++)
        m[j] = v_set(0);
    for (uint64_t r = 0; r < t->rows; r++) {
        uint64_t row = r * t->stride;
        if (t->ahead)
            fp8_amax_row(dtype, m, t->next + row * value_bytes(dtype), FP8_TILE);
        fp8_codes_row(dtype, how, t, row);
    }
    for (unsigned j = 0; t->ahead && j < FP8_TILE; j++)
        next_amax[j] = amax_end(dtype, m[j]);
}

/* Turns the factors of a tile of bf16 values from divisors into reciprocals, if products
 * do as well. They do where a divisor has 8 significant bits, as the values have. With
 * integers X, S < 256 the quotient is X / S times a power of two. Half way between two
 * bf16 is an odd M > 256 times such a power: X / S is never there, as M does not divide X,
 * and so at least 2^-17 away; the product errs by 2^-23 and rounds to the same bf16.
 * Half way between two e4m3 the quotient is exactly or at least 2^-13 away: the product
 * rounded to 16 bits tells. Quotients below 2^-126 become 0 either way. */
static bool fp8_by_reciprocals(struct fp8_tile *t, uint64_t blocks)
{
    for (uint64_t j = 0; j < blocks; j++)
        if ((tp_f32_bits(t->factor[j]) & 0xFFFF) != 0 || !(t->factor[j] >= 0x1p-118f) ||
            !(t->factor[j] <= 0x1p120f))
            return false;
    for (uint64_t j = 0; j < blocks; j++)
        t->factor[j] = 1.0f / t->factor[j];
    return true;
}

/* How codes are made by the rule, with the factors that are there or reciprocals in their place. */
V int fp8_how(const struct tp_op *op, enum tp_dtype dtype, struct fp8_tile *t, uint64_t blocks)
{
    if (op->rule != TP_FP8_CT_BF16 && op->rule != TP_FP8_CT_FP32)
        return op->rule == TP_FP8_DIV ? HOW_DIV : HOW_MUL;
    if (dtype == TP_BF16 && fp8_by_reciprocals(t, blocks))
        return op->rule == TP_FP8_CT_BF16 ? HOW_MUL_BF16 : HOW_MUL_SNAP;
    return op->rule == TP_FP8_CT_BF16 ? HOW_DIV_BF16 : HOW_DIV;
}

#endif
