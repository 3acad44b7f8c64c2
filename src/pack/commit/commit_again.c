/* Whether the output that is there is the one that would be written, and why not.
 *
 * It is when its manifest is as it was written and names this plan, its files have their sizes, and
 * no file of the source was changed, or put in its place, since the manifest was written: by the
 * time of the inode, which nobody can set. Then nothing else is read. A file of the source that is
 * newer is read whole, and its sum compared with that in the manifest: names, headers and sizes are
 * the same in two steps of a training run.
 *
 * Writes nothing but the time of a manifest, when a newer source was read and is the same.
 */
#include "pack/commit/commit_build.h"

#include "base/suffix.h"
#include "pack/os/below.h"
#include "pack/os/clock.h"
#include "pack/sink/compress.h"
#include "pack/source/index.h"
#include "pack/source/source_sums.h"
#include "pack/text/json_tree.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is found out of an output that is there. */
struct again {
    struct tp_commit *c;
    struct tp_manifest manifest;
    struct tp_look *look;
    int64_t made, newest; /* times: of the manifest, and of the file of the source changed last */
    bool read;            /* newer files may be read */
};

static enum tp_code found(struct again *again, enum tp_found what)
{
    again->look->found = what;
    return again->c->err->code;
}

/* ---- another plan ---- */

/* The formats that a request names, in its order. */
static void name_formats(const json_t *request, char text[200])
{
    size_t i, used = 0;
    const json_t *rule;
    text[0] = '\0';
    if (json_object_get(request, "restore"))
        used = (size_t)snprintf(text, 200, "plain weights");
    json_array_foreach(json_object_get(request, "rules"), i, rule) {
        const char *to = json_string_value(json_object_get(rule, "to"));
        if (to && used < 200 && !strstr(text, to))
            used += (size_t)snprintf(text + used, 200 - used, "%s%s", used ? ", " : "", to);
    }
}

static bool same_sources(const struct again *again)
{
    const struct tp_checkpoint *ckpt = again->c->plan->ckpt;
    const struct tp_manifest *manifest = &again->manifest;
    size_t count = 0;
    for (size_t i = 0; i < manifest->source_count; i++)
        count += manifest->sources[i].has_header;
    for (size_t f = 0; f < ckpt->file_count && count == ckpt->file_count; f++) {
        const struct tp_manifest_source *source = &manifest->sources[f];
        if (strcmp(source->name, ckpt->files[f].name) != 0 ||
            source->size != ckpt->files[f].size ||
            memcmp(source->header, ckpt->files[f].header_hash, sizeof source->header) != 0)
            return false;
    }
    return count == ckpt->file_count;
}

/* By what the manifest says was asked for. */
static enum tp_found compare_requests(struct again *again, const json_t *theirs)
{
    char mine[200];
    json_t *ours = tp_request_record(again->c->request);
    name_formats(ours, mine);
    name_formats(theirs, again->look->detail);
    bool format = strcmp(mine, again->look->detail) != 0, same = json_equal(theirs, ours);
    json_decref(ours);
    if (format || !same)
        return format ? TP_FOUND_FORMAT : TP_FOUND_OPTIONS;
    /* then the source is another one, or its config.json */
    return same_sources(again) && again->newest <= again->made ? TP_FOUND_VERSION
                                                               : TP_FOUND_SOURCE;
}

/* The plan's hash says no more than that something is different. */
static enum tp_code look_at_request(struct again *again, int fd, const char *path)
{
    enum { MOST = 64 << 20 };
    struct tp_err *err = again->c->err;
    const uint64_t size = again->manifest.request_size, mark = tp_json_mark();
    char *text = size && size <= MOST ? tp_os_alloc((size_t)size, err) : NULL;
    json_t *theirs = NULL;
    if (text && tp_os_read(fd, text, size, again->manifest.request_at, path, err) == TP_OK)
        theirs = tp_json_load(text, (size_t)size, &(json_error_t){0});
    enum tp_found what = theirs ? compare_requests(again, theirs) : TP_FOUND_OPTIONS;
    json_decref(theirs);
    free(text);
    enum tp_code code = tp_json_check(mark, err->code, err);
    return code ? code : found(again, what);
}

/* ---- this plan ---- */

static bool has_digests(const struct tp_manifest *manifest)
{
    size_t i = 0;
    while (i < manifest->file_count && manifest->files[i].has_sha256)
        i++;
    return i == manifest->file_count;
}

/* Whether the output has archives, or the SHA-256 of its files, as it would now. */
static bool same_kind(const struct again *again)
{
    const struct tp_commit *c = again->c;
    const struct tp_manifest *manifest = &again->manifest;
    const char *first = manifest->file_count ? manifest->files[0].name : "";
    return tp_ends_with(first, TP_ZST_SUFFIX) == (c->options->zstd > 0) &&
           (!c->request || !c->request->digests || has_digests(manifest));
}

/* Whether the manifest lists what would be copied now, and nothing else: a file may have come to the
 * source, or gone from it. */
static bool same_names(const struct again *again)
{
    const struct tp_plan *plan = again->c->plan;
    const struct tp_manifest *manifest = &again->manifest;
    size_t count = plan->file_count + (plan->unit_count > 0) +
                   (tp_manifest_find(manifest, TP_INDEX_NAME) != NULL) +
                   (tp_manifest_find(manifest, "config.json") != NULL);
    for (size_t i = 0; i < plan->ckpt->other_count; i++) {
        const char *name = plan->ckpt->others[i];
        if (!tp_commit_copies(plan, name))
            continue;
        if (!tp_manifest_find(manifest, name))
            return false;
        count++;
    }
    return count == manifest->file_count;
}

/* ---- its source ---- */

static int64_t nanoseconds(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Whether a file of the source is newer than the manifest: it, or a link that leads to it. */
static bool is_newer(struct again *again, const char *path)
{
    struct stat file, link;
    int64_t time = INT64_MAX;
    if (tp_os_link_there(path, &link, again->c->err) && tp_os_there(path, &file, again->c->err)) {
        time = nanoseconds(link.st_ctim);
        if (nanoseconds(file.st_ctim) > time)
            time = nanoseconds(file.st_ctim);
    }
    if (time > again->newest)
        again->newest = time;
    return time > again->made;
}

static bool is_newer_in(struct again *again, const char *name)
{
    char *path = tp_os_format(again->c->err, "%s/%s", again->c->plan->ckpt->path, name);
    bool newer = path && is_newer(again, path);
    free(path);
    return newer;
}

static const struct tp_manifest_source *find_source(const struct again *again, const char *name)
{
    for (size_t i = 0; i < again->manifest.source_count; i++)
        if (strcmp(again->manifest.sources[i].name, name) == 0)
            return &again->manifest.sources[i];
    return NULL;
}

/* Reads the shards that are newer, if the sums of all of them are known. */
static enum tp_code read_shards(struct again *again, enum tp_found *what)
{
    const struct tp_commit *c = again->c;
    const struct tp_checkpoint *ckpt = c->plan->ckpt;
    const struct tp_run_options *run = &c->options->run;
    const struct tp_sum_options options = {run->jobs, run->stop, run->progress, run->progress_arg};
    struct tp_sum *sums = tp_os_alloc((ckpt->file_count + 1) * sizeof *sums, c->err);
    bool *newer = tp_os_zalloc(ckpt->file_count + 1, sizeof *newer, c->err), any = false;
    enum tp_code code = sums && newer ? TP_OK : TP_E_MEMORY;
    *what = TP_FOUND_SAME;
    for (size_t f = 0; f < ckpt->file_count && code == TP_OK; f++) {
        const struct tp_manifest_source *source = find_source(again, ckpt->files[f].name);
        any |= newer[f] = is_newer(again, ckpt->files[f].path);
        if (newer[f] && !(again->read && source && source->has_data))
            *what = TP_FOUND_MAYBE;
    }
    if (any && *what == TP_FOUND_SAME && code == TP_OK && !c->err->code) {
        code = tp_source_sums(ckpt, newer, &options, sums, c->err);
        *what = TP_FOUND_AGAIN;
        for (size_t f = 0; f < ckpt->file_count && code == TP_OK; f++) {
            const struct tp_sum *sum = &find_source(again, ckpt->files[f].name)->data;
            if (newer[f] && (sum->a != sums[f].a || sum->b != sums[f].b))
                *what = TP_FOUND_SOURCE;
        }
    }
    free(sums);
    free(newer);
    return code ? code : c->err->code;
}

/* A copy, or the card, which is in the output in another form. */
static enum tp_code read_other(struct again *again, const char *name, enum tp_found *what)
{
    const struct tp_checkpoint *ckpt = again->c->plan->ckpt;
    struct tp_err *err = again->c->err;
    const struct tp_manifest_file *copy = tp_manifest_find(&again->manifest, name);
    const struct tp_manifest_source *card = find_source(again, name);
    uint8_t hash[TP_HASH_BYTES];
    struct stat st;
    int fd = -1;
    char *path = tp_os_format(err, "%s/%s", ckpt->path, name);
    *what = TP_FOUND_SOURCE;
    enum tp_code code = path ? tp_commit_open_other(ckpt, path, &fd, &st, err) : TP_E_MEMORY;
    if (code == TP_OK && (card || copy) &&
        (uint64_t)st.st_size == (card ? card->size : copy->size) &&
        (code = tp_leafhash_fd(fd, path, (uint64_t)st.st_size, hash, err)) == TP_OK &&
        memcmp(hash, card ? card->header : copy->hash, sizeof hash) == 0)
        *what = TP_FOUND_AGAIN;
    tp_os_close(&fd);
    free(path);
    return code;
}

/* The other files of the source that count: what is copied, and the card. */
static bool counts(const struct again *again, const char *name)
{
    const struct tp_plan *plan = again->c->plan;
    return tp_commit_copies(plan, name) ||
           (plan->unit_count && strcmp(name, TP_CARD_NAME) == 0);
}

/* Reads what is newer; the worst of what was found. Index and config.json are in the plan's hash. */
static enum tp_code look_at_source(struct again *again, enum tp_found *worst)
{
    const struct tp_checkpoint *ckpt = again->c->plan->ckpt;
    enum tp_code code = TP_OK;
    enum tp_found what;
    *worst = TP_FOUND_SAME;
    if ((ckpt->index_stamp.ctime_ns && is_newer_in(again, TP_INDEX_NAME)) |
        (ckpt->config && is_newer_in(again, "config.json")))
        *worst = TP_FOUND_AGAIN;
    for (size_t i = 0; i < ckpt->other_count && *worst < TP_FOUND_MAYBE && code == TP_OK; i++)
        if (counts(again, ckpt->others[i]) && is_newer_in(again, ckpt->others[i]) &&
            (code = read_other(again, ckpt->others[i], &what)) == TP_OK && what > *worst)
            *worst = what;
    if (*worst < TP_FOUND_MAYBE && code == TP_OK && (code = read_shards(again, &what)) == TP_OK &&
        what > *worst)
        *worst = what;
    return code ? code : again->c->err->code;
}

/* So that the next run need not read it again. The time is that of the change, and not that of now:
 * what is changed from here on is newer. A time that has not come yet would hide that. */
static void date_manifest(const struct again *again, int fd)
{
    struct timespec now, times[2] = {{.tv_nsec = UTIME_OMIT}};
    times[1].tv_sec = again->newest / 1000000000;
    times[1].tv_nsec = again->newest % 1000000000;
    if (clock_gettime(CLOCK_REALTIME, &now) == 0 && again->newest <= nanoseconds(now))
        tp_os.futimens(fd, times); /* whoever may not reads it again */
}

static enum tp_code look_at_same(struct again *again, int fd)
{
    struct tp_commit *c = again->c;
    const struct tp_manifest_file *lacks;
    enum tp_found what;
    if (!same_kind(again))
        return found(again, TP_FOUND_OPTIONS);
    if ((lacks = tp_manifest_lacks(&again->manifest, c->output, false, c->err))) {
        snprintf(again->look->detail, sizeof again->look->detail, "%.150s", lacks->name);
        return found(again, TP_FOUND_INCOMPLETE);
    }
    if (c->err->code || !same_names(again))
        return found(again, TP_FOUND_SOURCE);
    enum tp_code code = look_at_source(again, &what);
    if (code == TP_OK && what == TP_FOUND_AGAIN &&
        (code = tp_checkpoint_unchanged(c->plan->ckpt, c->err)) == TP_OK &&
        (code = tp_checkpoint_others_unchanged(c->plan->ckpt, tp_commit_is_usual, c->err)) == TP_OK)
        date_manifest(again, fd);
    return code ? code : found(again, what);
}

static enum tp_code look_at_manifest(struct again *again, int fd, const char *path,
                                     const struct stat *st)
{
    char id[TP_HASH_TEXT];
    enum tp_found ignored;
    again->made = again->newest = nanoseconds(st->st_mtim);
    tp_manifest_plan_id(again->c->plan, id);
    if (!again->manifest.intact)
        return found(again, TP_FOUND_INCOMPLETE);
    if (strcmp(again->manifest.plan, id) == 0)
        return look_at_same(again, fd);
    again->read = false;
    enum tp_code code = look_at_source(again, &ignored);
    return code ? code : look_at_request(again, fd, path);
}

enum tp_code tp_commit_look(struct tp_commit *c, bool read, struct tp_look *look)
{
    struct again again = {.c = c, .look = look, .read = read};
    struct tp_err seen = {0};
    struct stat st;
    int fd = -1;
    *look = (struct tp_look){.found = TP_FOUND_FOREIGN};
    char *path = tp_os_format(c->err, "%s/" TP_MANIFEST_NAME, c->output);
    enum tp_code code = path ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK && tp_os_open_regular(path, 0, &fd, &st, &seen) == TP_OK) {
        code = tp_manifest_read(c->output, &again.manifest, &seen) == TP_OK
                   ? look_at_manifest(&again, fd, path, &st) : found(&again, TP_FOUND_INCOMPLETE);
    }
    if (code == TP_OK) {
        tp_err_take_unread(c->err, &seen);
        code = c->err->code;
    }
    tp_manifest_close(&again.manifest);
    tp_os_close(&fd);
    free(path);
    return code;
}

const char *tp_found_reason(enum tp_found found)
{
    static const char *const reasons[] = {
        [TP_FOUND_SAME] = "same", [TP_FOUND_AGAIN] = "read-again", [TP_FOUND_MAYBE] = "source-maybe",
        [TP_FOUND_SOURCE] = "source", [TP_FOUND_FORMAT] = "format", [TP_FOUND_OPTIONS] = "options",
        [TP_FOUND_VERSION] = "version", [TP_FOUND_INCOMPLETE] = "incomplete",
        [TP_FOUND_FOREIGN] = "foreign", [TP_FOUND_FILE] = "file", [TP_FOUND_KIND] = "kind",
    };
    return reasons[found];
}

enum tp_code tp_commit_fail_found(const struct tp_commit *c, const struct tp_look *look)
{
    static const char there[] = "the output exists already";
    struct tp_err *err = c->err;
    err->reason = tp_found_reason(look->found);
    tp_err_path(err, c->output);
    tp_err_hint(err, "--if-exists skip leaves it as it is; --force replaces it once the new output is "
                     "complete");
    switch (look->found) {
    case TP_FOUND_SAME:
    case TP_FOUND_AGAIN:
        return tp_fail(err, TP_E_EXISTS, "%s, and is this one", there);
    case TP_FOUND_MAYBE:
        return tp_fail(err, TP_E_EXISTS, "%s, and the source may have changed since: files of it are "
                       "newer, and the manifest has no sum of their data", there);
    case TP_FOUND_SOURCE:
        return tp_fail(err, TP_E_EXISTS, "%s, and the source has changed since", there);
    case TP_FOUND_FORMAT:
        return tp_fail(err, TP_E_EXISTS, "%s, in another format: %s", there, look->detail);
    case TP_FOUND_OPTIONS:
        return tp_fail(err, TP_E_EXISTS, "%s, made with other options", there);
    case TP_FOUND_VERSION:
        return tp_fail(err, TP_E_EXISTS, "%s, made by another version of tilepack", there);
    case TP_FOUND_INCOMPLETE:
        return *look->detail
                   ? tp_fail(err, TP_E_EXISTS, "%s, and is not complete: '%s' is not there, or of "
                             "another size", there, look->detail)
                   : tp_fail(err, TP_E_EXISTS, "%s, and is not complete: its manifest is not as it "
                             "was written", there);
    case TP_FOUND_FOREIGN:
        return tp_fail(err, TP_E_EXISTS, "%s, and is none of tilepack's", there);
    case TP_FOUND_FILE:
    case TP_FOUND_KIND:
        break;
    }
    return tp_fail(err, TP_E_EXISTS, "%s", there);
}
