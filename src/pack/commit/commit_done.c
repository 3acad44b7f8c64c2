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

static bool fits_manifest(const struct tp_commit *c, struct tp_err *err)
{
    const struct tp_request *request = c->request;
    struct tp_manifest manifest;
    struct stat st;
    char id[TP_HASH_TEXT];
    char *path = tp_os_format(err, "%s/%s", c->output, TP_MANIFEST_NAME);
    bool fits = tp_os_there(path, &st, err) &&
                tp_manifest_read(c->output, &manifest, err) == TP_OK;
    free(path);
    if (!fits)
        return false;
    tp_manifest_plan_id(c->plan, id);
    fits = manifest.intact && strcmp(manifest.plan, id) == 0 &&
           (!request->digests || has_digests(&manifest)) &&
           is_older(c->plan->ckpt, nanoseconds(st.st_mtim), err) &&
           !tp_manifest_lacks(&manifest, c->output, false, err) && !err->code &&
           tp_commit_same_files(c, &manifest, err);
    tp_manifest_close(&manifest);
    return fits;
}

/* Converts some of the source again: names, sizes and times are the same for the contents of
 * another model of the same shapes, too. */
static enum tp_code compare(const struct tp_commit *c, struct tp_same_sink *sink,
                            struct tp_err *err)
{
    struct tp_run_options run = c->options->run;
    struct tp_budget budget;
    enum tp_code code = tp_budget_run(c->plan, &run, &budget, err);
    if (code)
        return code;
    if (c->options->zstd)
        tp_zst_cache_limit(tp_min_u64(budget.leaves, ARCHIVES));
    run.devices = NULL;
    run.memory = tp_min_u64(run.memory, WORKER_BYTES * run.jobs);
    run.sample = SAMPLE;
    run.nonfinite = NULL;
    run.contents = NULL;
    run.progress = NULL;
    run.observe = NULL;
    run.stats = NULL;
    return tp_run(c->plan, &sink->sink, &run, err);
}

/* No checkpoint is opened, which would take the memory of its tensors: the plan says where each of
 * them stands. */
static bool fits_source(const struct tp_commit *c, struct tp_err *err)
{
    struct tp_same_sink sink;
    bool fits = tp_same_sink_open(&sink, c->plan, c->output, c->options->zstd > 0, err) == TP_OK &&
                compare(c, &sink, err) == TP_OK && !sink.differs;
    tp_same_sink_close(&sink);
    return fits;
}

/* What says nothing of the output, but that it could not be looked at, is the error. */
bool tp_commit_is_done(const struct tp_commit *c)
{
    struct tp_err why = {0};
    bool done = fits_manifest(c, &why) && fits_source(c, &why);
    if (tp_err_unread(&why) && c->err->code == TP_OK)
        *c->err = why;
    return done;
}
