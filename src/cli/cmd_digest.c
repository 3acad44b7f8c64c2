/* `tilepack digest`: one line for everything in a directory, to be signed and compared. */
#include "cli/cmd.h"
#include "cli/report.h"
#include "cli/session.h"
#include "pack/check/digest.h"

#include <stdio.h>

int tp_cmd_digest(const struct tp_options *o)
{
    struct tp_digest digest;
    struct tp_err err = {0};
    if (tp_digest_path(o->arg.item[0], o->jobs, tp_catch_signals(), &digest, &err))
        return tp_report_error(&err);
    if (o->json)
        return tp_json_print(json_pack("{s:o,s:s,s:I,s:I}", "path",
                                       tp_json_text(o->arg.item[0]), "sha256",
                                       digest.sha256, "files", (json_int_t)digest.files, "bytes",
                                       (json_int_t)digest.bytes));
    printf("sha256:%s\n", digest.sha256);
    return TP_OK;
}
