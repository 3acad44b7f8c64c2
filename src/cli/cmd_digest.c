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
        return tp_json_result(tp_str("path", o->arg.item[0]), tp_str("sha256", digest.sha256),
                              tp_num("files", digest.files), tp_num("bytes", digest.bytes));
    printf("sha256:%s\n", digest.sha256);
    return TP_OK;
}
