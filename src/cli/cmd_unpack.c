/* `tilepack unpack`: plain weights back, or with --to the same codes in the order of
 * another format. Planning and writing are those of convert. */
#include "cli/cmd.h"
#include "cli/exact_report.h"
#include "cli/human.h"
#include "cli/left_plain.h"
#include "cli/measures.h"
#include "cli/outcome.h"
#include "cli/plan_report.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/session.h"
#include "pack/commit/commit.h"
#include "pack/os/clock.h"
#include "pack/os/os.h"
#include "pack/run/run.h"

#include <stdlib.h>
#include <string.h>

static uint64_t shard_size(const struct tp_options *o)
{
    return o->shard_size == TP_UNSET ? 0 : o->shard_size;
}

static enum tp_code make_plan(const struct tp_options *o, const struct tp_source *source,
                              const char *output, struct tp_request *request, struct tp_plan *plan,
                              struct tp_err *err)
{
    const char *file = tp_output_file(output);
    enum tp_dtype dtype = !o->dtype                       ? TP_DTYPE_NONE
                          : strcmp(o->dtype, "bf16") == 0 ? TP_BF16
                                                          : TP_F32;
    request->shard_size = shard_size(o);
    request->restore = !o->to;
    request->dtype = dtype;
    if (!o->to)
        return tp_plan_unpack(&source->ckpt, &source->weights, dtype, request->shard_size, file,
                              plan, err);
    request->strict = request->repack_only = true;
    enum tp_code code = tp_request_to(request, o->to, NULL, 0, err);
    return code ? code : tp_plan_convert(&source->ckpt, &source->weights, request, file, plan, err);
}

/* The stored bytes do mean NaN or infinity; a reader of a weight does not expect that. */
static void warn_nonfinite(const struct tp_plan *plan, const atomic_uint_fast64_t *nonfinite)
{
    for (size_t u = 0; u < plan->unit_count; u++) {
        const struct tp_box3 *box = &plan->units[u].form->box;
        uint64_t count = atomic_load(&nonfinite[u]);
        if (count)
            tp_warn("%s: %llu of %llu values are NaN or infinite", plan->units[u].name,
                    (unsigned long long)count, (unsigned long long)(box->e * box->n * box->k));
    }
}

static enum tp_code carry_out(const struct tp_options *o, const struct tp_plan *plan,
                              const struct tp_request *request, const char *output,
                              struct tp_measures *measures, struct tp_convert_result *result,
                              struct tp_err *err)
{
    struct tp_progress *progress = tp_progress_start(o, "unpack", tp_run_work(plan, NULL));
    struct tp_convert_options options = {0};
    options.run = (struct tp_run_options){
        .jobs = o->jobs,
        .keep_nonfinite = true, /* they were kept when the weights were packed */
        .stop = tp_catch_signals(),
        .progress = progress ? tp_progress_add : NULL,
        .progress_arg = progress,
    };
    tp_limit_work(o, &options.run);
    options.run.nonfinite = tp_os_zalloc(plan->unit_count + 1, sizeof *options.run.nonfinite, err);
    enum tp_code code =
        !options.run.nonfinite                              ? TP_E_MEMORY
        : tp_outcome_wanted(o, &options.if_exists, err) ? err->code
            : tp_measures_open(measures, plan, false, o->json || !o->quiet, &options.run, err);
    if (code == TP_OK)
        code = tp_convert(plan, request, output, &options, result, err);
    if (code == TP_OK && (result->already_done || result->skipped))
        tp_progress_complete(progress);
    tp_progress_end(progress);
    if (code == TP_OK) {
        warn_nonfinite(plan, options.run.nonfinite);
        tp_measures_warn(measures);
    }
    free(options.run.nonfinite);
    tp_outcome_say(output, result);
    return code;
}

static int print_result(const struct tp_options *o, const struct tp_plan *plan, const char *output,
                        const struct tp_measures *measures,
                        const struct tp_convert_result *result, double seconds)
{
    char in[TP_HUMAN], out[TP_HUMAN], took[TP_HUMAN];
    size_t copied = plan->kept_count;
    if (o->json && result->skipped)
        return tp_outcome_json(output, result);
    if (o->json) {
        struct tp_writer w;
        tp_json_open(&w);
        tp_write(&w, tp_str("output", output), tp_bool("already_done", result->already_done),
                 tp_str("to", o->to ? o->to : "plain"), tp_num("weights", plan->unit_count),
                 tp_num("copied", copied), tp_num("bytes_in", plan->bytes_in),
                 tp_num("bytes_out", plan->bytes_out), tp_real("seconds", seconds));
        tp_outcome_put(&w, result);
        tp_exact_put(&w, plan, true);
        tp_measures_put(&w, measures);
        tp_left_plain_put(&w, plan);
        tp_plan_put_left(&w, plan);
        return tp_json_close(&w);
    }
    if (!tp_outcome_is_new(output, result))
        return TP_OK;
    tp_print_text(stdout, output);
    printf(": %zu weights %s%s, %zu tensors copied, %s -> %s in %s\n",
           plan->unit_count, o->to ? "taken over to " : "restored", o->to ? o->to : "", copied,
           tp_human_bytes(in, plan->bytes_in), tp_human_bytes(out, plan->bytes_out),
           tp_human_seconds(took, seconds));
    tp_exact_print(plan, true);
    tp_measures_print(measures);
    tp_left_plain_print(plan);
    return TP_OK;
}

static int unpack(const struct tp_options *o, const struct tp_source *source, const char *output)
{
    struct tp_request request = {0};
    struct tp_plan plan = {0};
    struct tp_convert_result result = {0};
    struct tp_err err = {0};
    double start = tp_now();
    int status = TP_OK;
    enum tp_code code = make_plan(o, source, output, &request, &plan, &err);
    if (code) {
        tp_err_path(&err, source->ckpt.path);
        status = tp_report_error(&err);
    } else {
        if (!plan.unit_count && !plan.kept_unit_count)
            tp_warn("%s holds no packed weight: its tensors are copied", source->ckpt.path);
        tp_plan_warn(&plan);
        tp_plan_warn_left(&plan);
        struct tp_measures measures = {0};
        status = carry_out(o, &plan, &request, output, &measures, &result, &err)
                     ? tp_report_error(&err)
                     : print_result(o, &plan, tp_output_shown(o->output, output), &measures,
                                    &result, tp_now() - start);
        tp_measures_close(&measures);
    }
    tp_convert_result_close(&result);
    tp_plan_close(&plan);
    tp_request_close(&request);
    return status;
}

int tp_cmd_unpack(const struct tp_options *o)
{
    struct tp_err err = {0};
    struct tp_source source;
    if (o->to && o->dtype) {
        tp_fail(&err, TP_E_USAGE, "--to and --dtype exclude each other");
        return tp_report_usage("unpack", &err);
    }
    if (tp_check_single_file(o, &err))
        return tp_report_usage("unpack", &err);
    const struct tp_format *to = NULL;
    if (o->to && tp_format_get(o->to, &to, &err))
        return tp_report_error(&err);
    if (o->to && !to) {
        tp_refuse(&err, TP_E_USAGE, "`tilepack formats` lists them", "there is no format '%s'",
                  o->to);
        return tp_report_usage("unpack", &err);
    }
    char *output = tp_output_path(o->output, &err);
    tp_limit_memory(o);
    if (!output || tp_source_open(o->arg.item[0], o, &source, &err)) {
        free(output);
        return tp_report_error(&err);
    }
    tp_say_unknown(&source.weights);
    int status = unpack(o, &source, output);
    tp_source_close(&source);
    free(output);
    return status;
}
