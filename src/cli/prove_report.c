/* The report of `prove`: text and JSON of the same figures. Computes rates and shares, and
 * nothing else. */
#include "cli/prove_report.h"

#include "cli/escape.h"
#include "cli/human.h"
#include "cli/report.h"
#include "cli/search_report.h"

#include <math.h>
#include <string.h>

typedef unsigned long long ull;

enum { CELL = 160 };

size_t tp_proofs_wrong(const struct tp_proofs *proofs)
{
    size_t wrong = 0;
    for (size_t i = 0; i < proofs->count; i++)
        wrong += proofs->items[i].wrong.kernel != NULL;
    return wrong;
}

/* Numbers per second of one run; NAN where there is no time. */
static double rate(const struct tp_prove_run *run, double amount)
{
    return run->microseconds > 0 ? amount / run->microseconds * 1e6 : (double)NAN;
}

/* Of the time that the GPU's figures allow; NAN where they are not known. */
static double roofline_share(const struct tp_prove_case *c, const struct tp_prove_run *run)
{
    return c->cost.seconds > 0 ? rate(run, c->cost.seconds) : (double)NAN;
}

/* ---- text --------------------------------------------------------------------- */

static const char *figure(char text[CELL], const char *format, double value)
{
    if (isfinite(value))
        snprintf(text, CELL, format, value);
    else
        snprintf(text, CELL, "-");
    return text;
}

static const char *shape_text(char text[CELL], const struct tp_prove_result *r)
{
    if (r->rank == 3)
        snprintf(text, CELL, "%llux%llux%llu", (ull)r->box.e, (ull)r->box.n, (ull)r->box.k);
    else
        snprintf(text, CELL, "%llux%llu", (ull)r->box.n, (ull)r->box.k);
    return text;
}

/* The schedule that ran; behind it the predicted one where that was not built. */
static const char *schedule_text(char text[CELL], const struct tp_prove_case *c,
                                 const struct tp_prove_run *run)
{
    if (run == &c->runs[0] && strcmp(run->kernel.name, c->prediction.name) != 0)
        snprintf(text, CELL, "%s (for %s)", run->kernel.name,
                 *c->prediction.name ? c->prediction.name : "-");
    else
        snprintf(text, CELL, "%s", run->kernel.name);
    return text;
}

static const char *remark(const struct tp_prove_case *c, const struct tp_prove_run *run,
                          bool tune)
{
    bool predicted = run == &c->runs[0], best = run == &c->runs[c->best];
    if (!tune)
        return "";
    return predicted && best ? "predicted, best" : predicted ? "predicted" : best ? "best" : "";
}

static void add_run(struct tp_table *table, const struct tp_prove_result *r,
                    const struct tp_prove_case *c, const struct tp_prove_run *run, bool tune)
{
    char shape[CELL], m[CELL], schedule[CELL], bound[CELL], relative[CELL], us[CELL], flops[CELL],
        bytes[CELL], share[CELL];
    snprintf(m, sizeof m, "%llu", (ull)c->m);
    const char *row[] = {r->name, shape_text(shape, r), m, schedule_text(schedule, c, run),
                         figure(bound, "%.3f", run->bound_share),
                         figure(relative, "%.2e", run->relative),
                         figure(us, "%.1f", run->microseconds),
                         figure(flops, "%.0f", rate(run, c->cost.flops) / 1e12),
                         figure(bytes, "%.0f", rate(run, c->cost.bytes) / 1e9),
                         figure(share, "%.2f", roofline_share(c, run)), remark(c, run, tune)};
    tp_table_row(table, row);
}

/* A run without a time came after a wrong number. */
static bool any_time(const struct tp_proofs *proofs)
{
    for (size_t i = 0; i < proofs->count; i++)
        for (size_t j = 0; j < proofs->items[i].case_count; j++)
            for (size_t k = 0; k < proofs->items[i].cases[j].count; k++)
                if (proofs->items[i].cases[j].runs[k].microseconds > 0)
                    return true;
    return false;
}

static int print_runs(const struct tp_proofs *proofs)
{
    static const struct tp_column columns[] = {
        {"weight", false, TP_NARROW_CUT}, {"shape", true, TP_NARROW_WHOLE},
        {"m", true, TP_NARROW_WHOLE},     {"schedule", false, TP_NARROW_WHOLE},
        {"of bound", true, TP_NARROW_WHOLE}, {"relative", true, TP_NARROW_WHOLE},
        {"us", true, TP_NARROW_WHOLE},    {"TFLOPS", true, TP_NARROW_WHOLE},
        {"GB/s", true, TP_NARROW_WHOLE},  {"roofline", true, TP_NARROW_WHOLE},
        {"", false, TP_NARROW_WHOLE},
    };
    struct tp_table *table =
        tp_table_new(columns, sizeof columns / sizeof *columns - !proofs->tune);
    for (size_t i = 0; i < proofs->count; i++)
        for (size_t j = 0; j < proofs->items[i].case_count; j++) {
            const struct tp_prove_case *c = &proofs->items[i].cases[j];
            for (size_t k = 0; k < c->count; k++)
                if (c->runs[k].microseconds > 0)
                    add_run(table, &proofs->items[i], c, &c->runs[k], proofs->tune);
        }
    return tp_table_end(table);
}

static void print_wrong(const struct tp_prove_result *r)
{
    const struct tp_prove_wrong *w = &r->wrong;
    tp_print_text(stdout, r->name);
    printf(": %sa wrong number%s through %s: ", tp_style("31"), tp_style("0"), w->kernel);
    if (w->unit)
        printf("element (%llu,%llu,%llu): expected %.9g, got %.9g (unit vector)", (ull)w->e,
               (ull)w->n, (ull)w->k, w->expected, w->got);
    else
        printf("expert %llu, row %llu of %llu, column %llu: expected %.9g within %.3g, got %.9g",
               (ull)w->e, (ull)w->row, (ull)w->m, (ull)w->n, w->expected, w->bound, w->got);
    printf("; %llu wrong in this result\n", (ull)w->count);
}

static void print_summary(const struct tp_proofs *proofs)
{
    char took[TP_HUMAN];
    uint64_t exact = 0;
    size_t wrong = tp_proofs_wrong(proofs);
    for (size_t i = 0; i < proofs->count; i++)
        exact += proofs->items[i].exact;
    printf("%s: ", proofs->path);
    if (wrong)
        printf("%s%zu of %zu weights give wrong numbers%s", tp_style("31"), wrong, proofs->count,
               tp_style("0"));
    else
        printf("%s%zu weight%s proven%s, each of %llu numbers exactly", tp_style("32"),
               proofs->count, proofs->count == 1 ? "" : "s", tp_style("0"), (ull)exact);
    if (proofs->left)
        printf("; %zu that no kernel here reads", proofs->left);
    printf("; %s, plug-in of %s; %s\n", proofs->prover->device.name,
           proofs->prover->plugin->built, tp_human_seconds(took, proofs->seconds));
}

int tp_prove_print_text(const struct tp_proofs *proofs)
{
    int status = any_time(proofs) ? print_runs(proofs) : TP_OK;
    for (size_t i = 0; i < proofs->count; i++)
        if (proofs->items[i].wrong.kernel)
            print_wrong(&proofs->items[i]);
    print_summary(proofs);
    return status ? status : tp_proofs_wrong(proofs) ? TP_E_DIFF : TP_OK;
}

/* ---- JSON ----------------------------------------------------------------------- */

static json_t *run_json(const struct tp_prove_case *c, const struct tp_prove_run *run)
{
    uint64_t stages = run->kernel.config.stages;
    return json_pack("{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "schedule", run->kernel.name, "stages",
                     stages ? json_integer((json_int_t)stages) : json_null(), "microseconds", tp_json_figure(run->microseconds), "tflops",
                     tp_json_figure(rate(run, c->cost.flops) / 1e12), "gb_per_s",
                     tp_json_figure(rate(run, c->cost.bytes) / 1e9), "roofline_share",
                     tp_json_figure(roofline_share(c, run)), "bound_share",
                     tp_json_figure(run->bound_share), "relative_error",
                     tp_json_figure(run->relative));
}

static json_t *case_json(const struct tp_prove_case *c)
{
    json_t *runs = json_array();
    for (size_t i = 0; i < c->count; i++)
        if (c->runs[i].microseconds > 0)
            tp_json_append(runs, run_json(c, &c->runs[i]));
    bool timed = c->count && c->runs[c->best].microseconds > 0;
    return json_pack("{s:I,s:s?,s:s?,s:o,s:o}", "m", (json_int_t)c->m, "predicted",
                     *c->prediction.name ? c->prediction.name : NULL, "best",
                     timed ? c->runs[c->best].kernel.name : NULL, "roofline_us",
                     c->cost.seconds > 0 ? json_real(1e6 * c->cost.seconds) : json_null(),
                     "schedules", runs);
}

static json_t *wrong_json(const struct tp_prove_wrong *w)
{
    if (!w->kernel)
        return json_null();
    json_t *json = json_pack("{s:s,s:s,s:I,s:I,s:o,s:o,s:I}", "schedule", w->kernel, "with",
                             w->unit ? "unit vectors" : "random rows", "e", (json_int_t)w->e, "n",
                             (json_int_t)w->n, "expected", tp_json_figure(w->expected), "got",
                             tp_json_figure(w->got), "count", (json_int_t)w->count);
    if (w->unit) {
        tp_json_set(json, "k", json_integer((json_int_t)w->k));
    } else {
        tp_json_set(json, "m", json_integer((json_int_t)w->m));
        tp_json_set(json, "row", json_integer((json_int_t)w->row));
        tp_json_set(json, "bound", tp_json_figure(w->bound));
    }
    return json;
}

static json_t *weight_json(const struct tp_prove_result *r)
{
    json_t *cases = json_array();
    for (size_t i = 0; i < r->case_count; i++)
        tp_json_append(cases, case_json(&r->cases[i]));
    return json_pack("{s:o,s:s,s:[I,I,I],s:b,s:I,s:I,s:o,s:o}", "name", tp_json_text(r->name),
                     "format", r->format, "box", (json_int_t)r->box.e, (json_int_t)r->box.n,
                     (json_int_t)r->box.k, "ok", !r->wrong.kernel, "exact", (json_int_t)r->exact,
                     "kernels", (json_int_t)r->kernels, "wrong", wrong_json(&r->wrong), "cases",
                     cases);
}

int tp_prove_print_json(const struct tp_proofs *proofs)
{
    json_t *weights = json_array();
    size_t wrong = tp_proofs_wrong(proofs);
    for (size_t i = 0; i < proofs->count; i++)
        tp_json_append(weights, weight_json(&proofs->items[i]));
    int status = tp_json_print(json_pack(
        "{s:o,s:b,s:o,s:i,s:s,s:I,s:f,s:o}", "path", tp_json_text(proofs->path), "ok", !wrong,
        "device", tp_json_text(proofs->prover->device.name), "sms",
        (int)proofs->prover->device.sms, "plugin", proofs->prover->plugin->built, "left",
        (json_int_t)proofs->left, "seconds", proofs->seconds, "weights", weights));
    return status ? status : wrong ? TP_E_DIFF : TP_OK;
}

/* ---- the table of the manifest ------------------------------------------------------ */

/* A shape that an earlier weight has is the same to a kernel. */
static bool is_new_shape(const struct tp_proofs *proofs, size_t at)
{
    const struct tp_prove_result *r = &proofs->items[at];
    for (size_t i = 0; i < at; i++)
        if (proofs->items[i].kind == r->kind &&
            memcmp(&proofs->items[i].box, &r->box, sizeof r->box) == 0)
            return false;
    return true;
}

static json_t *tuned_json(const struct tp_prove_result *r, const struct tp_prove_case *c)
{
    const struct tp_prove_run *best = &c->runs[c->best];
    return json_pack("{s:s,s:I,s:I,s:I,s:I,s:s,s:f,s:s,s:f}", "format", r->format, "e",
                     (json_int_t)r->box.e, "n", (json_int_t)r->box.n, "k", (json_int_t)r->box.k,
                     "m", (json_int_t)c->m, "best", best->kernel.name, "microseconds",
                     best->microseconds, "predicted", c->prediction.name, "predicted_microseconds",
                     c->runs[0].microseconds);
}

json_t *tp_prove_schedules(const struct tp_proofs *proofs)
{
    json_t *shapes = json_array();
    for (size_t i = 0; i < proofs->count; i++) {
        const struct tp_prove_result *r = &proofs->items[i];
        size_t cases = is_new_shape(proofs, i) ? r->case_count : 0;
        for (size_t j = 0; j < cases; j++)
            tp_json_append(shapes, tuned_json(r, &r->cases[j]));
    }
    return json_pack("{s:o,s:s,s:o}", "device", tp_json_text(proofs->prover->device.name),
                     "plugin", proofs->prover->plugin->built, "shapes", shapes);
}
