/* Whether an output is complete: made by this very plan, of this very source, and none of it gone.
 *
 * Writes nothing, and reads little of the weights: their headers, and a sample of the source, which
 * is converted again and compared with what is stored; of all else every byte (commit_same.c).
 * Invariant: what cannot be looked at is not complete.
 */
#include "pack/commit/commit_build.h"

#include "base/num.h"
#include "pack/file/zst.h"
#include "pack/run/budget.h"
#include "pack/run/ranks_io.h"
#include "pack/run/run.h"
#include "pack/sink/same.h"

#include <stdlib.h>
#include <string.h>

/* Boxes and pieces of copies, of about 1 MiB each: a source with fewer is compared whole. */
#define SAMPLE 256
/* Memory of one worker: what is compared needs small boxes only. */
#define WORKER_BYTES (UINT64_C(8) << 20)
/* Frames of archives that are kept for the next piece. */
#define ARCHIVES (UINT64_C(64) << 20)

/* An output that may be complete: the directory of a checkpoint, of one rank where there are
 * some. */
struct candidate {
    const struct tp_commit *c;
    const struct tp_plan *plan;
    const char *path;
    unsigned rank;
};

static bool has_digests(const struct tp_manifest *manifest)
{
    size_t i = 0;
    while (i < manifest->file_count && manifest->files[i].has_sha256)
        i++;
    return i == manifest->file_count;
}

static int64_t nanoseconds(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Neither the file nor a link to it came to its place or was written to since then. That is the
 * time of its inode: the other one stays what it was when a file is moved or copied, and anybody
 * can set it to any time. */
static bool came_before(const char *path, int64_t made, struct tp_err *err)
{
    struct stat file, link;
    return tp_os_link_there(path, &link, err) && nanoseconds(link.st_ctim) <= made &&
           tp_os_there(path, &file, err) && nanoseconds(file.st_ctim) <= made;
}

static bool is_older(const struct tp_checkpoint *ckpt, int64_t made, struct tp_err *err)
{
    size_t i = 0;
    while (i < ckpt->file_count && ckpt->files[i].stamp.ctime_ns <= made &&
           came_before(ckpt->files[i].path, made, err))
        i++;
    return i == ckpt->file_count;
}

/* All weights that are read: what is joined lies in several checkpoints. */
static bool are_older(const struct candidate *output, int64_t made, struct tp_err *err)
{
    const struct tp_gather *gather = output->c->options->run.gather;
    const struct tp_checkpoint *ckpt = output->plan->ckpt;
    bool older = is_older(ckpt, made, err);
    for (unsigned r = 0; gather && r < gather->count && older; r++)
        older = is_older(&gather->ckpts[r], made, err);
    return older;
}

/* *files: the identity of what the manifest lists. */
static bool fits_manifest(const struct candidate *output, struct tp_same_card *card,
                          char files[TP_HASH_TEXT], struct tp_err *err)
{
    const struct tp_request *request = output->c->request;
    struct tp_manifest manifest;
    struct stat st;
    char id[TP_HASH_TEXT];
    char *path = tp_os_format(err, "%s/%s", output->path, TP_MANIFEST_NAME);
    bool fits = tp_os_there(path, &st, err) &&
                tp_manifest_read(output->path, &manifest, err) == TP_OK;
    free(path);
    if (!fits)
        return false;
    tp_manifest_plan_id(output->plan, id);
    fits = manifest.intact && strcmp(manifest.plan, id) == 0 &&
           (!request || !request->digests || has_digests(&manifest)) &&
           are_older(output, nanoseconds(st.st_mtim), err) &&
           !tp_manifest_lacks(&manifest, output->path, false, err) && !err->code &&
           tp_commit_same_files(output->c, output->plan, output->path, &manifest, card, err) &&
           tp_manifest_files_id(manifest.files, manifest.file_count, files, err) == TP_OK;
    tp_manifest_close(&manifest);
    return fits;
}

/* Converts some of the source again: names, sizes and times are the same for the contents of
 * another model of the same shapes, too. */
static enum tp_code compare(const struct candidate *output, struct tp_same_sink *sink,
                            struct tp_err *err)
{
    const struct tp_ranks *ranks = output->c->options->ranks;
    struct tp_run_options run = output->c->options->run;
    struct tp_scatter scatter;
    struct tp_budget budget;
    enum tp_code code = tp_budget_run(output->c->plan, &run, &budget, err);
    if (code)
        return code;
    if (output->c->options->zstd)
        tp_zst_cache_limit(tp_min_u64(budget.leaves, ARCHIVES));
    run.devices = NULL;
    run.memory = tp_min_u64(run.memory, WORKER_BYTES * run.jobs);
    run.sample = SAMPLE;
    run.nonfinite = NULL;
    run.contents = NULL;
    run.progress = NULL;
    run.observe = NULL;
    run.stats = NULL;
    if (!ranks)
        return tp_run(output->plan, &sink->sink, &run, err);
    tp_scatter_open(&scatter, ranks, output->rank, &sink->sink);
    return tp_run(&ranks->run, &scatter.sink, &run, err);
}

/* No checkpoint is opened, which would take the memory of its tensors: the plan says where each of
 * them stands. */
static bool fits_source(const struct candidate *output, struct tp_err *err)
{
    struct tp_same_sink sink;
    bool fits = tp_same_sink_open(&sink, output->plan, output->path,
                                  output->c->options->zstd > 0, err) == TP_OK &&
                compare(output, &sink, err) == TP_OK && !sink.differs;
    tp_same_sink_close(&sink);
    return fits;
}

/* What says nothing of the output, but that it could not be looked at, is the error. */
static void tell(const struct tp_commit *c, const struct tp_err *why)
{
    if (tp_err_unread(why) && c->err->code == TP_OK)
        *c->err = *why;
}

static bool is_done(const struct candidate *output, struct tp_same_card *card,
                    char files[TP_HASH_TEXT])
{
    struct tp_err why = {0};
    bool done = fits_manifest(output, card, files, &why) && fits_source(output, &why);
    tell(output->c, &why);
    return done;
}

/* All ranks, and what joins them. */
static bool are_done(const struct tp_commit *c, struct tp_same_card *card)
{
    const struct tp_ranks *ranks = c->options->ranks;
    struct tp_err why = {0};
    char(*files)[TP_HASH_TEXT] = tp_os_zalloc(ranks->count, sizeof *files, c->err);
    bool done = files != NULL;
    for (unsigned r = 0; r < ranks->count && done; r++) {
        char *path = tp_os_format(c->err, "%s/" TP_RANK_PREFIX "%u", c->output, r);
        done = path && is_done(&(struct candidate){c, &ranks->plans[r], path, r}, card, files[r]);
        free(path);
    }
    done = done && tp_commit_same_join(c, files, &why);
    tell(c, &why);
    free(files);
    return done;
}

bool tp_commit_is_done(const struct tp_commit *c)
{
    struct tp_same_card card = {0};
    char files[TP_HASH_TEXT];
    bool done = c->options->ranks
                    ? are_done(c, &card)
                    : is_done(&(struct candidate){c, c->plan, c->output, 0}, &card, files);
    tp_text_free(&card.text);
    return done;
}
