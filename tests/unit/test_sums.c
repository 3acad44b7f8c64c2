/* Sums of data: all instruction sets, any order, and the values that tests/lib/sums.py makes of the
 * text of the specification. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/isa.h"
#include "pack/file/leafhash.h"
#include "pack/file/sums.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 5, BYTES = BLOCKS * TP_SUM_BLOCK - 1000 };

static uint8_t data[BLOCKS * TP_SUM_BLOCK];

static void fill(void)
{
    for (size_t i = 0; i < sizeof data; i++)
        data[i] = i < BYTES ? (uint8_t)(tp_leaf_mix(i / 8) >> i % 8 * 8) : 0;
}

static struct tp_sum sum_of(size_t size, uint64_t at)
{
    struct tp_sum sum = {0, 0};
    tp_sum_add(&sum, data, size, at);
    return sum;
}

static void assert_same(struct tp_sum a, struct tp_sum b)
{
    assert_true(a.a == b.a && a.b == b.b);
}

static void test_known_values(void **state)
{
    static const struct {
        size_t size;
        uint64_t at;
        const char *digits;
    } known[] = {
        {0, UINT64_C(0),
         "00000000000000000000000000000000"},
        {1, UINT64_C(0),
         "a06147d2a1a99eca2605faf6f98f2e69"},
        {4096, UINT64_C(0),
         "5923912f502a6826c9d0a6c4c8cf4340"},
        {4097, UINT64_C(808),
         "4446f3522a753945cd03c16ba9796513"},
        {19480, UINT64_C(12345678901234),
         "484a05d78d3ccdcdbfc5be2620ce59a7"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        struct tp_sum sum = sum_of(known[i].size, known[i].at);
        uint8_t bytes[TP_SUM_BYTES];
        char digits[TP_HASH_TEXT];
        tp_sum_bytes(&sum, bytes);
        tp_hash_print(bytes, digits);
        assert_string_equal(digits, known[i].digits);
        assert_same(tp_sum_of_bytes(bytes), sum);
    }
}

static void test_any_order(void **state)
{
    struct tp_sum whole = sum_of(BYTES, 808), pieces = {0, 0};
    (void)state;
    for (size_t b = BLOCKS; b-- > 0;) {
        size_t at = b * TP_SUM_BLOCK, end = at + TP_SUM_BLOCK < BYTES ? at + TP_SUM_BLOCK : BYTES;
        tp_sum_add(&pieces, data + at, end - at, 808 + at);
    }
    assert_same(pieces, whole);
    assert_same(sum_of(sizeof data, 808), whole); /* what is missing of a block is zeros */
}

static void test_every_bit_counts(void **state)
{
    struct tp_sum before = sum_of(BYTES, 0);
    (void)state;
    for (size_t bit = 0; bit < 8 * (size_t)BYTES; bit += 61) {
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        struct tp_sum now = sum_of(BYTES, 0);
        assert_true(now.a != before.a && now.b != before.b);
        data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    /* two signs of bfloat16 in the same place of two words, which cancel each other in a plain sum */
    for (size_t i = 7; i + 64 < BYTES; i += 64) {
        data[i] ^= 0x80;
        data[i + 64] ^= 0x80;
        assert_false(sum_of(BYTES, 0).a == before.a);
        data[i] ^= 0x80;
        data[i + 64] ^= 0x80;
    }
}

static void test_places_count(void **state)
{
    struct tp_sum here = sum_of(TP_SUM_BLOCK, 0), there = sum_of(TP_SUM_BLOCK, 4096);
    (void)state;
    assert_false(here.a == there.a || here.b == there.b);
    for (size_t line = 64; line < TP_SUM_BLOCK; line *= 2) { /* lines that change places */
        uint8_t other[64];
        memcpy(other, data, sizeof other);
        memcpy(data, data + line, sizeof other);
        memcpy(data + line, other, sizeof other);
        struct tp_sum swapped = sum_of(TP_SUM_BLOCK, 0);
        assert_false(swapped.a == here.a);
        fill();
    }
}

/* A block that comes in groups is that block. */
static void test_groups(void **state)
{
    struct tp_sum part = {0, 0}, sum = {0, 0}, whole = sum_of(TP_SUM_BLOCK, 8192);
    (void)state;
    for (size_t g = 1; g < TP_SUM_GROUPS; g += 2) /* odd ones first */
        tp_sum_part(&part, data + g * TP_SUM_GROUP, g, 1);
    for (size_t g = 0; g < TP_SUM_GROUPS; g += 2)
        tp_sum_part(&part, data + g * TP_SUM_GROUP, g, 1);
    tp_sum_whole(&sum, &part, 8192);
    assert_same(sum, whole);
}

/* Each set that this machine has against the others, on blocks of all kinds of bytes. */
static void test_instruction_sets(void **state)
{
    uint64_t keys[8 * TP_SUM_GROUPS] __attribute__((aligned(64)));
    (void)state;
    for (size_t i = 0; i < 8 * TP_SUM_GROUPS; i++)
        keys[i] = tp_leaf_mix(i);
    for (int round = 0; round < 200 && tp_isa_enabled(TP_ISA_AVX2); round++) {
        const uint8_t *block = data + round; /* of any alignment */
        const size_t groups = 1 + (size_t)round % TP_SUM_GROUPS;
        struct tp_sum two = tp_sum_groups_avx2(block, keys, groups);
        if (tp_isa_enabled(TP_ISA_AVX512))
            assert_same(tp_sum_groups_avx512(block, keys, groups), two);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups), cmocka_unit_test(test_known_values),  cmocka_unit_test(test_any_order),
        cmocka_unit_test(test_every_bit_counts), cmocka_unit_test(test_places_count),
        cmocka_unit_test(test_instruction_sets),
    };
    fill();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
