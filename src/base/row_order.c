/* Orders of rows, as arithmetic: see row_order.h. Heads are whole in all of them, so that each
 * maps heads to heads, or the rows of a head to one another.
 */
#include "base/row_order.h"

#include <stddef.h>

const char *const tp_row_kinds[] = {"source", "qkv-groups", "rotary-halves", NULL};

static uint64_t all_heads(const struct tp_row_order *order)
{
    switch (order->kind) {
    case TP_ORDER_QKV_GROUPS: return (uint64_t)order->heads + 2 * (uint64_t)order->groups;
    case TP_ORDER_ROTARY_HALVES: return order->heads;
    default: return 1;
    }
}

bool tp_row_order_fits(const struct tp_row_order *order, uint64_t rows)
{
    uint64_t heads = all_heads(order);
    if (order->kind == TP_ORDER_SOURCE)
        return true;
    if (!order->heads || !rows || rows % heads)
        return false;
    if (order->kind == TP_ORDER_QKV_GROUPS)
        return order->groups && order->heads % order->groups == 0;
    return rows / heads % 2 == 0;
}

uint64_t tp_row_head(const struct tp_row_order *order, uint64_t rows)
{
    return rows / all_heads(order);
}

/* Head h of q, k and v: which one of the source it is. */
static uint64_t head_source(const struct tp_row_order *order, uint64_t h)
{
    uint64_t share = order->heads / order->groups; /* of q in a group */
    if (h < order->heads)
        return h / share * (share + 2) + h % share;
    h -= order->heads; /* k of all groups, then v of all groups */
    return h % order->groups * (share + 2) + share + h / order->groups;
}

static uint64_t head_stored(const struct tp_row_order *order, uint64_t h)
{
    uint64_t share = order->heads / order->groups, group = h / (share + 2), at = h % (share + 2);
    return at < share ? group * share + at : order->heads + (at - share) * order->groups + group;
}

uint64_t tp_row_source(const struct tp_row_order *order, uint64_t rows, uint64_t n)
{
    if (order->kind == TP_ORDER_SOURCE)
        return n;
    uint64_t head = tp_row_head(order, rows), h = n / head, i = n % head;
    return order->kind == TP_ORDER_QKV_GROUPS
               ? head_source(order, h) * head + i
               : h * head + i % (head / 2) * 2 + i / (head / 2);
}

uint64_t tp_row_stored(const struct tp_row_order *order, uint64_t rows, uint64_t n)
{
    if (order->kind == TP_ORDER_SOURCE)
        return n;
    uint64_t head = tp_row_head(order, rows), h = n / head, i = n % head;
    return order->kind == TP_ORDER_QKV_GROUPS ? head_stored(order, h) * head + i
                                              : h * head + i % 2 * (head / 2) + i / 2;
}

bool tp_row_order_keeps(const struct tp_row_order *order, uint64_t rows, uint64_t per)
{
    uint64_t head = tp_row_head(order, rows);
    switch (order->kind) {
    case TP_ORDER_QKV_GROUPS: return head % per == 0;
    case TP_ORDER_ROTARY_HALVES: return per == 1 || per % head == 0;
    default: return true;
    }
}

bool tp_row_order_same(const struct tp_row_order *a, const struct tp_row_order *b)
{
    return a->kind == b->kind && a->heads == b->heads && a->groups == b->groups;
}
