/* `tilepack verify`: runs the checks and prints what they found. Every difference
 * is a line of its own on stdout, the summary the last one. */
#include "cli/cmd.h"
#include "cli/escape.h"
#include "cli/fold.h"
#include "cli/human.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/search_report.h"
#include "cli/session.h"
#include "pack/check/verify.h"
#include "pack/os/clock.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- JSON ------------------------------------------------------------------ */

static json_t *problems_json(const struct tp_problem *problems, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const struct tp_problem *problem = &problems[i];
        json_t *json = json_object();
        if (problem->file)
            tp_json_set(json, "file", tp_json_text(problem->file));
        if (problem->tensor)
            tp_json_set(json, "tensor", tp_json_text(problem->tensor));
        tp_json_set(json, "what", tp_json_text(problem->what));
        tp_json_append(list, json);
    }
    return list;
}

/* Not what is plain, restored by unpack or as a bias of a format that has none. */
static bool is_measured(const struct tp_unit_result *unit)
{
    return unit->format != NULL;
}

static json_t *weights_json(const struct tp_verify_report *report)
{
    json_t *list = json_array();
    for (size_t i = 0; i < report->unit_count; i++) {
        const struct tp_unit_result *unit = &report->units[i];
        if (!is_measured(unit))
            continue;
        double relative = tp_distance_relative(&unit->distance);
        json_t *json = json_pack(
            "{s:o,s:[I,I,I],s:i,s:s,s:b,s:o,s:o,s:o,s:I}", "name", tp_json_text(unit->name), "box",
            (json_int_t)unit->box.e, (json_int_t)unit->box.n, (json_int_t)unit->box.k, "rank",
            unit->rank, "format", unit->format->name, "equal", !unit->differs,
            "max_abs", tp_json_figure(isnan(relative) ? relative : unit->distance.max_abs),
            "relative", tp_json_figure(relative), "sqnr_db",
            tp_json_figure(tp_distance_sqnr(&unit->distance)), "nonfinite",
            (json_int_t)unit->distance.nonfinite);
        if (unit->search != TP_SEARCH_NONE)
            tp_search_json(json, unit);
        tp_json_append(list, json);
    }
    return list;
}

static int print_json(const struct tp_options *o, const struct tp_verify_report *report,
                      double seconds)
{
    json_t *json = json_pack(
        "{s:o,s:b,s:b,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:o}", "path", tp_json_text(o->arg.item[0]), "ok",
        !report->problem_count, "by_tilepack", report->by_tilepack, "shards",
        (json_int_t)report->shards, "tensors", (json_int_t)report->tensors, "packed",
        (json_int_t)report->packed, "hashed", (json_int_t)report->hashed, "padded",
        (json_int_t)report->padded, "bytes", (json_int_t)report->bytes, "seconds", seconds,
        "problems", problems_json(report->problems, report->problem_count));
    if (report->note_count)
        tp_json_set(json, "notes", problems_json(report->notes, report->note_count));
    if (report->digests)
        tp_json_set(json, "digests", json_integer((json_int_t)report->digests));
    if (o->against) {
        tp_json_set(json, "against", tp_json_text(o->against));
        tp_json_set(json, "kept", json_integer((json_int_t)report->kept));
        tp_json_set(json, "weights", weights_json(report));
    }
    return tp_json_print(json);
}

/* ---- text ------------------------------------------------------------------ */

enum { SHOWN = 50 }; /* differences printed without --verbose */

static void print_problems(const struct tp_verify_report *report, bool all)
{
    size_t shown = all || report->problem_count <= SHOWN ? report->problem_count : SHOWN;
    for (size_t i = 0; i < shown; i++) {
        const struct tp_problem *problem = &report->problems[i];
        printf("%s", tp_style("31"));
        if (problem->file) {
            tp_print_text(stdout, problem->file);
            printf(": ");
        }
        if (problem->tensor) {
            printf("tensor '");
            tp_print_text(stdout, problem->tensor);
            printf("': ");
        }
        tp_print_text(stdout, problem->what);
        printf("%s\n", tp_style("0"));
    }
    if (shown < report->problem_count)
        printf("and %zu more (--verbose lists all)\n", report->problem_count - shown);
}

/* A line of the table: one weight, or equal ones of many layers with the largest
 * errors among them. */
struct line {
    const struct tp_unit_result *unit;
    char *key;
    size_t count;
    double max_abs, relative, sqnr;
    double gain, weighted_gain; /* of a search, in dB: the least; NAN without one */
    bool differs;
    bool unknown; /* of one of them there is no figure */
};

static bool same_line(const struct line *line, const struct tp_unit_result *unit, const char *key)
{
    return line->unit->format == unit->format && line->unit->rank == unit->rank &&
           line->unit->search == unit->search && line->unit->weighted == unit->weighted &&
           memcmp(&line->unit->box, &unit->box, sizeof unit->box) == 0 &&
           line->differs == unit->differs && strcmp(line->key, key) == 0;
}

static void add_to(struct line *line, const struct tp_unit_result *unit)
{
    line->count++;
    line->max_abs = fmax(line->max_abs, unit->distance.max_abs);
    line->relative = fmax(line->relative, tp_distance_relative(&unit->distance));
    line->sqnr = fmin(line->sqnr, tp_distance_sqnr(&unit->distance));
    line->unknown |= isnan(tp_distance_relative(&unit->distance));
    if (unit->search != TP_SEARCH_NONE) /* fmin() of NAN and a number is the number */
        line->gain = fmin(line->gain, tp_search_gain(&unit->distance, &unit->none));
    if (unit->weighted)
        line->weighted_gain = fmin(line->weighted_gain, tp_search_gain(&unit->weighted_distance,
                                                                       &unit->weighted_none));
}

/* Lines of all units that were measured; *count of them. False: of some, as memory is short. */
static bool fold(const struct tp_verify_report *report, bool all, struct line **to, size_t *count)
{
    struct line *lines = *to = calloc(report->unit_count + 1, sizeof *lines);
    *count = 0;
    for (size_t u = 0; lines && u < report->unit_count; u++) {
        const struct tp_unit_result *unit = &report->units[u];
        if (!is_measured(unit))
            continue;
        char *key = all ? strdup(unit->name) : tp_fold_name(unit->name);
        size_t back = 0;
        if (!key)
            return false;
        while (!all && back < *count && back < 64 &&
               !same_line(&lines[*count - 1 - back], unit, key))
            back++;
        if (!all && back < *count && back < 64) {
            add_to(&lines[*count - 1 - back], unit);
            free(key);
            continue;
        }
        lines[*count] = (struct line){.unit = unit, .key = key, .sqnr = INFINITY,
                                      .gain = NAN, .weighted_gain = NAN,
                                      .differs = unit->differs};
        add_to(&lines[(*count)++], unit);
    }
    return lines != NULL;
}

static const char *shape_text(char text[80], const struct tp_unit_result *unit)
{
    if (unit->rank == 3)
        snprintf(text, 80, "[%llu,%llu,%llu]", (unsigned long long)unit->box.e,
                 (unsigned long long)unit->box.n, (unsigned long long)unit->box.k);
    else
        snprintf(text, 80, "[%llu,%llu]", (unsigned long long)unit->box.n,
                 (unsigned long long)unit->box.k);
    return text;
}

static bool any_measured(const struct tp_verify_report *report)
{
    for (size_t u = 0; u < report->unit_count; u++)
        if (is_measured(&report->units[u]))
            return true;
    return false;
}

static bool any_search(const struct tp_verify_report *report)
{
    for (size_t u = 0; u < report->unit_count; u++)
        if (report->units[u].search != TP_SEARCH_NONE)
            return true;
    return false;
}

/* "+0.92", with importance "+0.31 (+1.40 weighted)". */
static const char *gain_text(char text[64], const struct line *line)
{
    if (isnan(line->gain))
        snprintf(text, 64, "-");
    else if (isnan(line->weighted_gain))
        snprintf(text, 64, "%+.2f", line->gain);
    else
        snprintf(text, 64, "%+.2f (%+.2f weighted)", line->gain, line->weighted_gain);
    return text;
}

static int print_table(const struct tp_verify_report *report, bool all)
{
    static const struct tp_column columns[] = {
        {"weight", false, true}, {"count", true, false},    {"shape", false, false},
        {"format", false, false}, {"max abs", true, false}, {"relative", true, false},
        {"SQNR dB", true, false}, {"bytes", false, false}, {"search gains dB", false, false}};
    size_t count, width = sizeof columns / sizeof *columns - !any_search(report);
    struct tp_table *table = tp_table_new(columns, width);
    struct line *lines;
    if (!fold(report, all, &lines, &count))
        tp_table_fail(table);
    for (size_t i = 0; i < count; i++) {
        const struct line *line = &lines[i];
        bool exact = line->relative == 0 && !line->unknown;
        char number[24], shape[80], max_abs[32] = "-", relative[32] = "-", sqnr[32] = "-",
             gain[64];
        snprintf(number, sizeof number, "%zu", line->count);
        if (exact || line->relative > 0) {
            snprintf(max_abs, sizeof max_abs, "%.3g", line->max_abs);
            snprintf(relative, sizeof relative, "%.5f", line->relative);
        }
        if (isfinite(line->sqnr))
            snprintf(sqnr, sizeof sqnr, "%.2f", line->sqnr);
        else if (exact)
            snprintf(sqnr, sizeof sqnr, "exact");
        const char *cells[] = {line->count > 1 ? line->key : line->unit->name, number,
                               shape_text(shape, line->unit), line->unit->format->name, max_abs,
                               relative, sqnr, line->differs ? "differ" : "equal",
                               gain_text(gain, line)};
        tp_table_row(table, cells);
    }
    for (size_t i = 0; i < count; i++)
        free(lines[i].key);
    free(lines);
    return tp_table_end(table);
}

/* Figures leave these values out, and may look as if there were none. */
static void print_nonfinite(const struct tp_verify_report *report)
{
    uint64_t count = 0;
    for (size_t u = 0; u < report->unit_count; u++)
        count += report->units[u].distance.nonfinite;
    if (count)
        printf("%llu values are NaN or infinite, in the source or as stored, and in no figure\n",
               (unsigned long long)count);
}

static void print_counts(const struct tp_options *o, const struct tp_verify_report *report,
                         double seconds)
{
    char bytes[TP_HUMAN], took[TP_HUMAN];
    tp_print_text(stdout, o->arg.item[0]);
    fputs(": ", stdout);
    if (!report->by_tilepack)
        fputs("not written by tilepack: ", stdout);
    if (report->problem_count)
        printf("%s%zu difference%s%s", tp_style("31"), report->problem_count,
               report->problem_count == 1 ? "" : "s", tp_style("0"));
    if (!report->by_tilepack) {
        printf("%s (%zu tensors, %zu of them packed weights), nothing else can be checked\n",
               report->problem_count ? " in its structure" : "its structure is right",
               report->tensors, report->packed);
        return;
    }
    if (!report->problem_count)
        printf("%sno difference%s", tp_style("32"), tp_style("0"));
    printf("; %zu file%s hashed, %s, %zu tensors, %zu packed weights, %zu padded tensors",
           report->hashed, report->hashed == 1 ? "" : "s", tp_human_bytes(bytes, report->bytes),
           report->tensors, report->packed, report->padded);
    if (report->digests)
        printf("; SHA-256 of %zu file%s compared", report->digests,
               report->digests == 1 ? "" : "s");
    if (o->against)
        printf("; %zu weights derived again, %zu tensors compared", report->unit_count,
               report->kept);
    printf("; %s\n", tp_human_seconds(took, seconds));
}

static int print_text(const struct tp_options *o, const struct tp_verify_report *report,
                      double seconds)
{
    int status = TP_OK;
    if (any_measured(report) && !o->quiet) {
        status = print_table(report, o->verbose);
        print_nonfinite(report);
        printf("\n");
    }
    print_problems(report, o->verbose);
    if (!o->quiet || report->problem_count)
        print_counts(o, report, seconds);
    return status;
}

/* ---- the command ----------------------------------------------------------- */

static uint64_t total_bytes(const struct tp_checkpoint *ckpt)
{
    uint64_t bytes = 0;
    for (size_t f = 0; f < ckpt->file_count; f++)
        bytes += ckpt->files[f].size;
    return bytes;
}

static struct tp_progress *start_progress(const struct tp_options *o, const char *verb,
                                          uint64_t total, struct tp_verify_options *options)
{
    struct tp_progress *progress = tp_progress_start(o, verb, total);
    options->progress = progress ? tp_progress_add : NULL;
    options->progress_arg = progress;
    return progress;
}

static enum tp_code against(const struct tp_options *o, const struct tp_source *stored,
                            struct tp_verify_options *options, struct tp_verify_report *report,
                            struct tp_err *err)
{
    struct tp_source source;
    enum tp_code code = tp_source_open(o->against, 0, &source, err);
    if (code)
        return code;
    struct tp_side a = {.ckpt = &stored->ckpt, .weights = &stored->weights};
    struct tp_side b = {.ckpt = &source.ckpt, .weights = &source.weights};
    struct tp_progress *progress = start_progress(o, "verify", 0, options);
    options->total = progress ? tp_progress_total : NULL;
    code = tp_verify_against(&a, &b, options, report, err);
    tp_progress_end(progress);
    tp_source_close(&source);
    return code;
}

static void warn_notes(const struct tp_verify_report *report)
{
    for (size_t i = 0; i < report->note_count; i++)
        tp_warn("%s %s; --strict would refuse it", report->notes[i].file, report->notes[i].what);
}

static int print_report(const struct tp_options *o, const struct tp_verify_report *report,
                        double seconds)
{
    warn_notes(report);
    if (report->device[0])
        tp_note("device: %s", report->device);
    int status = o->json ? print_json(o, report, seconds) : print_text(o, report, seconds);
    return status == TP_OK && report->problem_count ? TP_E_DIFF : status;
}

int tp_cmd_verify(const struct tp_options *o)
{
    struct tp_source stored = {0};
    struct tp_verify_report report = {0};
    struct tp_err err = {0};
    double start = tp_now();
    struct tp_verify_options options = {.jobs = o->jobs, .strict = o->strict,
                                        .importance = o->importance, .device = o->device,
                                        .stop = tp_catch_signals()};
    if (o->against && tp_devices_check(o->device, &err))
        return tp_report_error(&err);
    if (tp_checkpoint_open(o->arg.item[0], 0, &stored.ckpt, &err))
        return tp_report_error(&err);
    struct tp_progress *progress = start_progress(o, "verify", total_bytes(&stored.ckpt), &options);
    enum tp_code code = tp_verify(&stored.ckpt, &stored.weights, &options, &report, &err);
    tp_progress_end(progress);
    if (code == TP_OK)
        tp_say_unknown(&stored.weights);
    /* With wrong bytes in hand the weights may not be known: nothing to derive. */
    if (code == TP_OK && o->against && (stored.weights.items || !report.problem_count))
        code = against(o, &stored, &options, &report, &err);
    int status;
    if (code) {
        tp_err_path(&err, o->arg.item[0]);
        if (!o->json)
            print_problems(&report, o->verbose);
        status = tp_report_error(&err);
    } else {
        status = print_report(o, &report, tp_now() - start);
    }
    tp_verify_report_close(&report);
    tp_source_close(&stored);
    return status;
}
