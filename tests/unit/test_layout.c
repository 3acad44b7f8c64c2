/* Layouts: grammar, evaluation, inversion, granules, and boxes inside wholes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/layout_parse.h"
#include "base/num.h"

#include <stdlib.h>
#include <string.h>

#define W4A8 "(E,(8,2,N/16),(4,4,2,K/32)):(N*K,(64,4,512),(1,16,8,32*N))"
#define TILE_N                                                                                 \
    "(E,(32,4,align(N,128)/128),(4,align(ceil(K,32),4)/4)):"                                   \
    "(align(N,128)*align(ceil(K,32),4),(16,4,128*align(ceil(K,32),4)),(1,512))"
#define PACKED4                                                                                \
    "(E,align(N,4),(4,ceil(ceil(K,128),4))):"                                                  \
    "(4*align(N,4)*ceil(ceil(K,128),4),4,(1,4*align(N,4)))"

static struct tp_layout parse(const char *text, uint64_t e, uint64_t n, uint64_t k)
{
    struct tp_layout layout;
    struct tp_err err = {0};
    if (tp_layout_parse(text, (struct tp_box3){e, n, k}, &layout, &err))
        fail_msg("%s: %s", text, err.what);
    return layout;
}

static void expressions(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t value;
    } good[] = {{"7", 7},           {"N", 6},           {"2*N+K/5-E", 12},   {"ceil(K,4)", 3},
                {"align(K,4)", 12}, {"(N+2)*(K-9)", 8}, {"align(ceil(K,4),8)/2", 4},
                {" N * K ", 60},    {"K/5/2", 1}};
    static const char *const bad[] = {"",   "N+",      "K/3",        "E-N",  "X",         "ceil(N)",
                                      "(N", "N)",      "ceil(N,0)",  "2 3",  "N/0",       "align(N,",
                                      "18446744073709551616", "18446744073709551615*N"};
    struct tp_box3 box = {2, 6, 10};
    uint64_t value;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct tp_err err = {0};
        assert_int_equal(tp_expr_eval(good[i].text, box, &value, &err), TP_OK);
        assert_int_equal(value, good[i].value);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tp_err err = {0};
        assert_int_equal(tp_expr_eval(bad[i], box, &value, &err), TP_E_INPUT);
        assert_true(err.what[0]);
    }
}

static void bad_layouts(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "(E,N):(N,1)", "(E,N,K):(N*K,K)", "(E,N,(4,K/4)):(N*K,K,1)", "(E,N,K)(N*K,K,1)",
        "(E,N,K):(N*K,K,1) ", "(E,N,0):(N*K,K,1)", "(E,N,K):(N*K,K,9223372036854775807)",
        "(E,N,(1,1,1,1,1,1,K)):(N*K,K,(1,1,1,1,1,1,1))"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct tp_layout layout;
        struct tp_err err = {0};
        if (i == 4) { /* trailing space is the one legal text of the list */
            assert_int_equal(tp_layout_parse(bad[i], (struct tp_box3){2, 6, 10}, &layout, &err), 0);
            continue;
        }
        assert_int_equal(tp_layout_parse(bad[i], (struct tp_box3){2, 6, 10}, &layout, &err),
                         TP_E_INPUT);
    }
}

/* A text of parentheses alone does not exhaust the stack. */
static void deep_layouts(void **state)
{
    (void)state;
    enum { DEEP = 1 << 20 };
    struct tp_layout layout;
    struct tp_err err = {0}, none = {0};
    uint64_t value;
    char *text = malloc(DEEP + 1);
    assert_non_null(text);
    memset(text, '(', DEEP);
    text[DEEP] = '\0';
    assert_int_equal(tp_layout_parse(text, (struct tp_box3){1, 1, 1}, &layout, &err), TP_E_INPUT);
    free(text);
    assert_int_equal(tp_expr_eval("((((ceil(align((N),8),4)+((K))))))", (struct tp_box3){1, 9, 5},
                                  &value, &none), TP_OK);
    assert_int_equal(value, 9);
}

static void bijections(void **state)
{
    (void)state;
    static const char *const no[] = {"(E,N,K):(N*K,K,2)", "(E,N,K):(N*K,1,1)", "(E,N,K):(1,K,1)",
                                     "(E,N,K):(N*K,K+1,1)"};
    struct tp_err none = {0};
    struct tp_layout layout = parse(W4A8, 3, 48, 64);
    assert_int_equal(tp_layout_check(&layout, &none), TP_OK);
    layout = parse("(E,N,K):(7,7,7)", 1, 1, 1); /* strides of single coordinates do not matter */
    assert_int_equal(tp_layout_check(&layout, &none), TP_OK);
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) {
        struct tp_err err = {0};
        layout = parse(no[i], 2, 6, 10);
        assert_int_equal(tp_layout_check(&layout, &err), TP_E_INPUT);
    }
}

/* The offset formula of the reordered int4 weight, written out. */
static uint64_t w4a8_offset(uint64_t n, uint64_t k, uint64_t rows)
{
    return (k >> 5) * 32 * rows + (n >> 4) * 512 + (n & 7) * 64 + (k >> 2 & 3) * 16 +
           (k >> 4 & 1) * 8 + (n >> 3 & 1) * 4 + (k & 3);
}

static void known_offsets(void **state)
{
    (void)state;
    struct tp_layout layout = parse(W4A8, 2, 48, 96);
    for (uint64_t e = 0; e < 2; e++)
        for (uint64_t n = 0; n < 48; n++)
            for (uint64_t k = 0; k < 96; k++)
                assert_int_equal(tp_layout_at(&layout, e, n, k),
                                 e * 48 * 96 + w4a8_offset(n, k, 48));
    layout = parse(TILE_N, 1, 200, 192); /* 128x4 tiles: 2 by 2 of them */
    assert_int_equal(tp_layout_size(&layout), 256 * 8);
    assert_int_equal(tp_layout_at(&layout, 0, 130, 5), 128 * 8 + 512 + 2 * 16 + 0 * 4 + 1);
}

static void inverse_and_print(void **state)
{
    (void)state;
    static const char *const texts[] = {W4A8, TILE_N, PACKED4, "(E,N,K):(N*K,1,N)"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        char text[300], again[300];
        struct tp_layout layout = parse(texts[i], 2, 160, 256);
        uint64_t size = tp_layout_size(&layout);
        tp_layout_print(&layout, text, sizeof text);
        struct tp_layout numbers = parse(text, 1, 1, 1);
        tp_layout_print(&numbers, again, sizeof again);
        assert_string_equal(text, again);
        for (uint64_t offset = 0; offset < size; offset++) {
            uint64_t c[TP_DIMS];
            tp_layout_coord(&layout, offset, c);
            assert_int_equal(tp_layout_at(&numbers, c[0], c[1], c[2]), offset);
        }
        assert_int_equal(tp_layout_print(&layout, text, 5), strlen(again));
        assert_int_equal(strlen(text), 4);
    }
}

static void granules(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t n, k;
    } cases[] = {{W4A8, 16, 32}, {TILE_N, 128, 4}, {PACKED4, 4, 4}, {"(E,N,K):(N*K,K,1)", 1, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t n, k;
        struct tp_err err = {0};
        struct tp_layout_expr expr;
        assert_int_equal(tp_layout_compile(cases[i].text, &expr, &err), TP_OK);
        assert_int_equal(tp_layout_granule(&expr, TP_DIM_N, &n, &err), TP_OK);
        assert_int_equal(tp_layout_granule(&expr, TP_DIM_K, &k, &err), TP_OK);
        assert_int_equal(n, cases[i].n);
        assert_int_equal(k, cases[i].k);
    }
    uint64_t none;
    struct tp_err zero = {0};
    struct tp_layout_expr expr;
    assert_int_equal(tp_layout_compile("(1,(1-E,1),4):(1,(1,8),2)", &expr, &zero), TP_OK);
    assert_int_equal(tp_layout_granule(&expr, TP_DIM_N, &none, &zero), TP_E_INPUT);
}

struct copied {
    uint8_t *whole;
    const uint8_t *part;
    uint64_t next, runs, length;
};

static int copy_run(void *arg, uint64_t whole, uint64_t part, uint64_t length)
{
    struct copied *c = arg;
    assert_int_equal(part, c->next); /* in order, without holes */
    c->next += length;
    c->runs++;
    assert_true(c->runs == 1 || length == c->length);
    c->length = length;
    memcpy(c->whole + whole, c->part + part, length);
    return 0;
}

/* Every element of a box must land where the whole layout puts it. */
static void check_box(const char *text, struct tp_box3 size, uint64_t e0, uint64_t n0, uint64_t k0,
                      struct tp_box3 box)
{
    struct tp_layout whole = parse(text, size.e, size.n, size.k);
    struct tp_layout part = parse(text, box.e, box.n, box.k);
    uint64_t part_size = tp_layout_size(&part), whole_size = tp_layout_size(&whole);
    uint8_t *from = malloc(part_size), *to = calloc(1, whole_size);
    assert_true(tp_layout_embeds(&part, &whole));
    for (uint64_t i = 0; i < part_size; i++)
        from[i] = (uint8_t)(1 + rand() % 255);
    struct copied copied = {to, from, 0, 0, 0};
    tp_layout_runs(&part, &whole, tp_layout_at(&whole, e0, n0, k0), copy_run, &copied);
    assert_int_equal(copied.next, part_size);
    assert_int_equal(copied.length, tp_layout_run_length(&part, &whole));
    for (uint64_t e = 0; e < box.e; e++)
        for (uint64_t n = 0; n < tp_layout_extent(&part, TP_DIM_N); n++)
            for (uint64_t k = 0; k < tp_layout_extent(&part, TP_DIM_K); k++)
                assert_int_equal(to[tp_layout_at(&whole, e0 + e, n0 + n, k0 + k)],
                                 from[tp_layout_at(&part, e, n, k)]);
    free(from);
    free(to);
}

static void boxes(void **state)
{
    (void)state;
    check_box(W4A8, (struct tp_box3){2, 96, 128}, 1, 32, 64, (struct tp_box3){1, 48, 64});
    check_box(W4A8, (struct tp_box3){2, 96, 128}, 0, 0, 0, (struct tp_box3){2, 96, 128});
    check_box("(E,N,K):(N*K,1,N)", (struct tp_box3){3, 20, 30}, 2, 5, 7, (struct tp_box3){1, 9, 11});
    check_box("(E,N,K):(N*K,K,1)", (struct tp_box3){3, 20, 30}, 1, 5, 7, (struct tp_box3){1, 9, 11});
    check_box("(E,N,K):(N*K,K,1)", (struct tp_box3){5, 4, 6}, 1, 0, 0, (struct tp_box3){3, 4, 6});
}

/* Boxes at the end of a padded tensor take its padding along. */
static void padded_boxes(void **state)
{
    (void)state;
    struct tp_layout whole = parse(PACKED4, 1, 10, 1000), part = parse(PACKED4, 1, 6, 1000);
    struct tp_layout middle = parse(PACKED4, 1, 4, 512);
    assert_int_equal(tp_layout_extent(&whole, TP_DIM_N), 12);
    assert_int_equal(tp_layout_extent(&part, TP_DIM_N), 8);
    assert_true(tp_layout_embeds(&part, &whole));
    assert_true(tp_layout_embeds(&middle, &whole));
    assert_int_equal(tp_layout_run_length(&part, &whole), 8 * 4);
    assert_int_equal(tp_layout_run_length(&middle, &whole), 4 * 4);
    struct tp_layout other = parse("(E,(2,N/2),K):(N*K,(1,2),N)", 1, 10, 8);
    assert_false(tp_layout_embeds(&other, &whole));
}

static void checked_numbers(void **state)
{
    (void)state;
    uint64_t r;
    assert_true(tp_add_u64(&r, UINT64_MAX - 1, 1) && r == UINT64_MAX);
    assert_false(tp_add_u64(&r, UINT64_MAX, 1));
    assert_false(tp_sub_u64(&r, 1, 2));
    assert_true(tp_mul_u64(&r, UINT64_C(1) << 32, (UINT64_C(1) << 32) - 1));
    assert_false(tp_mul_u64(&r, UINT64_C(1) << 32, UINT64_C(1) << 32));
    assert_true(tp_align_u64(&r, 9, 8) && r == 16);
    assert_true(tp_align_u64(&r, 16, 8) && r == 16);
    assert_false(tp_align_u64(&r, UINT64_MAX, 8));
    assert_int_equal(tp_ceil_div(UINT64_MAX, 2), UINT64_MAX / 2 + 1);
    assert_true(tp_lcm_u64(&r, 6, 4) && r == 12);
    assert_false(tp_lcm_u64(&r, UINT64_MAX, UINT64_MAX - 1));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checked_numbers), cmocka_unit_test(expressions),
        cmocka_unit_test(bad_layouts),     cmocka_unit_test(bijections),
        cmocka_unit_test(deep_layouts),
        cmocka_unit_test(known_offsets),   cmocka_unit_test(inverse_and_print),
        cmocka_unit_test(granules),        cmocka_unit_test(boxes),
        cmocka_unit_test(padded_boxes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
