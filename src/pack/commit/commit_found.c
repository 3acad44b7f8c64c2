/* What is said of what is in the place of an output: a word for programs, and a sentence. Looks at
 * nothing: commit_again.c and commit_output.c have done that.
 */
#include "pack/commit/commit_build.h"

/* tilepack-convert(1) says what each means. */
const char *tp_found_reason(enum tp_found found)
{
    static const char *const reasons[] = {
        [TP_FOUND_SAME] = "same",
        [TP_FOUND_AGAIN] = "read-again",
        [TP_FOUND_MERGED] = "merged",
        [TP_FOUND_UNREAD] = "source-unread",
        [TP_FOUND_MAYBE] = "source-maybe",
        [TP_FOUND_SOURCE] = "source",
        [TP_FOUND_FORMAT] = "format",
        [TP_FOUND_OPTIONS] = "options",
        [TP_FOUND_VERSION] = "version",
        [TP_FOUND_INCOMPLETE] = "incomplete",
        [TP_FOUND_FOREIGN] = "foreign",
        [TP_FOUND_FILE] = "file",
        [TP_FOUND_KIND] = "kind",
        [TP_FOUND_UNFINISHED] = "unfinished",
        [TP_FOUND_LATE] = "late",
        [TP_FOUND_OLD] = "old",
        [TP_FOUND_PART] = "part",
    };
    return reasons[found];
}

static enum tp_code fail_incomplete(struct tp_err *err, const char *there, const char *lacks)
{
    if (*lacks)
        return tp_fail(err, TP_E_EXISTS, "%s, and is not complete: '%s' is not there, or of "
                       "another size", there, lacks);
    return tp_fail(err, TP_E_EXISTS, "%s, and is not complete: its manifest is not as it was "
                   "written", there);
}

enum tp_code tp_commit_fail_found(const struct tp_commit *c, const struct tp_look *look)
{
    static const char there[] = "the output exists already";
    struct tp_err *err = c->err;
    err->reason = tp_found_reason(look->found);
    tp_err_path(err, c->output);
    if (look->found == TP_FOUND_UNREAD)
        tp_err_hint(err, "without --if-exists the source is read and compared; --force replaces "
                         "the output once the new one is complete");
    else if (look->found == TP_FOUND_LATE)
        tp_err_hint(err, "it came while this one was written, which is not kept: move it away and "
                         "run the command again");
    tp_err_hint(err, "--if-exists skip leaves it as it is; --force replaces it once the new output "
                     "is complete");
    switch (look->found) {
    case TP_FOUND_SAME:
    case TP_FOUND_AGAIN:
        return tp_fail(err, TP_E_EXISTS, "%s, and is this one", there);
    case TP_FOUND_UNREAD:
        return tp_fail(err, TP_E_EXISTS, "%s, and the source may have changed since: its files are "
                       "others, or newer, and were not read", there);
    case TP_FOUND_MAYBE:
        return tp_fail(err, TP_E_EXISTS, "%s, and the source may have changed since: its files are "
                       "others, or newer, and the manifest has no sum of all their data", there);
    case TP_FOUND_SOURCE:
        return tp_fail(err, TP_E_EXISTS, "%s, and the source has changed since", there);
    case TP_FOUND_FORMAT:
        return tp_fail(err, TP_E_EXISTS, "%s, in another format: %s", there, look->detail);
    case TP_FOUND_OPTIONS:
        return tp_fail(err, TP_E_EXISTS, "%s, made with other options", there);
    case TP_FOUND_VERSION:
        return tp_fail(err, TP_E_EXISTS, "%s, made by another version of tilepack, or with another "
                       "config.json", there);
    case TP_FOUND_INCOMPLETE:
        return fail_incomplete(err, there, look->detail);
    case TP_FOUND_FOREIGN:
        return tp_fail(err, TP_E_EXISTS, "%s, and is none of tilepack's", there);
    case TP_FOUND_FILE:
        return tp_fail(err, TP_E_EXISTS, "%s, and a single file has no manifest that says what it "
                       "was made of", there);
    default: /* those of which others speak */
        return tp_fail(err, TP_E_EXISTS, "%s", there);
    }
}
