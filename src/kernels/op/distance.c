/* The reference of distances: pair after pair. */
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
