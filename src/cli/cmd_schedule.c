/* tilepack schedule: from the command line, or a checkpoint's headers, to planned
 * cases. Planning is src/pack's, printing schedule_text.c's.
 */
#include "cli/cmd.h"
#include "base/num.h"
#include "base/suffix.h"
#include "cli/report.h"
#include "cli/schedule_report.h"
#include "cli/session.h"
#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_M = 64, MAX_CASES_FILE = 64 << 20 };

struct work {
    const struct tp_options *o;
    uint64_t m[MAX_M];
    size_t m_count;
    struct tp_schedule_shape *shapes;
    size_t shape_count;
    struct tp_schedule_case *cases;
    size_t case_count, case_capacity;
    struct tp_err err;
};

static enum tp_code read_m(struct work *w)
{
    const char *text = w->o->m ? w->o->m : "1,64,4096";
    bool good = tp_parse_u64_list(text, w->m, MAX_M, &w->m_count) && w->m_count;
    for (size_t i = 0; good && i < w->m_count; i++)
        good = w->m[i] >= 1 && w->m[i] <= INT32_MAX;
    if (good)
        return TP_OK;
    tp_fail(&w->err, TP_E_USAGE, "--m '%s' is not a list of row counts", text);
    tp_err_hint(&w->err, "up to %d numbers of 1..2147483647, as in --m 1,64,4096", MAX_M);
    return TP_E_USAGE;
}

static enum tp_code add_shape(struct work *w, const char *text)
{
    uint64_t v[3];
    size_t count = 0;
    bool good = tp_parse_u64_list(text, v, 3, &count) && count >= 2;
    for (size_t i = 0; good && i < count; i++)
        good = v[i] >= 1 && v[i] <= INT32_MAX;
    if (!good)
        return tp_refuse(&w->err, TP_E_USAGE, "output and input features, as in --shape 7168,2048",
                         "--shape '%s' is not N,K or E,N,K", text);
    w->shapes[w->shape_count++] = (struct tp_schedule_shape){
        .e = count == 3 ? v[0] : 1,
        .n = v[count - 2],
        .k = v[count - 1],
        .cut = TP_SCHED_CUT_ANY,
    };
    return TP_OK;
}

static enum tp_code read_checkpoint(struct work *w)
{
    struct tp_request said = {0};
    enum tp_code code = tp_request_facts(w->o, &said, &w->err);
    if (!code)
        code = tp_schedule_shapes(w->o->arg.item[0], &said.models, w->o->tp > 1, &w->shapes,
                                  &w->shape_count, &w->err);
    tp_request_close(&said);
    return code;
}

static enum tp_code read_shapes(struct work *w)
{
    const struct tp_options *o = w->o;
    if (!o->arg.count && !o->shape.count)
        return tp_refuse(&w->err, TP_E_USAGE, "name a checkpoint, or a shape: --shape 7168,2048",
                         "neither a checkpoint nor --shape is given");
    if (o->arg.count && o->shape.count)
        return tp_refuse(&w->err, TP_E_USAGE, "run it twice",
                         "both a checkpoint and --shape are given");
    if (o->shape.count && (o->model_file || o->stacks))
        return tp_refuse(&w->err, TP_E_USAGE, "name a checkpoint, or leave them out",
                         "--model-file and --stacks speak of a checkpoint, not of --shape");
    if (o->arg.count) {
        enum tp_code code = read_checkpoint(w);
        if (!code && !w->shape_count)
            code = tp_refuse_at(&w->err, TP_E_UNSUPPORTED, o->arg.item[0],
                                "plan a shape without a checkpoint: --shape N,K",
                                "holds no weight that a GEMM kernel takes");
        return code;
    }
    w->shapes = tp_os_zalloc(o->shape.count, sizeof *w->shapes, &w->err);
    if (!w->shapes)
        return TP_E_MEMORY;
    enum tp_code code = TP_OK;
    for (size_t i = 0; !code && i < o->shape.count; i++)
        code = add_shape(w, o->shape.item[i]);
    return code;
}

static enum tp_sched_kernel kernel_of(const char *option, const char *format)
{
    if (option && strcmp(option, "deepgemm-2025") == 0)
        return TP_SCHED_DEEPGEMM_2025;
    if (option && strcmp(option, "w4a8-cutlass") == 0)
        return TP_SCHED_W4A8;
    if (!option && format && strncmp(format, "w4a8-", 5) == 0)
        return TP_SCHED_W4A8;
    return TP_SCHED_DEEPGEMM;
}

static enum tp_code gpu_of(struct work *w, const char *format, const struct tp_gpu **gpu)
{
    const char *name = w->o->gpu;
    if (!name)
        name = format && strcmp(format, "fp8-deepgemm-sm100") == 0 ? "b200" : "h100";
    *gpu = tp_gpu_find(name);
    if (*gpu && tp_gpu_is_planned(*gpu))
        return TP_OK;
    if (*gpu)
        return tp_refuse(&w->err, TP_E_DIFF,
                         "w4a16-ct and fp8-dynamic-ct are what engines load there",
                         "nothing fits %s: DeepGEMM and vLLM's W4A8 kernels need Hopper or "
                         "Blackwell", (*gpu)->title);
    char known[256] = "";
    size_t count;
    const struct tp_gpu *gpus = tp_gpus(&count);
    for (size_t i = 0; i < count; i++) {
        strcat(known, i ? ", " : "");
        strcat(known, gpus[i].name);
    }
    tp_fail(&w->err, TP_E_USAGE, "unknown GPU '%s'", name);
    tp_err_hint(&w->err, "known are %s; or give the number of SMs with --sms", known);
    return TP_E_USAGE;
}

/* Whether a kernel that is planned here takes weights that are stored so. */
static bool has_planner(const char *format)
{
    static const char *const formats[] = {"fp8-deepseek", "fp8-ct", "fp8-deepgemm-sm100",
                                          "w4a8-cutlass", "w4a8-ct"};
    return tp_word_of(format, formats, TP_COUNT(formats)) >= 0;
}

/* A kernel that is not named follows from the format. */
static bool is_planned(const struct work *w, const struct tp_schedule_shape *shape)
{
    return w->o->kernel || !shape->format || has_planner(shape->format);
}

static enum tp_code no_planner(struct work *w, const struct tp_schedule_shape *shape)
{
    tp_err_path(&w->err, w->o->arg.item[0]);
    tp_err_tensor(&w->err, shape->example);
    tp_err_hint(&w->err, "--kernel NAME plans the shapes for that kernel");
    return tp_fail(&w->err, TP_E_UNSUPPORTED, "it is stored as %s, and schedule plans only "
                   "fp8-deepseek, fp8-ct, fp8-deepgemm-sm100 (DeepGEMM), w4a8-cutlass and "
                   "w4a8-ct (vLLM)", shape->format);
}

/* Shapes of formats without a planner are left out and named; where no others are, that is an
 * error. */
static enum tp_code check_formats(struct work *w)
{
    size_t plain = 0, planned = 0;
    const char *named = NULL;
    for (size_t i = 0; i < w->shape_count; i++) {
        plain += !w->o->kernel && !w->shapes[i].format && w->o->arg.count;
        planned += is_planned(w, &w->shapes[i]);
    }
    for (size_t i = 0; i < w->shape_count; i++) {
        const struct tp_schedule_shape *shape = &w->shapes[i];
        if (is_planned(w, shape))
            continue;
        if (!planned)
            return no_planner(w, shape);
        if (shape->format != named)
            tp_warn("%s: %s is stored as %s, for which no kernel is planned", w->o->arg.item[0],
                    shape->example, shape->format);
        named = shape->format;
    }
    if (plain)
        tp_warn("%s: plain weights are planned as DeepGEMM's FP8; --kernel w4a8-cutlass plans W4A8",
                w->o->arg.item[0]);
    return TP_OK;
}

/* The share of one rank; false when it does not divide. */
static bool cut_shape(struct tp_schedule_case *c)
{
    uint64_t ranks = c->ranks;
    uint64_t *size = c->cut == TP_SCHED_CUT_N   ? &c->problem.n
                     : c->cut == TP_SCHED_CUT_K ? &c->problem.k
                                                : NULL;
    if (!size)
        return true;
    bool even = *size % ranks == 0;
    *size = *size / ranks + !even;
    return even;
}

static enum tp_code set_problem(struct work *w, struct tp_schedule_case *c, uint64_t m)
{
    const struct tp_options *o = w->o;
    const struct tp_schedule_shape *shape = c->shape;
    enum tp_code code = gpu_of(w, shape->format, &c->gpu);
    if (code)
        return code;
    struct tp_sched_problem *p = &c->problem;
    p->kernel = kernel_of(o->kernel, shape->format);
    p->arch = c->gpu->arch;
    p->m = m;
    p->n = shape->n;
    p->k = shape->k;
    p->experts = o->num_groups ? o->num_groups : shape->e;
    p->masked = o->groups && strcmp(o->groups, "masked") == 0;
    p->contiguous = !p->masked && (o->groups || p->experts > 1);
    p->groups = p->masked ? p->experts : 1;
    p->sms = o->sms ? o->sms : c->gpu->sms;
    p->one_d = p->kernel == TP_SCHED_DEEPGEMM && p->arch == 10;
    return TP_OK;
}

static enum tp_code add_case(struct work *w, const struct tp_schedule_shape *shape,
                             enum tp_sched_cut cut, uint64_t m)
{
    enum tp_code code = tp_os_grow((void **)&w->cases, &w->case_capacity, w->case_count + 1,
                                   sizeof *w->cases, &w->err);
    if (code)
        return code;
    struct tp_schedule_case *c = &w->cases[w->case_count];
    memset(c, 0, sizeof *c);
    c->shape = shape;
    c->ranks = w->o->tp > 1 ? w->o->tp : 1;
    c->cut = c->ranks == 1 ? TP_SCHED_CUT_NONE : cut;
    if ((code = set_problem(w, c, m)))
        return code;
    uint64_t whole = c->cut == TP_SCHED_CUT_K ? c->problem.k : c->problem.n;
    bool even = cut_shape(c);
    code = tp_sched_plan(&c->problem, w->o->why ? TP_SCHED_RANKED : 1, &c->plan, &w->err);
    if (code)
        return code;
    /* Without --gpu the device is whatever has that many SMs. */
    uint64_t device_sms = w->o->gpu || !w->o->sms ? c->gpu->sms : c->problem.sms;
    tp_sched_checks(&c->problem, device_sms, &c->plan, &c->checks);
    tp_sched_check_format(&c->problem, shape->format, &c->checks);
    if (c->ranks > 1)
        tp_sched_check_add(&c->checks, "tp", TP_SCHED_ASSERT,
                           "the ranks' slices are equal", even, "%llu over %u ranks",
                           (unsigned long long)whole, c->ranks);
    double share = (double)c->problem.sms / (double)c->gpu->sms;
    tp_sched_roofline(&c->problem, c->gpu->bandwidth,
                      c->gpu->fp8_flops * (share < 1 ? share : 1), &c->cost);
    w->case_count++;
    return TP_OK;
}

/* Where the user names no m, rows of experts are as many as engines pad them to. */
static uint64_t rows_of(const struct work *w, const struct tp_schedule_shape *shape, size_t i)
{
    bool pads = !w->o->m && !w->o->groups && shape->e > 1 &&
                kernel_of(w->o->kernel, shape->format) != TP_SCHED_W4A8;
    return pads ? tp_round_up(w->m[i], TP_SCHED_GROUP_ROWS) : w->m[i];
}

static enum tp_code plan_cut(struct work *w, const struct tp_schedule_shape *shape,
                             enum tp_sched_cut cut)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; !code && i < w->m_count; i++)
        if (!i || rows_of(w, shape, i) != rows_of(w, shape, i - 1))
            code = add_case(w, shape, cut, rows_of(w, shape, i));
    return code;
}

static enum tp_code plan_shape(struct work *w, const struct tp_schedule_shape *shape)
{
    if (w->o->tp <= 1 || shape->cut != TP_SCHED_CUT_ANY)
        return plan_cut(w, shape, shape->cut);
    enum tp_code code = plan_cut(w, shape, TP_SCHED_CUT_N);
    return code ? code : plan_cut(w, shape, TP_SCHED_CUT_K);
}

static enum tp_code plan_all(struct work *w)
{
    const struct tp_options *o = w->o;
    if (o->num_groups && !o->groups)
        return tp_refuse(&w->err, TP_E_USAGE,
                         "say which grouped kernel: --groups contiguous or masked",
                         "--num-groups without --groups");
    enum tp_code code = read_m(w);
    if (!code && (code = read_shapes(w)) == TP_OK)
        code = check_formats(w);
    for (size_t i = 0; !code && i < w->shape_count; i++)
        if (is_planned(w, &w->shapes[i]))
            code = plan_shape(w, &w->shapes[i]);
    return code;
}

/* --cases: a table in, the same table with all columns out. */
static enum tp_code plan_table(const struct tp_options *o, struct tp_err *err)
{
    char *text = NULL;
    size_t size = 0;
    struct tp_text out = {0};
    enum tp_sched_table table = TP_SCHED_TABLE_2025;
    if (o->arg.count || o->shape.count || o->m || o->gpu || o->sms || o->groups ||
        o->num_groups || o->json || o->why || o->tp > 1 || o->model_file || o->stacks)
        return tp_refuse(err, TP_E_USAGE, "leave out the other options",
                         "--cases stands alone: the table says everything");
    enum tp_code code = tp_os_slurp(o->cases, MAX_CASES_FILE, &text, &size, err);
    if (!code)
        code = tp_sched_csv(text, size, o->cases, &table, &out, err);
    bool old = table == TP_SCHED_TABLE_2025;
    if (!code && o->kernel && strcmp(o->kernel, old ? "deepgemm-2025" : "deepgemm") != 0)
        code = tp_refuse_at(err, TP_E_USAGE, o->cases, "leave out --kernel",
                            "the table's columns are those of %s, --kernel says %s",
                            old ? "deepgemm-2025" : "deepgemm", o->kernel);
    if (!code)
        fwrite(out.data, 1, out.size, stdout);
    tp_text_free(&out);
    free(text);
    return code;
}

static bool anything_fits(const struct work *w)
{
    for (size_t i = 0; i < w->case_count; i++)
        if (!tp_sched_illegal(&w->cases[i].checks))
            return true;
    return false;
}

int tp_cmd_schedule(const struct tp_options *o)
{
    struct work w = {.o = o};
    int status = o->cases ? (int)plan_table(o, &w.err) : (int)plan_all(&w);
    if (status)
        status = status == TP_E_USAGE ? tp_report_usage("schedule", &w.err)
                                      : tp_report_error(&w.err);
    else if (!o->cases)
        status = tp_schedule_print(&(struct tp_schedule){w.cases, w.case_count, o->why}, o->json);
    if (!status && !o->cases && !anything_fits(&w))
        status = TP_E_DIFF;
    free(w.cases);
    tp_schedule_shapes_free(w.shapes, w.shape_count);
    return status;
}
