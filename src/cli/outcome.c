/* Outcomes in words. Looks at nothing: commit has done that. */
#include "cli/outcome.h"

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
    if (!o->force || *wanted == TP_EXISTS_REPLACE)
        return TP_OK;
    return tp_refuse(err, TP_E_USAGE, "give one of the two",
                     "--force is --if-exists replace, and not %s", word);
}

void tp_outcome_say(const char *output, const struct tp_convert_result *result)
{
    if (result->unlocked)
        tp_warn("%s: its file system gives no locks: nothing keeps a second tilepack from writing "
                "it at the same time", output);
    if (result->old)
        tp_say("what was replaced is kept as %s: %s", result->old, result->old_why);
}

void tp_outcome_put(struct tp_writer *w, const struct tp_convert_result *result)
{
    bool there = result->already_done || result->skipped;
    tp_write(w, tp_str("kind", result->skipped        ? "skipped"
                               : result->already_done ? "done"
                                                      : "written"),
             tp_if(there, tp_str("reason", result->reason ? result->reason : "same")),
             tp_if(result->old, tp_str("old", result->old)));
}

int tp_outcome_json(const char *output, const struct tp_convert_result *result)
{
    struct tp_writer w;
    tp_json_open(&w);
    tp_write(&w, tp_str("output", output), tp_bool("already_done", result->already_done));
    tp_outcome_put(&w, result);
    return tp_json_close(&w);
}

bool tp_outcome_is_new(const char *output, const struct tp_convert_result *result)
{
    bool again = result->reason && strcmp(result->reason, "read-again") == 0;
    if (result->skipped)
        return tp_report_there(output, "exists already, and is left as it is");
    if (result->already_done && again)
        return tp_report_there(output, "is complete already; source read again: the same");
    if (result->already_done)
        return tp_report_there(output, "is complete already: this command made it, and no file "
                                       "of the source has changed since ('tilepack verify' checks "
                                       "it)");
    return tp_report_there(output, NULL);
}
