/* `tilepack convert` and `tilepack plan` (the same without writing). */
#include "cli/cmd.h"

#include "cli/exact_report.h"
#include "cli/human.h"
#include "cli/left_plain.h"
#include "cli/lost_report.h"
#include "cli/measures.h"
#include "cli/outcome.h"
#include "cli/plan_kept.h"
#include "cli/plan_report.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/search_report.h"
#include "cli/served_report.h"
#include "cli/session.h"
#include "pack/commit/commit.h"
#include "pack/os/clock.h"
#include "pack/os/os.h"
#include "pack/run/device.h"
#include "pack/commit/parts.h"
#include "pack/run/run.h"
#include "pack/text/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct tp_share share_of(const struct tp_options *o)
{
    return (struct tp_share){o->part.index, o->part.count};
}

static int end_json(struct tp_writer *w, const struct tp_plan *plan,
                    const struct tp_measures *measures)
{
    struct tp_kept_sum kept;
    if (tp_measures_searched(measures))
        tp_search_put_means(w, measures->units, measures->unit_count);
    tp_exact_put(w, plan, true);
    tp_measures_put(w, measures);
    tp_kept_find(plan, &kept);
    tp_kept_put(w, plan, &kept);
    tp_left_plain_put(w, plan);
    tp_plan_put_left(w, plan);
    return tp_json_close(w);
}

static void print_measures(const struct tp_measures *measures)
{
    if (measures->units)
        tp_search_print(measures->units, measures->unit_count);
    tp_measures_print(measures);
}

static int print_part(const struct tp_options *o, const struct tp_plan *plan, const char *output,
                      const struct tp_measures *measures,
                      const struct tp_convert_result *result, double seconds)
{
    char in[TP_HUMAN], out[TP_HUMAN], took[TP_HUMAN];
    struct tp_share_work work;
    struct tp_err err = {0};
    if (o->json && result->skipped)
        return tp_outcome_json(output, result);
    if (tp_share_work(plan, share_of(o), &work, &err))
        return tp_report_error(&err);
    if (o->json) {
        const uint64_t part[] = {o->part.index, o->part.count};
        struct tp_writer w;
        tp_json_open(&w);
        tp_write(&w, tp_str("output", output ? output : ""),
                 tp_bool("already_done", result->already_done), tp_numbers("part", part, 2),
                 tp_num("shards", work.shards), tp_num("shards_in_all", plan->file_count),
                 tp_num("shards_resumed", result->resumed), tp_num("bytes_in", work.bytes_in),
                 tp_num("bytes_out", work.bytes_out), tp_real("seconds", seconds));
        tp_outcome_put(&w, result);
        return end_json(&w, plan, measures);
    }
    if (!tp_outcome_is_new(output, result))
        return TP_OK;
    if (!work.shards)
        printf("part %u/%u: nothing to do, the output has only %zu shard%s (a smaller "
               "--shard-size, the same for all parts, makes more)\n", o->part.index,
               o->part.count, plan->file_count, plan->file_count == 1 ? "" : "s");
    else
        printf("part %u/%u: %zu of %zu shards, %s -> %s in %s\n", o->part.index, o->part.count,
               work.shards, plan->file_count, tp_human_bytes(in, work.bytes_in),
               tp_human_bytes(out, work.bytes_out), tp_human_seconds(took, seconds));
    print_measures(measures);
    return TP_OK;
}

static int print_result(const struct tp_options *o, const struct tp_plan *plan, const char *output,
                        const struct tp_measures *measures, const struct tp_convert_result *result,
                        const struct tp_serving *serving, double seconds)
{
    char in[TP_HUMAN], out[TP_HUMAN], took[TP_HUMAN];
    if (o->json && result->skipped)
        return tp_outcome_json(output, result);
    if (o->json) {
        struct tp_writer w;
        tp_json_open(&w);
        tp_write(&w, tp_str("output", output), tp_bool("already_done", result->already_done),
                 tp_num("bytes_in", plan->bytes_in), tp_num("bytes_out", plan->bytes_out),
                 tp_num("converted", plan->unit_count), tp_num("kept", plan->kept_count),
                 tp_real("seconds", seconds), tp_num("shards_resumed", result->resumed));
        tp_serving_put(&w, serving);
        tp_outcome_put(&w, result);
        return end_json(&w, plan, measures);
    }
    if (!tp_outcome_is_new(output, result))
        return TP_OK;
    tp_print_text(stdout, o->discard ? "discarded" : output);
    printf(": %zu weights converted, %zu tensors kept, %s -> %s in %s\n",
           plan->unit_count, plan->kept_count,
           tp_human_bytes(in, plan->bytes_in), tp_human_bytes(out, plan->bytes_out),
           tp_human_seconds(took, seconds));
    tp_exact_print(plan, true);
    print_measures(measures);
    tp_left_plain_print(plan);
    return tp_serving_print_command(serving);
}

static void note_stages(const struct tp_run_stats *stats, double seconds)
{
    char text[200] = "";
    for (int i = 1; i <= TP_STAGES; i++) { /* OTHER, the first one, comes last */
        enum tp_stage stage = (enum tp_stage)(i % TP_STAGES);
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s%s %.3f", used ? ", " : "",
                 tp_stage_name(stage), (double)atomic_load(&stats->ns[stage]) * 1e-9);
    }
    tp_note("seconds of %u workers: %s; %.3f in all", atomic_load(&stats->workers), text,
            seconds);
}

/* What an interrupted run has done already. */
static void say_resumed(void *progress, size_t shards, size_t of, uint64_t bytes)
{
    char text[TP_HUMAN];
    tp_progress_skip(progress, bytes);
    tp_say("going on from an interrupted run: %zu of %zu shards are there (%s of the source)",
           shards, of, tp_human_bytes(text, bytes));
}

/* Bytes that this process is to report as its progress. */
static enum tp_code own_bytes(const struct tp_options *o, const struct tp_plan *plan,
                              uint64_t *bytes, struct tp_err *err)
{
    struct tp_share_work work = {.bytes_in = tp_run_work(plan, NULL)};
    enum tp_code code = o->part.count ? tp_share_work(plan, share_of(o), &work, err) : TP_OK;
    *bytes = work.bytes_in;
    return code;
}

static void set_run(const struct tp_options *o, const struct tp_request *request,
                    struct tp_run_stats *stats, struct tp_progress *progress,
                    struct tp_run_options *run)
{
    run->jobs = o->jobs;
    run->keep_nonfinite = request->keep_nonfinite;
    run->stop = tp_catch_signals();
    run->progress = progress ? tp_progress_add : NULL;
    run->progress_arg = progress;
    run->stats = o->verbose ? stats : NULL;
}

/* The bytes are the rule's, and values may be gone. */
static void warn_lost(const struct tp_lost_globals *lost)
{
    if (lost->count)
        tp_warn("%s%s: the largest value is %.3g, and %s holds no divisor for so small ones: its "
                "global scale is 1, as compressed-tensors has it, and blocks lose bits or all of "
                "their values%s", lost->name, lost->count > 1 ? " and others" : "",
                (double)lost->amax, tp_dtype_name(lost->dtype),
                lost->dtype == TP_F16 ? "; of the model in BF16 they do not" : "");
}

static enum tp_code carry_out(const struct tp_options *o, const struct tp_plan *plan,
                              const struct tp_request *request, const char *output,
                              struct tp_measures *measures, struct tp_convert_result *result,
                              struct tp_err *err)
{
    struct tp_convert_options options = {.discard = o->discard, .resumed = say_resumed,
                                         .errors = tp_lost_estimate};
    if (tp_outcome_wanted(o, &options.if_exists, err))
        return err->code;
    if (output)
        options.zstd = tp_output_zstd(output, o->zstd);
    struct tp_devices devices;
    tp_limit_work(o, &options.run);
    enum tp_code code = tp_devices_choose(o->device, plan, o->jobs, options.run.memory,
                                          o->gpu_memory, &devices, err);
    if (code)
        return code;
    options.run.devices = devices.count ? &devices : NULL;
    tp_note("device: %s", devices.why);
    uint64_t total;
    if ((code = own_bytes(o, plan, &total, err)))
        return code;
    struct tp_progress *progress = tp_progress_start(o, "convert", total);
    struct tp_run_stats stats = {0};
    struct tp_lost_globals lost = {0};
    double start = tp_now();
    set_run(o, request, &stats, progress, &options.run);
    options.run.lost = &lost;
    code = tp_measures_open(measures, plan, request->requantize, o->json || !o->quiet,
                            &options.run, err);
    if (code == TP_OK)
        code = o->part.count
                   ? tp_convert_part(plan, request, output, share_of(o), &options, result, err)
                   : tp_convert(plan, request, output, &options, result, err);
    if (code == TP_OK && (result->already_done || result->skipped))
        tp_progress_complete(progress);
    tp_progress_end(progress);
    tp_outcome_say(output, result);
    if (o->verbose)
        note_stages(&stats, tp_now() - start);
    if (code == TP_OK)
        tp_measures_warn(measures);
    if (code == TP_OK)
        warn_lost(&lost);
    return code;
}

static bool is_dry(const struct tp_options *o)
{
    return o->dry_run || o->command == TP_CMD_PLAN;
}

/* The plan is there: shows it, or does it. */
static int do_plan(const struct tp_options *o, const struct tp_plan *plan,
                   struct tp_request *request, const char *output,
                   const struct tp_serving *serving, double start)
{
    struct tp_convert_result result = {0};
    struct tp_err err = {0};
    struct tp_measures measures = {0};
    const char *shown = tp_output_shown(o->output, output);
    int status = TP_OK;
    if (!is_dry(o))
        tp_plan_warn_left(plan);
    if (is_dry(o)) {
        status = o->json ? tp_plan_print_json(plan, serving) : tp_plan_print(plan, o);
    } else if (carry_out(o, plan, request, output, &measures, &result, &err)) {
        status = tp_report_error(&err);
    } else if (o->part.count) {
        status = print_part(o, plan, shown, &measures, &result, tp_now() - start);
    } else {
        status = print_result(o, plan, shown, &measures, &result, serving, tp_now() - start);
    }
    tp_measures_close(&measures);
    tp_convert_result_close(&result);
    return status;
}

static int plan_and_do(const struct tp_options *o, struct tp_source *source,
                       struct tp_request *request, const char *output)
{
    struct tp_plan plan;
    struct tp_err err = {0};
    double start = tp_now();
    request->outline = is_dry(o) && !o->json;
    enum tp_code code = tp_plan_convert(&source->ckpt, &source->weights, request,
                                        output ? tp_output_file(output) : NULL, &plan, &err);
    if (code) {
        tp_err_path(&err, source->ckpt.path);
        return tp_report_error(&err);
    }
    struct tp_kept_sum kept;
    tp_kept_find(&plan, &kept);
    if (!is_dry(o))
        code = tp_kept_check(&plan, &kept, &err);
    struct tp_serving serving = {.output = output && !is_dry(o) ? tp_output_shown(o->output, output)
                                                                : "DST"};
    if (code == TP_OK && (code = tp_wish_from(o, &serving.wish, &err)) == TP_OK &&
        (code = tp_plan_served(&plan, &serving.wish, &serving.served, &err)) == TP_OK)
        code = tp_served_check(&serving.served, &serving.wish, &err);
    if (o->discard)
        tp_served_close(&serving.served); /* what is not there is not served */
    int status = code ? tp_report_error(&err) : TP_OK;
    if (status == TP_OK) {
        tp_plan_warn(&plan);
        tp_serving_warn(&serving);
        tp_kept_warn(&plan, &kept);
        if (!o->json || !is_dry(o))
            status = tp_serving_print(&serving, !is_dry(o));
    }
    if (status == TP_OK)
        status = do_plan(o, &plan, request, output, &serving, start);
    tp_served_close(&serving.served);
    tp_plan_close(&plan);
    return status;
}

static int with_request(const struct tp_options *o, struct tp_request *request)
{
    struct tp_err err = {0};
    struct tp_source source;
    char *output = o->output ? tp_output_path(o->output, &err) : NULL;
    if (o->output && !output)
        return tp_report_error(&err);
    int status;
    if (tp_source_open_as(o->arg.item[0], o, &request->models, &source, &err)) {
        status = tp_report_error(&err);
    } else {
        status = plan_and_do(o, &source, request, output);
        tp_source_close(&source);
    }
    free(output);
    return status;
}

static enum tp_code read_request(const struct tp_options *o, struct tp_request *request,
                                 struct tp_err *err)
{
    enum tp_code code = tp_request_from(o, request, err);
    if (code)
        return code;
    if ((code = tp_request_importance(request, NULL, err)))
        tp_request_close(request);
    return code;
}

int tp_cmd_convert(const struct tp_options *o)
{
    struct tp_request request = {0};
    struct tp_err err = {0};
    if (tp_check_single_file(o, &err))
        return tp_report_usage(tp_command_rows[o->command].name, &err);
    tp_limit_memory(o);
    if (read_request(o, &request, &err))
        return err.path[0] ? tp_report_error(&err)
                           : tp_report_usage(tp_command_rows[o->command].name, &err);
    int status = with_request(o, &request);
    tp_request_close(&request);
    return status;
}

int tp_cmd_plan(const struct tp_options *o)
{
    return tp_cmd_convert(o);
}
