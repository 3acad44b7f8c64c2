/* Shares of a plan and slices of a weight: pure arithmetic, checked by counting. */
#include "base/num.h"
#include "pack/commit/parts.h"
#include "pack/plan/cut.h"

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

/* All elements of a weight are in exactly one slice, at their own place of a rank. */
static void check_slices(const struct tp_cut *cut, struct tp_box3 box)
{
    struct tp_box3 own = tp_cut_box(cut, box);
    uint8_t *seen = calloc(box.n * box.k, 1);
    assert_non_null(seen);
    for (unsigned r = 0; r < cut->ranks; r++) {
        uint8_t *filled = calloc(own.n * own.k, 1);
        assert_non_null(filled);
        for (uint32_t p = 0; p < tp_cut_slices(cut); p++) {
            struct tp_slice slice = tp_cut_slice(cut, box, cut->ranks, r, p);
            for (uint64_t n = 0; n < slice.whole.size.n; n++)
                for (uint64_t k = 0; k < slice.whole.size.k; k++) {
                    seen[(slice.whole.n + n) * box.k + slice.whole.k + k]++;
                    filled[(slice.n + n) * own.k + slice.k + k]++;
                }
        }
        for (uint64_t i = 0; i < own.n * own.k; i++)
            assert_int_equal(filled[i], 1);
        free(filled);
    }
    for (uint64_t i = 0; i < box.n * box.k; i++)
        assert_int_equal(seen[i], 1);
    free(seen);
}

static void slices_cover_the_whole(void **state)
{
    (void)state;
    struct tp_cut rows = {.along = TP_CUT_N, .ranks = 3, .pieces = 3, .piece_rows = {12, 6, 6}};
    struct tp_cut columns = {.along = TP_CUT_K, .ranks = 4, .pieces = 1, .piece_rows = {5}};
    struct tp_cut whole = {.along = TP_CUT_NONE, .ranks = 1};
    check_slices(&rows, (struct tp_box3){1, 24, 5});
    check_slices(&columns, (struct tp_box3){1, 5, 8});
    check_slices(&whole, (struct tp_box3){1, 3, 7});
}

static void boxes_meet_slices(void **state)
{
    (void)state;
    struct tp_cut cut = {.along = TP_CUT_N, .ranks = 2, .pieces = 2, .piece_rows = {8, 8}};
    struct tp_box3 box = {2, 16, 4};
    struct tp_box job = {1, 2, 0, {1, 8, 4}}, common, in_rank; /* rows 2..9 of expert 1 */
    struct tp_slice slice = tp_cut_slice(&cut, box, 2, 1, 0);  /* rows 4..7: rank rows 0..3 */
    assert_true(tp_slice_common(&slice, &job, &common, &in_rank));
    assert_int_equal(common.n, 4);
    assert_int_equal(common.size.n, 4);
    assert_int_equal(in_rank.n, 0);
    assert_int_equal(in_rank.e, 1);
    slice = tp_cut_slice(&cut, box, 2, 0, 1); /* rows 8..11: rank rows 4..7 */
    assert_true(tp_slice_common(&slice, &job, &common, &in_rank));
    assert_int_equal(common.n, 8);
    assert_int_equal(common.size.n, 2);
    assert_int_equal(in_rank.n, 4);
    slice = tp_cut_slice(&cut, box, 2, 1, 1); /* rows 12..15 */
    assert_false(tp_slice_common(&slice, &job, &common, &in_rank));
}

static void cuts_end_at_tiles(void **state)
{
    (void)state;
    struct tp_op op;
    struct tp_settings settings = {{0}};
    struct tp_box3 box = {1, 512, 1024};
    struct tp_cut cut = {.along = TP_CUT_N, .ranks = 2, .pieces = 1, .piece_rows = {512}};
    tp_format_op(tp_format_find("mxfp8-blocked"), &settings, &op);
    assert_true(tp_cut_aligned(&op, &cut, box));
    cut.ranks = 8; /* 64 rows, a tile has 128 */
    assert_false(tp_cut_aligned(&op, &cut, box));
    cut = (struct tp_cut){.along = TP_CUT_N, .ranks = 2, .pieces = 2, .piece_rows = {256, 128}};
    assert_false(tp_cut_aligned(&op, &cut, box)); /* not all rows */
    cut = (struct tp_cut){.along = TP_CUT_K, .ranks = 8, .pieces = 1, .piece_rows = {512}};
    assert_true(tp_cut_aligned(&op, &cut, box));
    cut.ranks = 16; /* two of the four columns of a tile */
    assert_false(tp_cut_aligned(&op, &cut, box));
    tp_format_op(tp_format_find("w4a8-cutlass"), &settings, &op);
    cut.ranks = 8; /* the channel scale is of whole rows, and is repeated */
    assert_true(tp_cut_aligned(&op, &cut, box));
    cut.ranks = 16; /* half a group */
    assert_false(tp_cut_aligned(&op, &cut, box));
    cut.pieces = 9;
    assert_false(tp_cut_aligned(&op, &cut, box));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(assignment_is_balanced), cmocka_unit_test(more_parts_than_files),
        cmocka_unit_test(slices_cover_the_whole), cmocka_unit_test(boxes_meet_slices),
        cmocka_unit_test(cuts_end_at_tiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
