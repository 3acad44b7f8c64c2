/* Every compiled host row against the reference, byte for byte: random shapes and
 * contents from a fixed seed, all 65,536 patterns of 16 bits, padding included. A
 * row that no case reaches fails the test.
 *
 * TILEPACK_TEST_ROUNDS sets the number of random weights per row (default 6).
 * TILEPACK_TEST_SHAPES=10000 is the long form: so many random weights at least for every
 * instruction set and form that is written, at most 5,000 values each; it prints counts.
 *
 * The reference takes hours in an emulator. So the random weights of one processor can be compared
 * on another: with TILEPACK_TEST_STREAM=write they go to stdout with what the reference makes of
 * them, with =read they come from stdin, and nothing else is tested.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../tools/op_kinds.h"
#include "kernels/op/codec.h"
#include "kernels/op/distance.h"
#include "kernels/op/feedback.h"
#include "kernels/op/place.h"
#include "kernels/op/row_set.h"
#include "kernels/op/scalar.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MAX_ROWS = 3 * TP_SET_ROWS, DTYPES = 3 };

static const enum tp_dtype dtypes[DTYPES] = {TP_BF16, TP_F16, TP_F32};

static unsigned compared[MAX_ROWS]; /* of the rows that encode */
static uint64_t seed = 20261120;

static uint64_t next(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static uint64_t below(uint64_t limit) { return next() % limit; }

static double uniform(void) { return (double)(next() >> 11) * 0x1p-53; }

/* ---- contents ----------------------------------------------------------- */

static float normal(void)
{
    return (float)((uniform() + uniform() + uniform() + uniform() - 2.0) * 1.7);
}

/* One value of a content kind: bits, wide, sparse, multiples that tie, outliers. */
static float value_of(int content, float spread)
{
    switch (content) {
    case 0:
        return tp_bits_f32((uint32_t)next());
    case 1:
        return normal() * spread * (float)exp2(uniform() * 40.0 - 20.0);
    case 2:
        return below(10) < 7 ? 0.0f * normal() : normal() * spread;
    case 3:
        return (float)((int)below(31) - 15) * 0.5f * spread;
    case 4:
        return normal() * (below(1000) ? spread : 1000.0f * spread);
    default:
        return normal() * spread;
    }
}

static void put_value(void *values, enum tp_dtype dtype, uint64_t i, float x)
{
    if (dtype == TP_F32)
        ((float *)values)[i] = x;
    else
        ((uint16_t *)values)[i] = dtype == TP_BF16 ? tp_f32_to_bf16(x) : tp_f32_to_f16(x);
}

/* Blocks that are all of one magnitude, or of very different ones, zeros among them. */
static void fill_blocks(void *values, enum tp_dtype dtype, uint64_t count, float spread)
{
    for (uint64_t i = 0; i < count; i += 16) {
        float x = below(4) ? normal() * spread * (float)exp2(uniform() * 30.0 - 28.0) : 0.0f;
        bool constant = below(2);
        for (uint64_t j = i; j < i + 16 && j < count; j++)
            put_value(values, dtype, j, constant ? x : x * normal());
    }
}

static void fill_random(void *values, enum tp_dtype dtype, uint64_t count)
{
    int content = (int)below(8);
    float spread = (float)exp2(uniform() * (dtype == TP_F16 ? 12.0 : 200.0) -
                               (dtype == TP_F16 ? 8.0 : 110.0));
    if (content == 3)
        spread = (float)exp2(floor(log2(spread)));
    for (uint64_t i = 0; i < count; i++)
        put_value(values, dtype, i, value_of(content, spread));
    if (content == 7)
        fill_blocks(values, dtype, count, spread);
    if (content == 6) {
        const float odd[3] = {NAN, INFINITY, -INFINITY};
        put_value(values, dtype, below(count), odd[below(3)]);
    }
}

/* ---- buffers ------------------------------------------------------------ */

enum { GUARD = 64 };

/* Guarded, so that a write behind the end is seen; `fill` tells unwritten bytes. */
static uint8_t *take(uint64_t size, uint8_t fill)
{
    uint8_t *p = aligned_alloc(64, (size + GUARD + 63) / 64 * 64);
    assert_non_null(p);
    memset(p, fill, size);
    memset(p + size, 0xC3, GUARD);
    return p;
}

static void check_guard(const uint8_t *p, uint64_t size)
{
    for (int i = 0; i < GUARD; i++)
        assert_int_equal(p[size + i], 0xC3);
}

struct outputs {
    void *data[TP_MAX_OUT];
    uint64_t bytes[TP_MAX_OUT];
    uint32_t count;
};

static struct outputs take_outputs(const struct tp_op *op, struct tp_box3 box, uint8_t fill)
{
    struct outputs o = {.count = op->outs};
    struct tp_err err = {0};
    for (uint32_t i = 0; i < op->outs; i++) {
        assert_int_equal(tp_op_bytes(op, i, box, &o.bytes[i], &err), TP_OK);
        o.data[i] = take(o.bytes[i], fill);
    }
    return o;
}

static void free_outputs(struct outputs *o)
{
    for (uint32_t i = 0; i < o->count; i++)
        free(o->data[i]);
}

static void same_outputs(const struct outputs *a, const struct outputs *b, const char *name,
                         struct tp_box3 box)
{
    for (uint32_t i = 0; i < a->count; i++) {
        const uint8_t *x = a->data[i], *y = b->data[i];
        check_guard(x, a->bytes[i]);
        for (uint64_t j = 0; j < a->bytes[i]; j++)
            if (x[j] != y[j])
                fail_msg("%s (%u,%u,%u): output %u differs at %u of %u: %02x, reference %02x",
                         name, (unsigned)box.e, (unsigned)box.n, (unsigned)box.k, i, (unsigned)j,
                         (unsigned)a->bytes[i], x[j], y[j]);
    }
}

static unsigned long_form(void)
{
    const char *text = getenv("TILEPACK_TEST_SHAPES");
    return text ? (unsigned)atoi(text) : 0;
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static struct tp_box3 random_box(const struct kind *kind)
{
    struct tp_box3 box = {tp_op_feeds(&kind->op) ? 1 : 1 + below(2), kind->unit_n, kind->unit_k};
    box.n *= 1 + below(300 / kind->unit_n);
    box.k *= 1 + below(below(4) ? 3 + 400 / kind->unit_k : 3 + 2500 / kind->unit_k);
    if (box.n * box.k > 200000)
        box.n = kind->unit_n * (1 + below(2));
    if (long_form() && box.e * box.n * box.k > 5000) {
        box.e = 1;
        box.n = kind->unit_n * (1 + below(larger(4000 / kind->unit_k / kind->unit_n, 2)));
        box.k = kind->unit_k * (1 + below(larger(5000 / kind->unit_k / box.n, 2)));
    }
    return box;
}

static int rounds(void)
{
    const char *text = getenv("TILEPACK_TEST_ROUNDS");
    return text ? atoi(text) : 6;
}

/* ---- encode ------------------------------------------------------------- */

static bool encode_fits(const struct tp_encode_row *row, const struct tp_op *op)
{
    return tp_encode_row_fits(row, op, row->dtype);
}

/* One number for each column of every expert, or none. */
static float *any_importance(const struct tp_op *op, struct tp_box3 box)
{
    float spread = (float)exp2(uniform() * 60.0 - 50.0), *h;
    if (op->importance != TP_IMPORTANCE_FILE || (below(8) == 0 && !tp_op_feeds(op)))
        return NULL;
    h = (float *)take(4 * box.e * box.k, 0);
    for (uint64_t i = 0; i < box.e * box.k; i++)
        h[i] = below(10) ? (float)exp2(uniform() * 12.0) * spread : 0.0f;
    if (below(4) == 0)
        memset(h, 0, 4 * (size_t)(box.k < 128 ? box.k : 128));
    return h;
}

/* Moments of all columns, mostly ones that suit h; else so large that sums overflow. */
static float *any_moments(const struct tp_op *op, struct tp_box3 box, const float *h)
{
    const float spread = below(4) ? 1.0f : (float)exp2(uniform() * 120.0 - 60.0);
    float *v = (float *)take(4 * box.k * op->rank, 0);
    for (uint64_t i = 0; i < box.k * op->rank; i++)
        v[i] = normal() * spread * sqrtf(h[i / op->rank] / op->rank);
    return v;
}

/* Mostly one that suits the values; else whatever a broken file may hold. */
static float any_global(const struct tp_op *op, enum tp_dtype dtype, const void *values,
                        struct tp_box3 box)
{
    const float odd[] = {0.0f, -2.0f, NAN, INFINITY, 1e-38f, 1e-44f, 3e38f, 1.0f};
    struct tp_value_stats stats;
    tp_value_stats(dtype, values, box.e * box.n * box.k, &stats);
    if (below(2))
        return tp_codec_global(op, dtype, stats.amax);
    return below(2) ? 37.5f : odd[below(sizeof odd / sizeof odd[0])];
}

/* A weight with everything that a row is given, and what the reference makes of it: once for
 * all the rows that are compared with it. */
struct encode_case {
    const struct tp_op *op;
    struct tp_args args; /* without outputs and scratch */
    size_t scratch;
    struct outputs reference;
    uint32_t flags;
    float *moments; /* where errors are fed back, and what is made of them */
    void *state;
    struct tp_feedback fed;
};

/* What is made of moments, by every instruction set. */
static void compare_columns(const struct encode_case *c)
{
    const struct tp_row_set *const *isas[] = {tp_rows_avx512, tp_rows_avx2, tp_rows_neon};
    const uint64_t k = c->args.box.k, count = (const uint8_t *)(c->fed.weight + k) -
                                              (const uint8_t *)c->state;
    void *state = take(tp_feedback_bytes(k, c->op->rank), 0x44);
    struct tp_feedback fed;
    for (size_t i = 0; i < 3; i++)
        if (tp_row_sets_feedback(isas[i])) {
            tp_feedback_make(tp_row_sets_feedback(isas[i]), c->args.importance, c->moments, k,
                             c->op->rank, state, &fed);
            assert_memory_equal(state, c->state, count);
        }
    free(state);
}

static void make_fed_case(struct encode_case *c)
{
    const uint64_t k = c->args.box.k;
    c->state = take(tp_feedback_bytes(k, c->op->rank), 0x33);
    tp_feedback_make(tp_feedback_column_ref, c->args.importance, c->moments, k, c->op->rank,
                     c->state, &c->fed);
    check_guard(c->state, tp_feedback_bytes(k, c->op->rank));
    compare_columns(c);
}

/* Where the case lies is known only when it is used. */
static struct tp_args args_of(const struct encode_case *c)
{
    struct tp_args args = c->args;
    args.fed = c->moments ? &c->fed : NULL;
    return args;
}

static struct encode_case take_case(const struct tp_op *op, enum tp_dtype dtype,
                                    struct tp_box3 box, const void *values)
{
    struct encode_case c = {.op = op, .scratch = tp_encode_scratch(op, box),
                            .reference = take_outputs(op, box, 0x5A)};
    struct tp_args args;
    c.args = (struct tp_args){.box = box, .dtype = dtype, .in = {values},
                              .importance = any_importance(op, box),
                              .global = any_global(op, dtype, values, box)};
    for (uint32_t i = 0; i < op->outs; i++) /* constants are not the kernels' */
        if (op->out[i].role == TP_ROLE_WORDS)
            memset(c.reference.data[i], 0xA5, c.reference.bytes[i]);
    if (tp_op_feeds(op)) {
        c.moments = any_moments(op, box, c.args.importance);
        make_fed_case(&c);
    }
    args = args_of(&c);
    args.scratch = take(c.scratch, 0x77);
    memcpy(args.out, c.reference.data, sizeof c.reference.data);
    tp_encode_ref(op, &args);
    c.flags = args.flags;
    free(args.scratch);
    return c;
}

static void free_case(struct encode_case *c)
{
    free((void *)c->args.importance);
    free(c->moments);
    free(c->state);
    free_outputs(&c->reference);
}

static void compare_encode(const struct tp_encode_row *row, const struct encode_case *c)
{
    struct outputs o = take_outputs(c->op, c->args.box, 0xA5);
    struct tp_args args = args_of(c);
    args.scratch = take(c->scratch, 0x77);
    memcpy(args.out, o.data, sizeof o.data);
    row->encode(c->op, &args);
    check_guard(args.scratch, c->scratch);
    assert_int_equal(args.flags, c->flags);
    same_outputs(&o, &c->reference, row->name, c->args.box);
    free(args.scratch);
    free_outputs(&o);
}

/* Whether this processor has a row for the operation from such values; all that it has are
 * compared. */
static bool any_row_fits(const struct tp_op *op, enum tp_dtype dtype)
{
    const struct tp_row_set *set = tp_host_rows();
    for (size_t r = 0; r < set->encodes; r++)
        if (tp_isa_enabled(set->encode[r].isa) && tp_encode_row_fits(&set->encode[r], op, dtype))
            return true;
    return false;
}

/* Compares all rows that this processor has for one weight. */
static void compare_case(struct kind *kind, enum tp_dtype dtype, const struct encode_case *c)
{
    const struct tp_row_set *set = tp_host_rows();
    for (size_t r = 0; r < set->encodes; r++) {
        const struct tp_encode_row *row = &set->encode[r];
        if (!tp_isa_enabled(row->isa) || !tp_encode_row_fits(row, &kind->op, dtype))
            continue;
        compare_encode(row, c);
        kind->compared[row->isa]++;
        compared[r]++;
    }
}

static void compare_rows(struct kind *kind, enum tp_dtype dtype, struct tp_box3 box,
                         const void *values)
{
    struct encode_case c = take_case(&kind->op, dtype, box, values);
    compare_case(kind, dtype, &c);
    free_case(&c);
}

/* In the long form: the wanted number shared among the dtypes and the operations of the same
 * form, which every instruction set has rows for. */
static int encode_rounds(size_t k)
{
    unsigned pairs = 0;
    if (!long_form())
        return rounds();
    for (size_t j = 0; j < kind_count; j++)
        for (size_t d = 0; d < DTYPES && same_form(&kinds[j], &kinds[k]); d++)
            pairs += any_row_fits(&kinds[j].op, dtypes[d]);
    return (int)((long_form() + pairs - 1) / pairs);
}

/* ---- weights of another processor ---------------------------------------- */

/* What goes before a weight's values, its importance and what the reference makes of it. */
struct recorded {
    uint64_t mark, kind, dtype;
    struct tp_box3 box;
    uint32_t flags, important;
    float global;
};
#define RECORDED UINT64_C(0x746867696577)

static void write_all(const void *data, uint64_t size)
{
    if (fwrite(data, 1, size, stdout) != size)
        fail_msg("cannot write the weights");
}

static void read_all(void *data, uint64_t size)
{
    if (fread(data, 1, size, stdin) != size)
        fail_msg("the weights end early");
}

static void write_case(size_t k, size_t d, const struct encode_case *c)
{
    const struct tp_box3 box = c->args.box;
    struct recorded head = {RECORDED, k, d, box, c->flags, c->args.importance != NULL,
                            c->args.global};
    write_all(&head, sizeof head);
    write_all(c->args.in[0], box.e * box.n * box.k * tp_dtype_bits(dtypes[d]) / 8);
    if (head.important)
        write_all(c->args.importance, 4 * box.e * box.k);
    if (c->moments)
        write_all(c->moments, 4 * box.k * c->op->rank);
    for (uint32_t o = 0; o < c->op->outs; o++)
        write_all(c->reference.data[o], c->reference.bytes[o]);
}

/* False: there are no more. */
static bool read_case(size_t *k, size_t *d, struct encode_case *c)
{
    struct recorded head;
    float *importance = NULL;
    if (fread(&head, 1, sizeof head, stdin) == 0)
        return false;
    assert_true(head.mark == RECORDED && head.kind < kind_count && head.dtype < DTYPES);
    const struct tp_op *op = &kinds[head.kind].op;
    const uint64_t bytes = head.box.e * head.box.n * head.box.k *
                           tp_dtype_bits(dtypes[head.dtype]) / 8;
    void *values = take(bytes, 0);
    *k = head.kind;
    *d = head.dtype;
    *c = (struct encode_case){.op = op, .scratch = tp_encode_scratch(op, head.box),
                              .reference = take_outputs(op, head.box, 0), .flags = head.flags};
    read_all(values, bytes);
    if (head.important)
        read_all(importance = (float *)take(4 * head.box.e * head.box.k, 0),
                 4 * head.box.e * head.box.k);
    if (tp_op_feeds(op))
        read_all(c->moments = (float *)take(4 * head.box.k * op->rank, 0),
                 4 * head.box.k * op->rank);
    for (uint32_t o = 0; o < op->outs; o++)
        read_all(c->reference.data[o], c->reference.bytes[o]);
    c->args = (struct tp_args){.box = head.box, .dtype = dtypes[head.dtype], .in = {values},
                               .importance = importance, .global = head.global};
    if (c->moments)
        make_fed_case(c);
    return true;
}

static void print_counts(void)
{
    for (size_t k = 0; k < kind_count && long_form(); k++) {
        bool first = true;
        for (size_t j = 0; j < k; j++)
            first &= !same_form(&kinds[j], &kinds[k]);
        for (int isa = 0; isa < TP_ISA_COUNT && first; isa++) {
            unsigned total = 0;
            for (size_t j = k; j < kind_count; j++)
                total += same_form(&kinds[j], &kinds[k]) ? kinds[j].compared[isa] : 0;
            if (total)
                printf("# %-20.*s %-7s %u random weights equal the reference\n",
                              (int)strcspn(kinds[k].name, "("), kinds[k].name,
                              tp_isa_name((enum tp_isa)isa), total);
        }
    }
}

/* Random weights for everything that this processor has a row for. */
static void each_weight(void (*use)(size_t k, size_t d, struct tp_box3 box, const void *values))
{
    for (size_t k = 0; k < kind_count; k++)
        for (size_t d = 0; d < DTYPES; d++) {
            if (!any_row_fits(&kinds[k].op, dtypes[d]))
                continue;
            for (int i = 0; i < encode_rounds(k); i++) {
                struct tp_box3 box = random_box(&kinds[k]);
                uint64_t values = box.e * box.n * box.k;
                void *in = take(values * tp_dtype_bits(dtypes[d]) / 8, 0);
                fill_random(in, dtypes[d], values);
                use(k, d, box, in);
                free(in);
            }
        }
}

static void check_all_reached(void)
{
    const struct tp_row_set *set = tp_host_rows();
    assert_true(set->encodes <= MAX_ROWS);
    for (size_t r = 0; r < set->encodes; r++)
        if (compared[r] == 0 && tp_isa_enabled(set->encode[r].isa))
            fail_msg("no operation reaches the row %s", set->encode[r].name);
    print_counts();
}

static void compare_weight(size_t k, size_t d, struct tp_box3 box, const void *values)
{
    compare_rows(&kinds[k], dtypes[d], box, values);
}

static void test_encode_rows(void **state)
{
    (void)state;
    each_weight(compare_weight);
    check_all_reached();
}

static void write_weight(size_t k, size_t d, struct tp_box3 box, const void *values)
{
    struct encode_case c = take_case(&kinds[k].op, dtypes[d], box, values);
    write_case(k, d, &c);
    free_case(&c);
}

static int stream_write(void)
{
    each_weight(write_weight);
    return fflush(stdout) != 0;
}

static int stream_read(void)
{
    struct encode_case c;
    size_t k, d;
    while (read_case(&k, &d, &c)) {
        compare_case(&kinds[k], dtypes[d], &c);
        free((void *)c.args.in[0]);
        free_case(&c);
    }
    check_all_reached();
    return 0;
}

/* All patterns of 16 bits, each in company that gives it another scale; with one round, in every
 * fourth operation. */
static void test_all_patterns(void **state)
{
    const struct tp_box3 box = {1, 512, 512};
    uint16_t *values = (uint16_t *)take(512 * 512 * 2, 0);
    (void)state;
    for (uint32_t i = 0; i < 512 * 512; i++) {
        /* Blocks of one exponent neighbourhood: sorted by magnitude, signs mixed; the
         * second half in an order that mixes large with small. */
        uint32_t p = i & 0xFFFF;
        values[i] = (uint16_t)(i < 131072 ? (p >> 1) | (p & 1) << 15 : p * 40503u);
        if (i >= 65536 && (values[i] & 0x7F80) == 0x7F80)
            values[i] &= 0x807F; /* only the first quarter has NaN and infinity */
    }
    for (size_t k = 0; k < kind_count; k += rounds() == 1 ? 4 : 1)
        for (size_t d = 0; d < DTYPES; d++)
            if (dtypes[d] != TP_F32 && any_row_fits(&kinds[k].op, dtypes[d]))
                compare_rows(&kinds[k], dtypes[d], box, values);
    free(values);
}

/* ---- decode and repack -------------------------------------------------- */

/* A packed weight to start from; scales may be any bits when `wild`. */
static struct outputs packed_weight(const struct tp_op *op, struct tp_box3 box, bool wild)
{
    struct outputs o = take_outputs(op, box, 0);
    uint64_t count = box.e * box.n * box.k;
    void *values = take(4 * count, 0);
    struct tp_args args = {.box = box, .dtype = TP_F32, .in = {values}, .global = 37.5f};
    args.scratch = take(tp_encode_scratch(op, box), 0);
    fill_random(values, TP_F32, count);
    memcpy(args.out, o.data, sizeof o.data);
    tp_encode_ref(op, &args);
    for (uint32_t i = 0; i < op->outs && wild; i++)
        if (op->out[i].role != TP_ROLE_WORDS && op->out[i].role != TP_ROLE_GLOBAL)
            for (uint64_t j = 0; j < o.bytes[i]; j++)
                ((uint8_t *)o.data[i])[j] = (uint8_t)next();
    free(args.scratch);
    free(values);
    return o;
}

static void compare_decode(const struct tp_decode_row *row, const struct kind *kind)
{
    const struct tp_box3 box = random_box(kind);
    uint64_t bytes = box.e * box.n * box.k * tp_dtype_bits(row->dtype) / 8;
    struct outputs in = packed_weight(&kind->op, box, below(2));
    uint8_t *a = take(bytes, 0xA5), *b = take(bytes, 0x5A);
    struct tp_args args = {.box = box, .dtype = row->dtype, .global = 37.5f};
    args.scratch = take(tp_encode_scratch(&kind->op, box), 0x77);
    memcpy(args.in, in.data, sizeof in.data);
    args.out[0] = a;
    row->decode(&kind->op, &args);
    args.out[0] = b;
    tp_decode_ref(&kind->op, &args);
    check_guard(a, bytes);
    for (uint64_t i = 0; i < bytes; i++)
        if (a[i] != b[i])
            fail_msg("%s (%u,%u,%u): byte %u is %02x, reference %02x", row->name,
                     (unsigned)box.e, (unsigned)box.n, (unsigned)box.k, (unsigned)i, a[i], b[i]);
    free(args.scratch);
    free(a);
    free(b);
    free_outputs(&in);
}

static bool decode_fits(const struct tp_decode_row *row, const struct tp_op *op)
{
    return tp_decode_row_fits(row, op, row->dtype);
}

static void test_decode_rows(void **state)
{
    const struct tp_decode_row *row = tp_host_rows()->decode;
    const size_t count = tp_host_rows()->decodes;
    (void)state;
    for (size_t r = 0; r < count; r++) {
        int reached = 0;
        if (!tp_isa_enabled(row[r].isa))
            continue;
        for (size_t k = 0; k < plain_count; k++) {
            if (!decode_fits(&row[r], &kinds[k].op))
                continue;
            reached++;
            for (int i = 0; i < rounds() / 2 + 1; i++)
                compare_decode(&row[r], &kinds[k]);
        }
        if (!reached)
            fail_msg("no operation reaches the row %s", row[r].name);
    }
}

/* With `scales_only` the codes are given no place; nothing else may change. */
static void compare_repack(const struct tp_repack_row *row, const struct kind *from,
                           const struct kind *to, struct tp_box3 box, bool scales_only)
{
    const int codes = tp_op_find(&to->op, TP_ROLE_CODES);
    struct outputs in = packed_weight(&from->op, box, below(2));
    struct outputs a = take_outputs(&to->op, box, 0xA5), b = take_outputs(&to->op, box, 0x5A);
    struct tp_args args = {.box = box, .dtype = TP_BF16, .global = 37.5f};
    for (uint32_t i = 0; i < to->op.outs; i++)
        if (to->op.out[i].role == TP_ROLE_WORDS || (scales_only && (int)i == codes))
            memset(b.data[i], 0xA5, b.bytes[i]);
    args.scratch = take(tp_encode_scratch(&to->op, box), 0x77);
    memcpy(args.in, in.data, sizeof in.data);
    memcpy(args.out, a.data, sizeof a.data);
    if (scales_only)
        args.out[codes] = NULL;
    row->repack(&from->op, &to->op, &args);
    memcpy(args.out, b.data, sizeof b.data);
    if (scales_only)
        args.out[codes] = NULL;
    tp_repack_ref(&from->op, &to->op, &args);
    same_outputs(&a, &b, row->name, box);
    free(args.scratch);
    free_outputs(&in);
    free_outputs(&a);
    free_outputs(&b);
}

/* Large enough for whole tiles of scales and for vectors of scales of one row, with and
 * without a rest; a multiple of 16 rows and 128 columns suits most forms. */
static struct tp_box3 large_box(void)
{
    struct tp_box3 box = {1 + below(2), 128 + (below(2) ? 16 * below(10) : 0),
                          512 + 128 * below(15)};
    return box;
}

static bool repack_fits(const struct tp_repack_row *row, const struct tp_op *from,
                        const struct tp_op *to)
{
    return tp_repack_possible(from, to) && tp_repack_row_fits(row, from, to);
}

/* Of a shape that both are defined for. */
static struct tp_box3 common_box(const struct kind *from, const struct kind *to)
{
    struct kind both = *from;
    both.unit_n = larger(from->unit_n, to->unit_n);
    both.unit_k = larger(from->unit_k, to->unit_k);
    return random_box(&both);
}

/* Rows for every layout fit so many pairs that a part of them will do. */
static bool skips(const struct tp_repack_row *row, int reached)
{
    return row->to_code == TP_PLACE_EVERY && reached > 0 && below(32) != 0;
}

static void test_repack_rows(void **state)
{
    const struct tp_repack_row *row = tp_host_rows()->repack;
    const size_t count = tp_host_rows()->repacks;
    (void)state;
    for (size_t r = 0; r < count; r++) {
        int reached = 0;
        if (!tp_isa_enabled(row[r].isa))
            continue;
        for (size_t k = 0; k < plain_count * plain_count; k++) {
            const struct kind *from = &kinds[k / plain_count], *to = &kinds[k % plain_count];
            if (!repack_fits(&row[r], &from->op, &to->op) || skips(&row[r], reached))
                continue;
            reached++;
            for (int i = 0; i < rounds() / 4 + 1; i++)
                for (int alone = 0; alone < 2; alone++)
                    compare_repack(&row[r], from, to, common_box(from, to), alone);
            for (int i = 0; i < 4 && (reached == 1 || below(16) == 0); i++) {
                struct tp_box3 box = large_box();
                box.n -= box.n % larger(from->unit_n, to->unit_n);
                box.k -= box.k % larger(from->unit_k, to->unit_k);
                compare_repack(&row[r], from, to, box, i % 2);
            }
        }
        if (!reached)
            fail_msg("no operations reach the row %s", row[r].name);
    }
}

/* Codes survive int4 -> CUTLASS -> int4, and scales to what e4m3 can hold. */
static void test_round_trip(void **state)
{
    const struct tp_box3 box = {2, 32, 512};
    struct tp_op ct = ops_w4a8_ct(0), cutlass = ops_w4a8_cutlass(0, TP_CHANNEL_GPU, false);
    struct outputs a = packed_weight(&ct, box, false), b = take_outputs(&cutlass, box, 0);
    struct outputs c = take_outputs(&ct, box, 0);
    struct tp_args args = {.box = box, .dtype = TP_BF16};
    (void)state;
    args.scratch = take(tp_encode_scratch(&cutlass, box), 0);
    memcpy(args.in, a.data, sizeof a.data);
    memcpy(args.out, b.data, sizeof b.data);
    tp_repack_find(&ct, &cutlass)(&ct, &cutlass, &args);
    assert_memory_not_equal(a.data[0], b.data[0], a.bytes[0]);
    memcpy(args.in, b.data, sizeof b.data);
    memcpy(args.out, c.data, sizeof c.data);
    tp_repack_find(&cutlass, &ct)(&cutlass, &ct, &args);
    assert_memory_equal(a.data[0], c.data[0], a.bytes[0]);
    free(args.scratch);
    free_outputs(&a);
    free_outputs(&b);
    free_outputs(&c);
}

/* ---- needs ------------------------------------------------------------- */

/* What an operation needs and no row knows leaves it to the reference, and to the host. */
static void unknown_needs(void **state)
{
    (void)state;
    struct tp_op op = ops_w4a8_ct(TP_INT4_QUOTIENT_FP32), to = ops_w4a8_cutlass(TP_INT4_QUOTIENT_FP32, TP_CHANNEL_GPU, false);
    assert_true(tp_device_can(&op));
    for (uint32_t bit = TP_NEED_NUMBERS << 1; bit; bit <<= 1) {
        op.needs = to.needs = bit;
        assert_int_equal(tp_op_needs(&op), bit);
        assert_false(tp_device_can(&op));
        for (int dtype = TP_DTYPE_NONE; dtype < TP_DTYPE_COUNT; dtype++) {
            assert_ptr_equal(tp_encode_find(&op, (enum tp_dtype)dtype), tp_encode_ref);
            assert_ptr_equal(tp_decode_find(&op, (enum tp_dtype)dtype), tp_decode_ref);
            assert_null(tp_row_set_encode(&tp_rows_cuda, &op, (enum tp_dtype)dtype));
        }
        assert_ptr_equal(tp_repack_find(&op, &to), tp_repack_ref);
        to.needs = 0;
        assert_ptr_equal(tp_repack_find(&op, &to), tp_repack_ref);
    }
}

/* ---- layouts that cannot be evaluated ----------------------------------- */

/* Whoever calls a row has evaluated the layouts. Should one fail all the same, a row that
 * needs it says so and ends; it never leaves bytes out, or reads by no layout. */
static struct tp_op without_layout(const struct tp_op *op, uint32_t i)
{
    struct tp_op broken = *op;
    broken.out[i].layout = ops_layout("(E,N,K/0):(1,1,1)");
    return broken;
}

static bool failed(const struct tp_args *args)
{
    struct tp_err err = {0};
    bool flagged = args->flags & TP_FAILED;
    assert_int_equal(tp_args_check(args, &err) != TP_OK, flagged);
    assert_int_equal(err.what[0] != 0, flagged);
    return flagged;
}

/* How many of the operation's layouts the row cannot do without. */
static unsigned fail_encode(tp_encode_fn encode, const char *name, enum tp_dtype dtype,
                            const struct kind *kind)
{
    const struct tp_box3 box = {2, 2 * kind->unit_n, 3 * kind->unit_k};
    void *values = take(4 * box.e * box.n * box.k, 0);
    unsigned needed = 0;
    for (uint32_t i = 0; i < kind->op.outs; i++) {
        struct outputs a = take_outputs(&kind->op, box, 0), b = take_outputs(&kind->op, box, 0);
        struct tp_op broken = without_layout(&kind->op, i);
        struct tp_args args = {.box = box, .dtype = dtype, .in = {values}, .global = 1.0f};
        args.scratch = take(tp_encode_scratch(&kind->op, box), 0);
        memcpy(args.out, a.data, sizeof a.data);
        tp_encode_ref(&kind->op, &args);
        memcpy(args.out, b.data, sizeof b.data);
        if (kind->op.out[i].layout)
            encode(&broken, &args);
        if (failed(&args))
            needed++;
        else if (kind->op.out[i].layout)
            same_outputs(&b, &a, name, box);
        free(args.scratch);
        free_outputs(&a);
        free_outputs(&b);
    }
    free(values);
    return needed;
}

static unsigned fail_decode(tp_decode_fn decode, const char *name, enum tp_dtype dtype,
                            const struct kind *kind)
{
    const struct tp_box3 box = {2, 2 * kind->unit_n, 3 * kind->unit_k};
    uint64_t bytes = 4 * box.e * box.n * box.k;
    uint8_t *a = take(bytes, 0), *b = take(bytes, 0);
    struct outputs in = packed_weight(&kind->op, box, false);
    unsigned needed = 0;
    for (uint32_t i = 0; i < kind->op.outs; i++) {
        struct tp_op broken = without_layout(&kind->op, i);
        struct tp_args args = {.box = box, .dtype = dtype};
        args.scratch = take(tp_encode_scratch(&kind->op, box), 0);
        memcpy(args.in, in.data, sizeof in.data);
        args.out[0] = a;
        tp_decode_ref(&kind->op, &args);
        args.out[0] = b;
        if (kind->op.out[i].layout)
            decode(&broken, &args);
        if (failed(&args))
            needed++;
        else if (kind->op.out[i].layout && memcmp(a, b, bytes) != 0)
            fail_msg("%s decodes without the layout of output %u", name, i);
        free(args.scratch);
    }
    free(a);
    free(b);
    free_outputs(&in);
    return needed;
}

static unsigned fail_repack(tp_repack_fn repack, const char *name, const struct kind *from,
                            const struct kind *to)
{
    const struct tp_box3 box = {1, 128, 512};
    struct outputs in = packed_weight(&from->op, box, false);
    unsigned needed = 0;
    for (uint32_t i = 0; i < from->op.outs + to->op.outs; i++) {
        bool source = i < from->op.outs;
        const struct tp_op *own = source ? &from->op : &to->op;
        uint32_t at = source ? i : i - from->op.outs;
        struct outputs a = take_outputs(&to->op, box, 0), b = take_outputs(&to->op, box, 0);
        struct tp_op broken = without_layout(own, at);
        struct tp_args args = {.box = box, .global = 1.0f};
        args.scratch = take(tp_encode_scratch(&to->op, box), 0);
        memcpy(args.in, in.data, sizeof in.data);
        memcpy(args.out, a.data, sizeof a.data);
        tp_repack_ref(&from->op, &to->op, &args);
        memcpy(args.out, b.data, sizeof b.data);
        if (own->out[at].layout)
            repack(source ? &broken : &from->op, source ? &to->op : &broken, &args);
        if (failed(&args))
            needed++;
        else if (own->out[at].layout)
            same_outputs(&b, &a, name, box);
        free(args.scratch);
        free_outputs(&a);
        free_outputs(&b);
    }
    free_outputs(&in);
    return needed;
}

static unsigned layouts_of(const struct tp_op *op)
{
    unsigned count = 0;
    for (uint32_t i = 0; i < op->outs; i++)
        count += op->out[i].layout != NULL;
    return count;
}

static void test_failed_layouts(void **state)
{
    const struct tp_row_set *set = tp_host_rows();
    unsigned needed = 0, fast = 0;
    (void)state;
    for (size_t r = 0; r < set->encodes; r++)
        fast += tp_isa_enabled(set->encode[r].isa);
    for (size_t k = 0; k < kind_count; k++) {
        const struct kind *kind = &kinds[k];
        for (size_t r = 0; r < set->encodes; r++)
            if (encode_fits(&set->encode[r], &kind->op))
                needed += fail_encode(set->encode[r].encode, set->encode[r].name,
                                      set->encode[r].dtype, kind);
        if (k >= plain_count)
            continue;
        assert_int_equal(fail_encode(tp_encode_ref, "reference", TP_F32, kind),
                         layouts_of(&kind->op));
        assert_int_equal(fail_decode(tp_decode_ref, "reference", TP_F32, kind),
                         layouts_of(&kind->op));
        assert_int_equal(fail_repack(tp_repack_ref, "reference", kind, kind),
                         2 * layouts_of(&kind->op));
        for (size_t r = 0; r < set->decodes; r++)
            if (decode_fits(&set->decode[r], &kind->op))
                needed += fail_decode(set->decode[r].decode, set->decode[r].name,
                                      set->decode[r].dtype, kind);
        for (size_t r = 0; r < set->repacks; r++)
            for (size_t j = 0; j < plain_count; j++)
                if (repack_fits(&set->repack[r], &kind->op, &kinds[j].op) &&
                    !skips(&set->repack[r], 1))
                    needed += fail_repack(set->repack[r].repack, set->repack[r].name, kind,
                                          &kinds[j]);
    }
    assert_true(needed > 0 || !fast);
}

/* ---- distances ---------------------------------------------------------- */

static void compare_distance(tp_distance_fn distance, enum tp_dtype dtype, uint64_t count)
{
    struct tp_block_distance expected, block;
    float a[TP_DISTANCE_BLOCK], b[TP_DISTANCE_BLOCK];
    fill_random(a, dtype, count);
    if (below(4))
        tp_widen(dtype, a, count, b); /* most pairs are equal */
    else
        fill_random(b, TP_F32, count);
    for (uint64_t i = below(8); i < count; i += 1 + below(9))
        b[i] *= 1.0625f;
    tp_distance_ref(dtype, a, b, count, &expected);
    memset(&block, 0xA5, sizeof block);
    distance(dtype, a, b, count, &block);
    for (int i = 0; i < TP_DISTANCE_LANES; i++) /* a NaN is a NaN, whatever its bits */
        if (!isfinite(expected.error[i]) || !isfinite(expected.value[i])) {
            assert_false(isfinite(block.error[i]) && isfinite(block.value[i]));
            expected.error[i] = block.error[i];
            expected.value[i] = block.value[i];
            expected.max[i] = block.max[i];
        }
    assert_memory_equal(&block, &expected, sizeof block);
}

static void test_distance_rows(void **state)
{
    const struct tp_row_set *const *isas[] = {tp_rows_avx512, tp_rows_avx2, tp_rows_neon};
    (void)state;
    for (size_t i = 0; i < 3; i++)
        if (tp_row_sets_distance(isas[i]))
            for (int round = 0; round < 600; round++)
                compare_distance(tp_row_sets_distance(isas[i]), dtypes[round % DTYPES],
                                 round < 60 ? (uint64_t)round + 1 : 1 + below(TP_DISTANCE_BLOCK));
    assert_non_null(tp_distance_find());
}

/* Nothing that a set of the host has is left out. */
static void test_every_row_is_there(void **state)
{
    const struct tp_row_set *host = tp_host_rows();
    const struct tp_row_set *const *isas[] = {tp_rows_avx512, tp_rows_avx2, tp_rows_neon};
    size_t encodes = 0, decodes = 0, repacks = 0;
    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (const struct tp_row_set *const *set = isas[i]; *set; set++) {
            encodes += (*set)->encodes;
            decodes += (*set)->decodes;
            repacks += (*set)->repacks;
        }
    assert_int_equal(host->encodes, encodes);
    assert_int_equal(host->decodes, decodes);
    assert_int_equal(host->repacks, repacks);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unknown_needs),
        cmocka_unit_test(test_encode_rows), cmocka_unit_test(test_all_patterns),
        cmocka_unit_test(test_decode_rows), cmocka_unit_test(test_repack_rows),
        cmocka_unit_test(test_round_trip),  cmocka_unit_test(test_failed_layouts),
        cmocka_unit_test(test_distance_rows), cmocka_unit_test(test_every_row_is_there),
    };
    const char *stream = getenv("TILEPACK_TEST_STREAM");
    if (stream) { /* stdout is not for what cmocka says */
        make_kinds(NULL);
        return strcmp(stream, "write") ? stream_read() : stream_write();
    }
    return cmocka_run_group_tests(tests, make_kinds, NULL);
}
