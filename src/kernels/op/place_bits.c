/* Places of the elements of a tile by the bits of their coordinates; see place_bits.h. Pure
 * functions of a layout's numbers.
 */
#include "kernels/op/place_bits.h"

static void insert(struct tp_tile_bits *tile, struct tp_tile_bit bit)
{
    uint32_t i = tile->bits++;
    for (; i > 0 && tile->bit[i - 1].at > bit.at; i--)
        tile->bit[i] = tile->bit[i - 1];
    tile->bit[i] = bit;
}

/* What is left of a dimension behind its first elements: mode m and those after it. */
static void rest_of(const struct tp_layout_dim *dim, uint32_t m, uint64_t size, uint64_t stride,
                    struct tp_layout_dim *rest)
{
    rest->modes = dim->modes - m;
    for (uint32_t i = 0; i < rest->modes; i++) {
        rest->size[i] = dim->size[m + i];
        rest->stride[i] = dim->stride[m + i];
    }
    rest->size[0] = size;
    rest->stride[0] = stride;
}

/* The lowest `count` bits of a coordinate; *rest is what the others go through. */
static bool take_bits(const struct tp_layout_dim *dim, unsigned count, bool rows,
                      struct tp_tile_bits *tile, struct tp_layout_dim *rest)
{
    uint32_t m = 0;
    uint64_t size = dim->size[0], stride = dim->stride[0];
    for (unsigned i = 0; i < count; i++) {
        while (size == 1 && m + 1 < dim->modes) {
            size = dim->size[++m];
            stride = dim->stride[m];
        }
        if (m + 1 < dim->modes && size % 2 != 0)
            return false;
        const uint16_t step = (uint16_t)(1u << i);
        insert(tile, (struct tp_tile_bit){stride, rows ? step : 0, rows ? 0 : step});
        size = m + 1 < dim->modes || size > 1 ? (size + 1) / 2 : 1;
        stride *= 2;
    }
    rest_of(dim, m, size, stride, rest);
    return true;
}

bool tp_tile_bits_of(const struct tp_layout *layout, unsigned n, unsigned k,
                     struct tp_tile_bits *tile)
{
    tile->bits = 0;
    return n + k <= TP_TILE_BITS &&
           take_bits(&layout->dim[TP_DIM_N], n, true, tile, &tile->rows) &&
           take_bits(&layout->dim[TP_DIM_K], k, false, tile, &tile->columns);
}
