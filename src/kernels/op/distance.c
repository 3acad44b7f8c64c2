/* The reference of distances: pair after pair. Runs are counted in words of the machine, for which
 * no instruction set is needed. */
#include "kernels/op/distance.h"

#include "kernels/op/plane.h"

#include <math.h>
#include <string.h>

void tp_widen(enum tp_dtype dtype, const void *from, uint64_t count, float *to)
{
    const uint16_t *half = from;
    if (dtype == TP_F32)
        memcpy(to, from, count * sizeof *to);
    else if (dtype == TP_BF16)
        for (uint64_t i = 0; i < count; i++) {
            uint32_t bits = (uint32_t)half[i] << 16;
            memcpy(&to[i], &bits, sizeof bits);
        }
    else
        for (uint64_t i = 0; i < count; i++)
            to[i] = tp_load_value(from, dtype, i);
}

void tp_distance_ref(enum tp_dtype dtype, const void *a, const float *b, uint64_t count,
                     struct tp_block_distance *block)
{
    *block = (struct tp_block_distance){0};
    for (uint64_t i = 0; i < count; i++) {
        uint64_t lane = i % TP_DISTANCE_LANES;
        double x = tp_load_value(a, dtype, i), difference = (double)b[i] - x;
        double size = fabs(difference);
        block->error[lane] += difference * difference;
        block->value[lane] += x * x;
        block->max[lane] = size > block->max[lane] ? size : block->max[lane];
        block->differing[lane] += difference != 0;
    }
}

/* Whether so many bytes of values are zero, but for their signs. Of most runs the first word says
 * that they are not. */
static inline bool is_zero(const void *from, size_t bytes, uint64_t signs)
{
    const uint8_t *at = from;
    uint64_t word = 0;
    for (; bytes >= sizeof word; at += sizeof word, bytes -= sizeof word) {
        memcpy(&word, at, sizeof word);
        if (word & ~signs)
            return false;
    }
    word = 0;
    memcpy(&word, at, bytes);
    return (word & ~signs) == 0;
}

/* Runs of which nothing is left. `width` and `run` are constants where they can be, so that runs
 * are loads of known size. */
static inline void count_zero(const uint8_t *a, size_t width, const float *b, uint64_t run,
                              uint64_t *empty, uint64_t *lost)
{
    const uint64_t wide = UINT64_C(0x8000000080000000), half = UINT64_C(0x8000800080008000);
    if (!is_zero(b, run * sizeof *b, wide))
        return;
    if (is_zero(a, run * width, width == 2 ? half : wide))
        ++*empty;
    else
        ++*lost;
}

static inline uint64_t count_lost(const uint8_t *a, size_t width, const float *b, uint64_t rows,
                                  uint64_t columns, uint64_t *empty)
{
    const uint64_t whole = columns / TP_RUN * TP_RUN;
    uint64_t zero = 0, lost = 0;
    for (uint64_t row = 0; row < rows; row++, a += columns * width, b += columns) {
        for (uint64_t k = 0; k < whole; k += TP_RUN)
            count_zero(a + k * width, width, b + k, TP_RUN, &zero, &lost);
        if (whole < columns)
            count_zero(a + whole * width, width, b + whole, columns - whole, &zero, &lost);
    }
    *empty = zero;
    return lost;
}

void tp_count_runs(enum tp_dtype dtype, const void *a, const float *b, uint64_t rows,
                   uint64_t columns, uint64_t *count, uint64_t *lost)
{
    uint64_t empty;
    *lost += dtype == TP_F32 ? count_lost(a, sizeof(float), b, rows, columns, &empty)
                             : count_lost(a, sizeof(uint16_t), b, rows, columns, &empty);
    *count += rows * ((columns + TP_RUN - 1) / TP_RUN) - empty;
}
