/* `tilepack verify`: runs the checks and prints what they found. Every difference
 * is a line of its own on stdout, the summary the last one. */
#include "cli/cmd.h"
#include "cli/fold.h"
#include "cli/human.h"
#include "cli/lost_report.h"
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

static void put_problem(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_problem *problem = &((const struct tp_problem *)of)[i];
    tp_object(w, NULL, tp_if(problem->file, tp_str("file", problem->file)),
              tp_if(problem->tensor, tp_str("tensor", problem->tensor)),
              tp_str("what", problem->what));
}

/* Not what is plain, restored by unpack or as a bias of a format that has none. */
static bool is_measured(const struct tp_unit_result *unit)
{
    return unit->format != NULL;
}

static void put_weight(struct tp_writer *w, size_t i, const void *of)
{
    const struct tp_unit_result *unit = &((const struct tp_verify_report *)of)->units[i];
    if (!is_measured(unit))
        return;
    double relative = tp_distance_relative(&unit->distance);
    tp_begin(w, NULL, '{');
    tp_write(w, tp_str("name", unit->name), tp_box("box", &unit->box),
             tp_num("rank", (uint64_t)unit->rank), tp_str("format", unit->format->name),
             tp_bool("equal", !unit->differs),
             tp_real("max_abs", isnan(relative) ? relative : unit->distance.max_abs),
             tp_real("relative", relative),
             tp_real("sqnr_db", tp_distance_sqnr(&unit->distance)),
             tp_num("nonfinite", unit->distance.nonfinite),
             tp_real("lost", tp_distance_lost(&unit->distance)));
    if (unit->search != TP_SEARCH_NONE)
        tp_search_put(w, unit);
    tp_end(w, '}');
}

static int print_json(const struct tp_options *o, const struct tp_verify_report *report,
                      double seconds)
{
    return tp_json_result(
        tp_str("path", o->arg.item[0]), tp_bool("ok", !report->problem_count),
        tp_bool("by_tilepack", report->by_tilepack), tp_num("shards", report->shards),
        tp_num("tensors", report->tensors), tp_num("packed", report->packed),
        tp_num("hashed", report->hashed), tp_num("padded", report->padded),
        tp_num("bytes", report->bytes), tp_real("seconds", seconds),
        tp_list("problems", report->problem_count, put_problem, report->problems),
        tp_if(report->note_count, tp_list("notes", report->note_count, put_problem, report->notes)),
        tp_if(report->digests, tp_num("digests", report->digests)),
        tp_if(o->against, tp_str("against", o->against)),
        tp_if(o->against, tp_num("kept", report->kept)),
        tp_if(o->against, tp_list("weights", report->unit_count, put_weight, report)));
}

/* ---- text ------------------------------------------------------------------ */

enum { SHOWN = 50 }; /* differences printed without --verbose */

static void print_problems(const struct tp_verify_report *report, bool all)
{
    size_t shown = all || report->problem_count <= SHOWN ? report->problem_count : SHOWN;
    for (size_t i = 0; i < shown; i++) {
        const struct tp_problem *problem = &report->problems[i];
        printf("%s", tp_style("31"));
        tp_print_place(stdout, problem->file, problem->tensor);
        tp_print_text(stdout, problem->what);
        printf("%s\n", tp_style("0"));
    }
    if (shown < report->problem_count)
        printf("and %zu more (--verbose lists all)\n", report->problem_count - shown);
}

static bool is_same(const void *of, size_t a, size_t b)
{
    const struct tp_unit_result *x = &((const struct tp_verify_report *)of)->units[a];
    const struct tp_unit_result *y = &((const struct tp_verify_report *)of)->units[b];
    return x->format == y->format && x->rank == y->rank && x->search == y->search &&
           x->weighted == y->weighted && memcmp(&x->box, &y->box, sizeof x->box) == 0 &&
           x->differs == y->differs;
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

static void take_up(struct tp_lines *lines, const struct tp_verify_report *report, size_t u)
{
    const struct tp_unit_result *unit = &report->units[u];
    struct tp_line *line = tp_lines_add(lines, unit->name, report, u, is_same);
    if (!line)
        return;
    tp_line_measured(line, &unit->distance);
    if (unit->search != TP_SEARCH_NONE) /* fmin() of NAN and a number is the number */
        line->gain = fmin(line->gain, tp_search_gain(&unit->distance, &unit->none));
    if (unit->weighted)
        line->weighted_gain = fmin(line->weighted_gain, tp_search_gain(&unit->weighted_distance,
                                                                       &unit->weighted_none));
}

static void put_line(struct tp_writer *w, const struct tp_line *line, const void *of)
{
    const struct tp_unit_result *unit =
        &((const struct tp_verify_report *)of)->units[line->first];
    const bool exact = line->relative == 0 && !line->unknown && isinf(line->sqnr);
    char shape[TP_SHAPE_TEXT];
    tp_write(w, tp_str("shape", tp_box_text(shape, &unit->box, unit->rank)),
             tp_str("format", unit->format->name),
             exact ? tp_str("sqnr_db", "exact") : tp_real("sqnr_db", line->sqnr),
             tp_str("bytes", unit->differs ? "differ" : "equal"));
    tp_cellf(w, "lost", "%.2f", 100 * line->lost);
    tp_cellf(w, "gain", isnan(line->gain) ? "-" : isnan(line->weighted_gain) ? "%+.2f"
             : "%+.2f (%+.2f weighted)", line->gain, line->weighted_gain);
}

static int print_table(const struct tp_verify_report *report, bool all)
{
    static const struct tp_field fields[] = {
        {"weight", "name", TP_CUT}, {"count", "count", TP_RIGHT}, {"shape", "shape", TP_LEFT},
        {"format", "format", TP_LEFT}, {"max abs", "max_abs %.3g", TP_RIGHT},
        {"relative", "relative %.5f", TP_RIGHT}, {"SQNR dB", "sqnr_db %.2f", TP_RIGHT},
        {"lost %", "lost", TP_RIGHT}, {"bytes", "bytes", TP_LEFT},
        {"search gains dB", "gain", TP_LEFT}};
    struct tp_lines lines = {.fold = !all};
    for (size_t u = 0; u < report->unit_count; u++)
        if (is_measured(&report->units[u]))
            take_up(&lines, report, u);
    return tp_lines_print(&lines, fields, sizeof fields / sizeof *fields - !any_search(report),
                          put_line, report);
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
    const size_t found = report->problem_count - (!report->by_tilepack && o->strict);
    tp_print_text(stdout, o->arg.item[0]);
    fputs(": ", stdout);
    if (!report->by_tilepack)
        fputs("not written by tilepack: ", stdout);
    if (found)
        printf("%s%zu difference%s%s", tp_style("31"), found, found == 1 ? "" : "s", tp_style("0"));
    if (!report->by_tilepack) {
        printf("%s (%zu tensors, %zu of them packed weights), nothing else can be checked\n",
               found ? " in its structure" : "its structure is right",
               report->tensors, report->packed);
        return;
    }
    if (!found)
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
    enum tp_code code = tp_source_open(o->against, NULL, &source, err);
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
    tp_lost_warn(report->units, report->unit_count);
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
