/* Shares of a plan: pure arithmetic, checked by counting. */
#include "base/num.h"
#include "pack/commit/parts.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

enum { FILES = 40 };

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* Every file has one owner; no part exceeds the average by more than one file. */
static void assignment_is_balanced(void **state)
{
    (void)state;
    struct tp_plan_file files[FILES] = {{0}};
    struct tp_plan plan = {.files = files, .file_count = FILES};
    uint64_t seed = 1;
    for (int trial = 0; trial < 200; trial++) {
        unsigned count = 1 + (unsigned)next(&seed) % 12, owner[FILES], again[FILES];
        uint64_t load[13] = {0}, total = 0, largest = 0;
        struct tp_err err = {0};
        for (int f = 0; f < FILES; f++) {
            files[f].size = 1 + next(&seed) % 1000;
            total += files[f].size;
            largest = tp_max_u64(largest, files[f].size);
        }
        assert_int_equal(tp_parts_assign(&plan, count, owner, &err), TP_OK);
        assert_int_equal(tp_parts_assign(&plan, count, again, &err), TP_OK);
        assert_memory_equal(owner, again, sizeof owner);
        for (int f = 0; f < FILES; f++) {
            assert_in_range(owner[f], 1, count);
            load[owner[f]] += files[f].size;
        }
        for (unsigned p = 1; p <= count; p++)
            assert_true(load[p] <= total / count + largest);
    }
}

static void more_parts_than_files(void **state)
{
    (void)state;
    struct tp_plan_file files[3] = {{.size = 5}, {.size = 9}, {.size = 5}};
    struct tp_plan plan = {.files = files, .file_count = 3};
    struct tp_share_work work;
    unsigned owner[3];
    struct tp_err err = {0};
    assert_int_equal(tp_parts_assign(&plan, 1000000, owner, &err), TP_OK);
    assert_int_equal(owner[1], 1); /* the largest first */
    assert_int_equal(owner[0], 2); /* equal ones in their order */
    assert_int_equal(owner[2], 3);
    assert_int_equal(tp_share_work(&plan, (struct tp_share){4, 1000000}, &work, &err), TP_OK);
    assert_int_equal(work.shards, 0);
    assert_int_equal(tp_share_work(&plan, (struct tp_share){1, 1000000}, &work, &err), TP_OK);
    assert_int_equal(work.shards, 1);
    assert_int_equal(work.bytes_out, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(assignment_is_balanced), cmocka_unit_test(more_parts_than_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
