/* `tilepack merge`: the parts of a conversion become one output. */
#include "cli/cmd.h"
#include "cli/human.h"
#include "cli/plan_memory.h"
#include "cli/report.h"
#include "cli/session.h"
#include "pack/check/estimate_card.h"
#include "pack/commit/parts.h"
#include "pack/os/os.h"
#include "pack/plan/ranks.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int print_result(const struct tp_options *o, const char *output, bool already_done,
                        const struct tp_convert_result *result, unsigned parts)
{
    char out[TP_HUMAN];
    if (o->json)
        return tp_json_result(tp_str("output", output), tp_bool("already_done", already_done),
                              tp_num("parts", parts), tp_num("shards", result->shards),
                              tp_num("bytes_out", result->bytes_out));
    if (!tp_report_new(output, already_done, "its parts are gone, and it has a manifest"))
        return TP_OK;
    tp_print_text(stdout, output);
    printf(": %u part%s, %zu shard%s, %s\n", parts, parts == 1 ? "" : "s", result->shards,
           result->shards == 1 ? "" : "s", tp_human_bytes(out, result->bytes_out));
    return TP_OK;
}

static enum tp_code merge_plan(const struct tp_plan *plan, const struct tp_request *request,
                               const struct tp_parts *parts, const char *output,
                               struct tp_convert_options options,
                               struct tp_convert_result *result, struct tp_err *err)
{
    struct tp_ranks ranks;
    enum tp_code code;
    if (!parts->ranks)
        return tp_merge(plan, request, parts, output, &options, result, err);
    if ((code = tp_ranks_make(plan, request, parts->ranks, &ranks, err)))
        return code;
    options.ranks = &ranks;
    code = tp_merge(plan, request, parts, output, &options, result, err);
    tp_ranks_close(&ranks);
    return code;
}

/* Makes the parts' plan again and commits it. */
static enum tp_code merge(const struct tp_options *o, const struct tp_parts *parts,
                          const char *output, struct tp_convert_result *result,
                          struct tp_err *err)
{
    struct tp_convert_options options = {.force = o->force, .run = {.jobs = o->jobs},
                                         .errors = tp_estimate_card};
    struct tp_request request;
    struct tp_source source;
    struct tp_plan plan;
    const char *path = o->source ? o->source : parts->source;
    enum tp_code code = tp_request_parse(parts->request, &request, err);
    if (code)
        return code;
    if ((code = tp_source_open_limited(o, path, &request, &source, err)) == TP_OK) {
        if (o->importance)
            code = tp_request_importance(&request, o->importance, err);
        if (code == TP_OK &&
            (code = tp_plan_convert(&source.ckpt, &source.weights, &request, NULL, &plan,
                                    err)) == TP_OK) {
            tp_os_limit_heap(0, 0);
            code = merge_plan(&plan, &request, parts, output, options, result, err);
            if (result->unlocked)
                tp_warn_unlocked(output);
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
    tp_os_limit_heap(o->max_memory - TP_OS_PROGRAM_BYTES, 0); /* notes are not trusted */
    if (!output || tp_parts_read(output, o->force, &parts, &err))
        status = tp_report_error(&err);
    else if (!parts.already_done && merge(o, &parts, output, &result, &err))
        status = tp_report_error(&err);
    else
        status = print_result(o, output, parts.already_done, &result, parts.count);
    tp_parts_close(&parts);
    free(output);
    return status;
}
