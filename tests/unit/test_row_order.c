/* Orders of rows: bijections, by the definition in formats/README.md, and what fits them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/row_order.h"

#include <string.h>

static const struct tp_row_order orders[] = {
    {TP_ORDER_SOURCE, 0, 0},        {TP_ORDER_QKV_GROUPS, 4, 2},    {TP_ORDER_QKV_GROUPS, 71, 1},
    {TP_ORDER_QKV_GROUPS, 5, 5},    {TP_ORDER_ROTARY_HALVES, 1, 0}, {TP_ORDER_ROTARY_HALVES, 8, 0},
};
enum { ORDERS = sizeof orders / sizeof *orders, HEAD = 6, LONGEST = 80 * HEAD };

static uint64_t rows_of(const struct tp_row_order *order)
{
    return HEAD * (order->heads + 2u * order->groups + !order->heads);
}

/* As the text says it: rows of the source in the order in which they are stored. */
static uint64_t written_out(const struct tp_row_order *order, uint64_t list[LONGEST])
{
    uint64_t rows = rows_of(order), count = 0, heads = order->heads, groups = order->groups;
    if (order->kind == TP_ORDER_QKV_GROUPS) {
        uint64_t in_group = heads / groups + 2;
        uint64_t first[] = {0, heads / groups, heads / groups + 1};
        for (int part = 0; part < 3; part++)
            for (uint64_t g = 0; g < groups; g++)
                for (uint64_t h = 0; h < (part ? 1 : heads / groups); h++)
                    for (uint64_t i = 0; i < HEAD; i++)
                        list[count++] = (g * in_group + first[part] + h) * HEAD + i;
    } else if (order->kind == TP_ORDER_ROTARY_HALVES) {
        for (uint64_t h = 0; h < heads; h++)
            for (uint64_t odd = 0; odd < 2; odd++)
                for (uint64_t i = 0; i < HEAD / 2; i++)
                    list[count++] = h * HEAD + 2 * i + odd;
    } else {
        while (count < rows)
            list[count] = count, count++;
    }
    assert_int_equal(count, rows);
    return rows;
}

static void as_written_out(void **state)
{
    (void)state;
    for (int o = 0; o < ORDERS; o++) {
        uint64_t list[LONGEST], rows = written_out(&orders[o], list);
        assert_true(tp_row_order_fits(&orders[o], rows));
        for (uint64_t n = 0; n < rows; n++) {
            assert_int_equal(tp_row_source(&orders[o], rows, n), list[n]);
            assert_int_equal(tp_row_stored(&orders[o], rows, list[n]), n);
        }
    }
}

/* Rows of one block of the source come from one block, and the other way round. */
static void kept_blocks(void **state)
{
    (void)state;
    for (int o = 0; o < ORDERS; o++)
        for (uint64_t per = 1; per <= 2 * HEAD; per++) {
            uint64_t rows = rows_of(&orders[o]);
            bool kept = true;
            for (uint64_t n = 0; n + 1 < rows; n++)
                if (n / per == (n + 1) / per)
                    kept &= tp_row_source(&orders[o], rows, n) / per ==
                            tp_row_source(&orders[o], rows, n + 1) / per;
            if (tp_row_order_keeps(&orders[o], rows, per))
                assert_true(kept);
            if (per == 1)
                assert_true(tp_row_order_keeps(&orders[o], rows, per));
        }
}

static void what_fits(void **state)
{
    (void)state;
    static const struct tp_row_order none[] = {
        {TP_ORDER_QKV_GROUPS, 0, 1}, {TP_ORDER_QKV_GROUPS, 4, 0}, {TP_ORDER_QKV_GROUPS, 4, 3},
        {TP_ORDER_QKV_GROUPS, 5, 1}, {TP_ORDER_ROTARY_HALVES, 0, 0}, {TP_ORDER_ROTARY_HALVES, 5, 0},
        {TP_ORDER_ROTARY_HALVES, 48, 0}};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_false(tp_row_order_fits(&none[i], 48));
    assert_false(tp_row_order_fits(&orders[1], 0));
    for (int a = 0; a < ORDERS; a++)
        for (int b = 0; b < ORDERS; b++)
            assert_int_equal(tp_row_order_same(&orders[a], &orders[b]), a == b);
    for (int kind = 0; kind < TP_ROW_KINDS; kind++)
        assert_true(tp_row_kinds[kind] && strlen(tp_row_kinds[kind]));
    assert_null(tp_row_kinds[TP_ROW_KINDS]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(as_written_out),
                                       cmocka_unit_test(kept_blocks), cmocka_unit_test(what_fits)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
