/* Stores and shared values. */
#include "pack/os/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What was given out stays as it was written, is aligned, and does not overlap. */
static void test_store(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    static char *texts[COUNT];
    static uint64_t *numbers[COUNT];
    struct tp_store store = {0};
    for (size_t i = 0; i < COUNT; i++) {
        char text[32];
        size_t size = (size_t)snprintf(text, sizeof text, "name.%zu", i);
        assert_non_null(texts[i] = tp_store_join(&store, text, size, ".end", NULL));
        assert_non_null(numbers[i] = tp_store_zalloc(&store, 1 + i % 5, 8, NULL));
        assert_int_equal((uintptr_t)numbers[i] % 8, 0);
        for (size_t n = 0; n <= i % 5; n++) {
            assert_int_equal(numbers[i][n], 0);
            numbers[i][n] = i;
        }
    }
    char *large = tp_store_text(&store, 3 << 20, NULL); /* larger than any block */
    assert_non_null(large);
    memset(large, 'x', 3 << 20);
    for (size_t i = 0; i < COUNT; i++) {
        char text[32];
        snprintf(text, sizeof text, "name.%zu.end", i);
        assert_string_equal(texts[i], text);
        for (size_t n = 0; n <= i % 5; n++)
            assert_int_equal(numbers[i][n], i);
    }
    struct tp_err err = {0};
    assert_null(tp_store_zalloc(&store, SIZE_MAX / 2, 8, &err));
    assert_int_equal(err.code, TP_E_MEMORY);
    tp_store_close(&store);
    tp_store_close(&store);
}

/* Equal values are one, as long as no more kinds alternate than are looked through. */
static void test_shared(void **state)
{
    (void)state;
    enum { KINDS = 20, ROUNDS = 50 };
    struct tp_shared shared = {0};
    const void *first[KINDS];
    for (uint64_t round = 0; round < ROUNDS; round++)
        for (uint64_t kind = 0; kind < KINDS; kind++) {
            uint64_t value[2] = {kind, ~kind};
            const uint64_t *kept = tp_shared_keep(&shared, value, sizeof value, NULL);
            assert_non_null(kept);
            assert_memory_equal(kept, value, sizeof value);
            if (!round)
                first[kind] = kept;
            assert_ptr_equal(kept, first[kind]);
        }
    assert_int_equal(shared.count, KINDS);
    for (uint64_t kind = 0; kind < 1000; kind++) {
        const uint64_t *kept = tp_shared_keep(&shared, &kind, sizeof kind, NULL);
        assert_int_equal(*kept, kind);
    }
    tp_shared_close(&shared);
    tp_shared_close(&shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_store), cmocka_unit_test(test_shared)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
