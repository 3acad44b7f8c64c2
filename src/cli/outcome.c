/* Outcomes in words. Looks at nothing: commit has done that. */
#include "cli/outcome.h"

#include "cli/escape.h"
#include "cli/report.h"

#include <stdio.h>
#include <string.h>

enum tp_code tp_outcome_wanted(const struct tp_options *o, enum tp_if_exists *wanted,
                               struct tp_err *err)
{
    const char *word = o->if_exists ? o->if_exists : o->force ? "replace" : "";
    *wanted = strcmp(word, "skip") == 0      ? TP_EXISTS_SKIP
              : strcmp(word, "fail") == 0    ? TP_EXISTS_FAIL
              : strcmp(word, "replace") == 0 ? TP_EXISTS_REPLACE
                                             : TP_EXISTS_COMPARE;
    return !o->force || *wanted == TP_EXISTS_REPLACE
               ? TP_OK : tp_fail(err, TP_E_USAGE, "--force is --if-exists replace, and not %s", word);
}

void tp_outcome_say_old(const struct tp_convert_result *result)
{
    if (result->old)
        tp_say("what was replaced is kept as %s: %s", result->old, result->old_why);
}

void tp_outcome_json(const struct tp_convert_result *result, json_t *json)
{
    bool there = result->already_done || result->skipped;
    json_object_set_new(json, "kind", json_string(result->skipped        ? "skipped"
                                                  : result->already_done ? "done"
                                                                         : "written"));
    if (there)
        json_object_set_new(json, "reason", json_string(result->reason ? result->reason : "same"));
    if (result->old)
        json_object_set_new(json, "old", tp_json_text(result->old));
}

bool tp_outcome_is_new(const char *output, const struct tp_convert_result *result)
{
    bool again = result->reason && strcmp(result->reason, "read-again") == 0;
    if (result->skipped)
        return tp_report_there(output, "exists already, and is left as it is");
    if (result->already_done && again)
        return tp_report_there(output, "is complete already; source read again: the same");
    if (result->already_done)
        return tp_report_there(output, "is complete already: it is of this command, and no file of "
                                       "the source has changed since ('tilepack verify' reads it)");
    return tp_report_there(output, NULL);
}
