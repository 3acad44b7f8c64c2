/* Values as integers, root weights, and the error of a candidate; see search_ints.h. */
#include "kernels/op/search_ints.h"

#include "kernels/op/codec.h"
#include "kernels/op/search_scalar.h"

/* sum / n: what every weight of importance "magnitude" has at least. */
static int64_t mean_square(const struct tp_search_ints *ints)
{
    int64_t sum = 0;
    for (uint64_t i = 0; i < ints->count; i++)
        sum += (int64_t)ints->x[i] * ints->x[i];
    return sum / (int64_t)ints->count;
}

/* Large values count more: w = x^2 + mean x^2. */
static void roots_of_magnitude(struct tp_search_ints *ints)
{
    int64_t mean = mean_square(ints), max = 1;
    for (uint64_t i = 0; i < ints->count; i++) {
        int64_t w = (int64_t)ints->x[i] * ints->x[i] + mean;
        max = w > max ? w : max;
    }
    for (uint64_t i = 0; i < ints->count; i++) {
        int64_t w = (int64_t)ints->x[i] * ints->x[i] + mean;
        ints->root[i] = tp_search_root((float)w / (float)max);
    }
}

static void roots_of_file(struct tp_search_ints *ints, const float *importance)
{
    float max = tp_bits_f32(tp_amax_bits(importance, ints->count));
    bool any = max >= tp_bits_f32(TP_SEARCH_MIN);
    for (uint64_t i = 0; i < ints->count; i++)
        ints->root[i] = any ? tp_search_root(importance[i] / max) : 1;
}

void tp_search_take(struct tp_search_ints *ints, const struct tp_op *op, const float *values,
                    float factor, bool flip, const float *importance)
{
    for (uint64_t i = 0; i < ints->count; i++) {
        int32_t x = tp_search_int(values[i] * factor, ints->e);
        ints->x[i] = flip ? -x : x;
        ints->root[i] = 1;
    }
    if (op->importance == TP_IMPORTANCE_MAGNITUDE)
        roots_of_magnitude(ints);
    else if (op->importance == TP_IMPORTANCE_FILE && importance != NULL)
        roots_of_file(ints, importance);
}

/* No value of a candidate exceeds 2^20. */
static int32_t distance(int32_t x, const struct tp_search_values *values)
{
    int32_t min = INT32_MAX;
    for (int q = 0; q < 16; q++) {
        int32_t d = x - values->of[q];
        d = d < 0 ? -d : d;
        min = d < min ? d : min;
    }
    return min;
}

uint64_t tp_search_error(const struct tp_search_ints *ints, const struct tp_search_values *values)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < ints->count; i++) {
        int64_t d = distance(ints->x[i], values) * ints->root[i];
        sum += (uint64_t)(d * d);
    }
    return sum;
}

bool tp_search_flips(const float *values, uint64_t count)
{
    uint32_t max[2] = {0, 0};
    for (uint64_t i = 0; i < count; i++) {
        uint32_t m = tp_abs_bits(values[i]), negative = tp_f32_bits(values[i]) >> 31;
        max[negative] = m > max[negative] ? m : max[negative];
    }
    return max[0] > max[1];
}
