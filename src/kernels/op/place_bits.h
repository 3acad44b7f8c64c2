/* Internal to src/kernels: how the elements of a tile lie in a stored output, bit by bit.
 *
 * A tile has 2^n rows and 2^k columns and begins at multiples of them. Where the sizes of the
 * layout's inner modes are even for so many bits, every bit of a row or a column moves an element
 * by a stride of its own, whatever the other bits are: the table of a tile of any size is one
 * number for each bit. Ordered by strides, the bits count the elements as they are stored. Knows
 * no codec and no device.
 */
#ifndef TP_KERNELS_PLACE_BITS_H
#define TP_KERNELS_PLACE_BITS_H

#include "base/c_linkage.h"
#include "base/layout.h"

TP_C_BEGIN

enum { TP_TILE_BITS = 16 };

/* One bit of an element's number in the order of storage. */
struct tp_tile_bit {
    uint64_t at;          /* how far it moves the element, in elements */
    uint16_t row, column; /* how many rows or columns on that is: one of them is 0 */
};

struct tp_tile_bits {
    uint32_t bits; /* n + k */
    struct tp_tile_bit bit[TP_TILE_BITS]; /* at rises */
    struct tp_layout_dim rows, columns;   /* where tile (i, j) begins, by i and by j */
};

/* For a layout evaluated for a weight; elements of a tile beyond the weight have places that mean
 * nothing. False: a mode ends within the tile and not at one of its bits, or n + k is above
 * TP_TILE_BITS. */
bool tp_tile_bits_of(const struct tp_layout *layout, unsigned n, unsigned k,
                     struct tp_tile_bits *tile);

TP_C_END

#endif
