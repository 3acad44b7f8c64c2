/* Ranks verified together: each by itself, then what puts them together.
 *
 * Invariant: a changed bit of any file that the conversion wrote is a problem.
 */
#include "pack/check/verify_ranks.h"

#include "base/suffix.h"
#include "pack/commit/commit_build.h"
#include "pack/commit/join.h"
#include "pack/os/os.h"
#include "pack/plan/join_plan.h"
#include "pack/plan/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_shard(const char *name)
{
    return tp_ends_with(name, ".safetensors") || tp_ends_with(name, ".safetensors.zst");
}

bool tp_verify_is_ranks(const char *path, struct tp_err *err)
{
    struct stat st;
    struct tp_os_list list = {0};
    char *name = tp_os_format(err, "%s/%s", path, TP_RANKS_NAME);
    bool is = tp_os_there(name, &st, err) && S_ISREG(st.st_mode) &&
              tp_os_list(path, &list, err) == TP_OK;
    for (size_t i = 0; i < list.count; i++)
        is = is && !is_shard(list.names[i]);
    tp_os_list_free(&list);
    free(name);
    return is;
}

enum tp_code tp_verify_count_ranks(const char *path, unsigned *count, struct tp_err *err)
{
    struct tp_join_plan plan;
    enum tp_code code = tp_join_plan_read(path, 0, &plan, err);
    *count = plan.count;
    tp_join_plan_close(&plan);
    return code;
}

static void add_counts(struct tp_verify_report *to, const struct tp_verify_report *rank)
{
    to->shards += rank->shards;
    to->others += rank->others;
    to->tensors += rank->tensors;
    to->packed += rank->packed;
    to->hashed += rank->hashed;
    to->layouts += rank->layouts;
    to->padded += rank->padded;
    to->bytes += rank->bytes;
    to->digests += rank->digests;
    to->kept += rank->kept;
    memcpy(to->device, rank->device, sizeof to->device);
}

static bool same_weights(const struct tp_verify_report *a, const struct tp_verify_report *b)
{
    bool same = a->unit_count == b->unit_count;
    for (size_t u = 0; u < a->unit_count && same; u++)
        same = a->units[u].format == b->units[u].format &&
               strcmp(a->units[u].name, b->units[u].name) == 0;
    return same;
}

/* Each rank gives the figures of the whole weights, which are the same but for what a rank
 * stores otherwise: that is what stays. Units are taken out of *rank. */
static enum tp_code add_weights(struct tp_verify_report *to, struct tp_verify_report *rank,
                                const char *name, struct tp_err *err)
{
    if (!rank->units)
        return TP_OK;
    if (!to->units) {
        to->units = rank->units;
        to->unit_count = rank->unit_count;
        rank->units = NULL;
        rank->unit_count = 0;
        return TP_OK;
    }
    if (!same_weights(to, rank))
        return tp_verify_problem(to, name, NULL, err, "is of another conversion than the ranks "
                                 "before it");
    for (size_t u = 0; u < to->unit_count; u++)
        if (rank->units[u].differs && !to->units[u].differs) {
            struct tp_unit_result swapped = to->units[u];
            to->units[u] = rank->units[u];
            rank->units[u] = swapped;
        }
    return TP_OK;
}

static enum tp_code add_problems(struct tp_verify_report *to, const struct tp_verify_report *rank,
                                 const char *name, struct tp_err *err)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < rank->problem_count && code == TP_OK; i++) {
        const struct tp_problem *problem = &rank->problems[i];
        char *file = tp_os_format(err, "%s%s%s", name, problem->file ? "/" : "",
                                  problem->file ? problem->file : "");
        code = file ? tp_verify_problem(to, file, problem->tensor, err, "%s", problem->what)
                    : TP_E_MEMORY;
        free(file);
    }
    for (size_t i = 0; i < rank->note_count && code == TP_OK; i++) {
        char *file = tp_os_format(err, "%s/%s", name, rank->notes[i].file);
        code = file ? tp_verify_note(to, false, file, rank->notes[i].what, err) : TP_E_MEMORY;
        free(file);
    }
    return code;
}

/* The file that an error is of, as it is called below the directory; else what was looked at. */
static const char *file_of(const struct tp_err *why, const char *directory, const char *name)
{
    size_t size = strlen(directory);
    bool below = strncmp(why->path, directory, size) == 0 && why->path[size] == '/' &&
                 why->path[size + 1];
    return below ? why->path + size + 1 : name;
}

static bool is_reported(const struct tp_verify_report *report, const char *file, const char *what)
{
    for (size_t i = 0; i < report->problem_count; i++)
        if (report->problems[i].file && strcmp(report->problems[i].file, file) == 0 &&
            strcmp(report->problems[i].what, what) == 0)
            return true;
    return false;
}

/* What cannot be read is a difference of the whole; only what is no fault of the files ends
 * the run. */
static enum tp_code as_problem(struct tp_verify_report *report, const char *directory,
                               const char *name, const struct tp_err *why, struct tp_err *err)
{
    if (why->code != TP_E_INPUT && why->code != TP_E_UNSUPPORTED && why->code != TP_E_USAGE) {
        *err = *why;
        return why->code;
    }
    const char *file = file_of(why, directory, name);
    if (is_reported(report, file, why->what)) /* a rank is opened twice */
        return TP_OK;
    return tp_verify_problem(report, file, why->tensor[0] ? why->tensor : NULL, err, "%s",
                             why->what);
}

/* With the rank's own bytes found wrong its weights may not be known: nothing to derive. */
static enum tp_code against(const struct tp_checkpoint *ckpt, const struct tp_weights *weights,
                            const struct tp_side *source, const struct tp_verify_options *options,
                            struct tp_verify_report *own, struct tp_err *err)
{
    struct tp_side stored = {.ckpt = ckpt, .weights = weights};
    if (!source || (!weights->items && own->problem_count))
        return TP_OK;
    return tp_verify_against(&stored, source, options, own, err);
}

static enum tp_code verify_rank(const char *path, const char *name, const struct tp_side *source,
                                const struct tp_verify_options *options,
                                struct tp_verify_report *report, struct tp_err *err)
{
    struct tp_checkpoint ckpt = {0};
    struct tp_weights weights = {0};
    struct tp_verify_report own = {0};
    struct tp_err local = {0};
    char *rank = tp_os_format(err, "%s/%s", path, name);
    if (!rank)
        return TP_E_MEMORY;
    enum tp_code code = tp_checkpoint_open(rank, 0, &ckpt, &local);
    if (code == TP_OK)
        code = tp_verify(&ckpt, &weights, options, &own, &local);
    if (code)
        code = as_problem(report, path, name, &local, err);
    else
        code = against(&ckpt, &weights, source, options, &own, err);
    add_counts(report, &own);
    enum tp_code listed = add_problems(report, &own, name, err);
    if (listed == TP_OK)
        listed = add_weights(report, &own, name, err);
    tp_verify_report_close(&own);
    tp_weights_close(&weights);
    tp_checkpoint_close(&ckpt);
    free(rank);
    return code ? code : listed;
}

/* Whether a name is that of one of the ranks, as the conversion writes it. */
static bool is_rank(const char *name, unsigned count)
{
    char written[32];
    if (!tp_commit_is_rank(name))
        return false;
    unsigned long rank = strtoul(name + strlen(TP_RANK_PREFIX), NULL, 10);
    snprintf(written, sizeof written, TP_RANK_PREFIX "%lu", rank);
    return rank < count && strcmp(name, written) == 0;
}

enum tp_code tp_verify_ranks(const char *path, const struct tp_side *source,
                             const struct tp_verify_options *options,
                             struct tp_verify_report *report, bool *unchecked,
                             struct tp_err *err)
{
    struct tp_os_list list;
    struct tp_join *join = NULL;
    struct tp_err local = {0};
    unsigned count;
    *report = (struct tp_verify_report){.by_tilepack = true};
    *unchecked = false;
    enum tp_code code = tp_verify_count_ranks(path, &count, &local);
    if (tp_err_unread(&local))
        return *err = local, code;
    if (code) /* what is wrong with it is said at the end */
        count = TP_MAX_RANKS;
    local = (struct tp_err){0};
    code = tp_os_list(path, &list, err);
    for (size_t i = 0; i < list.count && code == TP_OK; i++)
        if (is_rank(list.names[i], count))
            code = verify_rank(path, list.names[i], source, options, report, err);
        else if (list.names[i][0] != '.' && strcmp(list.names[i], TP_RANKS_NAME) != 0)
            code = tp_verify_problem(report, list.names[i], NULL, err, "is not of the conversion");
    tp_os_list_free(&list);
    if (code)
        return code;
    if (tp_join_open(path, 0, &join, &local))
        return as_problem(report, path, TP_RANKS_NAME, &local, err);
    *unchecked = tp_join_unchecked(join);
    tp_join_close(join);
    return TP_OK;
}
