/* What encoding and repacking share of FP8 with blocks: which operations, and how scales lie. */
#ifndef TP_KERNELS_CPU_FP8_H
#define TP_KERNELS_CPU_FP8_H

#include "kernels/cpu/cpu_run.h"

/* Whether scales lie in columns of one word for each row: a float, or the bytes of four
 * blocks. */
static bool fp8_columns(const struct tp_op_out *scale)
{
    return scale->per_n == 1 &&
           ((scale->place == TP_PLACE_MN_ALIGNED && scale->element == TP_ELEM_F32) ||
            (scale->place == TP_PLACE_MN_PACKED4 && scale->element == TP_ELEM_E8M0));
}

/* The fill byte, unless every byte is written anyway. */
static void fp8_fill(const struct tp_plane *plane, const struct tp_op_out *scale, uint64_t n)
{
    if (!fp8_columns(scale) || n % 4 != 0)
        tp_plane_fill(plane);
}

/* `count` words of 32 bits. */
V void fill_words(uint8_t *p, uint64_t count, uint32_t word)
{
    uint64_t i = 0;
    for (; i + VL <= count; i += VL)
        v_store(p + 4 * i, v_set(word));
    for (; i < count; i++)
        memcpy(p + 4 * i, &word, 4);
}

static bool fp8_accepts(const struct tp_op *op)
{
    return op->block_k == 128 && op->block_n > 0;
}

#endif
