/* Loading without a device: every box of every tensor is where it belongs, through rings of any
 * size and a target whose copies end as late as they may; what is wrong with files, memory, the
 * target or the system is an error, and nothing is copied after it. */
#include "pack/file/leafhash.h"
#include "pack/file/zst.h"
#include "pack/load/load.h"
#include "pack/os/os.h"
#include "pack/source/descriptor.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { SMALL = 300, TENSORS = SMALL + 4, MIB = 1 << 20, MAX_PARTS = 2 * TENSORS };

static char folder[3000];
static struct tp_os saved;

/* ---- files --------------------------------------------------------------- */

static uint32_t state = 1;

static uint32_t next(uint32_t below)
{
    state = state * 1664525 + 1013904223;
    return (uint32_t)((uint64_t)(state >> 4) * below >> 28);
}

static const char *at(const char *name)
{
    static char path[4][3300];
    static int turn;
    turn = (turn + 1) % 4;
    snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
    return path[turn];
}

/* The file's own hash, with its digits as zeros. */
static enum tp_code read_memory(void *arg, void *data, uint64_t size, uint64_t offset,
                                struct tp_err *err)
{
    const struct tp_text *file = arg;
    (void)err;
    memcpy(data, file->data + offset, size);
    return TP_OK;
}

static void sign(struct tp_text *file)
{
    uint8_t hash[TP_HASH_BYTES];
    char digits[TP_HASH_TEXT];
    char *place = strstr(file->data + 8, "00000000000000000000000000000000");
    assert_non_null(place);
    assert_int_equal(tp_leafhash_file(file->size, 1, read_memory, file, hash, NULL), TP_OK);
    tp_hash_print(hash, digits);
    memcpy(place, digits, TP_HASH_TEXT - 1);
}

static void add_tensor(struct tp_st_tensor *tensor, const char *name, enum tp_dtype dtype,
                       uint32_t rank, const uint64_t *shape, uint64_t *end)
{
    uint64_t bits = tp_dtype_bits(dtype);
    *tensor = (struct tp_st_tensor){.name = name, .dtype = dtype, .rank = rank, .begin = *end};
    for (uint32_t d = 0; d < rank; d++)
        bits *= tensor->shape[d] = shape[d];
    *end = tensor->end = *end + bits / 8;
}

/* One large tensor of many short rows, one of long ones, one below a byte, one without
 * elements, and many small ones. */
static struct tp_text make_file(bool hashed)
{
    static char names[SMALL][24];
    struct tp_st_tensor tensors[TENSORS];
    struct tp_st_meta meta = {(char *)TP_META_HASH, (char *)"00000000000000000000000000000000"};
    struct tp_text out = {0};
    uint64_t end = 0;
    add_tensor(&tensors[0], "rows", TP_I32, 3, (uint64_t[]){6, 500, 300}, &end);
    for (int i = 0; i < SMALL; i++) {
        snprintf(names[i], sizeof names[i], "small%03d", i);
        add_tensor(&tensors[1 + i], names[i], TP_U8, 1, (uint64_t[]){17}, &end);
    }
    add_tensor(&tensors[SMALL + 1], "half", TP_F4, 3, (uint64_t[]){4, 7, 6}, &end);
    add_tensor(&tensors[SMALL + 2], "none", TP_F32, 2, (uint64_t[]){0, 9}, &end);
    add_tensor(&tensors[SMALL + 3], "wide", TP_BF16, 2, (uint64_t[]){9, 123456}, &end);
    assert_int_equal(tp_st_write_header(tensors, TENSORS, &meta, hashed, 64, &out, NULL), TP_OK);
    for (uint64_t i = 0; i < end; i++) {
        char byte = (char)next(256);
        tp_text_add(&out, &byte, 1, NULL);
    }
    if (hashed)
        sign(&out);
    return out;
}

static void put(const char *name, const struct tp_text *file)
{
    FILE *out = fopen(at(name), "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(file->data, 1, file->size, out), file->size);
    assert_int_equal(fclose(out), 0);
}

static void put_archive(const char *name, const struct tp_text *file)
{
    struct tp_zst_writer *writer;
    uint64_t size;
    int fd = open(at(name), O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(tp_zst_create(fd, name, 3, 1, &writer, NULL), TP_OK);
    assert_int_equal(tp_zst_add(writer, file->data, file->size, NULL), TP_OK);
    assert_int_equal(tp_zst_finish(writer, &size, NULL), TP_OK);
    tp_zst_abandon(writer);
    close(fd);
}

static struct tp_text whole; /* model.safetensors, which has its hash */

static int set_up(void **arg)
{
    const char *base = getenv("TMPDIR");
    (void)arg;
    snprintf(folder, sizeof folder, "%s/tp-load-XXXXXX", base && *base ? base : P_tmpdir);
    saved = tp_os;
    if (!mkdtemp(folder))
        return -1;
    if (!whole.data)
        whole = make_file(true);
    put("model.safetensors", &whole);
    return 0;
}

static int tear_down(void **arg)
{
    static const char *const names[] = {"model.safetensors", "other.safetensors",
                                        "other.safetensors.zst"};
    (void)arg;
    tp_os = saved;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(at(names[i]));
    return rmdir(folder);
}

/* ---- a target whose copies end late -------------------------------------- */

enum { LATE_COPIES = 4096 };

struct late_worker {
    struct {
        void *to;
        const void *from;
        uint64_t bytes;
    } copies[LATE_COPIES];
    size_t count, done, recorded[TP_LOAD_SLOTS];
};

struct late {
    uint8_t *memory;
    struct tp_load_size size;
    struct late_worker *workers;
};

static atomic_int rings, opened, copied, failing; /* failing: copies until one fails */
static enum tp_code open_code, begin_code, take_code, finish_code;

static enum tp_code late_open(const struct tp_load_target *target, struct tp_load_size size,
                              void **ring, struct tp_err *err)
{
    struct late *l;
    (void)target;
    *ring = NULL;
    if (open_code)
        return tp_fail(err, open_code, "no ring");
    assert_int_equal(size.slots, TP_LOAD_SLOTS);
    assert_int_equal(size.bytes % MIB, 0);
    l = calloc(1, sizeof *l);
    l->memory = malloc(size.bytes * size.slots * size.workers);
    l->workers = calloc(size.workers, sizeof *l->workers);
    l->size = size;
    atomic_fetch_add(&rings, 1);
    atomic_fetch_add(&opened, 1);
    *ring = l;
    return TP_OK;
}

static enum tp_code late_begin(void *ring, unsigned worker, struct tp_err *err)
{
    (void)ring;
    return begin_code && worker == 0 ? tp_fail(err, begin_code, "no worker") : TP_OK;
}

static enum tp_code late_copy(void *ring, unsigned worker, void *to, const void *from,
                              uint64_t bytes, struct tp_err *err)
{
    struct late_worker *l = &((struct late *)ring)->workers[worker];
    if (atomic_fetch_sub(&failing, 1) == 1)
        return tp_fail(err, TP_E_MEMORY, "no copy");
    assert_true(l->count < LATE_COPIES);
    l->copies[l->count].to = to;
    l->copies[l->count].from = from;
    l->copies[l->count++].bytes = bytes;
    return TP_OK;
}

static enum tp_code late_record(void *ring, unsigned worker, unsigned i, struct tp_err *err)
{
    struct late_worker *l = &((struct late *)ring)->workers[worker];
    (void)err;
    l->recorded[i] = l->count;
    return TP_OK;
}

static void end_copies(struct late_worker *l, size_t end)
{
    for (; l->done < end; l->done++) {
        memcpy(l->copies[l->done].to, l->copies[l->done].from, l->copies[l->done].bytes);
        atomic_fetch_add(&copied, 1);
    }
    if (l->done == l->count) {
        l->done = l->count = 0;
        memset(l->recorded, 0, sizeof l->recorded);
    }
}

static enum tp_code late_take(void *ring, unsigned worker, unsigned i, void **slot,
                              struct tp_err *err)
{
    struct late *l = ring;
    assert_true(worker < l->size.workers && i < l->size.slots);
    *slot = l->memory + (worker * l->size.slots + i) * l->size.bytes;
    end_copies(&l->workers[worker], l->workers[worker].recorded[i]);
    return take_code ? tp_fail(err, take_code, "no slot") : TP_OK;
}

static enum tp_code late_finish(void *ring, unsigned worker, struct tp_err *err)
{
    struct late_worker *l = &((struct late *)ring)->workers[worker];
    end_copies(l, l->count);
    return finish_code ? tp_fail(err, finish_code, "no end") : TP_OK;
}

static void late_close(const struct tp_load_target *target, void *ring)
{
    (void)target;
    struct late *l = ring;
    free(l->memory);
    free(l->workers);
    free(l);
    atomic_fetch_sub(&rings, 1);
}

static const struct tp_load_target late = {.open = late_open, .begin = late_begin,
                                           .take = late_take, .copy = late_copy,
                                           .record = late_record, .finish = late_finish,
                                           .close = late_close};

/* ---- parts --------------------------------------------------------------- */

struct parts {
    struct tp_checkpoint ckpt;
    struct tp_load_part list[MAX_PARTS];
    uint64_t bytes[MAX_PARTS];
    size_t count;
};

static void open_parts(struct parts *p, const char *name)
{
    struct tp_err err = {0};
    memset(p, 0, sizeof *p);
    if (tp_checkpoint_open(at(name), 0, &p->ckpt, &err))
        fail_msg("%s", err.what);
}

static size_t tensor_of(const struct parts *p, const char *name)
{
    const struct tp_tensor *tensor = tp_checkpoint_find(&p->ckpt, name);
    assert_non_null(tensor);
    return (size_t)(tensor - p->ckpt.tensors);
}

/* Adds a box of any size with guarded memory; one of F4 has whole rows alone. */
static void add_part(struct parts *p, size_t t, bool all)
{
    const struct tp_tensor *tensor = &p->ckpt.tensors[t];
    struct tp_load_part *part = &p->list[p->count];
    uint64_t bits = tp_dtype_bits(tensor->dtype);
    *part = (struct tp_load_part){.tensor = t};
    for (uint32_t d = 0; d < tensor->rank; d++) {
        bool whole_row = all || (bits % 8 && d + 1 == tensor->rank) || next(3) == 0;
        part->begin[d] = whole_row ? 0 : next((uint32_t)tensor->shape[d] + 1);
        part->end[d] = whole_row ? tensor->shape[d]
                                 : part->begin[d] +
                                       next((uint32_t)(tensor->shape[d] - part->begin[d]) + 1);
    }
    for (uint32_t d = 0; d < tensor->rank; d++)
        bits *= part->end[d] - part->begin[d];
    p->bytes[p->count] = bits / 8;
    part->to = malloc(bits / 8 + 64);
    memset(part->to, 0xA5, bits / 8 + 64);
    p->count++;
}

/* The box element by element, out of the file's bytes. */
static void expect(const struct tp_text *file, const struct parts *p, size_t i)
{
    const struct tp_load_part *part = &p->list[i];
    const struct tp_tensor *tensor = &p->ckpt.tensors[part->tensor];
    const uint64_t bits = tp_dtype_bits(tensor->dtype), last = tensor->rank - 1;
    const uint64_t row = (part->end[last] - part->begin[last]) * bits / 8;
    const uint8_t *to = part->to;
    uint64_t index[TP_ST_MAX_RANK], guard = 0;
    memcpy(index, part->begin, sizeof index);
    for (uint64_t done = 0; done < p->bytes[i]; done += row) {
        uint64_t element = 0;
        for (uint32_t d = 0; d < tensor->rank; d++)
            element = element * tensor->shape[d] + index[d];
        assert_memory_equal(to + done, file->data + tensor->offset + element * bits / 8, row);
        for (uint64_t d = last; d-- > 0;) {
            if (++index[d] < part->end[d])
                break;
            index[d] = part->begin[d];
        }
    }
    for (int g = 0; g < 64; g++)
        guard += to[p->bytes[i] + (uint64_t)g] != 0xA5;
    assert_int_equal(guard, 0);
}

static enum tp_code load(struct parts *p, const struct tp_load_target *target, unsigned threads,
                         uint64_t ring, bool verify, struct tp_err *err)
{
    struct tp_load_options options = {target, threads, ring, verify};
    memset(err, 0, sizeof *err);
    enum tp_code code = tp_load(&p->ckpt, p->list, p->count, &options, err);
    assert_int_equal(code, err->code);
    assert_int_equal(atomic_load(&rings), 0);
    return code;
}

static void close_parts(struct parts *p)
{
    for (size_t i = 0; i < p->count; i++)
        free(p->list[i].to);
    tp_checkpoint_close(&p->ckpt);
}

/* ---- what is loaded ------------------------------------------------------ */

static void load_and_compare(const char *name, const struct tp_text *file, bool all,
                             unsigned threads, uint64_t ring, bool verify)
{
    static struct parts p;
    struct tp_load_target host = tp_load_host();
    struct tp_err err;
    open_parts(&p, name);
    for (size_t t = p.ckpt.tensor_count; t-- > 0;) /* backwards: any order is right */
        for (int twice = 0; twice < 2; twice++)
            add_part(&p, t, all);
    for (int run = 0; run < 2; run++) {
        if (load(&p, run ? &late : &host, threads, ring, verify, &err))
            fail_msg("%s", err.what);
        for (size_t i = 0; i < p.count; i++)
            expect(file, &p, i);
        for (size_t i = 0; i < p.count; i++)
            memset(p.list[i].to, 0xA5, p.bytes[i]);
    }
    close_parts(&p);
}

static void test_whole(void **arg)
{
    (void)arg;
    load_and_compare("model.safetensors", &whole, true, 1, 0, false);
    load_and_compare("model.safetensors", &whole, true, 4, 64 * MIB, false);
    load_and_compare("model.safetensors", &whole, true, 3, 1000 * MIB, true);
    load_and_compare("model.safetensors", &whole, true, 100, 7 * MIB, true);
}

static void test_boxes(void **arg)
{
    (void)arg;
    for (int i = 0; i < 12; i++)
        load_and_compare("model.safetensors", &whole, false, 1 + next(5), next(30) * (uint64_t)MIB,
                         i % 3 == 0);
}

static void test_archive(void **arg)
{
    (void)arg;
    put_archive("other.safetensors.zst", &whole);
    load_and_compare("other.safetensors.zst", &whole, false, 2, 0, false);
    load_and_compare("other.safetensors.zst", &whole, true, 2, 0, true);
}

/* A box of bytes in a shape that is not the tensor's, as tiles have one. */
static void test_shapes(void **arg)
{
    static struct parts p;
    struct tp_err err;
    (void)arg;
    open_parts(&p, "model.safetensors");
    size_t rows = tensor_of(&p, "rows"); /* 3,600,000 bytes */
    add_part(&p, rows, true);
    struct tp_load_part *part = &p.list[0];
    *part = (struct tp_load_part){rows, {5, 100, 0, 12}, {50, 900, 1, 47}, part->to,
                                  4,    {60, 1000, 1, 60}};
    for (unsigned threads = 1; threads < 4; threads++) {
        const char *from = (const char *)whole.data + p.ckpt.tensors[rows].offset, *to = part->to;
        memset(part->to, 0xA5, p.bytes[0]);
        assert_int_equal(load(&p, &late, threads, 0, false, &err), TP_OK);
        for (size_t i = 5; i < 50; i++)
            for (size_t j = 100; j < 900; j++, to += 35)
                assert_memory_equal(to, from + (i * 1000 + j) * 60 + 12, 35);
        assert_memory_equal(to, "\xA5", 1);
    }
    part->shape[0] = 59;
    assert_int_equal(load(&p, &late, 1, 0, false, &err), TP_E_USAGE);
    assert_string_equal(err.what, "a shape that is not that of its 3600000 bytes");
    part->shape[0] = UINT64_MAX / 1000 + 2; /* wraps around */
    assert_int_equal(load(&p, &late, 1, 0, false, &err), TP_E_USAGE);
    part->shape[0] = 60, part->end[3] = 61;
    assert_int_equal(load(&p, &late, 1, 0, false, &err), TP_E_USAGE);
    part->end[3] = 47, part->rank = TP_ST_MAX_RANK + 1;
    assert_int_equal(load(&p, &late, 1, 0, false, &err), TP_E_USAGE);
    close_parts(&p);
}

static uint64_t bytes_read;
static atomic_int reads;

static ssize_t count_read(int fd, void *data, size_t size, off_t offset)
{
    atomic_fetch_add(&reads, 1);
    bytes_read += size;
    return saved.pread(fd, data, size, offset);
}

/* Small tensors are read together; a slice is read without the rest. */
static void test_what_is_read(void **arg)
{
    static struct parts p;
    struct tp_err err;
    (void)arg;
    open_parts(&p, "model.safetensors");
    for (size_t t = 0; t < p.ckpt.tensor_count; t++)
        if (strncmp(p.ckpt.tensors[t].name, "small", 5) == 0)
            add_part(&p, t, true);
    tp_os.pread = count_read;
    reads = 0;
    bytes_read = 0;
    assert_int_equal(load(&p, &late, 1, 0, false, &err), TP_OK);
    assert_true(reads <= 2 && bytes_read < SMALL * 17 + 3 * 4096);
    close_parts(&p);
    open_parts(&p, "model.safetensors");
    add_part(&p, tensor_of(&p, "rows"), true);
    p.list[0].begin[0] = 4; /* one expert of six: 600,000 bytes */
    p.list[0].end[0] = 5;
    reads = 0;
    bytes_read = 0;
    assert_int_equal(load(&p, &late, 1, 0, false, &err), TP_OK);
    assert_true(reads <= 2 && bytes_read < 600000 + 3 * 4096);
    p.bytes[0] = 600000;
    reads = 0;
    bytes_read = 0;
    assert_int_equal(load(&p, &late, 1, 0, true, &err), TP_OK);
    assert_true(bytes_read >= whole.size && bytes_read < whole.size + MIB); /* the header again */
    close_parts(&p);
}

/* Short runs are one copy for each window, not one each. */
static void test_copies(void **arg)
{
    static struct parts p;
    struct tp_err err;
    (void)arg;
    open_parts(&p, "model.safetensors");
    add_part(&p, tensor_of(&p, "rows"), true);
    p.list[0].begin[2] = 100; /* 3,000 runs of 400 bytes in five windows at most */
    p.list[0].end[2] = 200;
    p.bytes[0] = 1200000;
    memset((char *)p.list[0].to + p.bytes[0], 0xA5, 64);
    copied = 0;
    assert_int_equal(load(&p, &late, 1, 0, false, &err), TP_OK);
    assert_in_range(atomic_load(&copied), 1, 5);
    expect(&whole, &p, 0);
    close_parts(&p);
}

/* More slices of one tensor than there are slots. */
static void test_slices(void **arg)
{
    static struct parts p;
    struct tp_err err;
    (void)arg;
    open_parts(&p, "model.safetensors");
    for (uint64_t i = 0; i < 6; i++) {
        add_part(&p, tensor_of(&p, "rows"), true);
        p.list[i].begin[2] = 50 * i;
        p.list[i].end[2] = 50 * i + 50;
        p.bytes[i] = 600000;
        memset((char *)p.list[i].to + p.bytes[i], 0xA5, 64);
    }
    assert_int_equal(load(&p, &late, 2, 0, false, &err), TP_OK);
    for (size_t i = 0; i < 6; i++)
        expect(&whole, &p, i);
    close_parts(&p);
}

static void test_nothing(void **arg)
{
    static struct parts p;
    struct tp_err err;
    (void)arg;
    open_parts(&p, "model.safetensors");
    opened = 0;
    assert_int_equal(load(&p, &late, 4, 0, true, &err), TP_OK);
    add_part(&p, tensor_of(&p, "none"), true);
    free(p.list[0].to);
    p.list[0].to = NULL;
    assert_int_equal(load(&p, &late, 4, 0, true, &err), TP_OK);
    assert_int_equal(opened, 0);
    close_parts(&p);
}

/* ---- what is refused ----------------------------------------------------- */

static void test_wrong_parts(void **arg)
{
    static struct parts p;
    struct tp_err err;
    (void)arg;
    open_parts(&p, "model.safetensors");
    add_part(&p, tensor_of(&p, "rows"), true);
    struct tp_load_part right = p.list[0];
    p.list[0].end[1] = 501;
    assert_int_equal(load(&p, &late, 1, 0, false, &err), TP_E_USAGE);
    assert_string_equal(err.what, "elements 0 to 501 of dimension 1, which has 500");
    assert_string_equal(err.tensor, "rows");
    p.list[0] = right, p.list[0].begin[0] = 3, p.list[0].end[0] = 2;
    assert_int_equal(load(&p, &late, 1, 0, false, &err), TP_E_USAGE);
    p.list[0] = right, p.list[0].tensor = TENSORS;
    assert_int_equal(load(&p, &late, 1, 0, false, &err), TP_E_USAGE);
    p.list[0] = right, p.list[0].to = NULL;
    assert_int_equal(load(&p, &late, 1, 0, false, &err), TP_E_USAGE);
    p.list[0] = right, p.list[0].tensor = tensor_of(&p, "half");
    p.list[0].end[0] = 4, p.list[0].end[1] = 7, p.list[0].end[2] = 5;
    assert_int_equal(load(&p, &late, 1, 0, false, &err), TP_E_UNSUPPORTED);
    assert_string_equal(err.tensor, "half");
    p.list[0] = right;
    close_parts(&p);
}

static void test_truncated(void **arg)
{
    static struct parts p;
    struct tp_err err;
    (void)arg;
    for (int verify = 0; verify < 2; verify++) {
        put("model.safetensors", &whole);
        open_parts(&p, "model.safetensors");
        add_part(&p, tensor_of(&p, "wide"), true);
        assert_int_equal(truncate(at("model.safetensors"), (off_t)whole.size - 100000), 0);
        assert_int_equal(load(&p, &late, 3, 0, verify, &err), TP_E_INPUT);
        assert_non_null(strstr(err.path, "model.safetensors"));
        close_parts(&p);
    }
}

/* Changed after it was opened: found without hashes, too. */
static void test_changed(void **arg)
{
    static struct parts p;
    struct tp_err err;
    const struct timespec past[2] = {{1, 0}, {1, 0}};
    (void)arg;
    open_parts(&p, "model.safetensors");
    add_part(&p, tensor_of(&p, "rows"), true);
    assert_int_equal(utimensat(AT_FDCWD, at("model.safetensors"), past, 0), 0);
    assert_int_equal(load(&p, &late, 3, 0, false, &err), TP_E_INPUT);
    assert_string_equal(err.what, "the file changed while it was read");
    close_parts(&p);
}

/* A flipped bit anywhere: in what is loaded, in what is not, in the header. */
static void test_flipped(void **arg)
{
    static struct parts p;
    struct tp_err err;
    struct tp_text file = {0};
    (void)arg;
    tp_text_add(&file, whole.data, whole.size, NULL);
    for (int i = 0; i < 6; i++) {
        char *digits = strstr(file.data + 8, TP_META_HASH) + strlen(TP_META_HASH) + 3;
        char *byte = i == 0 ? digits : file.data + file.size - 1 - next((uint32_t)whole.size / 2);
        char right = *byte;
        *byte = i == 0 ? (right == '1' ? '2' : '1') : (char)(right ^ 1 << next(8));
        put("other.safetensors", &file);
        open_parts(&p, "other.safetensors");
        add_part(&p, tensor_of(&p, "rows"), true);
        assert_int_equal(load(&p, &late, 3, 0, false, &err), TP_OK);
        assert_int_equal(load(&p, &late, 3, 0, true, &err), TP_E_DIFF);
        assert_non_null(strstr(err.what, "its contents have changed: the hash is "));
        assert_non_null(strstr(err.path, "other.safetensors"));
        close_parts(&p);
        *byte = right;
    }
    tp_text_free(&file);
}

static void test_no_hash(void **arg)
{
    static struct parts p;
    struct tp_text plain = make_file(false);
    struct tp_err err;
    (void)arg;
    put("other.safetensors", &plain);
    open_parts(&p, "other.safetensors");
    add_part(&p, tensor_of(&p, "rows"), true);
    assert_int_equal(load(&p, &late, 3, 0, true, &err), TP_E_UNSUPPORTED);
    assert_string_equal(err.what, "its header does not hold its hash");
    assert_int_equal(load(&p, &late, 3, 0, false, &err), TP_OK);
    expect(&plain, &p, 0);
    close_parts(&p);
    tp_text_free(&plain);
}

/* ---- what fails ---------------------------------------------------------- */

static atomic_int until; /* calls until one fails */

static ssize_t failing_read(int fd, void *data, size_t size, off_t offset)
{
    if (atomic_fetch_sub(&until, 1) == 1) {
        errno = EIO;
        return -1;
    }
    return saved.pread(fd, data, size, offset);
}

static void test_failing_read(void **arg)
{
    static struct parts p;
    struct tp_err err;
    (void)arg;
    open_parts(&p, "model.safetensors");
    add_part(&p, tensor_of(&p, "rows"), true);
    tp_os.pread = failing_read;
    for (int i = 1; i <= 3; i++) {
        atomic_store(&until, i);
        assert_int_equal(load(&p, &late, 2, 0, false, &err), TP_E_IO);
        assert_non_null(strstr(err.path, "model.safetensors"));
    }
    close_parts(&p);
}

static void test_failing_target(void **arg)
{
    static struct parts p;
    struct tp_err err;
    (void)arg;
    open_parts(&p, "model.safetensors");
    for (size_t t = 0; t < p.ckpt.tensor_count; t++)
        add_part(&p, t, true);
    for (int i = 1; i < 300; i += 37) {
        atomic_store(&failing, i);
        assert_int_equal(load(&p, &late, 3, 0, i % 2, &err), TP_E_MEMORY);
        assert_string_equal(err.what, "no copy");
    }
    atomic_store(&failing, 0);
    take_code = TP_E_MEMORY;
    assert_int_equal(load(&p, &late, 3, 0, false, &err), TP_E_MEMORY);
    assert_string_equal(err.what, "no slot");
    take_code = TP_OK;
    finish_code = TP_E_MEMORY;
    assert_int_equal(load(&p, &late, 3, 0, false, &err), TP_E_MEMORY);
    assert_string_equal(err.what, "no end");
    finish_code = TP_OK;
    open_code = TP_E_MEMORY;
    assert_int_equal(load(&p, &late, 3, 0, false, &err), TP_E_MEMORY);
    assert_string_equal(err.what, "no ring");
    open_code = TP_OK;
    begin_code = TP_E_MEMORY;
    assert_int_equal(load(&p, &late, 3, 0, false, &err), TP_E_MEMORY);
    assert_string_equal(err.what, "no worker");
    begin_code = TP_OK;
    close_parts(&p);
}

static void *failing_malloc(size_t size)
{
    return atomic_fetch_sub(&until, 1) == 1 ? NULL : saved.malloc(size);
}
static void *failing_calloc(size_t count, size_t size)
{
    return atomic_fetch_sub(&until, 1) == 1 ? NULL : saved.calloc(count, size);
}
static void *failing_aligned(size_t alignment, size_t size)
{
    return atomic_fetch_sub(&until, 1) == 1 ? NULL : saved.aligned_alloc(alignment, size);
}

/* Every allocation fails in turn; in the end none is left to fail. */
static void test_out_of_memory(void **arg)
{
    static struct parts p;
    struct tp_load_target host = tp_load_host();
    struct tp_err err;
    enum tp_code code = TP_E_MEMORY;
    int i;
    (void)arg;
    open_parts(&p, "model.safetensors");
    add_part(&p, tensor_of(&p, "rows"), true);
    tp_os.malloc = failing_malloc;
    tp_os.calloc = failing_calloc;
    tp_os.aligned_alloc = failing_aligned;
    for (i = 1; i < 100 && code != TP_OK; i++) {
        atomic_store(&until, i);
        code = load(&p, &host, 2, 0, true, &err);
        assert_true(code == TP_OK || code == TP_E_MEMORY);
    }
    assert_in_range(i, 5, 50);
    expect(&whole, &p, 0);
    close_parts(&p);
}

static int no_thread(pthread_t *thread, void *(*work)(void *), void *arg)
{
    (void)thread, (void)work, (void)arg;
    return EAGAIN;
}

static void test_no_threads(void **arg)
{
    (void)arg;
    tp_os.start_thread = no_thread;
    load_and_compare("model.safetensors", &whole, true, 4, 0, true);
}

/* A build without CUDA, or a machine without a GPU, says so. */
static void test_no_device(void **arg)
{
    static struct parts p;
    struct tp_load_target cuda = tp_load_cuda(0, NULL, NULL);
    struct tp_err err;
    (void)arg;
    setenv("TILEPACK_DISABLE", "cuda", 1);
    open_parts(&p, "model.safetensors");
    add_part(&p, tensor_of(&p, "rows"), true);
    assert_int_equal(load(&p, &cuda, 2, 0, false, &err), TP_E_MEMORY);
    assert_ptr_equal(strstr(err.what, "no GPU to load to: "), err.what);
    close_parts(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, set_up, tear_down)
        TEST(test_whole),          TEST(test_boxes),         TEST(test_shapes),
        TEST(test_archive),
        TEST(test_what_is_read),   TEST(test_copies),        TEST(test_slices),
        TEST(test_nothing),
        TEST(test_wrong_parts),    TEST(test_truncated),     TEST(test_changed),
        TEST(test_flipped),        TEST(test_no_hash),       TEST(test_failing_read),
        TEST(test_failing_target), TEST(test_out_of_memory), TEST(test_no_threads),
        TEST(test_no_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
