/* `tilepack join`: the slices of all ranks become one checkpoint again. */
#include "cli/cmd.h"
#include "cli/human.h"
#include "cli/plan_memory.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/session.h"
#include "pack/commit/join.h"
#include "pack/os/os.h"
#include "pack/run/run.h"

#include <stdio.h>
#include <stdlib.h>

static int print_result(const struct tp_options *o, const struct tp_join *join,
                        const char *output, const struct tp_convert_result *result)
{
    const struct tp_plan *plan = tp_join_plan(join);
    char bytes[TP_HUMAN];
    if (o->json)
        return tp_json_result(tp_str("output", output),
                              tp_bool("already_done", result->already_done),
                              tp_num("ranks", tp_join_ranks(join)),
                              tp_num("joined", plan->unit_count),
                              tp_num("bytes_out", plan->bytes_out),
                              tp_num("shards", plan->file_count),
                              tp_num("shards_resumed", result->resumed));
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
    tp_limit_join(o, o->arg.item[0]);
    if (tp_join_open(o->arg.item[0], tp_source_flags(o), &made, &err))
        return tp_report_error(&err);
    tp_os_limit_heap(0, 0); /* the work is divided by pack/run/budget.c */
    if (tp_join_unchecked(made))
        tp_warn_unchecked(o->arg.item[0]);
    struct tp_progress *progress =
        tp_progress_start(o, "join", tp_run_work(tp_join_plan(made), NULL));
    struct tp_convert_options options = {
        .force = o->force,
        .run = {.jobs = o->jobs, .memory = o->max_memory, .stop = tp_catch_signals(),
                .keep_nonfinite = true,
                .progress = progress ? tp_progress_add : NULL, .progress_arg = progress},
    };
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
