/* `tilepack diff`: prints what differs between two checkpoints. Equal layers are
 * one line unless --verbose; the first difference is told to the element. */
#include "cli/cmd.h"
#include "cli/fold.h"
#include "cli/human.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/session.h"
#include "pack/check/diff.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *kind_text(enum tp_diff_kind kind)
{
    switch (kind) {
    case TP_DIFF_SAME: return "equal";
    case TP_DIFF_ONLY_A: return "only in A";
    case TP_DIFF_ONLY_B: return "only in B";
    case TP_DIFF_DTYPE: return "dtype";
    case TP_DIFF_SHAPE: return "shape";
    case TP_DIFF_VALUES: return "values";
    case TP_DIFF_SCALES: return "scales";
    }
    return "";
}

/* The element with that index, as its coordinates. */
static void coordinates(const struct tp_diff_item *item, uint64_t index,
                        uint64_t at[TP_ST_MAX_RANK])
{
    for (uint32_t d = item->rank_a; d-- > 0;) {
        at[d] = index % item->shape_a[d];
        index /= item->shape_a[d];
    }
}

/* ---- JSON ------------------------------------------------------------------ */

static void put_item(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_diff_item *item = &((const struct tp_diff *)of)->items[i];
    const struct tp_distance *d = &item->distance;
    const double relative = tp_distance_relative(d);
    tp_begin(w, NULL, '{');
    tp_write(w, tp_str("name", item->name), tp_str("difference", kind_text(item->kind)),
             tp_if(item->form_a, tp_str("a", item->form_a)),
             tp_if(item->form_a, tp_numbers("shape_a", item->shape_a, item->rank_a)),
             tp_if(item->form_b, tp_str("b", item->form_b)),
             tp_if(item->form_b, tp_numbers("shape_b", item->shape_b, item->rank_b)),
             tp_if(item->bytes, tp_num("bytes", item->bytes)),
             tp_if(item->bytes, tp_num("first_byte", item->first_byte)));
    if (item->numeric)
        tp_write(w, tp_num("elements", d->differing),
                 tp_real("max_abs", isnan(relative) ? relative : d->max_abs),
                 tp_real("relative", relative), tp_real("sqnr_db", tp_distance_sqnr(d)));
    if (item->numeric && d->differing) {
        uint64_t at[TP_ST_MAX_RANK];
        coordinates(item, d->first, at);
        tp_object(w, "first", tp_numbers("at", at, item->rank_a),
                  tp_real("a", (double)d->first_a), tp_real("b", (double)d->first_b));
    }
    tp_end(w, '}');
}

static int print_json(const struct tp_options *o, const struct tp_diff *diff)
{
    struct tp_writer w;
    tp_json_open(&w);
    tp_write(&w, tp_str("a", o->arg.item[0]), tp_str("b", o->arg.item[1]),
             tp_bool("equal", !diff->differing), tp_num("tensors", diff->count),
             tp_num("differing", diff->differing));
    tp_begin(&w, "items", '[');
    for (size_t i = 0; i < diff->count; i++)
        if (o->verbose || diff->items[i].kind != TP_DIFF_SAME)
            put_item(&w, i, diff);
    tp_end(&w, ']');
    return tp_json_close(&w);
}

/* ---- text ------------------------------------------------------------------ */

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool is_same(const void *of, size_t a, size_t b)
{
    const struct tp_diff_item *x = &((const struct tp_diff *)of)->items[a];
    const struct tp_diff_item *y = &((const struct tp_diff *)of)->items[b];
    return x->kind == y->kind && same_text(x->form_a, y->form_a) &&
           same_text(x->form_b, y->form_b) && x->rank_a == y->rank_a && x->rank_b == y->rank_b &&
           memcmp(x->shape_a, y->shape_a, sizeof x->shape_a) == 0 &&
           memcmp(x->shape_b, y->shape_b, sizeof x->shape_b) == 0;
}

static void put_line(struct tp_writer *w, const struct tp_line *line, const void *of)
{
    const struct tp_diff_item *item = &((const struct tp_diff *)of)->items[line->first];
    char shape[2 * TP_SHAPE_TEXT], other[TP_SHAPE_TEXT];
    if (item->form_a)
        tp_shape_text(shape, item->shape_a, item->rank_a);
    else
        tp_shape_text(shape, item->shape_b, item->rank_b);
    if (item->kind == TP_DIFF_SHAPE) {
        strcat(shape, " ");
        strcat(shape, tp_shape_text(other, item->shape_b, item->rank_b));
    }
    tp_write(w, tp_str("shape", shape), tp_str("a", item->form_a), tp_str("b", item->form_b),
             tp_str("difference", kind_text(item->kind)),
             tp_if(!item->numeric, tp_str("max_abs", "")),
             tp_if(!item->numeric, tp_str("relative", "")));
}

static int print_table(const struct tp_diff *diff, bool all)
{
    static const struct tp_field fields[] = {
        {"tensor", "name", TP_CUT}, {"count", "count", TP_RIGHT}, {"shape", "shape", TP_LEFT},
        {"A", "a", TP_LEFT}, {"B", "b", TP_LEFT}, {"difference", "difference", TP_LEFT},
        {"max abs", "max_abs %.3g", TP_RIGHT}, {"relative", "relative %.5f", TP_RIGHT}};
    struct tp_lines lines = {.fold = !all};
    for (size_t i = 0; i < diff->count; i++) {
        const struct tp_diff_item *item = &diff->items[i];
        struct tp_line *line = all || item->kind != TP_DIFF_SAME
                                   ? tp_lines_add(&lines, item->name, diff, i, is_same) : NULL;
        if (line && item->numeric)
            tp_line_measured(line, &item->distance);
    }
    return tp_lines_print(&lines, fields, sizeof fields / sizeof *fields, put_line, diff);
}

static void print_first(const struct tp_diff *diff)
{
    for (size_t i = 0; i < diff->count; i++) {
        const struct tp_diff_item *item = &diff->items[i];
        uint64_t at[TP_ST_MAX_RANK];
        char text[TP_SHAPE_TEXT];
        if (item->kind == TP_DIFF_SAME)
            continue;
        printf("first difference: tensor '");
        tp_print_text(stdout, item->name);
        printf("'");
        if (item->numeric && item->distance.differing) {
            coordinates(item, item->distance.first, at);
            printf(", element %s: %.9g in A, %.9g in B (%llu of %llu elements)",
                   tp_shape_text(text, at, item->rank_a), (double)item->distance.first_a,
                   (double)item->distance.first_b, (unsigned long long)item->distance.differing,
                   (unsigned long long)item->distance.count);
        } else if (item->bytes) {
            printf(", byte %llu%s (%llu bytes)", (unsigned long long)item->first_byte,
                   item->kind == TP_DIFF_SCALES ? " of its scales" : "",
                   (unsigned long long)item->bytes);
        } else {
            printf(": %s", kind_text(item->kind));
        }
        printf("\n");
        return;
    }
}

static int print_text(const struct tp_options *o, const struct tp_diff *diff)
{
    int status = TP_OK;
    if ((diff->differing || o->verbose) && !o->quiet) {
        status = print_table(diff, o->verbose);
        printf("\n");
    }
    print_first(diff);
    if (diff->differing)
        printf("%s%zu of %zu tensors differ%s\n", tp_style("31"), diff->differing, diff->count,
               tp_style("0"));
    else if (!o->quiet)
        printf("%sno difference%s in %zu tensors\n", tp_style("32"), tp_style("0"), diff->count);
    return status;
}

/* ---- the command ----------------------------------------------------------- */

static int compare(const struct tp_options *o, const struct tp_source sources[2])
{
    struct tp_side a = {.ckpt = &sources[0].ckpt, .weights = &sources[0].weights, .strict = true};
    struct tp_side b = {.ckpt = &sources[1].ckpt, .weights = &sources[1].weights, .strict = true};
    struct tp_diff diff;
    struct tp_err err = {0};
    struct tp_progress *progress = tp_progress_start(o, "diff", 0);
    struct tp_diff_options options = {.jobs = o->jobs, .stop = tp_catch_signals(),
                                      .progress = progress ? tp_progress_add : NULL,
                                      .total = progress ? tp_progress_total : NULL,
                                      .progress_arg = progress};
    enum tp_code code = tp_diff(&a, &b, &options, &diff, &err);
    tp_progress_end(progress);
    if (code)
        return tp_report_error(&err);
    int status = o->json ? print_json(o, &diff) : print_text(o, &diff);
    if (status == TP_OK && diff.differing)
        status = TP_E_DIFF;
    tp_diff_close(&diff);
    return status;
}

int tp_cmd_diff(const struct tp_options *o)
{
    struct tp_source sources[2] = {0};
    struct tp_err err = {0};
    int status = TP_OK;
    for (int s = 0; s < 2 && status == TP_OK; s++)
        if (tp_source_open(o->arg.item[s], NULL, &sources[s], &err))
            status = tp_report_error(&err);
        else
            tp_say_unknown(&sources[s].weights);
    if (status == TP_OK)
        status = compare(o, sources);
    for (int s = 0; s < 2; s++)
        tp_source_close(&sources[s]);
    return status;
}
