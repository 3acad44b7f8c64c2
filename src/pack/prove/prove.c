/* One weight: its operands, then every kernel with unit vectors, then every case with random
 * rows and the clock. Invariant: a result is poisoned before it is computed, so what a kernel
 * left out is a NaN and wrong. */
#include "pack/prove/prove.h"

#include "base/num.h"
#include "kernels/op/scalar.h"
#include "pack/os/buffer.h"
#include "pack/os/os.h"
#include "pack/os/threads.h"
#include "pack/prove/prove_rows.h"
#include "pack/prove/prove_weight.h"
#include "pack/source/weight_complete.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef unsigned long long ull;

enum {
    UNIT_ROWS = 2048,  /* unit vectors of one launch */
    UNIT_BYTES = 512 << 20, /* that they may take, or GROUP_ROWS of each expert */
    GROUP_ROWS = 128,
    ROUNDS = 9,        /* of which the median is the time */
    ROUND_US = 2000,   /* about so long */
    MAX_LAUNCHES = 200,
    MAX_SETS = 32,     /* copies of a weight that launches take in turn */
    CACHES = 4,        /* so many times the cache do these make up */
    MESSAGE = 512,
};

struct work {
    const struct tp_prover *prover;
    const struct tp_prove_options *options;
    struct tp_prove_result *result;
    struct tp_prove_reference reference;
    struct tp_prove_weight weight;
    struct tilepack_prove_operands sets[MAX_SETS];
    size_t set_count;
    void *rows, *row_scales, *out;
    struct tp_buffer host, scales, got;
    char message[MESSAGE];
};

static enum tp_code check(struct work *w, int status, struct tp_err *err)
{
    return tp_prover_check(status, w->message, err);
}

/* The layout is the kernel's, whatever m would give by itself. */
static struct tilepack_prove_problem problem_of(const struct work *w,
                                                const struct tp_prove_kernel *kernel, uint64_t m)
{
    struct tilepack_prove_problem problem =
        tp_prove_problem_of(w->result->kind, w->result->box, m);
    problem.layout = kernel->layout;
    return problem;
}

static uint64_t scale_blocks(const struct work *w)
{
    return w->reference.blocks ? tp_ceil_div(w->result->box.k, 128) : 1;
}

/* Scales of one block of m rows; where there are several, each begins at 16 bytes. */
static uint64_t scale_rows(const struct work *w, uint64_t m)
{
    return w->reference.blocks ? tp_round_up(m, 4) : m;
}

/* Where a row's scale is: blocks of one expert after the other, or of all their rows together. */
static uint64_t scale_at(const struct work *w, uint32_t layout, uint64_t m, uint64_t e,
                         uint64_t block, uint64_t row)
{
    if (layout == TILEPACK_PROVE_CONTIGUOUS)
        return (block * w->result->box.e + e) * m + row;
    return (e * scale_blocks(w) + block) * scale_rows(w, m) + row;
}

static uint64_t scale_bytes(const struct work *w, uint64_t experts, uint64_t m)
{
    return experts * scale_blocks(w) * scale_rows(w, m) * sizeof(float);
}

static enum tp_code stopped(const struct work *w, struct tp_err *err)
{
    return tp_stopped(w->options->stop, err);
}

/* ---- rows of X on the device -------------------------------------------------- */

static void free_rows(struct work *w)
{
    const struct tilepack_prove_plugin *plugin = w->prover->plugin;
    plugin->release(w->rows);
    plugin->release(w->row_scales);
    plugin->release(w->out);
    w->rows = w->row_scales = w->out = NULL;
}

/* Room on the device and here for m rows of `experts` experts, and for what they give. */
static enum tp_code reserve_rows(struct work *w, uint64_t experts, uint64_t m, struct tp_err *err)
{
    struct tp_box3 box = w->result->box;
    uint64_t codes = experts * m * box.k, scales = scale_bytes(w, experts, m);
    free_rows(w);
    if (!(w->rows = tp_prover_alloc(w->prover, codes, err)) ||
        !(w->row_scales = tp_prover_alloc(w->prover, scales, err)) ||
        !(w->out = tp_prover_alloc(w->prover, box.e * m * box.n * 2, err)))
        return TP_E_MEMORY;
    enum tp_code code = tp_buffer_reserve(&w->host, codes, err);
    return code ? code : tp_buffer_reserve(&w->scales, scales, err);
}

/* What the host's buffers hold goes to the device; the result is poisoned. */
static enum tp_code rows_send(struct work *w, uint64_t experts, uint64_t m, struct tp_err *err)
{
    struct tp_box3 box = w->result->box;
    const struct tilepack_prove_plugin *p = w->prover->plugin;
    uint64_t codes = experts * m * box.k, scales = scale_bytes(w, experts, m);
    for (size_t i = 0; i < w->set_count; i++) {
        w->sets[i].rows = w->rows;
        w->sets[i].row_scales = w->row_scales;
        w->sets[i].out = w->out;
        w->sets[i].shared_rows = experts == 1 && box.e > 1;
    }
    return check(w, p->upload(w->rows, w->host.data, codes, w->message, MESSAGE) ||
                        p->upload(w->row_scales, w->scales.data, scales, w->message, MESSAGE),
                 err);
}

static enum tp_code poison(struct work *w, uint64_t m, struct tp_err *err)
{
    struct tp_box3 box = w->result->box;
    return check(w, w->prover->plugin->fill(w->out, 0xFF, box.e * m * box.n * 2, w->message,
                                            MESSAGE), err);
}

static enum tp_code run_once(struct work *w, const struct tp_prove_kernel *kernel, uint64_t m,
                             struct tp_err *err)
{
    struct tilepack_prove_problem problem = problem_of(w, kernel, m);
    struct tp_prove_launches once = {0};
    enum tp_code code = poison(w, m, err);
    return code ? code : tp_prove_run_kernel(w->prover, kernel, &problem, w->sets, 1, once, err);
}

/* ---- unit vectors --------------------------------------------------------------- */

static double bf16_at(struct work *w, const void *memory, uint64_t at, struct tp_err *err)
{
    uint16_t half = 0;
    check(w, w->prover->plugin->download(&half, (const char *)memory + 2 * at, 2, w->message,
                                         MESSAGE), err);
    return (double)tp_bf16_to_f32(half);
}

/* The results of `count` unit vectors, from column `first` on, against the decoded weights. Each
 * expert has m rows. */
static enum tp_code compare_units(struct work *w, const struct tp_prove_kernel *kernel,
                                  uint64_t first, uint64_t count, uint64_t m, struct tp_err *err)
{
    struct tp_box3 box = w->result->box;
    enum tp_code code = TP_OK;
    for (uint64_t e = 0; e < box.e && code == TP_OK && !w->result->wrong.kernel; e++) {
        uint64_t differing = 0, at = 0;
        uint64_t expected = (e * box.k + first) * box.n, got = e * m * box.n;
        code = check(w, w->prover->plugin->compare((const char *)w->weight.expected + 2 * expected,
                                                   (const char *)w->out + 2 * got, count * box.n,
                                                   &differing, &at, w->message, MESSAGE), err);
        if (code || !differing)
            continue;
        w->result->wrong = (struct tp_prove_wrong){
            .kernel = kernel->name, .unit = true, .e = e, .n = at % box.n,
            .k = first + at / box.n, .m = m, .count = differing,
            .expected = bf16_at(w, w->weight.expected, expected + at, err),
            .got = bf16_at(w, w->out, got + at, err)};
        code = err->code;
    }
    return code;
}

/* Unit vectors of one launch: the FP8 GEMM reads rows of each expert. */
static uint64_t unit_rows(const struct work *w)
{
    struct tp_box3 box = w->result->box;
    uint64_t fit = UNIT_BYTES / (box.e * box.k) / GROUP_ROWS * GROUP_ROWS;
    return w->reference.blocks ? tp_min_u64(UNIT_ROWS, tp_max_u64(fit, GROUP_ROWS)) : UNIT_ROWS;
}

/* Unit vectors from `first` on as rows of all experts; rows of zeros fill the last block. */
static enum tp_code send_units(struct work *w, uint64_t first, uint64_t count, uint64_t m,
                               struct tp_err *err)
{
    uint64_t k = w->result->box.k, experts = w->reference.blocks ? w->result->box.e : 1;
    enum tp_code code = reserve_rows(w, experts, m, err);
    if (code)
        return code;
    float *ones = w->scales.data;
    for (uint64_t i = 0; i < scale_bytes(w, experts, m) / sizeof *ones; i++)
        ones[i] = 1;
    for (uint64_t e = 0; e < experts; e++) {
        uint8_t *rows = (uint8_t *)w->host.data + e * m * k;
        tp_prove_units(first, count, k, rows);
        memset(rows + count * k, 0, (m - count) * k);
    }
    return rows_send(w, experts, m, err);
}

static enum tp_code prove_units(struct work *w, const struct tp_prove_kernel *kernel,
                                struct tp_err *err)
{
    uint64_t k = w->result->box.k, rows = unit_rows(w);
    bool whole = kernel->layout == TILEPACK_PROVE_CONTIGUOUS;
    enum tp_code code = TP_OK;
    for (uint64_t first = 0; first < k && code == TP_OK && !w->result->wrong.kernel;
         first += rows) {
        uint64_t count = tp_min_u64(rows, k - first);
        uint64_t m = whole ? tp_round_up(count, GROUP_ROWS) : count;
        if ((code = stopped(w, err)) || (code = send_units(w, first, count, m, err)))
            return code;
        if ((code = run_once(w, kernel, m, err)) == TP_OK)
            code = compare_units(w, kernel, first, count, m, err);
    }
    return code;
}

/* ---- random rows ------------------------------------------------------------------ */

static enum tp_code random_rows(struct work *w, uint64_t m, struct tp_err *err)
{
    struct tp_box3 box = w->result->box;
    uint64_t blocks = scale_blocks(w);
    uint32_t layout = tp_prove_problem_of(w->result->kind, box, m).layout;
    enum tp_code code = reserve_rows(w, box.e, m, err);
    if (code)
        return code;
    uint8_t *codes = w->host.data;
    float *scales = w->scales.data;
    memset(scales, 0, scale_bytes(w, box.e, m));
    for (uint64_t e = 0; e < box.e; e++)
        for (uint64_t row = 0; row < m; row++) {
            tp_prove_row(e, row, box.k, codes + (e * m + row) * box.k);
            for (uint64_t b = 0; b < blocks; b++)
                scales[scale_at(w, layout, m, e, b, row)] = tp_prove_row_scale(e, row, b);
        }
    return rows_send(w, box.e, m, err);
}

/* One row of the result against the reference's. */
static void judge_row(struct work *w, struct tp_prove_run *run, uint64_t m, uint64_t e,
                      uint32_t lane, const uint16_t *got, double sums[2])
{
    uint64_t n = w->result->box.n;
    struct tp_prove_wrong *wrong = &w->result->wrong;
    size_t at = (size_t)((e * w->reference.rows + lane) * n);
    for (uint64_t i = 0; i < n; i++) {
        double value = w->reference.value[at + i], bound = w->reference.bound[at + i];
        double out = (double)tp_bf16_to_f32(got[i]), error = fabs(out - value);
        double share = error > 0 ? error / bound : 0; /* 0 where all of a row is zero */
        sums[0] += (out - value) * (out - value);
        sums[1] += value * value;
        if (share > run->bound_share)
            run->bound_share = share;
        if (share <= 1 && !isnan(out))
            continue;
        if (!wrong->kernel)
            *wrong = (struct tp_prove_wrong){.kernel = run->kernel.name, .e = e, .n = i,
                                             .row = w->reference.row[lane], .m = m,
                                             .expected = value, .got = out, .bound = bound};
        wrong->count++;
    }
}

static enum tp_code judge(struct work *w, struct tp_prove_run *run, uint64_t m,
                          struct tp_err *err)
{
    struct tp_box3 box = w->result->box;
    double sums[2] = {0};
    enum tp_code code = tp_buffer_reserve(&w->got, box.n * 2, err);
    for (uint64_t e = 0; e < box.e && code == TP_OK; e++)
        for (uint32_t lane = 0; lane < w->reference.rows && code == TP_OK; lane++) {
            uint64_t row = w->reference.row[lane];
            if (row >= m)
                continue;
            code = check(w, w->prover->plugin->download(
                                w->got.data, (const char *)w->out + (e * m + row) * box.n * 2,
                                box.n * 2, w->message, MESSAGE), err);
            if (code == TP_OK)
                judge_row(w, run, m, e, lane, w->got.data, sums);
        }
    run->relative = sums[1] > 0 ? sqrt(sums[0] / sums[1]) : 0;
    return code;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of rounds that are long enough to be timed. */
static enum tp_code measure(struct work *w, struct tp_prove_run *run, uint64_t m,
                            struct tp_err *err)
{
    struct tilepack_prove_problem problem = problem_of(w, &run->kernel, m);
    double us[ROUNDS] = {0};
    struct tp_prove_launches l = {1, 4, us};
    enum tp_code code = tp_prove_run_kernel(w->prover, &run->kernel, &problem, w->sets,
                                            w->set_count, l, err);
    if (code)
        return code;
    double wanted = us[0] > 0 ? ROUND_US / us[0] : MAX_LAUNCHES;
    l.rounds = ROUNDS;
    l.launches = wanted < 2 ? 2 : wanted > MAX_LAUNCHES ? MAX_LAUNCHES : (uint32_t)wanted;
    code = tp_prove_run_kernel(w->prover, &run->kernel, &problem, w->sets, w->set_count, l, err);
    qsort(us, ROUNDS, sizeof *us, ascending);
    run->microseconds = us[ROUNDS / 2];
    return code;
}

static enum tp_code prove_case(struct work *w, struct tp_prove_case *c, struct tp_err *err)
{
    enum tp_code code = random_rows(w, c->m, err);
    for (size_t i = 0; i < c->count && code == TP_OK && !w->result->wrong.kernel; i++) {
        struct tp_prove_run *run = &c->runs[i];
        if ((code = stopped(w, err)) || (code = run_once(w, &run->kernel, c->m, err)) ||
            (code = judge(w, run, c->m, err)) || w->result->wrong.kernel)
            break;
        code = measure(w, run, c->m, err);
        if (run->microseconds < c->runs[c->best].microseconds)
            c->best = i;
    }
    return code;
}

/* ---- what is to be done -------------------------------------------------------------- */

/* The configurations of the FP8 GEMM: the planner's first, which must run, and with --tune what it
 * would take next. */
static enum tp_code choose_fp8(struct work *w, const struct tilepack_prove_problem *problem,
                               struct tp_prove_case *c, struct tp_err *err)
{
    const struct tilepack_prove_plugin *plugin = w->prover->plugin;
    enum tp_code code =
        tp_prove_fp8(plugin, problem, &c->prediction, 0, &c->runs[c->count++].kernel, err);
    for (size_t i = 1; code == TP_OK && i < c->prediction.plan.count; i++) {
        struct tp_err refused = {0};
        if (tp_prove_fp8(plugin, problem, &c->prediction, i, &c->runs[c->count].kernel,
                         &refused) == TP_OK)
            c->count++;
    }
    return code;
}

/* The schedules that were built: the predicted one or the nearest, and with --tune every other one
 * that takes the problem. */
static enum tp_code choose_built(struct work *w, const struct tilepack_prove_problem *problem,
                                 struct tp_prove_case *c, struct tp_err *err)
{
    const struct tilepack_prove_plugin *plugin = w->prover->plugin;
    uint32_t kind = w->result->kind, first;
    if (!tp_prove_nearest(plugin, kind, problem, &c->prediction, &first))
        return tp_refuse(err, TP_E_UNSUPPORTED, "'make prove SCHEDULES=all' builds every kernel",
                         "the plug-in has no kernel for it");
    tp_prove_built(plugin, first, &c->runs[c->count++].kernel);
    for (uint32_t i = 0; w->options->all && i < plugin->kernels; i++)
        if (i != first && tp_prove_takes(plugin, i, kind, problem))
            tp_prove_built(plugin, i, &c->runs[c->count++].kernel);
    return TP_OK;
}

static enum tp_code choose(struct work *w, struct tp_prove_case *c, struct tp_err *err)
{
    uint32_t kind = w->result->kind;
    struct tilepack_prove_problem problem = tp_prove_problem_of(kind, w->result->box, c->m);
    size_t want = w->options->all ? TP_SCHED_RANKED : 1;
    enum tp_code code = tp_prove_predict(kind, &problem, w->prover->device.sms, want,
                                         &c->prediction, err);
    if (code)
        return code;
    if (w->prover->gpu)
        tp_sched_roofline(&c->prediction.problem, w->prover->gpu->bandwidth,
                          w->prover->gpu->fp8_flops, &c->cost);
    else
        tp_sched_roofline(&c->prediction.problem, INFINITY, INFINITY, &c->cost);
    c->runs = tp_os_zalloc(w->prover->plugin->kernels + TP_SCHED_RANKED, sizeof *c->runs, err);
    if (!c->runs)
        return TP_E_MEMORY;
    return kind == TILEPACK_PROVE_FP8_BLOCK ? choose_fp8(w, &problem, c, err)
                                            : choose_built(w, &problem, c, err);
}

/* Rows of X whose results are compared: the first one, and the last of each case. */
static void choose_rows(struct work *w)
{
    struct tp_prove_reference *r = &w->reference;
    const struct tp_prove_options *o = w->options;
    r->row[r->rows++] = 0;
    for (size_t i = 0; i < o->m_count && r->rows < TP_PROVE_LANES; i++) {
        bool there = false;
        for (uint32_t lane = 0; lane < r->rows; lane++)
            there |= r->row[lane] == o->m[i] - 1;
        if (!there)
            r->row[r->rows++] = o->m[i] - 1;
    }
}

/* Copies of the operands, so that no launch finds its weights in the cache. */
static enum tp_code make_sets(struct work *w, struct tp_err *err)
{
    const struct tp_prove_weight *from = &w->weight;
    const struct tilepack_prove_plugin *p = w->prover->plugin;
    uint64_t bytes = from->codes_bytes + from->groups_bytes;
    uint64_t wanted = tp_ceil_div(CACHES * w->prover->device.cache_bytes, bytes ? bytes : 1);
    w->sets[0] = (struct tilepack_prove_operands){.codes = from->codes, .groups = from->groups,
                                                  .scales = from->scales};
    for (w->set_count = 1; w->set_count < tp_min_u64(wanted, MAX_SETS); w->set_count++) {
        struct tilepack_prove_operands *set = &w->sets[w->set_count];
        *set = w->sets[0];
        void *codes = p->alloc(from->codes_bytes);
        void *groups = from->groups ? p->alloc(from->groups_bytes) : NULL;
        if (!codes || (from->groups && !groups)) { /* fewer will do */
            p->release(codes);
            p->release(groups);
            break;
        }
        set->codes = codes;
        set->groups = groups;
        if (p->copy(codes, from->codes, from->codes_bytes, w->message, MESSAGE) ||
            (groups && p->copy(groups, from->groups, from->groups_bytes, w->message, MESSAGE)))
            return check(w, 1, err);
    }
    return TP_OK;
}

static void close_work(struct work *w)
{
    for (size_t i = 1; i < w->set_count; i++) {
        w->prover->plugin->release((void *)(uintptr_t)w->sets[i].codes);
        w->prover->plugin->release((void *)(uintptr_t)w->sets[i].groups);
    }
    free_rows(w);
    tp_prove_weight_close(&w->weight);
    tp_prove_reference_close(&w->reference);
    tp_buffer_free(&w->host);
    tp_buffer_free(&w->scales);
    tp_buffer_free(&w->got);
}

/* Whether a run before this one, of any case, was of the same kernel. */
static bool was_used(const struct tp_prove_result *r, size_t at_case, size_t at_run)
{
    const struct tp_prove_kernel *kernel = &r->cases[at_case].runs[at_run].kernel;
    for (size_t c = 0; c <= at_case; c++)
        for (size_t i = 0; i < (c == at_case ? at_run : r->cases[c].count); i++)
            if (tp_prove_same(&r->cases[c].runs[i].kernel, kernel))
                return true;
    return false;
}

/* Every kernel of any case once. */
static enum tp_code all_units(struct work *w, struct tp_err *err)
{
    struct tp_prove_result *r = w->result;
    enum tp_code code = TP_OK;
    for (size_t c = 0; c < r->case_count; c++)
        for (size_t i = 0; i < r->cases[c].count && code == TP_OK && !r->wrong.kernel; i++)
            if (!was_used(r, c, i)) {
                code = prove_units(w, &r->cases[c].runs[i].kernel, err);
                r->kernels++;
            }
    if (!r->wrong.kernel)
        r->exact = r->box.e * r->box.n * r->box.k;
    return code;
}

/* The weight itself, or the one of that name and size in the other checkpoint. */
static enum tp_code find_truth(const struct work *w, const struct tp_checkpoint *ckpt,
                               const struct tp_weights *weights, size_t number,
                               struct tp_prove_truth *truth, struct tp_err *err)
{
    const struct tp_prove_options *o = w->options;
    const struct tp_weight *weight = &weights->items[number];
    int codes = tp_op_find(&weight->form->op, TP_ROLE_CODES);
    struct tp_box3 box = weight->form->box;
    truth->ckpt = o->other ? o->other : ckpt;
    truth->subject = tp_inspect_tensor(ckpt, weights, weight->tensor[codes]);
    if (!o->other)
        return TP_OK;
    enum tp_code code =
        tp_inspect_find(o->other, o->others, weight->name, &truth->subject, err);
    const struct tp_subject *found = &truth->subject;
    if (code == TP_OK && found->weight)
        code = tp_weight_complete(o->other, o->others, (size_t)(found->weight - o->others->items),
                                  err);
    if (code == TP_OK && (memcmp(&found->box, &box, sizeof box) != 0 || found->from_rows)) {
        tp_err_path(err, o->other->path);
        code = tp_fail(err, TP_E_INPUT, "it is [%llu,%llu,%llu] there, and [%llu,%llu,%llu] here",
                       (ull)found->box.e, (ull)found->box.n, (ull)found->box.k, (ull)box.e,
                       (ull)box.n, (ull)box.k);
    }
    return code;
}

static enum tp_code prove_weight(struct work *w, const struct tp_checkpoint *ckpt,
                                 const struct tp_weights *weights, size_t number,
                                 struct tp_err *err)
{
    struct tp_prove_result *r = w->result;
    struct tp_prove_truth truth;
    enum tp_code code = find_truth(w, ckpt, weights, number, &truth, err);
    for (size_t i = 0; i < w->options->m_count && code == TP_OK; i++) {
        r->cases[r->case_count].m = w->options->m[i];
        code = choose(w, &r->cases[r->case_count++], err);
        r->refused = code == TP_E_UNSUPPORTED;
    }
    choose_rows(w);
    if (code || (code = tp_prove_reference_open(&w->reference, err)) ||
        (code = tp_prove_weight_open(ckpt, weights, number, &truth, w->prover, &w->reference,
                                     &w->weight, err)) ||
        (code = make_sets(w, err)))
        return code;
    code = all_units(w, err);
    for (size_t i = 0; i < r->case_count && code == TP_OK && !r->wrong.kernel; i++)
        code = prove_case(w, &r->cases[i], err);
    return code;
}

enum tp_code tp_prove(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                      size_t number, const struct tp_prover *prover,
                      const struct tp_prove_options *options, struct tp_prove_result *result,
                      struct tp_err *err)
{
    const struct tp_weight *weight = &weights->items[number];
    uint32_t kind = tp_prove_kind(weight);
    *result = (struct tp_prove_result){.name = weight->name, .kind = kind,
                                       .rank = (uint32_t)weight->form->rank,
                                       .box = weight->form->box};
    enum tp_code code = tp_weight_complete(ckpt, weights, number, err);
    if (code)
        return code;
    result->format = weight->form->format->name;
    struct work w = {.prover = prover, .options = options, .result = result,
                     .reference = {.box = weight->form->box,
                                   .blocks = kind == TILEPACK_PROVE_FP8_BLOCK}};
    code = prove_weight(&w, ckpt, weights, number, err);
    close_work(&w);
    if (code)
        tp_err_tensor(err, weight->name);
    return code;
}

void tp_prove_result_close(struct tp_prove_result *result)
{
    for (size_t i = 0; i < result->case_count; i++)
        free(result->cases[i].runs);
    result->case_count = 0;
}
