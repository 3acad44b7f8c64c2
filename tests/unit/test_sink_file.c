/* The file sink: pieces of any size, in any order, from several threads, with any
 * amount of memory give the same file and hash; bytes written twice give none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "pack/os/os.h"
#include "pack/sink/sink.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER = 4096, BYTES = (3 << 20) + 12345, THREADS = 3 };

static uint64_t seed = 11;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

struct world {
    char path[64];
    int fd; /* open as that */
    char header[HEADER];
    struct tp_output output;
    struct tp_plan_file file;
    struct tp_plan plan;
    uint8_t *data;
    uint8_t root[TP_HASH_BYTES];
    bool done;
};

static enum tp_code note_done(void *arg, uint32_t file, const uint8_t hash[TP_HASH_BYTES],
                              struct tp_err *err)
{
    struct world *w = arg;
    (void)err;
    assert_int_equal(file, 0);
    assert_false(w->done);
    w->done = true;
    memcpy(w->root, hash, TP_HASH_BYTES);
    return TP_OK;
}

static void make_world(struct world *w)
{
    memset(w, 0, sizeof *w);
    strcpy(w->path, "/tmp/tilepack-sink.XXXXXX");
    w->fd = mkstemp(w->path);
    assert_true(w->fd >= 0);
    memset(w->header, '0', sizeof w->header);
    w->output = (struct tp_output){.bytes = BYTES, .offset = HEADER};
    w->file = (struct tp_plan_file){.header_size = HEADER, .hash_at = 100,
                                    .size = HEADER + BYTES, .output_count = 1};
    w->plan = (struct tp_plan){.outputs = &w->output, .output_count = 1, .files = &w->file,
                               .file_count = 1};
    w->data = malloc(BYTES);
    assert_non_null(w->data);
    for (size_t i = 0; i < BYTES; i++)
        w->data[i] = (uint8_t)(i * i >> 7 ^ i);
}

static void open_sink(struct tp_file_sink *sink, struct world *w, uint64_t memory, bool drop)
{
    struct tp_err err = {0};
    assert_int_equal(tp_file_sink_open(sink, &w->plan, NULL, w->path, memory, drop, &err), TP_OK);
    sink->only_fd = w->fd;
}

static void end_world(struct world *w)
{
    unlink(w->path);
    close(w->fd);
    free(w->data);
}

/* Cuts [0, BYTES) into pieces of up to `max` bytes, in random order. */
static size_t cut(const struct world *w, uint64_t max, struct tp_chunk *chunks)
{
    size_t count = 0;
    for (uint64_t at = 0; at < BYTES; count++) {
        uint64_t size = 1 + next_random() % max;
        if (size > BYTES - at)
            size = BYTES - at;
        chunks[count] = (struct tp_chunk){at, w->data + at, size};
        at += size;
    }
    for (size_t i = count; i-- > 1;) {
        size_t j = next_random() % (i + 1);
        struct tp_chunk kept = chunks[i];
        chunks[i] = chunks[j];
        chunks[j] = kept;
    }
    return count;
}

struct writer {
    struct tp_sink *sink;
    const struct tp_chunk *chunks;
    size_t count, batch;
    struct tp_err err;
    enum tp_code code;
};

static void *write_chunks(void *arg)
{
    struct writer *w = arg;
    for (size_t i = 0; i < w->count && w->code == TP_OK; i += w->batch) {
        size_t count = w->count - i < w->batch ? w->count - i : w->batch;
        w->code = w->sink->write_many(w->sink, 0, 0, w->chunks + i, count, &w->err);
    }
    return NULL;
}

static void expect_file(const struct world *w)
{
    uint8_t *stored = malloc(HEADER + BYTES);
    char digits[TP_HASH_TEXT];
    struct tp_err err = {0};
    int fd = open(w->path, O_RDONLY);
    assert_int_equal(tp_os_read(fd, stored, HEADER + BYTES, 0, w->path, &err), TP_OK);
    close(fd);
    tp_hash_print(w->root, digits);
    assert_memory_equal(stored + 100, digits, TP_HASH_TEXT - 1);
    memset(stored + 100, '0', TP_HASH_TEXT - 1);
    assert_memory_equal(stored, w->header, HEADER);
    assert_memory_equal(stored + HEADER, w->data, BYTES);
    free(stored);
}

/* Writes the world's file with that much memory; the root hash is in w->root. */
static void write_world(struct world *w, uint64_t memory, bool drop, uint64_t max)
{
    struct tp_err err = {0};
    struct tp_file_sink sink;
    struct tp_chunk *chunks = malloc(sizeof *chunks * BYTES);
    struct writer writers[THREADS];
    pthread_t threads[THREADS];
    size_t count = cut(w, max, chunks);
    w->done = false;
    open_sink(&sink, w, memory, drop);
    sink.done = note_done;
    sink.done_arg = w;
    for (size_t t = 0; t < THREADS; t++) {
        size_t begin = count * t / THREADS, end = count * (t + 1) / THREADS;
        writers[t] = (struct writer){.sink = &sink.sink, .chunks = chunks + begin,
                                     .count = end - begin, .batch = 1 + next_random() % 200};
        assert_int_equal(pthread_create(&threads[t], NULL, write_chunks, &writers[t]), 0);
    }
    assert_int_equal(sink.sink.write(&sink.sink, 0, TP_SINK_HEADER, 0, w->header, HEADER, &err),
                     TP_OK);
    for (size_t t = 0; t < THREADS; t++) {
        pthread_join(threads[t], NULL);
        assert_int_equal(writers[t].code, TP_OK);
    }
    assert_true(w->done);
    tp_file_sink_close(&sink);
    free(chunks);
    expect_file(w);
}

static void any_chunks_any_memory(void **state)
{
    (void)state;
    static const uint64_t memory[] = {0, (UINT64_C(1) << 20) + 64, UINT64_C(64) << 20};
    static const uint64_t max[] = {97, 5000, 700000, 3000000};
    struct world w;
    make_world(&w);
    uint8_t root[TP_HASH_BYTES];
    for (size_t m = 0; m < 3; m++)
        for (size_t p = m == 0 ? 1 : 0; p < 4; p++) { /* each piece a call: not the tiniest */
            write_world(&w, memory[m], m + p == 3, max[p]);
            if (m == 0 && p == 1)
                memcpy(root, w.root, sizeof root);
            assert_memory_equal(root, w.root, sizeof root);
        }
    end_world(&w);
}

static void bytes_twice(void **state)
{
    (void)state;
    struct world w;
    make_world(&w);
    for (uint64_t memory = 0; memory <= UINT64_C(8) << 20; memory += UINT64_C(8) << 20) {
        struct tp_err err = {0};
        struct tp_file_sink sink;
        open_sink(&sink, &w, memory, false);
        struct tp_sink *s = &sink.sink;
        uint64_t half = BYTES / 2;
        assert_int_equal(s->write(s, 0, 0, 0, w.data, half, &err), TP_OK);
        enum tp_code code = s->write(s, 0, 0, half - 7, w.data + half - 7, BYTES - half + 7, &err);
        if (code == TP_OK) /* found by the time the file is complete, then */
            code = s->write(s, 0, TP_SINK_HEADER, 0, w.header, HEADER - 7, &err);
        assert_int_equal(code, TP_E_IO);
        tp_file_sink_close(&sink);
        err = (struct tp_err){0};
        open_sink(&sink, &w, memory, false);
        assert_int_equal(s->write(s, 0, 0, BYTES - 10, w.data, 11, &err), TP_E_IO);
        tp_file_sink_close(&sink);
    }
    end_world(&w);
}

/* Who takes the name of the file that was made and locked gets none of its bytes. */
static void another_has_its_name(void **state)
{
    (void)state;
    struct world w;
    struct tp_err err = {0};
    struct tp_file_sink sink;
    struct stat st;
    make_world(&w);
    open_sink(&sink, &w, 0, false);
    assert_int_equal(unlink(w.path), 0);
    int other = open(w.path, O_RDWR | O_CREAT | O_EXCL, 0600);
    assert_int_equal(sink.sink.write(&sink.sink, 0, 0, 0, w.data, 8, &err), TP_OK);
    assert_true(fstat(other, &st) == 0 && st.st_size == 0);
    close(other);
    tp_file_sink_close(&sink);
    end_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_chunks_any_memory),
        cmocka_unit_test(bytes_twice),
        cmocka_unit_test(another_has_its_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
