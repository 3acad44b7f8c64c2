/* Every CUDA row against the reference, byte for byte, through lanes.
 *
 * All formats with all their parameters, all three input types, random shapes and
 * contents (seeded); all 65,536 bf16 and f16 patterns; repacking between all pairs
 * that allow it; decoding; requantizing. Several threads, each with a slot of its
 * own on the same device. Prints one line per kind of work; exit 0 equal, 1 not,
 * 77 no device.
 *
 * Formats with one scale to a row encode so many rows once, too, that blocks of threads with
 * whole rows in their shared memory do it where the device has room for that.
 *
 *     test_cuda [--cases N] [--per-format M] [--seed S] [--threads T] [--device D]
 *               [--only FORMAT]
 *
 * N rounds for each format and setting, more where a format would have fewer than M
 * encodings, repackings and decodings against the reference. A round encodes from the
 * three types, decodes to two, and repacks at least once where that is possible; where the
 * format has a search of scales, it encodes from the three types again with random ones.
 */
#include "base/layout_parse.h"
#include "base/num.h"
#include "kernels/cuda/cuda.h"
#include "kernels/op/scalar.h"
#include "pack/format/format.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_OPS = 1024,
    MAX_VALUES = 3 << 17,
    LANE_BYTES = 4 << 20,
    MANY_BYTES = 64 << 20, /* of a slot for many rows */
    SCRATCH_BYTES = 8 << 20,
    MAX_THREADS = 64,
    MAX_IMPORTANCE = 1 << 14, /* numbers of it: three experts, 700 columns */
};

enum work {
    WORK_ENCODE, WORK_SEARCH, WORK_PATTERNS, WORK_REPACK, WORK_DECODE, WORK_REQUANT, WORKS
};
enum { ROUND_CASES = 5 }; /* of a round, at least */
static const char *const work_names[WORKS] = {"encode",  "search", "patterns",
                                              "repack", "decode", "requant"};

struct named_op {
    struct tp_op op;
    const struct tp_format *format;
    struct tp_settings settings;
    char name[160];
    uint64_t rounds;
};

static struct {
    struct named_op ops[MAX_OPS];
    size_t ops_count;
    int device;
    uint64_t cases, per_format, seed, threads, rounds;
    const char *only;
    pthread_mutex_t mutex;
    atomic_uint_fast64_t next; /* of all rounds of all operations */
    uint64_t done[WORKS][MAX_OPS], bytes[WORKS][MAX_OPS], failures;
} all = {.cases = 200, .seed = 1, .threads = 4, .mutex = PTHREAD_MUTEX_INITIALIZER};

struct worker {
    uint64_t rng;
    struct tp_cuda_slot *slot;
    uint8_t *in, *out; /* the slot's */
    uint8_t *want;     /* what the reference writes */
    void *scratch;
    float *importance, *moments;
    void *state; /* what is made of moments */
};

/* ---- random numbers and contents ------------------------------------------ */

static uint64_t rnd(struct worker *w)
{
    uint64_t z = w->rng += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static uint64_t below(struct worker *w, uint64_t n) { return rnd(w) % n; }

/* Roughly normal, of a scale that changes along the tensor. */
static float ordinary(struct worker *w, float scale)
{
    int64_t sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (int64_t)(rnd(w) >> 40) - (1 << 23);
    return (float)sum * (1.0f / (1 << 23)) * scale;
}

static float edge(struct worker *w)
{
    static const uint32_t bits[] = {
        0x00000000, 0x80000000, 0x00000001, 0x80000001, 0x007FFFFF, 0x00800000, 0x00400000,
        0x3F800000, 0xBF800000, 0x43E00000, 0x43E80000, 0x43E7FFFF, 0x43E80001, 0x43F00000,
        0x40F00000, 0x40EFFFFF, 0xC0F00000, 0x3F000000, 0x3EFFFFFF, 0x3B000000, 0x3A800000,
        0x38D1B717, 0x7F7FFFFF, 0xFF7FFFFF, 0x7F7F0000, 0x477FE000, 0x33800000, 0x34000000,
    };
    return tp_bits_f32(bits[below(w, sizeof bits / sizeof bits[0])]);
}

enum content { NORMAL, BITS, EDGES, SPARSE, WILD, NONFINITE, CONTENTS };

static float value_of(struct worker *w, enum content content, float scale)
{
    switch (content) {
    case EDGES:
        return below(w, 4) ? edge(w) : ordinary(w, scale);
    case SPARSE:
        return below(w, 8) ? 0.0f : ordinary(w, scale);
    case WILD: /* every exponent */
        return tp_bits_f32((uint32_t)(rnd(w) & 0xFF7FFFFFu));
    case NONFINITE:
        if (below(w, 4000) == 0)
            return tp_bits_f32(0x7F800000u | (uint32_t)(rnd(w) & 0x807FFFFFu));
        if (below(w, 8000) == 0)
            return tp_bits_f32(below(w, 2) ? 0x7F800000u : 0xFF800000u);
        return ordinary(w, scale);
    default:
        return ordinary(w, scale);
    }
}

static void put_value(void *values, enum tp_dtype dtype, uint64_t i, float v)
{
    if (dtype == TP_F32)
        ((float *)values)[i] = v;
    else
        ((uint16_t *)values)[i] = dtype == TP_BF16 ? tp_f32_to_bf16(v) : tp_f32_to_f16(v);
}

static void fill_values(struct worker *w, void *values, enum tp_dtype dtype, uint64_t count)
{
    enum content content = (enum content)below(w, CONTENTS);
    float scale = 0.02f;
    for (uint64_t i = 0; i < count; i++) {
        if (i % 1024 == 0)
            scale = tp_bits_f32((uint32_t)(90 + below(w, 60)) << 23);
        if (content == BITS && dtype != TP_F32)
            ((uint16_t *)values)[i] = (uint16_t)(rnd(w) & 0xBFFF);
        else
            put_value(values, dtype, i, value_of(w, content, scale));
    }
}

/* All 65,536 patterns of a 16-bit type: in order; in order along the other
 * dimension; or each beside a large value that fixes its block's scale. */
static void fill_patterns(struct worker *w, uint16_t *values, uint64_t n, uint64_t k, int how)
{
    uint32_t offset = (uint32_t)rnd(w);
    for (uint64_t i = 0; i < n; i++)
        for (uint64_t j = 0; j < k; j++) {
            uint64_t at = how == 1 ? j * n + i : i * k + j;
            uint16_t v = (uint16_t)(at + (how == 3 ? offset : 0));
            if (how >= 2 && (v & 0x7FFF) >= 0x7C00)
                v &= 0xBFFF;
            if (how == 2 && i % 32 == 7 && j % 32 == 5)
                v = (uint16_t)((40 + (i / 32 * 31 + j / 32 * 17) % 80) << 7 | (v & 0x7F));
            values[i * k + j] = v;
        }
}

/* ---- shapes ---------------------------------------------------------------- */

static void obey(const struct named_op *op, struct tp_box3 *box)
{
    if (tp_op_find(&op->op, TP_ROLE_GLOBAL) >= 0)
        box->e = 1; /* a call has one global scale */
    if (op->format->input_only)
        box->k = tp_round_up(box->k, 128), box->n = tp_round_up(box->n, 8);
    for (uint32_t i = 0; i < op->format->needs; i++) {
        const struct tp_shape_rule *rule = &op->format->need[i];
        uint64_t *dim = rule->dim == 'N' ? &box->n : &box->k;
        *dim = tp_round_up(*dim, rule->multiple);
    }
}

/* Small shapes around the tiles' borders, sometimes larger ones; now and then long rows whose
 * scales are whole pieces of 16 bytes. */
static struct tp_box3 random_box(struct worker *w, const struct named_op *a,
                                 const struct named_op *b)
{
    struct tp_box3 box;
    do {
        uint64_t max = below(w, 8) ? 160 : 700;
        box.e = 1 + below(w, 3);
        box.n = 1 + below(w, max);
        box.k = 1 + below(w, max);
        if (below(w, 2))
            box.k = tp_round_up(box.k, UINT64_C(1) << below(w, 8));
        if (below(w, 8) == 0)
            box.k = 512 * (1 + below(w, 5));
        if (below(w, 2))
            box.n = tp_round_up(box.n, UINT64_C(1) << below(w, 8));
        obey(a, &box);
        if (b != NULL)
            obey(b, &box);
    } while (box.e * box.n * box.k > MAX_VALUES);
    return box;
}

/* The columns make every number of blocks of threads to a multiprocessor (cuda_place_rows.cu), and
 * the rows are enough for those. */
static struct tp_box3 many_rows(struct worker *w, const struct named_op *op)
{
    static const uint64_t columns[4] = {1040, 2064, 4112, 8208};
    struct tp_cuda_device device = {.multiprocessors = 1};
    struct tp_err err = {0};
    struct tp_box3 box = {1 + below(w, 3), 0, columns[below(w, 4)]};
    tp_cuda_query(all.device, &device, &err);
    box.n = 140000 * tp_min_u64((uint64_t)device.multiprocessors, 160) / (box.e * box.k);
    box.n = tp_round_up(box.n, 64) + 16 * (below(w, 8) / 7);
    obey(op, &box);
    return box;
}

/* ---- one call ---------------------------------------------------------------- */

static void fail(const char *what, const char *name, struct tp_box3 box, const char *detail)
{
    pthread_mutex_lock(&all.mutex);
    if (all.failures++ < 40)
        printf("FAIL %s %s [%llu,%llu,%llu]: %s\n", what, name, (unsigned long long)box.e,
               (unsigned long long)box.n, (unsigned long long)box.k, detail);
    pthread_mutex_unlock(&all.mutex);
}

static uint64_t op_bytes(const struct tp_op *op, uint32_t i, struct tp_box3 box)
{
    struct tp_err err = {0};
    uint64_t bytes;
    if (tp_op_bytes(op, i, box, &bytes, &err) != TP_OK) {
        printf("%s\n", err.what);
        exit(2);
    }
    return bytes;
}

/* Gives every input and output its place in a buffer. */
static void place_ins(const struct tp_op *op, struct tp_args *args, uint8_t *buffer)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < op->outs; i++) {
        uint64_t bytes = op_bytes(op, i, args->box);
        args->in[i] = bytes ? buffer + at : NULL;
        at += tp_round_up(bytes, 64);
    }
}

static void place_outs(const struct tp_op *op, struct tp_args *args, uint8_t *buffer)
{
    place_ins(op, args, buffer);
    for (uint32_t i = 0; i < op->outs; i++)
        args->out[i] = (void *)args->in[i];
}

static void run_lane(struct worker *w, struct tp_cuda_call *call, const char *name)
{
    struct tp_err err = {0};
    if (tp_cuda_run(w->slot, call, &err) != TP_OK) {
        printf("FAIL %s: %s\n", name, err.what);
        exit(1);
    }
}

static void compare_bytes(enum work work, const char *name, struct tp_box3 box, const char *part,
                          const uint8_t *got, const uint8_t *want, uint64_t bytes)
{
    char detail[128];
    uint64_t differing = 0, first = 0;
    if (memcmp(got, want, bytes) == 0)
        return;
    for (uint64_t i = bytes; i-- > 0;)
        if (got[i] != want[i])
            differing++, first = i;
    snprintf(detail, sizeof detail, "%s: %llu of %llu bytes differ, first at %llu: %02x, not %02x",
             part, (unsigned long long)differing, (unsigned long long)bytes,
             (unsigned long long)first, got[first], want[first]);
    fail(work_names[work], name, box, detail);
}

static void count_case(enum work work, size_t op, uint64_t bytes)
{
    pthread_mutex_lock(&all.mutex);
    all.done[work][op]++;
    all.bytes[work][op] += bytes;
    pthread_mutex_unlock(&all.mutex);
}

/* Runs the call with outputs of call->to and compares them with `want`'s. */
static void check_outputs(struct worker *w, enum work work, size_t index,
                          struct tp_cuda_call *call, const struct tp_args *want,
                          const char *name)
{
    static const char *const parts[] = {"codes", "scale", "group8", "channel", "global", "words"};
    uint64_t sum = 0;
    place_outs(call->to, &call->args, w->out);
    if (call->kind != TP_CUDA_ENCODE && call->kind != TP_CUDA_DECODE)
        place_ins(call->from, &call->args, w->in);
    else
        call->args.in[0] = w->in;
    run_lane(w, call, name);
    for (uint32_t i = 0; i < call->to->outs; i++) {
        uint64_t bytes = op_bytes(call->to, i, call->args.box);
        if (bytes > 0 && call->to->out[i].role != TP_ROLE_WORDS) /* those are the plan's */
            compare_bytes(work, name, call->args.box, parts[call->to->out[i].role],
                          call->args.out[i], want->out[i], bytes);
        sum += bytes;
    }
    if (call->kind != TP_CUDA_REPACK && call->args.flags != want->flags)
        fail(work_names[work], name, call->args.box, "flags differ");
    count_case(work, index, sum);
}

static struct tp_args reference_args(struct worker *w, const struct tp_op *to, struct tp_box3 box,
                                     enum tp_dtype dtype)
{
    struct tp_args args = {.box = box, .dtype = dtype, .global = 0.0123f, .scratch = w->scratch};
    args.in[0] = w->in;
    place_outs(to, &args, w->want);
    args.in[0] = w->in;
    return args;
}

/* Importance of every column of the box, often in a range of its own for each block; NULL now
 * and then. */
static const float *random_importance(struct worker *w, struct tp_box3 box)
{
    const uint64_t kind = below(w, 6);
    float scale = 1.0f;
    for (uint64_t i = 0; i < box.e * box.k; i++) {
        if (i % 128 == 0 && kind == 1)
            scale = tp_bits_f32((uint32_t)(1 + below(w, 250)) << 23);
        float v = ordinary(w, 1.0f);
        v = kind == 2 && below(w, 3) ? 0.0f : v * v * scale;
        w->importance[i] = tp_abs_bits(v) < TP_F32_INF_BITS ? v : 1.0f;
    }
    return kind ? w->importance : NULL;
}

/* Half the time, moments beside the importance of one expert's columns. */
static void add_moments(struct worker *w, struct tp_op *op, struct tp_args *args,
                        struct tp_feedback *fed)
{
    const uint64_t k = args->box.k, max = MAX_IMPORTANCE / k;
    if (args->box.e != 1 || args->importance == NULL || max == 0 || below(w, 2))
        return;
    op->rank = (uint8_t)(1 + below(w, max < TP_FEEDBACK_RANK ? max : TP_FEEDBACK_RANK));
    for (uint64_t i = 0; i < k * op->rank; i++)
        w->moments[i] = ordinary(w, sqrtf(args->importance[i / op->rank] / op->rank));
    free(w->state);
    w->state = aligned_alloc(64, (tp_feedback_bytes(k, op->rank) + 63) / 64 * 64);
    tp_feedback_make(tp_feedback_column_ref, args->importance, w->moments, k, op->rank, w->state,
                     fed);
    args->fed = fed;
}

/* The same operation with a search, if its codec has one. */
static bool add_search(struct worker *w, struct tp_op *op)
{
    op->search = (uint8_t)(below(w, 2) ? TP_SEARCH_MSE : TP_SEARCH_W4A8);
    if (op->codec == TP_CODEC_INT4 && op->block_k != 128)
        op->search = TP_SEARCH_MSE; /* the other is of groups of 128 */
    op->search_signed = op->codec == TP_CODEC_INT4 && below(w, 2);
    op->importance = (uint8_t)below(w, TP_IMPORTANCE_FILE + 1);
    return tp_op_search(op) != TP_SEARCH_NONE;
}

/* The searches of an operation, for messages. */
static void name_encode(char *name, size_t size, const struct named_op *named,
                        const struct tp_op *op, enum tp_dtype dtype)
{
    static const char *const searches[] = {"", " mse", " w4a8"};
    static const char *const weights[] = {"", " magnitude", " file"};
    snprintf(name, size, "%s %s%s%s%s rank %u", named->name, tp_dtype_name(dtype),
             searches[op->search], op->search_signed ? " signed" : "", weights[op->importance],
             op->rank);
}

static void test_encode(struct worker *w, size_t index, enum tp_dtype dtype, enum work work,
                        int how, bool search)
{
    const struct named_op *named = &all.ops[index];
    struct tp_box3 box = random_box(w, named, NULL);
    struct tp_op op = named->op;
    struct tp_cuda_call call = {.kind = TP_CUDA_ENCODE, .to = &op};
    struct tp_feedback fed;
    struct tp_args want;
    char name[260];
    if (search && !add_search(w, &op))
        return;
    if (work == WORK_PATTERNS) {
        box = (struct tp_box3){1, 256, 256};
        fill_patterns(w, (uint16_t *)w->in, box.n, box.k, how);
    } else {
        fill_values(w, w->in, dtype, box.e * box.n * box.k);
    }
    want = reference_args(w, &op, box, dtype);
    if (search && below(w, 2))
        want.global = tp_bits_f32((uint32_t)below(w, 60 << 23) + (100u << 23));
    if (op.importance == TP_IMPORTANCE_FILE)
        want.importance = random_importance(w, box);
    add_moments(w, &op, &want, &fed);
    name_encode(name, sizeof name, named, &op, dtype);
    tp_encode_ref(&op, &want);
    call.args = (struct tp_args){.box = box, .dtype = dtype, .global = want.global,
                                 .importance = want.importance, .fed = want.fed};
    check_outputs(w, work, index, &call, &want, name);
}

static void open_worker(struct worker *w, uint64_t bytes)
{
    struct tp_err err = {0};
    bool no_memory;
    w->want = malloc(bytes);
    w->scratch = malloc(SCRATCH_BYTES);
    w->importance = malloc(MAX_IMPORTANCE * sizeof(float));
    w->moments = malloc(MAX_IMPORTANCE * sizeof(float));
    if (tp_cuda_open(all.device, bytes, bytes, bytes, &w->slot, &no_memory, &err) != TP_OK) {
        printf("%s\n", err.what);
        exit(1);
    }
    w->in = tp_cuda_input(w->slot);
    w->out = tp_cuda_output(w->slot);
}

static void close_worker(struct worker *w)
{
    tp_cuda_close(w->slot);
    free(w->want);
    free(w->scratch);
    free(w->importance);
    free(w->moments);
    free(w->state);
}

/* Many rows with one scale each, by a worker with room for them. */
static void test_rows(uint64_t seed, size_t index, enum tp_dtype dtype)
{
    const struct named_op *named = &all.ops[index];
    struct tp_cuda_call call = {.kind = TP_CUDA_ENCODE, .to = &named->op};
    struct worker w = {.rng = seed};
    struct tp_box3 box = many_rows(&w, named);
    struct tp_args want;
    char name[260];
    open_worker(&w, MANY_BYTES);
    fill_values(&w, w.in, dtype, box.e * box.n * box.k);
    name_encode(name, sizeof name, named, &named->op, dtype);
    want = reference_args(&w, &named->op, box, dtype);
    tp_encode_ref(&named->op, &want);
    call.args = (struct tp_args){.box = box, .dtype = dtype, .global = want.global};
    check_outputs(&w, WORK_ENCODE, index, &call, &want, name);
    close_worker(&w);
}

/* Fills the input buffer with a packed weight: encoded values, int4 codes random. */
static void make_packed(struct worker *w, const struct named_op *op, struct tp_box3 box)
{
    struct tp_args args = {.box = box, .dtype = TP_F32, .global = 0.0123f, .scratch = w->scratch};
    int codes = tp_op_find(&op->op, TP_ROLE_CODES);
    fill_values(w, w->want, TP_F32, box.e * box.n * box.k);
    place_outs(&op->op, &args, w->in);
    args.in[0] = w->want;
    tp_encode_ref(&op->op, &args);
    if (op->op.out[codes].element == TP_ELEM_INT4 && below(w, 2))
        for (uint64_t i = 0; i < op_bytes(&op->op, (uint32_t)codes, box); i++)
            if (below(w, 64))
                ((uint8_t *)args.out[codes])[i] = (uint8_t)rnd(w);
}

static void test_repack(struct worker *w, size_t from, size_t to)
{
    const struct named_op *a = &all.ops[from], *b = &all.ops[to];
    struct tp_box3 box = random_box(w, a, b);
    struct tp_cuda_call call = {.kind = TP_CUDA_REPACK, .from = &a->op, .to = &b->op};
    struct tp_args want;
    char name[400];
    make_packed(w, a, box);
    snprintf(name, sizeof name, "%s -> %s", a->name, b->name);
    want = reference_args(w, &b->op, box, TP_F32);
    place_ins(&a->op, &want, w->in);
    tp_repack_ref(&a->op, &b->op, &want);
    call.args = (struct tp_args){.box = box, .global = want.global};
    check_outputs(w, WORK_REPACK, to, &call, &want, name);
}

static void test_decode(struct worker *w, size_t index, enum tp_dtype dtype)
{
    const struct named_op *op = &all.ops[index];
    struct tp_box3 box = random_box(w, op, NULL);
    struct tp_cuda_call call = {.kind = TP_CUDA_DECODE, .from = &op->op};
    uint64_t bytes = box.e * box.n * box.k * (dtype == TP_F32 ? 4 : 2);
    struct tp_args want = {.box = box, .dtype = dtype, .global = 0.0123f, .scratch = w->scratch};
    make_packed(w, op, box);
    place_ins(&op->op, &want, w->in);
    want.out[0] = w->want;
    tp_decode_ref(&op->op, &want);
    call.args = want;
    call.args.out[0] = w->out;
    run_lane(w, &call, op->name);
    compare_bytes(WORK_DECODE, op->name, box, tp_dtype_name(dtype), w->out, w->want, bytes);
    count_case(WORK_DECODE, index, bytes);
}

static void test_requant(struct worker *w, size_t from, size_t to, enum tp_dtype via)
{
    const struct named_op *a = &all.ops[from], *b = &all.ops[to];
    struct tp_box3 box = random_box(w, a, b);
    struct tp_cuda_call call = {
        .kind = TP_CUDA_REQUANT, .from = &a->op, .to = &b->op, .via = via};
    struct tp_args values = {.box = box, .dtype = via, .global = 0.0123f, .scratch = w->scratch};
    struct tp_args want;
    void *plain = malloc(MAX_VALUES * sizeof(float));
    char name[400];
    make_packed(w, a, box);
    snprintf(name, sizeof name, "%s => %s via %s", a->name, b->name, tp_dtype_name(via));
    place_ins(&a->op, &values, w->in);
    values.out[0] = plain;
    tp_decode_ref(&a->op, &values);
    want = reference_args(w, &b->op, box, via);
    want.in[0] = plain;
    tp_encode_ref(&b->op, &want);
    free(plain);
    call.args = (struct tp_args){.box = box, .global = want.global};
    check_outputs(w, WORK_REQUANT, to, &call, &want, name);
}

/* ---- the whole ------------------------------------------------------------- */

static const enum tp_dtype floats[] = {TP_BF16, TP_F16, TP_F32};

static void one_round(struct worker *w, size_t index)
{
    const struct named_op *op = &all.ops[index];
    for (int d = 0; d < 3; d++)
        test_encode(w, index, floats[d], WORK_ENCODE, 0, false);
    for (int d = 0; d < 3; d++)
        test_encode(w, index, floats[d], WORK_SEARCH, 0, true);
    test_decode(w, index, TP_F32);
    test_decode(w, index, TP_BF16);
    for (size_t from = 0; from < all.ops_count; from++) {
        const struct named_op *a = &all.ops[from];
        if (tp_repack_possible(&a->op, &op->op) && (from == index || below(w, 4) == 0))
            test_repack(w, from, index);
        if (a->op.codec == TP_CODEC_FP8 && op->op.codec == TP_CODEC_FP8 && below(w, 8) == 0)
            test_requant(w, from, index, below(w, 2) ? TP_F32 : TP_BF16);
    }
}

static void *work_thread(void *arg)
{
    struct worker *w = arg;
    uint64_t i;
    while ((i = atomic_fetch_add(&all.next, 1)) < all.ops_count * all.rounds) {
        size_t index = i % all.ops_count;
        if (i / all.ops_count >= all.ops[index].rounds)
            continue;
        w->rng = all.seed * UINT64_C(0x5851F42D4C957F2D) + i;
        one_round(w, index);
        for (int d = 0; d < 2 && i / all.ops_count == 0; d++)
            if (all.ops[index].op.block_n == 1 && all.ops[index].op.block_k == 0)
                test_rows(rnd(w), index, floats[d]);
        if (i / all.ops_count == 0)
            for (int how = 0; how < 8; how++) {
                test_encode(w, index, TP_BF16, WORK_PATTERNS, how % 4, how / 4);
                test_encode(w, index, TP_F16, WORK_PATTERNS, how % 4, how / 4);
            }
    }
    return NULL;
}

/* Zero points and act-order are the reference's alone; without them a source is
 * like any other operation. They stand last. */
static void drop_source_only(struct tp_op *op)
{
    while (op->outs > 0 && (op->out[op->outs - 1].role == TP_ROLE_ZERO ||
                            op->out[op->outs - 1].role == TP_ROLE_ORDER))
        op->outs--;
}

/* Choices may be of a group size, and so of another format of the name. */
static const struct tp_format *with_choices(const struct tp_format *format,
                                            const struct tp_settings *settings)
{
    struct tp_settings same = *settings;
    for (uint32_t p = 0; p < format->params; p++) {
        char text[64];
        snprintf(text, sizeof text, "%s=%s", format->param[p].key,
                 format->param[p].choices[settings->choice[p]]);
        tp_format_set(&format, text, &same, NULL);
    }
    return format;
}

static void add_ops(const struct tp_format *format)
{
    struct tp_settings settings = {.choice = {0}};
    if (all.only != NULL && strcmp(all.only, format->name) != 0)
        return;
    for (;;) {
        struct named_op *op = &all.ops[all.ops_count];
        size_t length;
        uint32_t p = 0;
        if (all.ops_count == MAX_OPS)
            return;
        op->format = with_choices(format, &settings);
        op->settings = settings;
        tp_format_op(op->format, &settings, &op->op);
        drop_source_only(&op->op);
        length = (size_t)snprintf(op->name, sizeof op->name, "%s", format->name);
        for (uint32_t i = 0; i < format->params; i++)
            if (length < sizeof op->name)
                length += (size_t)snprintf(op->name + length, sizeof op->name - length, " %s=%s",
                                           format->param[i].key,
                                           format->param[i].choices[settings.choice[i]]);
        all.ops_count += tp_device_can(&op->op);
        while (p < format->params && ++settings.choice[p] == format->param[p].count)
            settings.choice[p++] = 0;
        if (p == format->params)
            return;
    }
}

/* The int4 formats again with a table that no shortcut knows. */
static void add_shuffled(const char *name)
{
    static const uint8_t table[16] = {5, 11, 0, 9, 14, 2, 7, 12, 1, 15, 3, 8, 13, 6, 10, 4};
    const struct tp_format *format = tp_format_find(name);
    struct named_op *op = &all.ops[all.ops_count];
    if (format == NULL || all.only != NULL || all.ops_count == MAX_OPS)
        return;
    op->format = format;
    op->op = format->op;
    memcpy(op->op.table, table, sizeof table);
    snprintf(op->name, sizeof op->name, "%s shuffled table", name);
    all.ops_count++;
}

/* A format again with codes along N, for which no kernel is made. */
static void add_columns(const char *name)
{
    const struct tp_format *format = tp_format_find(name);
    struct named_op *op = &all.ops[all.ops_count];
    if (format == NULL || all.only != NULL || all.ops_count == MAX_OPS)
        return;
    op->format = format;
    op->op = format->op;
    struct tp_op_out *codes = &op->op.out[tp_op_find(&op->op, TP_ROLE_CODES)];
    struct tp_err err = {0};
    static struct tp_layout_expr columns; /* of an even N, as two codes share a byte */
    tp_layout_compile("(E,N,K):(N*K,1,N)", &columns, &err);
    codes->layout = &columns;
    codes->place = TP_PLACE_ANY;
    snprintf(op->name, sizeof op->name, "%s codes along N", name);
    all.ops_count++;
}

/* Rounds of each operation, so that every format has its cases. */
static void share_out(void)
{
    for (size_t i = 0; i < all.ops_count; i++) {
        uint64_t settings = 0;
        for (size_t j = 0; j < all.ops_count; j++)
            settings += all.ops[j].format == all.ops[i].format;
        all.ops[i].rounds = tp_max_u64(all.cases,
                                       tp_ceil_div(all.per_format, settings * ROUND_CASES));
        all.rounds = tp_max_u64(all.rounds, all.ops[i].rounds);
    }
}

/* The format with the fewest random cases. */
static void print_min(void)
{
    uint64_t min = UINT64_MAX;
    const char *name = "";
    for (size_t i = 0; i < all.ops_count; i++) {
        uint64_t sum = 0;
        for (size_t j = 0; j < all.ops_count; j++)
            for (int work = 0; work < WORKS && all.ops[j].format == all.ops[i].format; work++)
                sum += work == WORK_PATTERNS ? 0 : all.done[work][j];
        if (sum < min)
            min = sum, name = all.ops[i].format->name;
    }
    printf("at least %llu random cases for each format (%s)\n", (unsigned long long)min, name);
}

static void print_totals(void)
{
    printf("%-80s", "operation");
    for (int work = 0; work < WORKS; work++)
        printf(" %9s", work_names[work]);
    printf(" %12s\n", "bytes");
    for (size_t i = 0; i < all.ops_count; i++) {
        unsigned long long bytes = 0;
        printf("%-80s", all.ops[i].name);
        for (int work = 0; work < WORKS; work++) {
            printf(" %9llu", (unsigned long long)all.done[work][i]);
            bytes += all.bytes[work][i];
        }
        printf(" %12llu\n", bytes);
    }
    print_min();
    printf("%llu failures\n", (unsigned long long)all.failures);
}

static void parse(int argc, char **argv)
{
    for (int i = 1; i + 1 < argc; i += 2) {
        uint64_t number = strtoull(argv[i + 1], NULL, 10);
        if (strcmp(argv[i], "--cases") == 0)
            all.cases = number;
        else if (strcmp(argv[i], "--per-format") == 0)
            all.per_format = number;
        else if (strcmp(argv[i], "--seed") == 0)
            all.seed = number;
        else if (strcmp(argv[i], "--threads") == 0)
            all.threads = tp_min_u64(tp_max_u64(number, 1), MAX_THREADS);
        else if (strcmp(argv[i], "--device") == 0)
            all.device = (int)number;
        else if (strcmp(argv[i], "--only") == 0)
            all.only = argv[i + 1];
    }
}

int main(int argc, char **argv)
{
    static struct worker workers[MAX_THREADS];
    pthread_t threads[MAX_THREADS];
    size_t formats;
    const struct tp_format *const *format = tp_formats(&formats);
    parse(argc, argv);
    if (tp_cuda_count() == 0) {
        printf("no device: %s\n", tp_cuda_why_none());
        return 77;
    }
    for (size_t i = 0; i < formats; i++)
        add_ops(format[i]);
    add_shuffled("w4a8-ct");
    add_shuffled("w4a8-cutlass");
    add_columns("w4a8-ct");
    add_columns("w4a8-cutlass");
    add_columns("mxfp4-ct");
    add_columns("nvfp4-ct");
    share_out();
    for (uint32_t i = 0; i < all.threads; i++) {
        open_worker(&workers[i], LANE_BYTES);
        if (pthread_create(&threads[i], NULL, work_thread, &workers[i]) != 0)
            return 2;
    }
    for (uint32_t i = 0; i < all.threads; i++) {
        pthread_join(threads[i], NULL);
        close_worker(&workers[i]);
    }
    print_totals();
    return all.failures != 0;
}
