/* Joining: the ranks of one conversion are opened, and the whole is written and committed.
 * How they become one plan is join_plan.c.
 */
#include "pack/commit/join.h"

#include "pack/commit/commit_build.h"
#include "pack/commit/join_check.h"
#include "pack/file/zst.h"
#include "pack/os/os.h"
#include "pack/plan/join_plan.h"
#include "pack/run/budget.h"
#include "pack/run/ranks_io.h"
#include "pack/text/json_tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct tp_join {
    struct tp_commit c; /* while tp_join_run() is at work; first, see join_texts() */
    struct tp_join_plan ranks;
};

/* The plan knows names and shapes, which another model may have, too: contents tell them apart. A
 * manifest that is not as it was written says nothing of them; tp_join_check_rank() refuses it. */
static enum tp_code check_files(const struct tp_join_plan *join, const char *path, unsigned r,
                                const struct tp_manifest *manifest, struct tp_err *err)
{
    char id[TP_HASH_TEXT];
    const json_t *known = json_object_get(join->info, "rank_files"); /* 0.1.0 wrote none */
    const char *stored = json_string_value(json_array_get(known, r));
    if (!known || !manifest->intact)
        return TP_OK;
    enum tp_code code = tp_manifest_files_id(manifest->files, manifest->file_count, id, err);
    if (code || (stored && strcmp(stored, id) == 0))
        return code;
    tp_err_path(err, path);
    tp_err_hint(err, "put the ranks of one conversion together, or convert again");
    return tp_fail(err, TP_E_INPUT, "rank %u is of another conversion: its files are not those "
                   "that were written with the other ranks", r);
}

static enum tp_code check_rank(const struct tp_join_plan *join, const char *path, unsigned r,
                               struct tp_err *err)
{
    struct tp_manifest manifest;
    const char *plan = json_string_value(
        json_array_get(json_object_get(join->info, "rank_plans"), r));
    enum tp_code code = tp_manifest_read(path, &manifest, err);
    if (code && err->sys == ENOENT) {
        *err = (struct tp_err){0};
        tp_err_path(err, path);
        tp_err_hint(err, "bring all of its files, or convert again");
        return tp_fail(err, TP_E_INPUT, "rank %u has no " TP_MANIFEST_NAME ": it is incomplete", r);
    }
    if (code)
        return code;
    bool same = plan && strcmp(plan, manifest.plan) == 0;
    if (same)
        code = check_files(join, path, r, &manifest, err);
    tp_manifest_close(&manifest);
    if (same)
        return code;
    tp_err_path(err, path);
    tp_err_hint(err, "put the ranks of one conversion together, under their own numbers");
    return tp_fail(err, TP_E_INPUT, "this is not rank %u of this conversion", r);
}

static enum tp_code fail_absent(const struct tp_join_plan *join, const char *path, unsigned r,
                                struct tp_err *err)
{
    tp_err_path(err, path);
    tp_err_hint(err, "bring all %u ranks together first", join->count);
    return tp_fail(err, TP_E_INPUT, "rank %u of %u is missing", r, join->count);
}

static enum tp_code open_rank(struct tp_join_plan *join, unsigned r, struct tp_err *err)
{
    struct stat st;
    char *path = tp_os_format(err, "%s/" TP_RANK_PREFIX "%u", join->path, r);
    bool there = tp_os_there(path, &st, err);
    enum tp_code code = err->code;
    if (code == TP_OK && !there)
        code = fail_absent(join, path, r, err);
    if (code == TP_OK && (code = check_rank(join, path, r, err)) == TP_OK)
        code = tp_join_plan_rank(join, r, path, err);
    free(path);
    return code;
}

static enum tp_code open_all(struct tp_join_plan *join, const char *path, unsigned flags,
                             struct tp_err *err)
{
    enum tp_code code = tp_join_plan_read(path, flags, join, err);
    for (unsigned r = 0; r < join->count && code == TP_OK; r++)
        code = open_rank(join, r, err);
    return code ? code : tp_join_plan_make(join, err);
}

enum tp_code tp_join_open(const char *path, unsigned flags, struct tp_join **join,
                          struct tp_err *err)
{
    uint64_t mark = tp_json_mark();
    if (!(*join = tp_os_zalloc(1, sizeof **join, err)))
        return TP_E_MEMORY;
    enum tp_code code = tp_json_check(mark, open_all(&(*join)->ranks, path, flags, err), err);
    if (code) {
        tp_join_close(*join);
        *join = NULL;
    }
    return code;
}

void tp_join_close(struct tp_join *join)
{
    if (!join)
        return;
    tp_join_plan_close(&join->ranks);
    free(join);
}

const struct tp_plan *tp_join_plan(const struct tp_join *join) { return &join->ranks.plan; }
unsigned tp_join_ranks(const struct tp_join *join) { return join->ranks.count; }
bool tp_join_unchecked(const struct tp_join *join) { return join->ranks.unchecked; }

/* The descriptors of the stored headers have been written as they were: what is joined must
 * be a checkpoint, with each of them and with all of their tensors, before it becomes the output. */
static enum tp_code check_joined(const struct tp_commit *c)
{
    struct tp_checkpoint made;
    struct tp_weights weights = {0};
    enum tp_code code = tp_checkpoint_open(c->partial, 0, &made, c->err);
    if (code)
        return code;
    if ((code = tp_weights_find_packed(&made, &weights, c->err)) == TP_OK)
        code = tp_plan_check_origins(&made, &weights, true, c->err);
    tp_weights_close(&weights);
    tp_checkpoint_close(&made);
    return code;
}

/* What is stored beside the ranks does not go with them. */
static enum tp_code blame_text(const struct tp_join_plan *ranks, struct tp_err *err)
{
    struct tp_err ignored = {0};
    char *path = tp_os_format(&ignored, "%s/%s", ranks->path, TP_RANKS_NAME);
    tp_err_path(err, path ? path : TP_RANKS_NAME);
    tp_err_hint(err, "take the file of that conversion, or convert again");
    free(path);
    return err->code;
}

static enum tp_code join_texts(struct tp_commit *c)
{
    struct tp_join *join = (struct tp_join *)c;
    const struct tp_join_plan *ranks = &join->ranks;
    const char *index = tp_join_plan_text(ranks, "index");
    const char *config = tp_join_plan_text(ranks, "config");
    enum tp_code code = tp_commit_write_small(c, "model.safetensors.index.json", index,
                                              strlen(index), true);
    if (code == TP_OK && *config)
        code = tp_commit_write_small(c, "config.json", config, strlen(config), true);
    if (code == TP_OK)
        code = tp_commit_copy_others(c, true);
    for (unsigned r = 0; r < ranks->count && code == TP_OK; r++)
        code = tp_checkpoint_unchanged(&ranks->ckpts[r], c->err);
    if (code || (code = check_joined(c)))
        return code;
    const json_t *stored = json_object_get(ranks->info, "manifest");
    const char *manifest = json_string_value(stored);
    struct tp_text text = {0};
    bool digests;
    code = tp_manifest_has_digests(manifest, json_string_length(stored), &digests, c->err);
    if (code == TP_OK && digests)
        code = tp_manifest_digest(c->partial, c->files, c->file_count, c->options->run.jobs,
                                  c->options->run.stop, c->err);
    if (code == TP_OK)
        code = tp_manifest_refill(manifest, json_string_length(stored), c->files, c->file_count,
                                  &text, c->err);
    if (code == TP_OK)
        code = tp_commit_write_small(c, TP_MANIFEST_NAME, text.data, text.size, false);
    tp_text_free(&text);
    return code == TP_E_INPUT && !c->err->path[0] ? blame_text(ranks, c->err) : code;
}

/* With as many workers and frames of archives as the memory holds that the whole is written in. */
static enum tp_code check_ranks(const struct tp_join_plan *ranks, const struct tp_run_options *run,
                                struct tp_err *err)
{
    struct tp_run_options own = *run;
    struct tp_budget budget;
    enum tp_code code = tp_budget_run(&ranks->plan, &own, &budget, err);
    for (unsigned r = 0; r < ranks->count && code == TP_OK; r++)
        code = tp_join_check_rank(&ranks->ckpts[r], r == 0, &own, err);
    tp_zst_cache_limit(0); /* what it holds is not the plan's */
    return code;
}

enum tp_code tp_join_run(struct tp_join *join, const char *output,
                         const struct tp_convert_options *options,
                         struct tp_convert_result *result, struct tp_err *err)
{
    const struct tp_join_plan *ranks = &join->ranks;
    const struct tp_plan *plan = &ranks->plan;
    const struct tp_gather gather = {.count = ranks->count, .ckpts = ranks->ckpts,
                                     .weights = ranks->weights, .whole = &ranks->whole,
                                     .cuts = ranks->cuts, .sources = ranks->sources};
    struct tp_convert_options own = *options;
    own.run.gather = &gather;
    join->c = (struct tp_commit){.plan = plan, .options = &own, .output = output, .err = err,
                                 .dir = -1, .journal = {.fd = -1}, .texts = join_texts};
    *result = (struct tp_convert_result){.bytes_in = plan->bytes_in, .bytes_out = plan->bytes_out};
    pthread_mutex_init(&join->c.lock, NULL);
    enum tp_code code = tp_commit_check_output(&join->c, result);
    if (code == TP_OK && !result->already_done)
        code = check_ranks(ranks, &own.run, err);
    if (code == TP_OK && !result->already_done)
        code = tp_commit_directory(&join->c, result);
    tp_commit_close(&join->c);
    return code;
}
