/* Stores, shared values and squeezed texts. */
#include "pack/file/squeeze.h"
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

struct taken {
    const char *text;
    size_t size;
};

static enum tp_code take(void *arg, const char *piece, size_t size, uint64_t offset,
                         struct tp_err *err)
{
    struct taken *taken = arg;
    (void)err;
    assert_int_equal(offset, taken->size);
    assert_memory_equal(piece, taken->text + offset, size);
    taken->size += size;
    return TP_OK;
}

/* Texts of every size come back, easy ones and those that cannot be compressed. */
static void test_squeeze(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 100, 128 << 10, (128 << 10) + 1, 3000001};
    uint64_t random = 1;
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int hard = 0; hard < 2; hard++) {
            char *text = malloc(sizes[s] + 1);
            struct tp_squeezed squeezed = {0};
            assert_non_null(text);
            for (size_t i = 0; i < sizes[s]; i++) {
                random = random * UINT64_C(6364136223846793005) + 1;
                text[i] = hard ? (char)(random >> 56) : "{\"name\":"[i % 8];
            }
            assert_int_equal(tp_squeeze(text, sizes[s], &squeezed, NULL), TP_OK);
            assert_int_equal(squeezed.plain, sizes[s]);
            assert_true(hard || sizes[s] < 1000 || squeezed.size < sizes[s] / 10);
            struct taken taken = {text, 0};
            assert_int_equal(tp_squeezed_each(&squeezed, take, &taken, NULL), TP_OK);
            assert_int_equal(taken.size, sizes[s]);
            char *again = tp_squeezed_text(&squeezed, NULL);
            assert_non_null(again);
            assert_memory_equal(again, text, sizes[s]);
            assert_int_equal(again[sizes[s]], '\0');
            free(again);
            free(text);
            tp_squeezed_free(&squeezed);
            tp_squeezed_free(&squeezed);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_store), cmocka_unit_test(test_shared),
                                       cmocka_unit_test(test_squeeze)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
