/* Places of the elements of a tile by the bits of their coordinates, against the layout itself. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "kernels/op/place_bits.h"

#include "base/layout_parse.h"

#define MARLIN "(E,(8,2,4,N/64),(2,4,2,K/16)):(N*K,(128,2,8,1024),(4,32,1,16*N))"
#define AWQ "(E,(2,4,N/8),K):(N*K,(4,1,8),N)"
#define ROWS_OF_32 "(E,(4,8,N/32),K):(N*K,(8*K,K,32*K),1)"

static struct tp_layout parse(const char *text, struct tp_box3 box)
{
    struct tp_layout layout;
    struct tp_err err = {0};
    if (tp_layout_parse(text, box, &layout, &err))
        fail_msg("%s: %s", text, err.what);
    return layout;
}

/* Every element of every tile of the box, which whole tiles fill. */
static void check(const char *text, struct tp_box3 box, unsigned n, unsigned k)
{
    const struct tp_layout layout = parse(text, box);
    struct tp_tile_bits tile;
    assert_true(tp_tile_bits_of(&layout, n, k, &tile));
    assert_int_equal(tile.bits, n + k);
    for (uint32_t b = 1; b < tile.bits; b++)
        assert_true(tile.bit[b - 1].at < tile.bit[b].at);
    for (uint64_t i = 0; i < box.n >> n; i++)
        for (uint64_t j = 0; j < box.k >> k; j++)
            for (uint32_t x = 0; x >> tile.bits == 0; x++) {
                uint64_t row = i << n, column = j << k;
                uint64_t at = tp_layout_dim_at(&tile.rows, i) +
                              tp_layout_dim_at(&tile.columns, j);
                for (uint32_t b = 0; b < tile.bits; b++) {
                    at += (x >> b & 1) * tile.bit[b].at;
                    row += (x >> b & 1) * tile.bit[b].row;
                    column += (x >> b & 1) * tile.bit[b].column;
                }
                assert_int_equal(at, tp_layout_at(&layout, 0, row, column));
            }
}

static void test_places(void **state)
{
    (void)state;
    check(MARLIN, (struct tp_box3){1, 256, 256}, 7, 7);
    check(MARLIN, (struct tp_box3){1, 256, 64}, 3, 2);
    check(AWQ, (struct tp_box3){2, 384, 128}, 7, 7);
    check(ROWS_OF_32, (struct tp_box3){1, 128, 96}, 6, 5);
    check(ROWS_OF_32, (struct tp_box3){1, 96, 96}, 0, 0);
    check("(E,(1,6,N/6),K):(N*K,(7,1,6),N)", (struct tp_box3){1, 12, 8}, 1, 3);
}

/* A tile that ends where no bit of a mode does. */
static void test_refused(void **state)
{
    struct tp_tile_bits tile;
    (void)state;
    struct tp_layout layout = parse("(E,(6,N/6),K):(N*K,(1,6),N)", (struct tp_box3){1, 12, 8});
    assert_true(tp_tile_bits_of(&layout, 1, 3, &tile));
    assert_false(tp_tile_bits_of(&layout, 2, 3, &tile));
    layout = parse("(E,N,K):(N*K,K,1)", (struct tp_box3){1, 1024, 1024});
    assert_true(tp_tile_bits_of(&layout, 8, 8, &tile));
    assert_false(tp_tile_bits_of(&layout, 9, 8, &tile));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
