/* The report of `prove`: text and JSON of the same figures. Computes rates and shares, and
 * nothing else. */
#include "cli/prove_report.h"

#include "cli/print_text.h"
#include "cli/human.h"
#include "cli/report.h"
#include "cli/table.h"

#include <math.h>
#include <string.h>

typedef unsigned long long ull;

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

/* The share of the time that the GPU's figures allow; NAN where they are not known. */
static double roofline_share(const struct tp_prove_case *c, const struct tp_prove_run *run)
{
    return c->cost.seconds > 0 ? rate(run, c->cost.seconds) : (double)NAN;
}

/* ---- the fields ------------------------------------------------------------------ */

/* A run of a case of a weight. One without a time came after a wrong number. */
static void put_run(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_prove_case *c = of;
    const struct tp_prove_run *run = &c->runs[i];
    const uint64_t stages = run->kernel.config.stages;
    bool as_predicted = i > 0 || strcmp(run->kernel.name, c->prediction.name) == 0;
    if (run->microseconds <= 0)
        return;
    tp_begin(w, NULL, '{');
    tp_write(w, tp_str("schedule", run->kernel.name),
             stages ? tp_num("stages", stages) : tp_null("stages"),
             tp_real("microseconds", run->microseconds),
             tp_real("tflops", rate(run, c->cost.flops) / 1e12),
             tp_real("gb_per_s", rate(run, c->cost.bytes) / 1e9),
             tp_real("roofline_share", roofline_share(c, run)),
             tp_real("bound_share", run->bound_share), tp_real("relative_error", run->relative),
             tp_cell("remark", i == 0 && c->best == 0 ? "predicted, best"
                               : i == 0 ? "predicted" : i == c->best ? "best" : ""));
    tp_cellf(w, "ran", as_predicted ? "%s" : "%s (for %s)", run->kernel.name,
             *c->prediction.name ? c->prediction.name : "-");
    tp_end(w, '}');
}

static void put_case(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_prove_case *c = &((const struct tp_prove_result *)of)->cases[i];
    bool timed = c->count && c->runs[c->best].microseconds > 0;
    tp_object(w, NULL, tp_num("m", c->m),
              tp_str("predicted", *c->prediction.name ? c->prediction.name : NULL),
              tp_str("best", timed ? c->runs[c->best].kernel.name : NULL),
              tp_real("roofline_us", c->cost.seconds > 0 ? 1e6 * c->cost.seconds : (double)NAN),
              tp_list("schedules", c->count, put_run, c));
}

static void put_wrong(struct tp_writer *w, const struct tp_prove_wrong *wrong)
{
    if (!wrong->kernel) {
        tp_write(w, tp_null("wrong"));
        return;
    }
    tp_object(w, "wrong", tp_str("schedule", wrong->kernel),
              tp_str("with", wrong->unit ? "unit vectors" : "random rows"), tp_num("e", wrong->e),
              tp_num("n", wrong->n), tp_real("expected", wrong->expected),
              tp_real("got", wrong->got), tp_num("count", wrong->count),
              tp_if(wrong->unit, tp_num("k", wrong->k)), tp_if(!wrong->unit, tp_num("m", wrong->m)),
              tp_if(!wrong->unit, tp_num("row", wrong->row)),
              tp_if(!wrong->unit, tp_real("bound", wrong->bound)));
}

static void put_weight(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_prove_result *r = &((const struct tp_proofs *)of)->items[i];
    char shape[TP_SHAPE_TEXT];
    tp_begin(w, NULL, '{');
    tp_write(w, tp_str("name", r->name), tp_str("format", r->format), tp_box("box", &r->box),
             tp_cell("shape", tp_times_text(shape, &r->box, (int)r->rank)),
             tp_bool("ok", !r->wrong.kernel), tp_num("exact", r->exact),
             tp_num("kernels", r->kernels));
    put_wrong(w, &r->wrong);
    tp_write(w, tp_list("cases", r->case_count, put_case, r));
    tp_end(w, '}');
}

static int print_json(const struct tp_proofs *proofs)
{
    const struct tp_prover *prover = proofs->prover;
    return tp_json_result(tp_str("path", proofs->path), tp_bool("ok", !tp_proofs_wrong(proofs)),
                          tp_str("device", prover->device.name), tp_num("sms", prover->device.sms),
                          tp_str("plugin", prover->plugin->built), tp_num("left", proofs->left),
                          tp_real("seconds", proofs->seconds),
                          tp_list("weights", proofs->count, put_weight, proofs));
}

/* ---- text --------------------------------------------------------------------- */

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
    static const struct tp_field fields[] = {
        {"weight", "name", TP_CUT},
        {"shape", "shape", TP_RIGHT},
        {"m", "m", TP_RIGHT},
        {"schedule", "ran", TP_LEFT},
        {"of bound", "bound_share %.3f", TP_RIGHT},
        {"relative", "relative_error %.2e", TP_RIGHT},
        {"us", "microseconds %.1f", TP_RIGHT},
        {"TFLOPS", "tflops %.0f", TP_RIGHT},
        {"GB/s", "gb_per_s %.0f", TP_RIGHT},
        {"roofline", "roofline_share %.2f", TP_RIGHT},
        {"", "remark", TP_LEFT},
    };
    return tp_table_print(fields, sizeof fields / sizeof *fields - !proofs->tune, "schedules",
                          tp_list("weights", proofs->count, put_weight, proofs));
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

int tp_prove_print(const struct tp_proofs *proofs, bool json)
{
    int status = json ? print_json(proofs) : any_time(proofs) ? print_runs(proofs) : TP_OK;
    for (size_t i = 0; i < proofs->count && !json; i++)
        if (proofs->items[i].wrong.kernel)
            print_wrong(&proofs->items[i]);
    if (!json)
        print_summary(proofs);
    return status ? status : tp_proofs_wrong(proofs) ? TP_E_DIFF : TP_OK;
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

static void put_tuned(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_proofs *proofs = of;
    const struct tp_prove_result *r = &proofs->items[i];
    size_t cases = is_new_shape(proofs, i) ? r->case_count : 0;
    for (size_t j = 0; j < cases; j++) {
        const struct tp_prove_case *c = &r->cases[j];
        const struct tp_prove_run *best = &c->runs[c->best];
        tp_object(w, NULL, tp_str("format", r->format), tp_num("e", r->box.e),
                  tp_num("n", r->box.n), tp_num("k", r->box.k), tp_num("m", c->m),
                  tp_str("best", best->kernel.name), tp_real("microseconds", best->microseconds),
                  tp_str("predicted", c->prediction.name),
                  tp_real("predicted_microseconds", c->runs[0].microseconds));
    }
}

enum tp_code tp_prove_schedules(const struct tp_proofs *proofs, struct tp_text *text,
                                struct tp_err *err)
{
    struct tp_writer w;
    tp_writer_open(&w);
    w.compact = true;
    tp_write(&w, tp_str("device", proofs->prover->device.name),
             tp_str("plugin", proofs->prover->plugin->built),
             tp_list("shapes", proofs->count, put_tuned, proofs));
    return tp_writer_end(&w, text, err);
}
