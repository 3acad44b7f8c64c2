/* Largest magnitude and non-finite values of a run of weights. The result does
 * not depend on how a caller cuts the run: maxima and counts only.
 */
#include "kernels/op/kernel.h"
#include "kernels/op/scalar.h"

enum { CHUNK = 1024 }; /* values looked at before the slow search for the first bad one */

enum { SIDE = 64 }; /* maxima side by side, for the compiler to keep in vectors */

/* Sixteen-bit floats order like integers too; infinity is `limit`. */
static uint32_t amax_u16(const uint16_t *h, uint64_t count)
{
    int16_t side[SIDE] = {0}, amax = 0;
    uint64_t i = 0;
    for (; i + SIDE <= count; i += SIDE)
        for (int j = 0; j < SIDE; j++) {
            int16_t m = (int16_t)(h[i + (uint64_t)j] & 0x7FFF);
            side[j] = m > side[j] ? m : side[j];
        }
    for (int j = 0; j < SIDE; j++)
        amax = side[j] > amax ? side[j] : amax;
    for (; i < count; i++)
        amax = (h[i] & 0x7FFF) > amax ? (int16_t)(h[i] & 0x7FFF) : amax;
    return (uint32_t)amax;
}

static uint32_t amax_u32(const uint32_t *w, uint64_t count)
{
    uint32_t amax = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint32_t m = w[i] & 0x7FFFFFFFu;
        amax = m > amax ? m : amax;
    }
    return amax;
}

static uint32_t magnitude(enum tp_dtype dtype, const void *values, uint64_t i)
{
    if (dtype == TP_F32)
        return ((const uint32_t *)values)[i] & 0x7FFFFFFFu;
    return ((const uint16_t *)values)[i] & 0x7FFFu;
}

static uint32_t chunk_amax(enum tp_dtype dtype, const void *values, uint64_t first,
                           uint64_t count)
{
    if (dtype == TP_F32)
        return amax_u32((const uint32_t *)values + first, count);
    return amax_u16((const uint16_t *)values + first, count);
}

void tp_value_stats(enum tp_dtype dtype, const void *values, uint64_t count,
                    struct tp_value_stats *stats)
{
    uint32_t limit = dtype == TP_F32 ? TP_F32_INF_BITS : dtype == TP_BF16 ? 0x7F80u : 0x7C00u;
    uint32_t amax = 0;
    *stats = (struct tp_value_stats){0};
    for (uint64_t first = 0; first < count; first += CHUNK) {
        uint64_t n = count - first < CHUNK ? count - first : CHUNK;
        uint32_t m = chunk_amax(dtype, values, first, n);
        if (m < limit) {
            amax = m > amax ? m : amax;
            continue;
        }
        for (uint64_t i = first; i < first + n; i++) {
            m = magnitude(dtype, values, i);
            if (m < limit)
                amax = m > amax ? m : amax;
            else if (stats->nonfinite++ == 0)
                stats->first_nonfinite = i;
        }
    }
    stats->amax = dtype == TP_F32    ? tp_bits_f32(amax)
                  : dtype == TP_BF16 ? tp_bf16_to_f32((uint16_t)amax)
                                     : tp_f16_to_f32((uint16_t)amax);
}

bool tp_e4m3_any_nan(const uint8_t *codes, uint64_t count)
{
    uint8_t side[SIDE] = {0}, any = 0;
    uint64_t i = 0;
    for (; i + SIDE <= count; i += SIDE)
        for (int j = 0; j < SIDE; j++) /* NaN alone carries into the highest bit */
            side[j] |= (uint8_t)((codes[i + (uint64_t)j] & 0x7F) + 1);
    for (int j = 0; j < SIDE; j++)
        any |= side[j];
    for (; i < count; i++)
        any |= (uint8_t)((codes[i] & 0x7F) + 1);
    return any >> 7;
}
