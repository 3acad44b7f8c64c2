/* Whether the output that is there is the one that would be written, and why not.
 *
 * It is when its manifest is as it was written and names this plan, its files have their sizes, and
 * the files of the source are those that it was made of, none of which was changed since: by their
 * inodes and the times of these, which nobody can set. Then nothing else is read. Of any others (a
 * copy, say) names, headers and sizes say nothing: two steps of a training run share them all. They
 * are read whole, and their sums compared with those in the manifest.
 *
 * Writes nothing but which files those were, beside the manifest, when others were read and are the
 * same.
 */
#include "pack/commit/commit_build.h"

#include "base/suffix.h"
#include "pack/commit/manifest_note.h"
#include "pack/plan/file/config.h"
#include "pack/os/below.h"
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
    char now[TP_HASH_TEXT], then[TP_HASH_TEXT]; /* files of the source: these, and those it was made
                                                   of; "": not known */
    bool read;                                  /* the source may be */
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
    bool other = *again->then && strcmp(again->then, again->now) != 0;
    return other || !same_sources(again) ? TP_FOUND_SOURCE : TP_FOUND_VERSION;
}

/* The plan's hash says no more than that something is different. */
static enum tp_code look_at_request(struct again *again, int fd, const char *path)
{
    enum { MAX_BYTES = 64 << 20 };
    struct tp_err *err = again->c->err;
    const uint64_t size = again->manifest.request_size, before = tp_json_failures();
    char *text = size && size <= MAX_BYTES ? tp_os_alloc((size_t)size, err) : NULL;
    json_t *theirs = NULL;
    if (text && tp_os_read(fd, text, size, again->manifest.request_at, path, err) == TP_OK)
        theirs = tp_json_load(text, (size_t)size, &(json_error_t){0});
    enum tp_found what = theirs ? compare_requests(again, theirs) : TP_FOUND_OPTIONS;
    json_decref(theirs);
    free(text);
    enum tp_code code = tp_json_check(before, err->code, err);
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

/* ---- its source ---- */

/* The other files of the source that count: what is copied, and the card. */
static bool counts(const struct tp_plan *plan, const char *name)
{
    return tp_commit_copies(plan, name) || (plan->unit_count && strcmp(name, TP_CARD_NAME) == 0);
}

static enum tp_code add_stamp(struct tp_text *text, const char *name, uint64_t inode,
                              const struct tp_stamp *stamp, struct tp_err *err)
{
    return tp_text_addf(text, err, "%s %llu %llu %lld\n", name, (unsigned long long)inode,
                        (unsigned long long)stamp->size, (long long)stamp->ctime_ns);
}

/* Which files those of the source are, of the times at which they were opened. */
static enum tp_code print_source(const struct tp_plan *plan, char id[TP_HASH_TEXT],
                                 struct tp_err *err)
{
    const struct tp_checkpoint *ckpt = plan->ckpt;
    struct tp_text text = {0};
    uint8_t hash[TP_HASH_BYTES];
    enum tp_code code = add_stamp(&text, ckpt->index_name ? ckpt->index_name : "-", 0,
                                  &ckpt->index_stamp, err);
    if (code == TP_OK)
        code = add_stamp(&text, "config.json", 0, &ckpt->config_stamp, err);
    for (size_t f = 0; f < ckpt->file_count && code == TP_OK; f++)
        code = add_stamp(&text, ckpt->files[f].name, ckpt->files[f].inode, &ckpt->files[f].stamp,
                         err);
    for (size_t i = 0; i < ckpt->other_count && code == TP_OK; i++)
        if (counts(plan, ckpt->others[i]))
            code = add_stamp(&text, ckpt->others[i], 0, &ckpt->other_stamps[i], err);
    if (code == TP_OK) {
        tp_hash(text.data, text.size, hash);
        tp_hash_print(hash, id);
    }
    tp_text_free(&text);
    return code;
}

enum tp_code tp_commit_note_source(struct tp_commit *c)
{
    char id[TP_HASH_TEXT];
    struct stat st;
    int fd = -1;
    char *path = tp_os_format(c->err, "%s/" TP_MANIFEST_NAME, c->partial);
    enum tp_code code = path ? print_source(c->plan, id, c->err) : TP_E_MEMORY;
    if (code == TP_OK && (code = tp_below_open_regular(c->dir, TP_MANIFEST_NAME, path, &fd, &st,
                                                       c->err)) == TP_OK)
        tp_manifest_note_source(fd, id);
    tp_os_close(&fd);
    free(path);
    return code;
}

static const struct tp_manifest_source *find_source(const struct again *again, const char *name)
{
    for (size_t i = 0; i < again->manifest.source_count; i++)
        if (strcmp(again->manifest.sources[i].name, name) == 0)
            return &again->manifest.sources[i];
    return NULL;
}

/* Reads the shards, if the sums of all of them are known. */
static enum tp_code read_shards(const struct again *again, enum tp_found *what)
{
    const struct tp_commit *c = again->c;
    const struct tp_checkpoint *ckpt = c->plan->ckpt;
    const struct tp_run_options *run = &c->options->run;
    const struct tp_sum_options options = {run->jobs, run->stop, run->progress, run->progress_arg};
    struct tp_sum *sums = tp_os_alloc((ckpt->file_count + 1) * sizeof *sums, c->err);
    enum tp_code code = sums ? TP_OK : TP_E_MEMORY;
    const struct tp_manifest_source *source;
    *what = TP_FOUND_AGAIN;
    for (size_t f = 0; f < ckpt->file_count; f++)
        if (!(source = find_source(again, ckpt->files[f].name)) || !source->has_data)
            *what = TP_FOUND_MAYBE;
    if (code == TP_OK && *what == TP_FOUND_AGAIN &&
        (code = tp_source_sums(ckpt, &options, sums, c->err)) == TP_OK)
        for (size_t f = 0; f < ckpt->file_count; f++) {
            source = find_source(again, ckpt->files[f].name);
            if (source->data.a != sums[f].a || source->data.b != sums[f].b)
                *what = TP_FOUND_SOURCE;
        }
    free(sums);
    return code;
}

/* A file of which an edited copy is in the output; *edited: it is one. */
static enum tp_code read_edited(const struct again *again, const char *name, bool *edited,
                                bool *same)
{
    const struct tp_manifest_file *copy = tp_manifest_find(&again->manifest, name);
    uint8_t hash[TP_HASH_BYTES] = {0};
    struct tp_text text = {0};
    enum tp_code code = tp_config_edit(again->c->plan, name, &text, again->c->err);
    *edited = text.size > 0;
    if (code == TP_OK && *edited)
        code = tp_commit_hash_text(text.data, text.size, hash, again->c->err);
    *same = code == TP_OK && *edited && copy && copy->size == text.size &&
            memcmp(hash, copy->hash, sizeof hash) == 0;
    tp_text_free(&text);
    return code;
}

/* A copy, or the card, which is in the output in another form. */
static enum tp_code read_other(const struct again *again, const char *name, bool *same)
{
    const struct tp_checkpoint *ckpt = again->c->plan->ckpt;
    struct tp_err *err = again->c->err;
    const struct tp_manifest_file *copy = tp_manifest_find(&again->manifest, name);
    const struct tp_manifest_source *card = find_source(again, name);
    uint8_t hash[TP_HASH_BYTES];
    struct stat st;
    int fd = -1;
    bool edited;
    enum tp_code code = read_edited(again, name, &edited, same);
    if (code || edited)
        return code;
    char *path = tp_os_format(err, "%s/%s", ckpt->path, name);
    code = path ? tp_commit_open_other(ckpt, path, &fd, &st, err) : TP_E_MEMORY;
    *same = code == TP_OK && (card || copy) &&
            (uint64_t)st.st_size == (card ? card->size : copy->size) &&
            (code = tp_leafhash_fd(fd, path, (uint64_t)st.st_size, hash, err)) == TP_OK &&
            memcmp(hash, card ? card->header : copy->hash, sizeof hash) == 0;
    tp_os_close(&fd);
    free(path);
    return code;
}

/* The files that the output has besides copies of the source's. */
static size_t made_files(const struct again *again)
{
    const struct tp_plan *plan = again->c->plan;
    char index[64];
    snprintf(index, sizeof index, "%s" TP_INDEX_END, plan->ckpt->base);
    return plan->file_count + (plan->unit_count > 0) +
           (tp_manifest_find(&again->manifest, index) != NULL) +
           (tp_manifest_find(&again->manifest, "config.json") != NULL);
}

/* Reads all of it, the weights last. A file may have come to it, or gone from it. Index and
 * config.json are in the plan's hash. */
static enum tp_code read_source(const struct again *again, enum tp_found *what)
{
    const struct tp_checkpoint *ckpt = again->c->plan->ckpt;
    size_t count = made_files(again);
    bool same = true;
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < ckpt->other_count && same && code == TP_OK; i++) {
        count += tp_commit_copies(again->c->plan, ckpt->others[i]);
        if (counts(again->c->plan, ckpt->others[i]))
            code = read_other(again, ckpt->others[i], &same);
    }
    *what = TP_FOUND_SOURCE;
    return code || !same || count != again->manifest.file_count ? code : read_shards(again, what);
}

static enum tp_code look_at_source(struct again *again, int fd)
{
    const struct tp_commit *c = again->c;
    enum tp_found what = TP_FOUND_UNREAD;
    if (strcmp(again->then, again->now) == 0)
        return found(again, TP_FOUND_SAME);
    enum tp_code code = again->read ? read_source(again, &what) : TP_OK;
    if (code == TP_OK && what == TP_FOUND_AGAIN &&
        (code = tp_checkpoint_unchanged(c->plan->ckpt, c->err)) == TP_OK &&
        (code = tp_checkpoint_others_unchanged(c->plan->ckpt, tp_commit_is_usual, c->err)) == TP_OK)
        tp_manifest_note_source(fd, again->now); /* so the next run need not read it */
    return code ? code : found(again, what);
}

static enum tp_code look_at_same(struct again *again, int fd)
{
    struct tp_commit *c = again->c;
    struct tp_err seen = {0};
    if (!same_kind(again))
        return found(again, TP_FOUND_OPTIONS);
    const struct tp_manifest_file *lacks = tp_manifest_lacks(&again->manifest, c->output, &seen);
    tp_err_take_unread(c->err, &seen);
    if (lacks)
        snprintf(again->look->detail, sizeof again->look->detail, "%.150s", lacks->name);
    return c->err->code || lacks || seen.code ? found(again, TP_FOUND_INCOMPLETE)
                                              : look_at_source(again, fd);
}

static enum tp_code look_at_manifest(struct again *again, int fd, const char *path)
{
    char id[TP_HASH_TEXT];
    tp_manifest_plan_id(again->c->plan, id);
    if (!again->manifest.intact)
        return found(again, TP_FOUND_INCOMPLETE);
    tp_manifest_noted_source(fd, again->then);
    enum tp_code code = print_source(again->c->plan, again->now, again->c->err);
    if (code)
        return code;
    return strcmp(again->manifest.plan, id) == 0 ? look_at_same(again, fd)
                                                 : look_at_request(again, fd, path);
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
                   ? look_at_manifest(&again, fd, path) : found(&again, TP_FOUND_INCOMPLETE);
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
