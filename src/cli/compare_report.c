/* The tables and JSON of `tilepack compare`. Prints what was measured; measures nothing. */
#include "cli/compare_report.h"

#include "cli/human.h"
#include "cli/report.h"
#include "cli/search_report.h"

#include <stdlib.h>
#include <string.h>

/* Weights that are shown of each format; of more than FEW formats only under --verbose. */
enum { SHOWN_OF_ONE = 20, SHOWN_OF_EACH = 3, FEW = 3 };

static void figure(char text[24], const char *how, double value, bool known)
{
    snprintf(text, 24, known ? how : "-", value);
}

static const char *unit_shape(const struct tp_unit_result *unit, char text[TP_SHAPE_TEXT])
{
    uint64_t shape[] = {unit->box.e, unit->box.n, unit->box.k};
    int rank = unit->rank == 3 ? 3 : 2;
    return tp_shape_text(text, shape + 3 - rank, (uint32_t)rank);
}

static void add_format(struct tp_table *table, const struct tp_candidates *all,
                       const struct tp_candidate *c)
{
    char size[TP_HUMAN] = "-", share[24] = "-", bits[24] = "-", weights[24] = "-", snr[24] = "-",
         worst[24] = "-";
    const char *name = c->refused;
    if (!c->refused) {
        bool measured = c->sum.measured > 0;
        tp_human_bytes(size, c->bytes);
        figure(share, "%.3f", (double)c->bytes / (double)(all->bytes ? all->bytes : 1), true);
        figure(bits, "%.3f", c->sum.bits, c->sum.weights > 0);
        snprintf(weights, sizeof weights, "%zu", c->sum.weights);
        figure(snr, "%.2f", c->sum.mean_db, measured);
        figure(worst, "%.2f", measured ? c->ranks[0].db : 0, measured);
        name = measured ? c->units[c->sum.worst].name : "";
    }
    const char *cells[] = {c->format->name, size, share, weights, bits, snr, worst, name};
    tp_table_row(table, cells);
}

static int print_formats(const struct tp_candidates *all)
{
    static const struct tp_column columns[] = {
        {"format", false, TP_NARROW_WHOLE},  {"size", true, TP_NARROW_WHOLE},
        {"share", true, TP_NARROW_WHOLE},    {"weights", true, TP_NARROW_WHOLE},
        {"bits", true, TP_NARROW_WHOLE},     {"SNR dB", true, TP_NARROW_WHOLE},
        {"worst dB", true, TP_NARROW_WHOLE}, {"the worst", false, TP_NARROW_FOLD}};
    struct tp_table *table = tp_table_new(columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < all->count; i++)
        add_format(table, all, &all->items[i]);
    return tp_table_end(table);
}

static void add_weight(struct tp_table *table, const struct tp_candidate *c, size_t rank)
{
    const struct tp_unit_result *unit = &c->units[c->ranks[rank].unit];
    char shape[TP_SHAPE_TEXT], snr[24], relative[24], most[24];
    snprintf(snr, sizeof snr, "%.2f", c->ranks[rank].db);
    snprintf(relative, sizeof relative, "%.5f", tp_distance_relative(&unit->distance));
    snprintf(most, sizeof most, "%.3g", unit->distance.max_abs);
    const char *cells[] = {c->format->name, unit->name, unit_shape(unit, shape), snr, relative,
                           most};
    tp_table_row(table, cells);
}

static int print_worst(const struct tp_candidates *all, bool verbose)
{
    static const struct tp_column columns[] = {
        {"format", false, TP_NARROW_WHOLE},   {"the worst weights", false, TP_NARROW_FOLD},
        {"shape", false, TP_NARROW_WHOLE},    {"SNR dB", true, TP_NARROW_WHOLE},
        {"relative", true, TP_NARROW_WHOLE},  {"max abs", true, TP_NARROW_WHOLE}};
    struct tp_table *table = tp_table_new(columns, sizeof columns / sizeof *columns);
    size_t shown = verbose ? SIZE_MAX : all->count == 1 ? SHOWN_OF_ONE : SHOWN_OF_EACH;
    for (size_t i = 0; i < all->count; i++)
        for (size_t r = 0; r < all->items[i].rank_count && r < shown; r++)
            add_weight(table, &all->items[i], r);
    return tp_table_end(table);
}

static uint64_t nonfinite(const struct tp_candidate *c)
{
    uint64_t count = 0;
    for (size_t u = 0; u < c->unit_count; u++)
        count += c->units[u].distance.nonfinite;
    return count;
}

/* Figures leave these values out, and may look as if there were none. */
static void print_nonfinite(const struct tp_candidates *all)
{
    for (size_t i = 0; i < all->count; i++) {
        uint64_t count = nonfinite(&all->items[i]);
        if (count)
            printf("%s: %llu values are NaN or infinite, in the source or as stored, and in no "
                   "figure\n", all->items[i].format->name, (unsigned long long)count);
    }
}

static void print_weights_only(const struct tp_candidates *all)
{
    bool any = false;
    for (size_t i = 0; i < all->count; i++) {
        if (!all->items[i].weights_only)
            continue;
        printf("%s%s", any ? ", " : "only with --weights-only, as the source has no activation "
               "scales: ", all->items[i].format->name);
        any = true;
    }
    if (any)
        putchar('\n');
}

int tp_compare_print(const struct tp_candidates *all, bool verbose)
{
    char size[TP_HUMAN], took[TP_HUMAN];
    size_t unmeasured = 0, ranked = 0;
    uint64_t left_out = 0;
    for (size_t i = 0; i < all->count; i++) {
        unmeasured += all->items[i].sum.weights - all->items[i].sum.measured;
        ranked += all->items[i].rank_count;
        left_out += nonfinite(&all->items[i]);
    }
    int status = print_formats(all);
    if (status == TP_OK && ranked && (verbose || all->count <= FEW)) {
        putchar('\n');
        status = print_worst(all, verbose);
    }
    if (status)
        return status;
    if (!verbose && all->count > FEW)
        printf("\n--verbose lists the weights of each, the worst first");
    printf("\nthe source has %s; SNR is the mean over the weights%s; %s\n",
           tp_human_bytes(size, all->bytes),
           all->full ? "" : ", of a sample of each (--full measures all values)",
           tp_human_seconds(took, all->seconds));
    if (unmeasured)
        printf("without a figure: %zu weights that are exact%s%s\n", unmeasured,
               all->full ? "" : ", taken over from a packed source, or too long in their rows for "
                                "a sample",
               left_out ? ", or hold values that are NaN or infinite" : "");
    print_weights_only(all);
    print_nonfinite(all);
    return TP_OK;
}

/* ---- JSON --------------------------------------------------------------- */

static json_t *weights_json(const struct tp_candidate *c)
{
    json_t *list = json_array();
    for (size_t r = 0; r < c->rank_count; r++) {
        const struct tp_unit_result *unit = &c->units[c->ranks[r].unit];
        tp_json_append(list, json_pack(
            "{s:o,s:[I,I,I],s:i,s:f,s:o,s:o,s:I,s:I}", "name", tp_json_text(unit->name), "box",
            (json_int_t)unit->box.e, (json_int_t)unit->box.n, (json_int_t)unit->box.k, "rank",
            unit->rank, "snr_db", c->ranks[r].db, "relative",
            tp_json_figure(tp_distance_relative(&unit->distance)), "max_abs",
            tp_json_figure(unit->distance.max_abs), "values",
            (json_int_t)unit->distance.count, "nonfinite",
            (json_int_t)unit->distance.nonfinite));
    }
    return list;
}

static json_t *format_json(const struct tp_candidate *c)
{
    if (c->refused)
        return json_pack("{s:s,s:o}", "format", c->format->name, "refused",
                         tp_json_text(c->refused));
    json_t *json = json_pack("{s:s,s:I,s:I,s:I,s:I,s:f,s:I}", "format", c->format->name, "bytes",
                             (json_int_t)c->bytes, "weights", (json_int_t)c->sum.weights,
                             "measured", (json_int_t)c->sum.measured, "kept",
                             (json_int_t)c->kept, "bits", c->sum.bits, "nonfinite",
                             (json_int_t)nonfinite(c));
    if (c->weights_only)
        tp_json_set(json, "weights_only", json_true());
    if (c->sum.measured) {
        tp_json_set(json, "snr_db", json_real(c->sum.mean_db));
        tp_json_set(json, "worst_db", json_real(c->ranks[0].db));
        tp_json_set(json, "relative", json_real(c->sum.relative));
    }
    tp_json_set(json, "worst_first", weights_json(c));
    return json;
}

int tp_compare_print_json(const struct tp_candidates *all)
{
    json_t *list = json_array();
    for (size_t i = 0; i < all->count; i++)
        tp_json_append(list, format_json(&all->items[i]));
    return tp_json_print(json_pack("{s:o,s:I,s:b,s:f,s:o}", "source", tp_json_text(all->source),
                                   "bytes", (json_int_t)all->bytes, "full", all->full, "seconds",
                                   all->seconds, "formats", list));
}
