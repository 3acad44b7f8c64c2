/* Layouts: the index functions.
 *
 * Offsets are separable: the offset of (e,n,k) is the sum of one term per dimension, because
 * every mode belongs to one dimension. Arithmetic is in layout_expr.c, text in layout_parse.c,
 * embedding and runs are in layout_runs.c.
 */
#include "base/layout.h"

#include <stdio.h>

struct mode {
    uint64_t size, stride;
};

/* All modes of more than one element, by ascending stride. */
static int sorted_modes(const struct tp_layout *layout, struct mode modes[])
{
    int count = 0;
    for (int d = 0; d < TP_DIMS; d++)
        for (uint32_t m = 0; m < layout->dim[d].modes; m++) {
            struct mode mode = {layout->dim[d].size[m], layout->dim[d].stride[m]};
            if (mode.size == 1)
                continue;
            int at = count++;
            for (; at > 0 && modes[at - 1].stride > mode.stride; at--)
                modes[at] = modes[at - 1];
            modes[at] = mode;
        }
    return count;
}

enum tp_code tp_layout_check(const struct tp_layout *layout, struct tp_err *err)
{
    struct mode modes[TP_DIMS * TP_LAYOUT_MODES];
    int count = sorted_modes(layout, modes);
    uint64_t next = 1;
    for (int i = 0; i < count; i++) {
        if (modes[i].stride != next)
            return tp_fail(err, TP_E_INPUT,
                           "layout is not a bijection: expected a mode of stride %llu, found %llu",
                           (unsigned long long)next, (unsigned long long)modes[i].stride);
        next *= modes[i].size; /* fits: tp_layout_in_range() saw the whole size */
    }
    return TP_OK;
}

uint64_t tp_layout_extent(const struct tp_layout *layout, int dim)
{
    uint64_t extent = 1;
    for (uint32_t m = 0; m < layout->dim[dim].modes; m++)
        extent *= layout->dim[dim].size[m];
    return extent;
}

uint64_t tp_layout_size(const struct tp_layout *layout)
{
    uint64_t size = 1;
    for (int d = 0; d < TP_DIMS; d++)
        size *= tp_layout_extent(layout, d);
    return size;
}

uint64_t tp_layout_dim_at(const struct tp_layout_dim *dim, uint64_t x)
{
    uint64_t offset = 0;
    for (uint32_t m = 0; m + 1 < dim->modes; m++) {
        offset += x % dim->size[m] * dim->stride[m];
        x /= dim->size[m];
    }
    return offset + x * dim->stride[dim->modes - 1];
}

uint64_t tp_layout_at(const struct tp_layout *layout, uint64_t e, uint64_t n, uint64_t k)
{
    return tp_layout_dim_at(&layout->dim[TP_DIM_E], e) +
           tp_layout_dim_at(&layout->dim[TP_DIM_N], n) +
           tp_layout_dim_at(&layout->dim[TP_DIM_K], k);
}

void tp_layout_coord(const struct tp_layout *layout, uint64_t offset, uint64_t coord[TP_DIMS])
{
    for (int d = 0; d < TP_DIMS; d++) {
        uint64_t weight = 1; /* of this mode's digit within the coordinate */
        coord[d] = 0;
        for (uint32_t m = 0; m < layout->dim[d].modes; m++) {
            uint64_t size = layout->dim[d].size[m], stride = layout->dim[d].stride[m];
            if (size > 1)
                coord[d] += offset / stride % size * weight;
            weight *= size;
        }
    }
}

static void put(char *text, size_t size, size_t *length, const char *part)
{
    for (; *part; part++, ++*length)
        if (*length + 1 < size)
            text[*length] = *part;
    if (size)
        text[*length < size ? *length : size - 1] = '\0';
}

static void put_modes(char *text, size_t size, size_t *length, const uint64_t *values,
                      uint32_t count)
{
    char number[24];
    if (count > 1)
        put(text, size, length, "(");
    for (uint32_t m = 0; m < count; m++) {
        snprintf(number, sizeof number, "%s%llu", m ? "," : "", (unsigned long long)values[m]);
        put(text, size, length, number);
    }
    if (count > 1)
        put(text, size, length, ")");
}

size_t tp_layout_print(const struct tp_layout *layout, char *text, size_t size)
{
    size_t length = 0;
    for (int half = 0; half < 2; half++) {
        put(text, size, &length, half ? ":(" : "(");
        for (int d = 0; d < TP_DIMS; d++) {
            const struct tp_layout_dim *dim = &layout->dim[d];
            if (d)
                put(text, size, &length, ",");
            put_modes(text, size, &length, half ? dim->stride : dim->size, dim->modes);
        }
        put(text, size, &length, ")");
    }
    return length;
}
