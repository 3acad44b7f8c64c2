/* Leaf checksums: any order, any pieces, any threads give the hash of the file
 * as written down in leafhash.h; a byte too few or too many gives none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pack/file/leafhash.h"
#include "pack/os/os.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { LEAF = 1 << 20 };

static uint64_t seed = 7;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* A file in memory, as the read callback sees it. */
struct memory {
    uint8_t *data;
    uint64_t size;
    int fail_at; /* leaf whose reading fails, or -1 */
};

static enum tp_code read_memory(void *arg, void *data, uint64_t size, uint64_t offset,
                                struct tp_err *err)
{
    struct memory *m = arg;
    if (offset + size > m->size || (m->fail_at >= 0 && offset / LEAF == (uint64_t)m->fail_at))
        return tp_fail(err, TP_E_INPUT, "unreadable");
    memcpy(data, m->data + offset, size);
    return TP_OK;
}

static struct memory make_memory(uint64_t size)
{
    struct memory m = {malloc(size + 1), size, -1};
    assert_non_null(m.data);
    for (uint64_t i = 0; i < size; i++)
        m.data[i] = (uint8_t)((i * i >> 3) ^ (i >> 5));
    return m;
}

/* The definition in the header, step by step. */
static void expected_root(const struct memory *m, uint8_t root[16])
{
    uint64_t leaves = (m->size + LEAF - 1) / LEAF;
    uint8_t *list = malloc(8 + 16 * leaves);
    for (int i = 0; i < 8; i++)
        list[i] = (uint8_t)(m->size >> 8 * i);
    for (uint64_t i = 0; i < leaves; i++) {
        uint64_t n = m->size - i * LEAF < LEAF ? m->size - i * LEAF : LEAF;
        XXH128_hash_t hash = XXH3_128bits(m->data + i * LEAF, n);
        for (int k = 0; k < 8; k++) {
            list[8 + 16 * i + k] = (uint8_t)(hash.high64 >> (56 - 8 * k));
            list[16 + 16 * i + k] = (uint8_t)(hash.low64 >> (56 - 8 * k));
        }
    }
    XXH128_hash_t hash = XXH3_128bits(list, 8 + 16 * leaves);
    for (int k = 0; k < 8; k++) {
        root[k] = (uint8_t)(hash.high64 >> (56 - 8 * k));
        root[8 + k] = (uint8_t)(hash.low64 >> (56 - 8 * k));
    }
    free(list);
}

/* Made with another implementation (the Python package xxhash). */
static void known_values(void **state)
{
    (void)state;
    static const char *const want[] = {"2c0a8a99dc147d5445c3b49d035665b2",
                                       "bb1947f951cda251862a8cf491921d0c",
                                       "f6d698f79737fc8c8bf000a3a688139e"};
    static const uint64_t sizes[] = {0, 3, 2500000};
    for (int i = 0; i < 3; i++) {
        struct memory m = make_memory(sizes[i]);
        if (i == 1)
            memcpy(m.data, "abc", 3);
        uint8_t root[16];
        char text[TP_HASH_TEXT];
        struct tp_err err = {0};
        assert_int_equal(tp_leafhash_file(m.size, 2, read_memory, &m, root, &err), TP_OK);
        tp_hash_print(root, text);
        assert_string_equal(text, want[i]);
        free(m.data);
    }
}

/* Cuts [0,size) into pieces of up to `max` bytes, in random order. */
struct piece {
    uint64_t at, size;
    bool in_memory;
};

static size_t cut(uint64_t size, uint64_t max, struct piece **pieces)
{
    size_t count = 0, room = 16;
    *pieces = malloc(room * sizeof **pieces);
    for (uint64_t at = 0; at < size;) {
        uint64_t n = 1 + next_random() % max;
        n = n < size - at ? n : size - at;
        if (count == room)
            *pieces = realloc(*pieces, (room *= 2) * sizeof **pieces);
        (*pieces)[count++] = (struct piece){at, n, next_random() % 4 != 0};
        at += n;
    }
    for (size_t i = count; i > 1; i--) {
        size_t k = next_random() % i;
        struct piece swap = (*pieces)[i - 1];
        (*pieces)[i - 1] = (*pieces)[k];
        (*pieces)[k] = swap;
    }
    return count;
}

static void any_order_any_size(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, LEAF - 1, LEAF, LEAF + 1, 5 * LEAF + 12345};
    static const uint64_t max[] = {777, 4096, LEAF / 3, LEAF, 3 * LEAF};
    for (int i = 0; i < 6; i++)
        for (int k = 0; k < 5; k++) {
            struct memory m = make_memory(sizes[i]);
            struct tp_leafhash h;
            struct tp_err err = {0};
            struct piece *pieces;
            uint8_t want[16], got[16];
            size_t count = cut(m.size, max[k], &pieces);
            assert_int_equal(tp_leafhash_init(&h, m.size, &err), TP_OK);
            for (size_t p = 0; p < count; p++) {
                const uint8_t *data = pieces[p].in_memory ? m.data + pieces[p].at : NULL;
                assert_int_equal(tp_leafhash_written(&h, pieces[p].at, data, pieces[p].size, &err),
                                 TP_OK);
                if (p % 5 == 0)
                    assert_int_equal(tp_leafhash_finalize(&h, read_memory, &m, &err), TP_OK);
            }
            assert_int_equal(tp_leafhash_finalize(&h, read_memory, &m, &err), TP_OK);
            assert_false(tp_leafhash_pending(&h));
            assert_int_equal(tp_leafhash_final(&h, got, &err), TP_OK);
            expected_root(&m, want);
            assert_memory_equal(got, want, 16);
            tp_leafhash_close(&h);
            tp_leafhash_close(&h);
            free(pieces);
            free(m.data);
        }
}

static enum tp_code never_read(void *arg, void *data, uint64_t size, uint64_t offset,
                               struct tp_err *err)
{
    (void)arg, (void)data, (void)size, (void)offset;
    return tp_fail(err, TP_E_IO, "nothing should be read back");
}

/* Leaves reported whole are hashed from memory, in one call or several. */
static void whole_leaves_are_not_read_back(void **state)
{
    (void)state;
    struct memory m = make_memory(4 * LEAF + 10);
    struct tp_leafhash h;
    struct tp_err err = {0};
    uint8_t want[16], got[16];
    assert_int_equal(tp_leafhash_init(&h, m.size, &err), TP_OK);
    assert_int_equal(tp_leafhash_written(&h, LEAF, m.data + LEAF, 3 * LEAF + 10, &err), TP_OK);
    assert_int_equal(tp_leafhash_written(&h, 0, m.data, LEAF, &err), TP_OK);
    assert_false(tp_leafhash_pending(&h));
    assert_int_equal(tp_leafhash_finalize(&h, never_read, NULL, &err), TP_OK);
    assert_int_equal(tp_leafhash_final(&h, got, &err), TP_OK);
    expected_root(&m, want);
    assert_memory_equal(got, want, 16);
    tp_leafhash_close(&h);
    free(m.data);
}

struct run {
    uint64_t at, size;
};

/* Reports the runs, settles and returns the first failure; *at is its offset. */
static enum tp_code report(struct memory *m, const struct run *runs, size_t count, uint64_t *at)
{
    struct tp_leafhash h;
    struct tp_err err = {0};
    uint8_t root[16];
    assert_int_equal(tp_leafhash_init(&h, m->size, &err), TP_OK);
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < count && !code; i++)
        code = tp_leafhash_written(&h, runs[i].at, m->data + runs[i].at, runs[i].size, &err);
    if (!code)
        code = tp_leafhash_finalize(&h, read_memory, m, &err);
    if (!code)
        code = tp_leafhash_final(&h, root, &err);
    tp_leafhash_close(&h);
    *at = err.offset - 1;
    return code;
}

static void holes_and_overlaps_have_no_hash(void **state)
{
    (void)state;
    struct memory m = make_memory(3 * LEAF);
    uint64_t at;
    static const struct run good[] = {{0, 100}, {100, LEAF}, {LEAF + 100, 2 * LEAF - 100}};
    assert_int_equal(report(&m, good, 3, &at), TP_OK);
    static const struct run none[] = {{0, LEAF}, {2 * LEAF, LEAF}};
    assert_int_equal(report(&m, none, 2, &at), TP_E_IO);
    assert_int_equal(at, LEAF);
    static const struct run byte[] = {{0, LEAF}, {LEAF, 5}, {LEAF + 6, 2 * LEAF - 6}};
    assert_int_equal(report(&m, byte, 3, &at), TP_E_IO);
    assert_int_equal(at, LEAF);
    static const struct run twice[] = {{0, 3 * LEAF}, {LEAF + 7, 1}};
    assert_int_equal(report(&m, twice, 2, &at), TP_E_IO);
    assert_int_equal(at, LEAF + 7);
    static const struct run whole_twice[] = {{0, 3 * LEAF}, {LEAF, LEAF}};
    assert_int_equal(report(&m, whole_twice, 2, &at), TP_E_IO);
    static const struct run part_then_whole[] = {{9, 1}, {0, LEAF}};
    assert_int_equal(report(&m, part_then_whole, 2, &at), TP_E_IO);
    static const struct run beyond[] = {{2 * LEAF, LEAF + 1}};
    assert_int_equal(report(&m, beyond, 1, &at), TP_E_IO);
    /* The count is right, the bytes are not: one twice and one never. */
    static const struct run shifted[] = {{0, LEAF}, {LEAF, 500}, {LEAF + 499, 2 * LEAF - 500},
                                         {3 * LEAF - 1, 1}};
    assert_int_equal(report(&m, shifted, 4, &at), TP_E_IO);
    static const struct run swapped[] = {{0, 10}, {10, 10}, {10, 10}, {30, LEAF - 30},
                                         {LEAF, 2 * LEAF}};
    assert_int_equal(report(&m, swapped, 5, &at), TP_E_IO);
    assert_int_equal(at, 0);
    /* Overflowing offsets. */
    struct tp_leafhash h;
    struct tp_err err = {0};
    assert_int_equal(tp_leafhash_init(&h, m.size, &err), TP_OK);
    assert_int_equal(tp_leafhash_written(&h, UINT64_MAX, m.data, 2, &err), TP_E_IO);
    tp_leafhash_close(&h);
    err = (struct tp_err){0};
    assert_int_equal(tp_leafhash_init(&h, UINT64_MAX, &err), TP_E_UNSUPPORTED);
    tp_leafhash_close(&h);
    free(m.data);
}

struct worker {
    struct tp_leafhash *h;
    struct memory *m;
    const struct piece *pieces;
    size_t first, count, step;
    struct tp_err err;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    for (size_t i = w->first; i < w->count && !w->err.code; i += w->step) {
        const struct piece *p = &w->pieces[i];
        tp_leafhash_written(w->h, p->at, p->in_memory ? w->m->data + p->at : NULL, p->size,
                            &w->err);
        if (i % 3 == 0 && !w->err.code)
            tp_leafhash_finalize(w->h, read_memory, w->m, &w->err);
    }
    if (!w->err.code)
        tp_leafhash_finalize(w->h, read_memory, w->m, &w->err);
    return NULL;
}

static void threads_write_and_finalize(void **state)
{
    (void)state;
    struct memory m = make_memory(9 * LEAF + 4321);
    uint8_t want[16], got[16];
    expected_root(&m, want);
    for (int round = 0; round < 6; round++) {
        struct tp_leafhash h;
        struct tp_err err = {0};
        struct piece *pieces;
        pthread_t threads[4];
        struct worker workers[4];
        size_t count = cut(m.size, round % 2 ? 3000 : LEAF * 3 / 2, &pieces);
        assert_int_equal(tp_leafhash_init(&h, m.size, &err), TP_OK);
        for (size_t i = 0; i < 4; i++) {
            workers[i] = (struct worker){&h, &m, pieces, i, count, 4, {0}};
            pthread_create(&threads[i], NULL, work, &workers[i]);
        }
        for (int i = 0; i < 4; i++) {
            pthread_join(threads[i], NULL);
            assert_int_equal(workers[i].err.code, TP_OK);
        }
        assert_int_equal(tp_leafhash_final(&h, got, &err), TP_OK);
        assert_memory_equal(got, want, 16);
        tp_leafhash_close(&h);
        free(pieces);
    }
    free(m.data);
}

static void existing_files(void **state)
{
    (void)state;
    struct memory m = make_memory(7 * LEAF + 99);
    uint8_t want[16], got[16];
    struct tp_err err = {0};
    expected_root(&m, want);
    static const unsigned threads[] = {0, 1, 2, 5, 1000};
    for (int i = 0; i < 5; i++) {
        memset(got, 0, 16);
        assert_int_equal(tp_leafhash_file(m.size, threads[i], read_memory, &m, got, &err), TP_OK);
        assert_memory_equal(got, want, 16);
    }
    for (int i = 0; i < 40; i++) {
        uint64_t bit = next_random() % (m.size * 8);
        m.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(tp_leafhash_file(m.size, 2, read_memory, &m, got, &err), TP_OK);
        assert_memory_not_equal(got, want, 16);
        m.data[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    m.fail_at = 5;
    assert_int_equal(tp_leafhash_file(m.size, 3, read_memory, &m, got, &err), TP_E_INPUT);
    assert_string_equal(err.what, "unreadable");
    free(m.data);
}

/* A leaf whose reading failed is not lost: it can be settled later. */
static void failed_finalize_can_be_repeated(void **state)
{
    (void)state;
    struct memory m = make_memory(2 * LEAF);
    struct tp_leafhash h;
    struct tp_err err = {0}, second = {0};
    uint8_t want[16], got[16];
    assert_int_equal(tp_leafhash_init(&h, m.size, &err), TP_OK);
    assert_int_equal(tp_leafhash_written(&h, 0, NULL, m.size, &err), TP_OK);
    m.fail_at = 1;
    assert_int_equal(tp_leafhash_finalize(&h, read_memory, &m, &err), TP_E_INPUT);
    assert_true(tp_leafhash_pending(&h));
    struct tp_err early = {0};
    assert_int_equal(tp_leafhash_final(&h, got, &early), TP_E_IO);
    m.fail_at = -1;
    assert_int_equal(tp_leafhash_finalize(&h, read_memory, &m, &second), TP_OK);
    assert_int_equal(tp_leafhash_final(&h, got, &second), TP_OK);
    expected_root(&m, want);
    assert_memory_equal(got, want, 16);
    tp_leafhash_close(&h);
    free(m.data);
}

static void text_form(void **state)
{
    (void)state;
    uint8_t hash[16], back[16];
    char text[TP_HASH_TEXT];
    for (int i = 0; i < 16; i++)
        hash[i] = (uint8_t)(i * 17);
    tp_hash_print(hash, text);
    assert_string_equal(text, "00112233445566778899aabbccddeeff");
    assert_true(tp_hash_parse(text, 32, back));
    assert_memory_equal(back, hash, 16);
    assert_false(tp_hash_parse(text, 31, back));
    assert_false(tp_hash_parse(text, 33, back));
    static const char wrong[] = "/:`gAF \xff";
    for (const char *c = wrong; *c; c++)
        for (int i = 0; i < 32; i++) {
            char kept = text[i];
            text[i] = *c;
            assert_false(tp_hash_parse(text, 32, back));
            text[i] = kept;
        }
}

static void *no_memory(size_t size) { (void)size; return NULL; }
static void *no_zeroed_memory(size_t n, size_t size) { (void)n, (void)size; return NULL; }

static void memory_failures(void **state)
{
    (void)state;
    struct memory m = make_memory(LEAF);
    struct tp_leafhash h;
    struct tp_err err = {0}, finalize_err = {0}, file_err = {0};
    uint8_t root[16];
    struct tp_os saved = tp_os;
    tp_os.calloc = no_zeroed_memory;
    assert_int_equal(tp_leafhash_init(&h, m.size, &err), TP_E_MEMORY);
    tp_leafhash_close(&h);
    tp_os = saved;
    err = (struct tp_err){0};
    assert_int_equal(tp_leafhash_init(&h, m.size, &err), TP_OK);
    assert_int_equal(tp_leafhash_written(&h, 0, NULL, m.size, &err), TP_OK);
    tp_os.malloc = no_memory;
    assert_int_equal(tp_leafhash_finalize(&h, read_memory, &m, &finalize_err), TP_E_MEMORY);
    tp_os.calloc = no_zeroed_memory;
    assert_int_equal(tp_leafhash_file(m.size, 2, read_memory, &m, root, &file_err), TP_E_MEMORY);
    tp_os = saved;
    tp_leafhash_close(&h);
    free(m.data);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_values),
        cmocka_unit_test(any_order_any_size),
        cmocka_unit_test(whole_leaves_are_not_read_back),
        cmocka_unit_test(holes_and_overlaps_have_no_hash),
        cmocka_unit_test(threads_write_and_finalize),
        cmocka_unit_test(existing_files),
        cmocka_unit_test(failed_finalize_can_be_repeated),
        cmocka_unit_test(text_form),
        cmocka_unit_test(memory_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
