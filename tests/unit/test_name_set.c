/* The set of names, their sort and the search in it, against plain loops and qsort(). */
#include "pack/text/name_set.h"
#include "pack/os/os.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_state = 1;

static uint32_t random_below(uint32_t limit)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % limit);
}

static void test_set(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    static char text[COUNT][40];
    struct tp_names names = {0};
    struct tp_err err = {0};
    uint32_t number;
    assert_int_equal(tp_names_find(&names, "a", 1), -1);
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(text[i], sizeof text[i], "model.layers.%u.weight", i);
        assert_int_equal(tp_names_add(&names, text[i], strlen(text[i]), &number, &err), TP_OK);
        assert_int_equal(number, i);
        /* One that is there is found, and changes nothing. */
        uint32_t old = random_below(i + 1);
        char copy[40];
        memcpy(copy, text[old], sizeof copy);
        assert_int_equal(tp_names_add(&names, copy, strlen(copy), &number, &err), TP_OK);
        assert_int_equal(number, old);
        assert_int_equal(names.count, i + 1);
    }
    for (uint32_t i = 0; i < COUNT; i++)
        assert_int_equal(tp_names_find(&names, text[i], strlen(text[i])), i);
    assert_int_equal(tp_names_find(&names, "model.layers.20000.weight", 25), -1);
    assert_int_equal(tp_names_find(&names, "", 0), -1);
    tp_names_close(&names);
    tp_names_close(&names);
}

static const char *text_at(void *texts, size_t i) { return ((char *const *)texts)[i]; }

/* The first name that comes twice, wherever it and its twin are; none among names that differ. */
static void test_repeated(void **state)
{
    (void)state;
    enum { COUNT = 5000 };
    static char text[COUNT][24];
    static char *names[COUNT];
    struct tp_err err = {0};
    for (uint32_t i = 0; i < COUNT; i++) {
        snprintf(text[i], sizeof text[i], "layers.%u.weight", i);
        names[i] = text[i];
    }
    for (size_t count = 0; count <= COUNT; count += 1 + count / 2) {
        size_t first;
        assert_int_equal(tp_names_repeated(text_at, names, count, &first, &err), TP_OK);
        assert_int_equal(first, count);
        if (count < 2)
            continue;
        uint32_t to = 1 + random_below((uint32_t)count - 1), from = random_below(to);
        char before[24];
        memcpy(before, text[to], sizeof before);
        memcpy(text[to], text[from], sizeof before);
        names[count - 1] = count - 1 > to ? text[0] : names[count - 1]; /* a later one as well */
        assert_int_equal(tp_names_repeated(text_at, names, count, &first, &err), TP_OK);
        assert_int_equal(first, to);
        memcpy(text[to], before, sizeof before);
        names[count - 1] = text[count - 1];
    }
}

static int compare(const void *a, const void *b)
{
    return strcmp(((const struct tp_name_key *)a)->name, ((const struct tp_name_key *)b)->name);
}

/* Random names: few letters and long common beginnings, bytes above 0x7f, many doubles. */
static void make_name(char *name, size_t room)
{
    static const char *const starts[] = {"", "model.layers.", "model.layers.1.mlp.experts."};
    static const char letters[] = "ab\x01\x7f\xc3\xff";
    size_t n = (size_t)snprintf(name, room, "%s", starts[random_below(3)]);
    for (uint32_t length = random_below(10); length; length--)
        name[n++] = letters[random_below(sizeof letters - 1)];
    name[n] = '\0';
}

static void test_sort(void **state)
{
    (void)state;
    enum { MAX_BYTES = 3000 };
    static char text[MAX_BYTES][64];
    static struct tp_name_key keys[MAX_BYTES], expected[MAX_BYTES];
    for (int round = 0; round < 200; round++) {
        size_t count = round < 20 ? (size_t)round : random_below(round % 10 ? 60 : MAX_BYTES);
        for (size_t i = 0; i < count; i++) {
            make_name(text[i], sizeof text[i]);
            expected[i] = keys[i] = (struct tp_name_key){.name = text[i], .index = i};
        }
        qsort(expected, count, sizeof *expected, compare);
        tp_names_sort(keys, count);
        static unsigned char seen[MAX_BYTES];
        memset(seen, 0, sizeof seen);
        for (size_t i = 0; i < count; i++) {
            assert_string_equal(keys[i].name, expected[i].name);
            assert_ptr_equal(keys[i].name, text[keys[i].index]);
            assert_int_equal(seen[keys[i].index]++, 0);
        }
    }
}

static bool has(char text[][64], size_t count, const char *name, size_t length, char end)
{
    for (size_t i = 0; i < count; i++)
        if (strncmp(text[i], name, length) == 0 && text[i][length] == end)
            return true;
    return false;
}

static void test_search(void **state)
{
    (void)state;
    enum { MAX_BYTES = 200 };
    static char text[MAX_BYTES][64], wanted[64];
    static struct tp_name_key keys[MAX_BYTES];
    int found = 0, missed = 0;
    for (int round = 0; round < 2000; round++) {
        size_t count = round < 20 ? (size_t)round : random_below(MAX_BYTES);
        for (size_t i = 0; i < count; i++) {
            make_name(text[i], sizeof text[i]);
            for (char *at = text[i]; (at = strpbrk(at, "\x01" "\x7f")) != NULL;)
                *at = '/';
            keys[i] = (struct tp_name_key){.name = text[i], .index = i};
        }
        tp_names_sort(keys, count);
        for (int i = 0; i < 50; i++) {
            char end = i % 2 ? '/' : '\0';
            make_name(wanted, sizeof wanted);
            size_t length = random_below((uint32_t)strlen(wanted) + 1);
            bool right = has(text, count, wanted, length, end);
            assert_int_equal(tp_names_sorted_have(keys, count, wanted, length, end), right);
            const struct tp_name_key *key =
                tp_names_sorted_find(keys, count, wanted, length, end);
            assert_int_equal(key != NULL, right);
            assert_true(!key || (strncmp(key->name, wanted, length) == 0 &&
                                 key->name[length] == end));
            found += right;
            missed += !right;
        }
    }
    assert_true(found > 100 && missed > 100);
}

/* 200,000 equal names, sorted names and names that differ only at their ends. */
static void test_sort_alike(void **state)
{
    (void)state;
    enum { COUNT = 200000, LENGTH = 32 };
    char *text = malloc((size_t)COUNT * LENGTH);
    struct tp_name_key *keys = malloc(COUNT * sizeof *keys);
    assert_non_null(text);
    assert_non_null(keys);
    for (int kind = 0; kind < 3; kind++) {
        for (size_t i = 0; i < COUNT; i++) {
            unsigned tail = kind == 0 ? 7 : kind == 1 ? (unsigned)i : (unsigned)(i * 7919 % COUNT);
            snprintf(text + i * LENGTH, LENGTH, "model.layers.weight.%07u", tail);
            keys[i] = (struct tp_name_key){.name = text + i * LENGTH, .index = i};
        }
        /* One name out of order, so that nothing is sorted to begin with. */
        keys[COUNT - 1].name = "a";
        tp_names_sort(keys, COUNT);
        assert_string_equal(keys[0].name, "a");
        for (size_t i = 1; i < COUNT; i++)
            assert_true(strcmp(keys[i - 1].name, keys[i].name) <= 0);
    }
    free(keys);
    free(text);
}

static void *no_calloc(size_t count, size_t size)
{
    (void)count;
    (void)size;
    return NULL;
}

static void test_out_of_memory(void **state)
{
    (void)state;
    const struct tp_os saved = tp_os;
    struct tp_names names = {0};
    struct tp_err err = {0};
    uint32_t number;
    tp_os.calloc = no_calloc;
    assert_int_equal(tp_names_add(&names, "a", 1, &number, &err), TP_E_MEMORY);
    tp_os = saved;
    assert_int_equal(names.count, 0);
    assert_int_equal(tp_names_find(&names, "a", 1), -1);
    tp_names_close(&names);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set), cmocka_unit_test(test_repeated),
        cmocka_unit_test(test_sort),
        cmocka_unit_test(test_search),
        cmocka_unit_test(test_sort_alike),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests_name("name_set", tests, NULL, NULL);
}
