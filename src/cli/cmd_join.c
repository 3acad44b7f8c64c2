/* `tilepack join`: the slices of all ranks become one checkpoint again. */
#include "cli/cmd.h"
#include "cli/escape.h"
#include "cli/human.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/session.h"
#include "pack/commit/join.h"
#include "pack/run/run.h"

#include <stdio.h>
#include <stdlib.h>

static int print_result(const struct tp_options *o, const struct tp_join *join,
                        const char *output, const struct tp_convert_result *result)
{
    const struct tp_plan *plan = tp_join_plan(join);
    char bytes[TP_HUMAN];
    if (o->json)
        return tp_json_print(json_pack("{s:o,s:b,s:I,s:I,s:I,s:I,s:I}", "output",
                                       tp_json_text(output), "already_done",
                                       result->already_done, "ranks",
                                       (json_int_t)tp_join_ranks(join), "joined",
                                       (json_int_t)plan->unit_count, "bytes_out",
                                       (json_int_t)plan->bytes_out, "shards",
                                       (json_int_t)plan->file_count, "shards_resumed",
                                       (json_int_t)result->resumed));
    if (!tp_report_new(output, result->already_done, TP_LOOKED_AT))
        return TP_OK;
    tp_print_text(stdout, output);
    printf(": %zu weights joined from %u ranks, %s\n", plan->unit_count, tp_join_ranks(join),
           tp_human_bytes(bytes, plan->bytes_out));
    return TP_OK;
}

static int join(const struct tp_options *o, const char *output)
{
    struct tp_err err = {0};
    struct tp_join *made = NULL;
    struct tp_convert_result result;
    tp_limit_memory(o);
    if (tp_join_open(o->arg.item[0], tp_source_flags(o), &made, &err))
        return tp_report_error(&err);
    if (tp_join_unchecked(made))
        tp_warn_unchecked(o->arg.item[0]);
    struct tp_progress *progress =
        tp_progress_start(o, "join", tp_run_work(tp_join_plan(made), NULL));
    struct tp_convert_options options = {
        .force = o->force,
        .run = {.jobs = o->jobs, .stop = tp_catch_signals(),
                .keep_nonfinite = true,
                .progress = progress ? tp_progress_add : NULL, .progress_arg = progress},
    };
    tp_limit_work(o, &options.run);
    enum tp_code code = tp_join_run(made, output, &options, &result, &err);
    if (code == TP_OK && result.already_done)
        tp_progress_complete(progress);
    tp_progress_end(progress);
    if (result.unlocked)
        tp_warn_unlocked(output);
    int status = code ? tp_report_error(&err)
                      : print_result(o, made, tp_output_shown(o->output, output), &result);
    tp_join_close(made);
    return status;
}

int tp_cmd_join(const struct tp_options *o)
{
    struct tp_err err = {0};
    if (tp_output_file(o->output)) {
        tp_err_hint(&err, "name a directory with -o");
        tp_fail(&err, TP_E_USAGE, "the whole is a directory, as its ranks are");
        return tp_report_usage("join", &err);
    }
    char *output = tp_output_path(o->output, &err);
    int status = output ? join(o, output) : tp_report_error(&err);
    free(output);
    return status;
}
