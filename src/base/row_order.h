/* Orders of the rows of a weight: some readers move rows when they load a plain weight, and packed
 * rows have to lie as they want them already. What a stored row was, and where a source row lies.
 *
 * A small closed list. Each is a bijection of the rows that its numbers fit.
 */
#ifndef TP_BASE_ROW_ORDER_H
#define TP_BASE_ROW_ORDER_H

#include "base/c_linkage.h"

#include <stdbool.h>
#include <stdint.h>

TP_C_BEGIN

enum tp_row_kind {
    TP_ORDER_SOURCE,        /* as the source has them */
    TP_ORDER_QKV_GROUPS,    /* q, k and v; in the source group after group: the heads of q that
                               share a head of k and v, that of k and that of v */
    TP_ORDER_ROTARY_HALVES, /* of each head the even rows, and then the odd ones */
    TP_ROW_KINDS
};

/* {0}: as the source has them. */
struct tp_row_order {
    uint16_t kind;   /* enum tp_row_kind */
    uint16_t heads;  /* of q, or of the weight */
    uint16_t groups; /* heads of k; TP_ORDER_QKV_GROUPS only */
};

extern const char *const tp_row_kinds[TP_ROW_KINDS + 1]; /* their names, and NULL */

/* Whether so many rows can have the order. The other functions take such rows only. */
bool tp_row_order_fits(const struct tp_row_order *order, uint64_t rows);
/* Rows of one head; all of them where nothing moves. */
uint64_t tp_row_head(const struct tp_row_order *order, uint64_t rows);
/* The source's row that lies as row n, and the row that row n of the source lies as. */
uint64_t tp_row_source(const struct tp_row_order *order, uint64_t rows, uint64_t n);
uint64_t tp_row_stored(const struct tp_row_order *order, uint64_t rows, uint64_t n);
/* Whether rows that are together in a block of `per` rows are so on both sides. */
bool tp_row_order_keeps(const struct tp_row_order *order, uint64_t rows, uint64_t per);
bool tp_row_order_same(const struct tp_row_order *a, const struct tp_row_order *b);

TP_C_END

#endif
