/* `tilepack diff`: prints what differs between two checkpoints. Equal layers are
 * one line unless --verbose; the first difference is told to the element. */
#include "cli/cmd.h"
#include "cli/escape.h"
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

static json_t *shape_json(const uint64_t *shape, uint32_t rank)
{
    json_t *json = json_array();
    for (uint32_t d = 0; d < rank; d++)
        tp_json_append(json, json_integer((json_int_t)shape[d]));
    return json;
}

static json_t *figure(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static json_t *item_json(const struct tp_diff_item *item)
{
    json_t *json = json_pack("{s:o,s:s}", "name", tp_json_text(item->name), "difference",
                             kind_text(item->kind));
    if (item->form_a) {
        tp_json_set(json, "a", json_string(item->form_a));
        tp_json_set(json, "shape_a", shape_json(item->shape_a, item->rank_a));
    }
    if (item->form_b) {
        tp_json_set(json, "b", json_string(item->form_b));
        tp_json_set(json, "shape_b", shape_json(item->shape_b, item->rank_b));
    }
    if (item->bytes) {
        tp_json_set(json, "bytes", json_integer((json_int_t)item->bytes));
        tp_json_set(json, "first_byte", json_integer((json_int_t)item->first_byte));
    }
    if (!item->numeric)
        return json;
    const struct tp_distance *d = &item->distance;
    tp_json_set(json, "elements", json_integer((json_int_t)d->differing));
    double relative = tp_distance_relative(d);
    tp_json_set(json, "max_abs", figure(isnan(relative) ? relative : d->max_abs));
    tp_json_set(json, "relative", figure(relative));
    tp_json_set(json, "sqnr_db", figure(tp_distance_sqnr(d)));
    if (d->differing) {
        uint64_t at[TP_ST_MAX_RANK];
        coordinates(item, d->first, at);
        tp_json_set(json, "first", json_pack("{s:o,s:o,s:o}", "at",
                                                     shape_json(at, item->rank_a), "a",
                                                     figure((double)d->first_a), "b",
                                                     figure((double)d->first_b)));
    }
    return json;
}

static int print_json(const struct tp_options *o, const struct tp_diff *diff)
{
    json_t *items = json_array();
    for (size_t i = 0; i < diff->count; i++)
        if (o->verbose || diff->items[i].kind != TP_DIFF_SAME)
            tp_json_append(items, item_json(&diff->items[i]));
    return tp_json_print(json_pack("{s:o,s:o,s:b,s:I,s:I,s:o}", "a",
                                   tp_json_text(o->arg.item[0]), "b",
                                   tp_json_text(o->arg.item[1]), "equal", !diff->differing,
                                   "tensors", (json_int_t)diff->count, "differing",
                                   (json_int_t)diff->differing, "items", items));
}

/* ---- text ------------------------------------------------------------------ */

struct line {
    const struct tp_diff_item *item;
    char *key;
    size_t count;
    double max_abs, relative;
    bool unknown; /* of one of them there is no figure */
};

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_line(const struct line *line, const struct tp_diff_item *item, const char *key)
{
    const struct tp_diff_item *other = line->item;
    return other->kind == item->kind && same_text(other->form_a, item->form_a) &&
           same_text(other->form_b, item->form_b) && other->rank_a == item->rank_a &&
           other->rank_b == item->rank_b &&
           memcmp(other->shape_a, item->shape_a, sizeof item->shape_a) == 0 &&
           memcmp(other->shape_b, item->shape_b, sizeof item->shape_b) == 0 &&
           strcmp(line->key, key) == 0;
}

/* Adds an item to the lines: to one of the last that is alike, or as a new one. */
static bool add_line(struct line *lines, size_t *count, const struct tp_diff_item *item, bool all)
{
    char *key = all ? strdup(item->name) : tp_fold_name(item->name);
    size_t back = 0;
    if (!key)
        return false;
    while (back < *count && back < 64 && (all || !same_line(&lines[*count - 1 - back], item, key)))
        back++;
    bool found = back < *count && back < 64;
    struct line *line = &lines[found ? *count - 1 - back : *count];
    if (found)
        free(key);
    else
        lines[(*count)++] = (struct line){.item = item, .key = key};
    line->count++;
    if (item->numeric) {
        line->max_abs = fmax(line->max_abs, item->distance.max_abs);
        line->relative = fmax(line->relative, tp_distance_relative(&item->distance));
        line->unknown |= isnan(tp_distance_relative(&item->distance));
    }
    return true;
}

static void print_line(struct tp_table *table, const struct line *line)
{
    const struct tp_diff_item *item = line->item;
    char number[24], shape[2 * TP_SHAPE_TEXT], other[TP_SHAPE_TEXT],
          max_abs[32] = "", relative[32] = "";
    snprintf(number, sizeof number, "%zu", line->count);
    if (item->form_a)
        tp_shape_text(shape, item->shape_a, item->rank_a);
    else
        tp_shape_text(shape, item->shape_b, item->rank_b);
    if (item->kind == TP_DIFF_SHAPE) {
        strcat(shape, " ");
        strcat(shape, tp_shape_text(other, item->shape_b, item->rank_b));
    }
    if (item->numeric && line->unknown && !(line->relative > 0)) {
        strcpy(max_abs, "-");
        strcpy(relative, "-");
    } else if (item->numeric) {
        snprintf(max_abs, sizeof max_abs, "%.3g", line->max_abs);
        snprintf(relative, sizeof relative, "%.5f", line->relative);
    }
    const char *cells[] = {line->count > 1 ? line->key : item->name,
                           number,
                           shape,
                           item->form_a ? item->form_a : "-",
                           item->form_b ? item->form_b : "-",
                           kind_text(item->kind),
                           max_abs,
                           relative};
    tp_table_row(table, cells);
}

static int print_table(const struct tp_diff *diff, bool all)
{
    static const struct tp_column columns[] = {
        {"tensor", false, true}, {"count", true, false},      {"shape", false, false},
        {"A", false, false},     {"B", false, false},         {"difference", false, false},
        {"max abs", true, false}, {"relative", true, false}};
    struct line *lines = calloc(diff->count + 1, sizeof *lines);
    struct tp_table *table = tp_table_new(columns, sizeof columns / sizeof *columns);
    size_t count = 0;
    bool complete = lines != NULL;
    for (size_t i = 0; i < diff->count && complete; i++)
        if (all || diff->items[i].kind != TP_DIFF_SAME)
            complete = add_line(lines, &count, &diff->items[i], all);
    if (!complete)
        tp_table_fail(table);
    for (size_t i = 0; i < count; i++)
        print_line(table, &lines[i]);
    for (size_t i = 0; i < count; i++)
        free(lines[i].key);
    free(lines);
    return tp_table_end(table);
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
        if (tp_source_open(o->arg.item[s], 0, &sources[s], &err))
            status = tp_report_error(&err);
        else
            tp_say_unknown(&sources[s].weights);
    if (status == TP_OK)
        status = compare(o, sources);
    for (int s = 0; s < 2; s++)
        tp_source_close(&sources[s]);
    return status;
}
