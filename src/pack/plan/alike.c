/* Finding names that differ in case only. Other letters than a-z are not looked at: which of
 * them a file system folds, and how, is its own.
 */
#include "pack/plan/alike.h"

#include "pack/os/os.h"
#include "pack/plan/config.h"
#include "pack/source/index.h"

#include <stdlib.h>
#include <string.h>

/* A slash comes first, so that what is in a folder follows a file of the folder's name. */
static int lower(char c)
{
    if (c == '/')
        return 1;
    return c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : (unsigned char)c;
}

static int without_case(const void *a, const void *b)
{
    const char *x = *(const char *const *)a, *y = *(const char *const *)b;
    while (*x && lower(*x) == lower(*y))
        x++, y++;
    return lower(*x) - lower(*y);
}

/* Names that are alike stand together, in the same order always. */
static int by_name(const void *a, const void *b)
{
    int order = without_case(a, b);
    return order ? order : strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Whether a comes in the place of b, or of a folder in which b is. */
static bool in_place_of(const char *a, const char *b)
{
    while (*a && lower(*a) == lower(*b))
        a++, b++;
    return !*a && (!*b || *b == '/');
}

enum tp_code tp_plan_alike(const struct tp_plan *plan, const char *pair[2], size_t *pairs,
                           struct tp_err *err)
{
    static const char *const made[] = {TP_INDEX_NAME, "config.json", "tilepack.json"};
    enum { MADE = sizeof made / sizeof *made };
    size_t count = 0, most = plan->file_count + plan->ckpt->other_count + MADE + 1;
    bool card = plan->unit_count > 0; /* is made, in place of that of the source */
    pair[0] = pair[1] = NULL;
    *pairs = 0;
    if (plan->single_file)
        return TP_OK;
    const char **names = tp_os_zalloc(most, sizeof *names, err);
    if (!names)
        return TP_E_MEMORY;
    for (size_t i = 0; i < MADE; i++)
        names[count++] = made[i];
    for (size_t f = 0; f < plan->file_count; f++)
        names[count++] = plan->files[f].name;
    for (size_t i = 0; i < plan->ckpt->other_count; i++)
        if (!tp_config_leaves_out(plan, plan->ckpt->others[i])) {
            names[count++] = plan->ckpt->others[i];
            card = card && strcmp(plan->ckpt->others[i], "README.md") != 0;
        }
    if (card)
        names[count++] = "README.md";
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 1; i < count; i++)
        if (in_place_of(names[i - 1], names[i]) && !(*pairs)++) {
            pair[0] = names[i - 1];
            pair[1] = names[i];
        }
    free(names);
    return TP_OK;
}
