/* `tilepack merge`: the parts of a conversion become one output. */
#include "cli/cmd.h"
#include "cli/human.h"
#include "cli/lost_report.h"
#include "cli/outcome.h"
#include "cli/report.h"
#include "cli/session.h"
#include "pack/commit/parts.h"
#include "pack/os/os.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print_result(const struct tp_options *o, const char *output,
                        const struct tp_parts *all, const struct tp_convert_result *result)
{
    char out[TP_HUMAN];
    unsigned parts = all->count ? all->items[0].share.count : 0;
    if (o->json && (result->skipped || all->already_done))
        return tp_outcome_json(output, result);
    if (o->json) {
        struct tp_writer w;
        tp_json_open(&w);
        tp_write(&w, tp_str("output", output), tp_bool("already_done", result->already_done),
                 tp_num("parts", parts), tp_num("shards", result->shards),
                 tp_num("bytes_out", result->bytes_out));
        tp_outcome_put(&w, result);
        return tp_json_close(&w);
    }
    if (all->already_done && !result->skipped)
        return tp_report_there(output, "is complete already: its parts are gone, and it has a "
                                       "manifest"), TP_OK;
    if (!tp_outcome_is_new(output, result))
        return TP_OK;
    tp_print_text(stdout, output);
    printf(": %u part%s, %zu shard%s, %s\n", parts, parts == 1 ? "" : "s", result->shards,
           result->shards == 1 ? "" : "s", tp_human_bytes(out, result->bytes_out));
    return TP_OK;
}

/* There are no parts, but an output. */
static enum tp_code find_merged(const struct tp_options *o, const struct tp_parts *parts,
                                const char *output, struct tp_convert_result *result,
                                struct tp_err *err)
{
    enum tp_if_exists wanted;
    if (tp_outcome_wanted(o, &wanted, err))
        return err->code;
    result->already_done = true;
    result->skipped = wanted == TP_EXISTS_SKIP;
    result->reason = parts->reason;
    if (wanted != TP_EXISTS_FAIL)
        return TP_OK;
    err->reason = parts->reason;
    return tp_refuse_at(err, TP_E_EXISTS, output, "without --if-exists it is done",
                        "the output exists already, and its parts are gone");
}

/* Makes the parts' plan again and commits it. */
static enum tp_code merge(const struct tp_options *o, const struct tp_parts *parts,
                          const char *output, struct tp_convert_result *result,
                          struct tp_err *err)
{
    struct tp_convert_options options = {
        .errors = tp_lost_estimate,
        .run = {.jobs = o->jobs, .memory = o->max_memory, .stop = tp_catch_signals()}};
    struct tp_request request;
    struct tp_source source;
    struct tp_plan plan;
    const char *path = o->source ? o->source : parts->items[0].source;
    if (tp_outcome_wanted(o, &options.if_exists, err))
        return err->code;
    if (!*path)
        return tp_refuse(err, TP_E_USAGE, "--source names the source",
                         "the parts do not say where their source is, as its path is not UTF-8");
    enum tp_code code = tp_request_parse(parts->items[0].request, &request, err);
    if (code)
        return code;
    options.run.keep_nonfinite = request.keep_nonfinite;
    code = tp_source_open_as(path, o, &request.models, &source, err);
    if (code == TP_OK) {
        if (o->importance)
            code = tp_request_importance(&request, o->importance, err);
        if (code == TP_OK &&
            (code = tp_plan_convert(&source.ckpt, &source.weights, &request, NULL, &plan,
                                    err)) == TP_OK) {
            tp_os_limit_heap(0);
            code = tp_merge(&plan, &request, parts, output, &options, result, err);
            tp_outcome_say(output, result);
            if (code == TP_OK && !result->already_done && result->resumed < result->shards)
                tp_warn("%s: %zu of %zu shards were not what the parts had written: they have been "
                        "made again", output, result->shards - result->resumed, result->shards);
            tp_plan_close(&plan);
        }
        tp_source_close(&source);
    } else if (!o->source && err->sys == ENOENT) {
        err->hint[0] = '\0';
        tp_err_hint(err, "--source names the source if it has moved");
    }
    tp_request_close(&request);
    return code;
}

int tp_cmd_merge(const struct tp_options *o)
{
    struct tp_err err = {0};
    struct tp_parts parts = {0};
    struct tp_convert_result result = {0};
    int status;
    char *output = tp_output_path(o->arg.item[0], &err);
    tp_limit_memory(o); /* parts are not trusted */
    if (!output || tp_parts_read(output, &parts, &err))
        status = tp_report_error(&err);
    else if ((parts.already_done ? find_merged : merge)(o, &parts, output, &result, &err))
        status = tp_report_error(&err);
    else
        status = print_result(o, output, &parts, &result);
    tp_convert_result_close(&result);
    tp_parts_close(&parts);
    free(output);
    return status;
}
