/* Seekable zstd files: what is written is what libzstd alone restores, what is
 * read is what was written, and nothing that a file says is believed unchecked. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pack/os/os.h"
#include "pack/file/zst.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>
#include <zstd.h>

enum { MIB = 1 << 20, SKIP = 0x184D2A5E };

static uint64_t seed = 1;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* Half noise, half repetition, so that frames have blocks of every kind. */
static uint8_t *make_plain(size_t size)
{
    uint8_t *plain = malloc(size + 1);
    assert_non_null(plain);
    for (size_t i = 0; i < size; i++)
        plain[i] = (uint8_t)(i >> 12 & 1 ? next_random() : i >> 6);
    return plain;
}

struct file {
    int fd;
    uint64_t size;
};

static struct file file_of(const void *data, size_t size)
{
    struct file f = {memfd_create("zst", 0), size};
    assert_true(f.fd >= 0);
    assert_int_equal(pwrite(f.fd, data, size, 0), (ssize_t)size);
    return f;
}

static uint8_t *bytes_of(struct file f)
{
    uint8_t *data = malloc(f.size + 1);
    assert_non_null(data);
    assert_int_equal(pread(f.fd, data, f.size, 0), (ssize_t)f.size);
    return data;
}

/* Writes in pieces of at most `piece` bytes, cutting at every multiple of `cut`. */
static struct file pack(const uint8_t *plain, size_t size, size_t piece, size_t cut,
                        unsigned threads)
{
    struct tp_err err = {0};
    struct file f = {memfd_create("zst", 0), 0};
    struct tp_zst_writer *w;
    assert_int_equal(tp_zst_create(f.fd, "t.zst", 3, threads, &w, &err), TP_OK);
    for (size_t at = 0; at < size;) {
        size_t part = piece < size - at ? piece : size - at;
        if (cut && part > cut - at % cut)
            part = cut - at % cut;
        assert_int_equal(tp_zst_add(w, plain + at, part, &err), TP_OK);
        at += part;
        if (cut && at % cut == 0)
            assert_int_equal(tp_zst_cut(w, &err), TP_OK);
    }
    assert_int_equal(tp_zst_finish(w, &f.size, &err), TP_OK);
    tp_zst_abandon(w);
    assert_int_equal(lseek(f.fd, 0, SEEK_END), (off_t)f.size);
    return f;
}

static void check_reads(struct file f, const uint8_t *plain, size_t size, int reads)
{
    struct tp_err err = {0};
    struct tp_zst *zst;
    assert_int_equal(tp_zst_open(f.fd, f.size, "t.zst", &zst, &err), TP_OK);
    assert_int_equal(tp_zst_size(zst), size);
    uint8_t *got = malloc(size + 1);
    assert_int_equal(tp_zst_read(zst, got, size, 0, &err), TP_OK);
    assert_memory_equal(got, plain, size);
    for (int i = 0; i < reads; i++) {
        uint64_t at = next_random() % (size + 1);
        uint64_t n = next_random() % (size - at + 1);
        n = i % 2 ? n % 5000 : n;
        memset(got, 0, n);
        assert_int_equal(tp_zst_read(zst, got, n, at, &err), TP_OK);
        assert_memory_equal(got, plain + at, n);
    }
    assert_int_equal(tp_zst_read(zst, got, 1, size, &err), TP_E_INPUT);
    struct tp_err wrap = {0};
    assert_int_equal(tp_zst_read(zst, got, UINT64_MAX, 1, &wrap), TP_E_INPUT);
    tp_zst_close(zst);
    free(got);
}

static void round_trip_at_every_border(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 1000, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 9 * MIB + 77};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint8_t *plain = make_plain(sizes[i]);
        struct file f = pack(plain, sizes[i], 300001, 0, 2);
        uint8_t *packed = bytes_of(f), *restored = malloc(sizes[i] + 1);
        assert_int_equal(ZSTD_decompress(restored, sizes[i], packed, f.size), sizes[i]);
        assert_memory_equal(restored, plain, sizes[i]);
        check_reads(f, plain, sizes[i], 40);
        close(f.fd);
        free(packed);
        free(restored);
        free(plain);
    }
}

static uint32_t u32_at(const uint8_t *p)
{
    return p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Reads the seek table by the letter of its format, beside the code under test. */
static void table_is_as_specified(void **state)
{
    (void)state;
    size_t size = 11 * MIB, cut = 5 * MIB;
    uint8_t *plain = make_plain(size);
    struct file f = pack(plain, size, 1234567, cut, 2);
    uint8_t *packed = bytes_of(f);
    static const uint32_t want[] = {4 * MIB, MIB, 4 * MIB, MIB, MIB};
    uint8_t *footer = packed + f.size - 9;
    assert_int_equal(u32_at(footer + 5), 0x8F92EAB1);
    assert_int_equal(footer[4], 0);
    assert_int_equal(u32_at(footer), 5);
    uint8_t *table = footer - 5 * 8 - 8;
    assert_int_equal(u32_at(table), SKIP);
    assert_int_equal(u32_at(table + 4), 5 * 8 + 9);
    size_t at = 0, plain_at = 0;
    uint8_t *frame = malloc(4 * MIB);
    for (int i = 0; i < 5; i++) {
        size_t n = u32_at(table + 8 + 8 * i);
        assert_int_equal(u32_at(table + 12 + 8 * i), want[i]);
        assert_int_equal(ZSTD_getFrameContentSize(packed + at, n), want[i]);
        assert_true(packed[at + 4] & 4); /* the frame carries a checksum */
        assert_int_equal(ZSTD_decompress(frame, 4 * MIB, packed + at, n), want[i]);
        assert_memory_equal(frame, plain + plain_at, want[i]);
        at += n;
        plain_at += want[i];
    }
    assert_ptr_equal(packed + at, table);
    close(f.fd);
    free(frame);
    free(packed);
    free(plain);
}

static void same_bytes_for_any_threads(void **state)
{
    (void)state;
    size_t size = 21 * MIB + 5;
    uint8_t *plain = make_plain(size);
    struct file one = pack(plain, size, 7 * MIB, 3 * MIB, 1);
    uint8_t *want = bytes_of(one);
    for (unsigned threads = 2; threads <= 7; threads += 5) {
        struct file f = pack(plain, size, 65537, 3 * MIB, threads);
        assert_int_equal(f.size, one.size);
        uint8_t *got = bytes_of(f);
        assert_memory_equal(got, want, f.size);
        close(f.fd);
        free(got);
    }
    close(one.fd);
    free(want);
    free(plain);
}

/* Opens and reads all; checks that success means the right bytes. */
static enum tp_code outcome(const uint8_t *packed, size_t size, const uint8_t *plain,
                            size_t plain_size, struct tp_err *err)
{
    struct file f = file_of(packed, size);
    struct tp_zst *zst;
    *err = (struct tp_err){0};
    enum tp_code code = tp_zst_open(f.fd, f.size, "t.zst", &zst, err);
    if (!code) {
        uint64_t n = tp_zst_size(zst);
        assert_true(n <= UINT32_C(1) << 30);
        uint8_t *got = malloc(n + 1);
        code = tp_zst_read(zst, got, n, 0, err);
        if (!code) {
            assert_int_equal(n, plain_size);
            assert_memory_equal(got, plain, n);
        }
        free(got);
    }
    tp_zst_close(zst);
    close(f.fd);
    if (code) {
        assert_int_equal(err->code, code);
        assert_string_equal(err->path, "t.zst");
        assert_true(err->what[0] && err->hint[0]);
    }
    return code;
}

static void every_bit_and_every_length(void **state)
{
    (void)state;
    size_t size = 3000;
    uint8_t *plain = make_plain(size);
    struct file f = pack(plain, size, 500, 1024, 1);
    uint8_t *packed = bytes_of(f);
    struct tp_err err;
    int harmless = 0;
    for (size_t bit = 0; bit < f.size * 8; bit++) {
        packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        enum tp_code code = outcome(packed, f.size, plain, size, &err);
        harmless += code == TP_OK;
        if (code && code != TP_E_INPUT && code != TP_E_UNSUPPORTED)
            fail_msg("bit %zu of %zu: code %d, %s", bit, f.size * 8, code, err.what);
        packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    /* Harmless are the footer's two unused bits, and bits of frame headers that change
     * no content. */
    assert_true(harmless >= 2 && harmless < 168);
    uint8_t *cut = malloc(f.size + 9);
    for (size_t n = 0; n < f.size; n++) {
        memcpy(cut, packed, n);
        enum tp_code code = outcome(cut, n, plain, size, &err);
        assert_true(code == TP_E_INPUT || code == TP_E_UNSUPPORTED);
    }
    memcpy(cut, packed, f.size);
    memset(cut + f.size, 0, 9);
    for (size_t more = 1; more <= 9; more++)
        assert_int_equal(outcome(cut, f.size + more, plain, size, &err), TP_E_UNSUPPORTED);
    free(cut);
    close(f.fd);
    free(packed);
    free(plain);
}

static void damage_names_the_frame(void **state)
{
    (void)state;
    size_t size = 6 * MIB;
    uint8_t *plain = make_plain(size);
    struct file f = pack(plain, size, size, 0, 1);
    uint8_t *packed = bytes_of(f);
    size_t first = u32_at(packed + f.size - 9 - 16);
    packed[first + 100000] ^= 1;
    struct tp_err err;
    assert_int_equal(outcome(packed, f.size, plain, size, &err), TP_E_INPUT);
    assert_int_equal(err.offset, first + 1);
    assert_non_null(strstr(err.what, "4194304 to 6291456"));
    /* The undamaged frame is still readable. */
    struct file g = file_of(packed, f.size);
    struct tp_zst *zst;
    uint8_t got[100];
    err = (struct tp_err){0};
    assert_int_equal(tp_zst_open(g.fd, g.size, "t.zst", &zst, &err), TP_OK);
    assert_int_equal(tp_zst_read(zst, got, 100, 4 * MIB - 100, &err), TP_OK);
    assert_memory_equal(got, plain + 4 * MIB - 100, 100);
    assert_int_equal(tp_zst_read(zst, got, 100, 4 * MIB - 99, &err), TP_E_INPUT);
    tp_zst_close(zst);
    close(f.fd);
    close(g.fd);
    free(packed);
    free(plain);
}

/* A buffer to build foreign files in. */
static uint8_t built[1 << 16];
static size_t built_size;

static void put_u32(uint32_t v)
{
    for (int i = 0; i < 4; i++)
        built[built_size++] = (uint8_t)(v >> 8 * i);
}

static size_t put_frame(const uint8_t *plain, size_t size, int sized)
{
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, sized);
    size_t n = ZSTD_compress2(c, built + built_size, sizeof built - built_size, plain, size);
    assert_false(ZSTD_isError(n));
    ZSTD_freeCCtx(c);
    built_size += n;
    return n;
}

/* Frames as `zstd` writes them, from a file and from a pipe. */
static void without_a_table(void **state)
{
    (void)state;
    struct tp_err err;
    uint8_t *plain = make_plain(5000);
    for (int sized = 0; sized < 2; sized++) {
        built_size = 0;
        put_frame(plain, 2000, sized);
        put_frame(plain + 2000, 3000, sized);
        assert_int_equal(outcome(built, built_size, plain, 5000, &err), TP_E_UNSUPPORTED);
        assert_string_equal(err.hint, "unpack it first: zstd -d t.zst");
        assert_int_equal(err.offset, 0);
    }
    free(plain);
    static const uint8_t head[] = {0x28, 0xB5, 0x2F, 0xFD, 0, 0};
    struct file f = file_of(head, sizeof head);
    struct tp_zst *zst;
    f.size = 64 * MIB;
    assert_int_equal(ftruncate(f.fd, (off_t)f.size), 0);
    err = (struct tp_err){0};
    assert_int_equal(tp_zst_open(f.fd, f.size, "t.zst", &zst, &err), TP_E_UNSUPPORTED);
    close(f.fd);
}

struct foreign {
    uint32_t count, descriptor, stored[3], plain[3], sum[3];
};

static void put_table(const struct foreign *t, uint32_t entries)
{
    bool sums = t->descriptor & 0x80;
    put_u32(SKIP);
    put_u32(entries * (sums ? 12 : 8) + 9);
    for (uint32_t i = 0; i < entries; i++) {
        put_u32(t->stored[i]);
        put_u32(t->plain[i]);
        if (sums)
            put_u32(t->sum[i]);
    }
    put_u32(t->count);
    built[built_size++] = (uint8_t)t->descriptor;
    put_u32(0x8F92EAB1);
}

/* A table by another writer: unsized frames, an empty frame, checksums. */
static void foreign_tables(void **state)
{
    (void)state;
    struct tp_err err;
    uint8_t *plain = make_plain(5000);
    built_size = 0;
    struct foreign good = {.count = 3, .descriptor = 0x83, .plain = {2000, 0, 3000}};
    good.stored[0] = (uint32_t)put_frame(plain, 2000, 0);
    good.stored[1] = 8 + 4;
    put_u32(0x184D2A57);
    put_u32(4);
    put_u32(99);
    good.stored[2] = (uint32_t)put_frame(plain + 2000, 3000, 0);
    good.sum[0] = (uint32_t)XXH64(plain, 2000, 0);
    good.sum[2] = (uint32_t)XXH64(plain + 2000, 3000, 0);
    size_t frames = built_size;
    struct {
        struct foreign t;
        enum tp_code code;
    } cases[12];
    for (int i = 0; i < 12; i++)
        cases[i].t = good, cases[i].code = TP_E_INPUT;
    cases[0].code = TP_OK;
    cases[1].t.sum[2] ^= 1;
    cases[2].t.descriptor |= 4; /* a reserved bit */
    cases[3].t.count = 2;
    cases[4].t.count = UINT32_MAX;
    cases[5].t.stored[0]++;
    cases[6].t.stored[1] = 0;
    cases[7].t.stored[2] = UINT32_MAX;
    cases[8].t.plain[0]++;
    cases[9].t.plain[0]--;
    cases[10].t.plain[2] = 0; /* hides data from readers of the table */
    cases[11].t.plain[2] = (64 << 20) + 1; /* more than is decoded at once */
    cases[11].code = TP_E_UNSUPPORTED;
    for (int i = 0; i < 12; i++) {
        built_size = frames;
        put_table(&cases[i].t, 3);
        enum tp_code code = outcome(built, built_size, plain, 5000, &err);
        if (code != cases[i].code)
            fail_msg("case %d: code %d, %s", i, code, err.what);
    }
    /* Consistent in itself, but the last frame has no entry. */
    struct foreign fewer = good;
    fewer.count = 2;
    built_size = frames;
    put_table(&fewer, 2);
    assert_int_equal(outcome(built, built_size, plain, 2000, &err), TP_E_INPUT);
    assert_non_null(strstr(err.what, "do not add up"));
    /* One entry for all three frames. */
    struct foreign one = {.count = 1, .stored = {(uint32_t)frames}, .plain = {5000}};
    built_size = frames;
    put_table(&one, 1);
    assert_int_equal(outcome(built, built_size, plain, 5000, &err), TP_E_INPUT);
    assert_non_null(strstr(err.what, "ends before the next one begins"));
    /* An empty frame that is one, and one that carries bytes. */
    for (int hidden = 0; hidden < 2; hidden++) {
        built_size = 0;
        struct foreign two = {.count = 2, .plain = {0, 3000}};
        two.stored[0] = (uint32_t)put_frame(plain, hidden, 1);
        two.stored[1] = (uint32_t)put_frame(plain + 2000, 3000, 0);
        put_table(&two, 2);
        assert_int_equal(outcome(built, built_size, plain + 2000, 3000, &err),
                         hidden ? TP_E_INPUT : TP_OK);
    }
    free(plain);
}

/* Fault injection. */
static atomic_int left;

static bool due(void)
{
    return atomic_fetch_sub(&left, 1) == 0;
}

static ssize_t failing_pwrite(int fd, const void *data, size_t size, off_t offset)
{
    if (due()) {
        errno = ENOSPC;
        return -1;
    }
    return pwrite(fd, data, size, offset);
}

static ssize_t failing_pread(int fd, void *data, size_t size, off_t offset)
{
    if (due()) {
        errno = EIO;
        return -1;
    }
    return pread(fd, data, size, offset);
}

static void *failing_malloc(size_t size) { return due() ? NULL : malloc(size); }
static void *failing_calloc(size_t n, size_t size) { return due() ? NULL : calloc(n, size); }
static void *failing_realloc(void *p, size_t size) { return due() ? NULL : realloc(p, size); }

static enum tp_code write_and_read(const uint8_t *plain, size_t size, struct tp_err *err)
{
    struct file f = {memfd_create("zst", 0), 0};
    struct tp_zst_writer *w = NULL;
    struct tp_zst *zst = NULL;
    uint8_t got[10];
    enum tp_code code = tp_zst_create(f.fd, "t.zst", 1, 2, &w, err);
    for (size_t at = 0; !code && at < size; at += MIB)
        code = tp_zst_add(w, plain + at, MIB, err);
    if (!code)
        code = tp_zst_finish(w, &f.size, err);
    tp_zst_abandon(w);
    if (!code)
        code = tp_zst_open(f.fd, f.size, "t.zst", &zst, err);
    if (!code)
        code = tp_zst_read(zst, got, 10, size - 10, err);
    tp_zst_close(zst);
    close(f.fd);
    return code;
}

static void every_call_fails_once(void **state)
{
    (void)state;
    size_t size = 9 * MIB;
    uint8_t *plain = make_plain(size);
    struct tp_os saved = tp_os;
    for (int kind = 0; kind < 3; kind++) {
        int n = 0;
        for (;; n++) {
            struct tp_err err = {0};
            atomic_store(&left, n);
            if (kind == 0)
                tp_os.pwrite = failing_pwrite;
            else if (kind == 1)
                tp_os.pread = failing_pread;
            else
                tp_os.malloc = failing_malloc, tp_os.calloc = failing_calloc,
                tp_os.realloc = failing_realloc;
            enum tp_code code = write_and_read(plain, size, &err);
            tp_os = saved;
            if (atomic_load(&left) >= 0) {
                assert_int_equal(code, TP_OK);
                break;
            }
            assert_int_equal(code, kind == 2 ? TP_E_MEMORY : TP_E_IO);
            assert_int_equal(err.code, code);
        }
        assert_true(n >= 3);
    }
    free(plain);
}

struct reader {
    struct tp_zst *zst;
    const uint8_t *plain;
    size_t size;
    uint64_t seed;
    bool wrong;
};

static void *read_at_random(void *arg)
{
    struct reader *r = arg;
    uint8_t *got = malloc(r->size);
    for (int i = 0; i < 60; i++) {
        r->seed = r->seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        uint64_t at = (r->seed >> 20) % r->size;
        uint64_t n = (r->seed >> 8) % (i % 3 ? 100000 : r->size);
        n = n < r->size - at ? n : r->size - at;
        struct tp_err err = {0};
        r->wrong |= tp_zst_read(r->zst, got, n, at, &err) || memcmp(got, r->plain + at, n);
    }
    free(got);
    return NULL;
}

/* Readers in threads, with a cache that holds everything, two frames, nothing. */
static void threads_share_the_cache(void **state)
{
    (void)state;
    size_t size = 6 * MIB;
    uint8_t *plain = make_plain(size);
    struct file f = pack(plain, size, size, MIB / 2, 2);
    static const uint64_t limits[] = {64 * MIB, 2 * MIB, 0};
    for (int i = 0; i < 3; i++) {
        tp_zst_cache_limit(limits[i]);
        struct tp_err err = {0};
        struct tp_zst *zst[2];
        struct reader readers[6];
        pthread_t threads[6];
        for (int k = 0; k < 2; k++)
            assert_int_equal(tp_zst_open(f.fd, f.size, "t.zst", &zst[k], &err), TP_OK);
        for (int k = 0; k < 6; k++) {
            readers[k] = (struct reader){zst[k % 2], plain, size, (uint64_t)k + 1, false};
            pthread_create(&threads[k], NULL, read_at_random, &readers[k]);
        }
        for (int k = 0; k < 6; k++) {
            pthread_join(threads[k], NULL);
            assert_false(readers[k].wrong);
        }
        tp_zst_close(zst[0]);
        tp_zst_close(zst[1]);
    }
    tp_zst_cache_limit(64 * MIB);
    close(f.fd);
    free(plain);
}

static void abandoned_and_refused_writers(void **state)
{
    (void)state;
    struct tp_err err = {0};
    struct tp_zst_writer *w;
    uint8_t *plain = make_plain(30 * MIB);
    int fd = memfd_create("zst", 0);
    assert_int_equal(tp_zst_create(fd, "t.zst", 3, 2, &w, &err), TP_OK);
    assert_int_equal(tp_zst_add(w, plain, 30 * MIB, &err), TP_OK);
    tp_zst_abandon(w);
    tp_zst_abandon(NULL);
    assert_int_equal(tp_zst_create(fd, "t.zst", 0, 2, &w, &err), TP_E_USAGE);
    assert_null(w);
    err = (struct tp_err){0};
    assert_int_equal(tp_zst_create(fd, "t.zst", 23, 2, &w, &err), TP_E_USAGE);
    assert_string_equal(err.hint, "levels are 1 to 22");
    close(fd);
    free(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip_at_every_border),
        cmocka_unit_test(table_is_as_specified),
        cmocka_unit_test(same_bytes_for_any_threads),
        cmocka_unit_test(every_bit_and_every_length),
        cmocka_unit_test(damage_names_the_frame),
        cmocka_unit_test(without_a_table),
        cmocka_unit_test(foreign_tables),
        cmocka_unit_test(every_call_fails_once),
        cmocka_unit_test(threads_share_the_cache),
        cmocka_unit_test(abandoned_and_refused_writers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
