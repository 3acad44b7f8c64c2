/* One part at work: a commit of its own, of the shards that no other part writes.
 *
 * Invariant: two processes never write the same shard. A part's shards follow from the plan, and
 * the lock of its unfinished directory keeps a second process of the same part out.
 */
#include "pack/commit/part_file.h"

#include "pack/os/os.h"
#include "pack/run/budget.h"
#include "pack/run/run.h"
#include "pack/sink/compress.h"

#include <stdlib.h>
#include <string.h>

enum tp_code tp_share_work(const struct tp_plan *plan, struct tp_share share,
                           struct tp_share_work *work, struct tp_err *err)
{
    bool *mine = tp_os_zalloc(plan->file_count + 1, sizeof *mine, err);
    *work = (struct tp_share_work){0};
    if (!mine)
        return TP_E_MEMORY;
    for (size_t f = 0; f < plan->file_count; f++) {
        mine[f] = tp_share_has(share, f);
        work->shards += mine[f];
        work->bytes_out += mine[f] ? plan->files[f].size : 0;
    }
    work->bytes_in = tp_run_work(plan, mine);
    free(mine);
    return TP_OK;
}

static bool is_of_plan(const struct tp_commit *c, const struct tp_done_part *part)
{
    return memcmp(part->hash, c->plan->hash, sizeof part->hash) == 0 &&
           (part->zstd > 0) == (c->options->zstd > 0);
}

/* Whether it has all of its shards, and they are of the source as it is now. */
static bool is_complete(const struct tp_commit *c, const struct tp_done_part *part)
{
    uint8_t source_id[TP_HASH_BYTES];
    struct stat st;
    bool has = tp_commit_source_id(c, source_id) == TP_OK &&
               memcmp(part->source_id, source_id, sizeof source_id) == 0;
    for (size_t f = 0; f < c->plan->file_count && has; f++) {
        char *path = tp_os_format(c->err, "%s/%s%s", part->path, c->plan->files[f].name,
                                  part->zstd ? TP_ZST_SUFFIX : "");
        has = c->others[f] || (path && tp_os_link_there(path, &st, c->err) &&
                               S_ISREG(st.st_mode) &&
                               (part->zstd || (uint64_t)st.st_size == c->plan->files[f].size));
        free(path);
    }
    return has;
}

/* Looks at the directory that the part will have: an incomplete part of this plan is made anew. */
static enum tp_code check_there(const struct tp_commit *c, struct tp_convert_result *result)
{
    struct tp_done_part part;
    struct stat st;
    if (!tp_os_link_there(c->output, &st, c->err) || tp_part_is_empty(c->output))
        return c->err->code;
    enum tp_code code = tp_part_read(c->output, &part, c->err);
    if (code)
        return code;
    if (is_of_plan(c, &part))
        result->already_done = is_complete(c, &part);
    else if (c->options->if_exists != TP_EXISTS_REPLACE) {
        c->err->reason = tp_found_reason(TP_FOUND_PART);
        tp_refuse_at(c->err, TP_E_EXISTS, c->output, "--force makes this part anew; or remove it",
                     "this part is there, and it was made with other options or of a source that "
                     "has changed since");
    }
    code = c->err->code;
    if (code == TP_OK && !result->already_done)
        code = tp_part_remove(&part, c->err);
    tp_part_close(&part);
    return code;
}

/* An output that is complete needs no parts; any other is left for the merge. */
static enum tp_code check_output(struct tp_commit *c, struct tp_convert_result *result)
{
    struct tp_commit whole = {.plan = c->plan, .request = c->request, .options = c->options,
                              .result = result, .output = c->output, .err = c->err, .dir = -1,
                              .journal = {.fd = -1}};
    pthread_mutex_init(&whole.lock, NULL);
    enum tp_code code = tp_commit_check_output(&whole, result);
    tp_commit_close(&whole);
    return code;
}

static enum tp_code convert(struct tp_commit *c, struct tp_share share,
                            struct tp_convert_result *result)
{
    enum tp_code code = check_output(c, result);
    bool there = result->already_done || result->skipped;
    char *path = code || there ? NULL : tp_part_path(c->output, share, c->err);
    if (!path)
        return code ? code : c->err->code;
    c->output = path;
    if ((code = check_there(c, result)) == TP_OK && !result->already_done)
        code = tp_commit_directory(c, result);
    free(path);
    return code;
}

enum tp_code tp_convert_part(const struct tp_plan *plan, const struct tp_request *request,
                             const char *output, struct tp_share share,
                             const struct tp_convert_options *options,
                             struct tp_convert_result *result, struct tp_err *err)
{
    struct tp_commit c = {.plan = plan, .request = request, .options = options, .output = output,
                          .result = result, .texts = tp_part_write, .err = err, .dir = -1,
                          .journal = {.fd = -1}};
    struct tp_run_options run = options->run;
    struct tp_budget ignored;
    bool *others = tp_os_zalloc(plan->file_count + 1, sizeof *others, err);
    *result = (struct tp_convert_result){.bytes_in = plan->bytes_in, .bytes_out = plan->bytes_out};
    if (!others)
        return TP_E_MEMORY;
    pthread_mutex_init(&c.lock, NULL);
    for (size_t f = 0; f < plan->file_count; f++)
        others[f] = !tp_share_has(share, f);
    c.others = run.skip_file = others;
    enum tp_code code = options->discard ? tp_budget_run(plan, &run, &ignored, err)
                                         : convert(&c, share, result);
    if (code == TP_OK && options->discard)
        code = tp_run(plan, &tp_discard_sink, &run, err);
    free(others);
    tp_commit_close(&c);
    return code;
}
