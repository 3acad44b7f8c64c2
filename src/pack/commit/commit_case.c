/* A file system that does not tell upper from lower case would hold one of two files whose
 * names differ in nothing else: the copy of `Config.json` in place of the config that was made.
 * Such an output is refused before its first byte; elsewhere it is written as it is.
 */
#include "pack/commit/commit_build.h"

#include "pack/os/os.h"
#include "pack/plan/alike.h"

#include <stdlib.h>
#include <string.h>

/* The name with its letters a-z in the other case. */
static void swap_case(char *name)
{
    for (; *name; name++)
        if ((*name >= 'a' && *name <= 'z') || (*name >= 'A' && *name <= 'Z'))
            *name ^= 'a' ^ 'A';
}

/* Whether the partial directory is there under its name in the other case, too: what it holds
 * is then told apart no better. Its name has letters, those of ".partial". */
static enum tp_code folds(const struct tp_commit *c, bool *does)
{
    struct stat as_is, swapped;
    char *other = tp_os_format(c->err, "%s", c->partial);
    if (!other)
        return TP_E_MEMORY;
    char *slash = strrchr(other, '/');
    swap_case(slash ? slash + 1 : other);
    *does = tp_os.lstat(c->partial, &as_is) == 0 && tp_os.lstat(other, &swapped) == 0 &&
            as_is.st_dev == swapped.st_dev && as_is.st_ino == swapped.st_ino;
    free(other);
    return TP_OK;
}

enum tp_code tp_commit_check_case(const struct tp_commit *c)
{
    const char *pair[2];
    size_t pairs;
    bool one = false;
    enum tp_code code = tp_plan_alike(c->plan, pair, &pairs, c->err);
    if (code || !pairs || (code = folds(c, &one)) || !one)
        return code;
    tp_err_path(c->err, c->output);
    tp_err_hint(c->err, "rename or remove one of them in the source, or choose an output on "
                        "another file system");
    return tp_fail(c->err, TP_E_UNSUPPORTED, "its file system cannot hold both '%.200s' and "
                   "'%.200s', which differ in case only", pair[0], pair[1]);
}
