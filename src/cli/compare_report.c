/* The tables and JSON of `tilepack compare`. Prints what was measured; measures nothing. */
#include "cli/compare_report.h"

#include "cli/human.h"
#include "cli/report.h"
#include "cli/table.h"

/* Weights that are shown of each format; of more than FEW formats only under --verbose. */
enum { SHOWN_OF_ONE = 20, SHOWN_OF_EACH = 3, FEW = 3 };

static uint64_t nonfinite(const struct tp_cost *c)
{
    uint64_t count = 0;
    for (size_t u = 0; u < c->unit_count; u++)
        count += c->units[u].distance.nonfinite;
    return count;
}

/* ---- the fields ------------------------------------------------------------ */

static void put_weight(struct tp_writer *w, size_t rank, const void *of)
{
    const struct tp_cost *c = of;
    const struct tp_unit_result *unit = &c->units[c->ranks[rank].unit];
    char shape[TP_SHAPE_TEXT];
    tp_begin(w, NULL, '{');
    tp_write(w, tp_str("name", unit->name), tp_box("box", &unit->box),
             tp_num("rank", (uint64_t)unit->rank), tp_real("snr_db", c->ranks[rank].db),
             tp_real("relative", tp_distance_relative(&unit->distance)),
             tp_real("max_abs", unit->distance.max_abs), tp_num("values", unit->distance.count),
             tp_num("nonfinite", unit->distance.nonfinite),
             tp_real("lost", tp_distance_lost(&unit->distance)),
             tp_cell("shape", tp_box_text(shape, &unit->box, unit->rank)),
             tp_cell("of", c->format->name));
    tp_cellf(w, "lost_", "%.2f", 100 * tp_distance_lost(&unit->distance));
    tp_end(w, '}');
}

static void put_format(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_candidates *all = of;
    const struct tp_cost *c = &all->items[i];
    const bool measured = c->sum.measured;
    const char *worst = measured ? c->units[c->sum.worst].name : "";
    char size[TP_HUMAN];
    if (c->refused) {
        tp_object(w, NULL, tp_str("format", c->format->name), tp_str("refused", c->refused),
                  tp_cell("remark", c->refused));
        return;
    }
    tp_begin(w, NULL, '{');
    tp_write(w, tp_str("format", c->format->name), tp_num("bytes", c->bytes),
             tp_num("weights", c->sum.weights), tp_num("measured", c->sum.measured),
             tp_num("kept", c->kept), tp_real("bits", c->sum.bits),
             tp_num("nonfinite", nonfinite(c)),
             tp_if(c->weights_only, tp_bool("weights_only", true)),
             tp_if(measured, tp_real("snr_db", c->sum.mean_db)),
             tp_if(measured, tp_real("worst_db", measured ? c->ranks[0].db : 0)),
             tp_if(measured, tp_real("relative", c->sum.relative)),
             tp_if(measured, tp_real("most_lost", c->sum.most_lost)),
             tp_if(measured, tp_num("losing", c->sum.losing)),
             tp_cell("size", tp_human_bytes(size, c->bytes)), tp_cell("remark", worst),
             tp_list("worst_first", c->rank_count, put_weight, c));
    tp_cellf(w, "share", "%.3f", (double)c->bytes / (double)(all->bytes ? all->bytes : 1));
    tp_cellf(w, "bits_", c->sum.weights ? "%.3f" : "-", c->sum.bits);
    tp_cellf(w, "lost_", measured ? "%.2f" : "-", 100 * c->sum.most_lost);
    tp_end(w, '}');
}

static int print_json(const struct tp_candidates *all)
{
    return tp_json_result(tp_str("source", all->source), tp_num("bytes", all->bytes),
                          tp_bool("full", all->full), tp_real("seconds", all->seconds),
                          tp_list("formats", all->count, put_format, all));
}

/* ---- text ------------------------------------------------------------------ */

static int print_formats(const struct tp_candidates *all)
{
    static const struct tp_field fields[] = {
        {"format", "format", TP_LEFT},         {"size", "size", TP_RIGHT},
        {"share", "share", TP_RIGHT},          {"weights", "weights", TP_RIGHT},
        {"bits", "bits_", TP_RIGHT},           {"SNR dB", "snr_db %.2f", TP_RIGHT},
        {"worst dB", "worst_db %.2f", TP_RIGHT}, {"lost %", "lost_", TP_RIGHT},
        {"the worst", "remark", TP_FOLD}};
    return tp_table_print(fields, sizeof fields / sizeof *fields, "formats",
                          tp_list("formats", all->count, put_format, all));
}

static int print_worst(const struct tp_candidates *all, bool verbose)
{
    static const struct tp_field fields[] = {
        {"format", "of", TP_LEFT},             {"the worst weights", "name", TP_FOLD},
        {"shape", "shape", TP_LEFT},           {"SNR dB", "snr_db %.2f", TP_RIGHT},
        {"relative", "relative %.5f", TP_RIGHT}, {"max abs", "max_abs %.3g", TP_RIGHT},
        {"lost %", "lost_", TP_RIGHT}};
    struct tp_table table;
    size_t shown = verbose ? SIZE_MAX : all->count == 1 ? SHOWN_OF_ONE : SHOWN_OF_EACH;
    tp_table_open(&table, fields, sizeof fields / sizeof *fields, NULL);
    for (size_t i = 0; i < all->count; i++)
        for (size_t r = 0; r < all->items[i].rank_count && r < shown; r++)
            put_weight(&table.w, r, &all->items[i]);
    return tp_table_end(&table);
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

static int print_text(const struct tp_candidates *all, bool verbose)
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
    printf("\nthe source has %s; SNR is the mean over the weights%s, lost the most of one; %s\n",
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

int tp_compare_print(const struct tp_candidates *all, bool json, bool verbose)
{
    return json ? print_json(all) : print_text(all, verbose);
}
