/* Verifying a checkpoint by itself: one pass over every file, hashed and looked at
 * while it is read, then the few bytes that are known constants. Where the manifest has
 * SHA-256, too, a second pass.
 *
 * Invariant: a single changed bit of a file that tilepack wrote is a problem or an
 * error, wherever it is.
 */
#include "pack/check/verify.h"

#include "base/suffix.h"
#include "pack/run/budget.h"
#include "pack/source/invariants.h"
#include "pack/commit/manifest.h"
#include "pack/os/os.h"
#include "pack/os/threads.h"
#include "pack/source/descriptor.h"
#include "pack/source/file_hash.h"
#include "pack/source/page_cache.h"
#include "pack/source/words_check.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TP_CHANGED_CARD "has changed since the conversion"

struct verify {
    const struct tp_checkpoint *ckpt;
    const struct tp_weights *weights;
    const struct tp_verify_options *options;
    struct tp_verify_report *report;
    struct tp_invariants invariants;
    struct tp_manifest manifest;
    struct tp_page_cache cache;
    bool *matched; /* per manifest file: is a shard of the checkpoint */
    struct tp_err *err;
};

/* Appends to one of the report's lists. */
static enum tp_code add(struct tp_problem **list, size_t *count, size_t *capacity,
                        const char *file, const char *tensor, const char *what, struct tp_err *err)
{
    if (tp_os_grow((void **)list, capacity, *count + 1, sizeof **list, err))
        return TP_E_MEMORY;
    struct tp_problem *problem = &(*list)[(*count)++];
    *problem = (struct tp_problem){.what = tp_os_format(err, "%s", what)};
    if (file)
        problem->file = tp_os_format(err, "%s", file);
    if (tensor)
        problem->tensor = tp_os_format(err, "%s", tensor);
    return !problem->what || (file && !problem->file) || (tensor && !problem->tensor) ? TP_E_MEMORY
                                                                                      : TP_OK;
}

enum tp_code tp_verify_problem(struct tp_verify_report *report, const char *file,
                               const char *tensor, struct tp_err *err, const char *fmt, ...)
{
    char text[1200];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return add(&report->problems, &report->problem_count, &report->problem_capacity, file, tensor,
               text, err);
}

/* Adds a note; with `strict` a problem. */
static enum tp_code add_note(struct tp_verify_report *report, bool strict, const char *file,
                             const char *what, struct tp_err *err)
{
    return strict ? tp_verify_problem(report, file, NULL, err, "%s", what)
                  : add(&report->notes, &report->note_count, &report->note_capacity, file, NULL,
                        what, err);
}

static void free_list(struct tp_problem *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        free(list[i].file);
        free(list[i].tensor);
        free(list[i].what);
    }
    free(list);
}

void tp_verify_report_close(struct tp_verify_report *report)
{
    free_list(report->problems, report->problem_count);
    free_list(report->notes, report->note_count);
    tp_unit_results_free(report->units, report->unit_count);
    memset(report, 0, sizeof *report);
}

/* ---- hashes --------------------------------------------------------------- */

struct pass {
    struct verify *v;
    const struct tp_file *file;
    uint32_t number;
    uint64_t hash_at; /* of the file's own digits, UINT64_MAX: none */
};

/* Reads a leaf once: for its contents, then, with the own digits as zeros, for the
 * hash. */
static enum tp_code read_leaf(void *arg, void *data, uint64_t size, uint64_t offset,
                              struct tp_err *err)
{
    const struct pass *pass = arg;
    struct verify *v = pass->v;
    enum tp_code code = tp_stopped(v->options->stop, err);
    if (code || (code = tp_checkpoint_read(v->ckpt, pass->number, data, size, offset, err)) ||
        (code = tp_invariants_check(&v->invariants, pass->number, data, size, offset, err)))
        return code;
    tp_hash_blank(data, size, offset, pass->hash_at);
    if (v->options->progress)
        v->options->progress(v->options->progress_arg, size, pass->file->name);
    tp_page_cache_count(&v->cache, size);
    return TP_OK;
}

static bool is_ours(const struct tp_file *file)
{
    for (size_t i = 0; i < file->header.meta_count; i++)
        if (strncmp(file->header.meta[i].key, "tilepack", 8) == 0)
            return true;
    return false;
}

static enum tp_code compare_hash(struct verify *v, const char *name, const char *where,
                                 const uint8_t stored[TP_HASH_BYTES],
                                 const uint8_t actual[TP_HASH_BYTES])
{
    char theirs[TP_HASH_TEXT], ours[TP_HASH_TEXT];
    if (memcmp(stored, actual, TP_HASH_BYTES) == 0)
        return TP_OK;
    tp_hash_print(stored, theirs);
    tp_hash_print(actual, ours);
    return tp_verify_problem(v->report, name, NULL, v->err,
                             "its contents have changed: the hash is %s, %s says %s", ours, where,
                             theirs);
}

/* The name that a shard has in the directory, with .zst where it is an archive. */
static const char *stored_name(const struct tp_file *file)
{
    const char *slash = strrchr(file->path, '/');
    return slash ? slash + 1 : file->path;
}

/* Whether something of that name is in the directory, a link that leads nowhere, too. */
static bool is_there(const struct verify *v, const char *name, size_t size)
{
    struct stat st;
    char *path = tp_os_format(v->err, "%s/%.*s", v->ckpt->path, (int)size, name);
    bool there = path && tp_os_link_there(path, &st, v->err);
    free(path);
    return there;
}

/* The entry of the archive that a plain file was unpacked from, which is gone; NULL: there is
 * none, or err says why. */
static const struct tp_manifest_file *archive_of(const struct verify *v, const struct tp_file *file)
{
    char *name = file->zst ? NULL : tp_os_format(v->err, "%s.zst", file->name);
    const struct tp_manifest_file *entry = name ? tp_manifest_find(&v->manifest, name) : NULL;
    bool gone = entry && !is_there(v, name, strlen(name)) && !v->err->code;
    free(name);
    return gone ? entry : NULL;
}

/* The manifest's entry of a shard: under its plain name, as an archive under the name that it has
 * in the directory, or as the archive that it was. */
static const struct tp_manifest_file *listed(struct verify *v, const struct tp_file *file)
{
    const struct tp_manifest_file *entry = tp_manifest_find(&v->manifest, file->name);
    if (!entry)
        entry = tp_manifest_find(&v->manifest, stored_name(file));
    if (!entry)
        entry = archive_of(v, file);
    if (entry)
        v->matched[entry - v->manifest.files] = true;
    return entry;
}

/* Sizes are those on the disk, unless a plain file was compressed later, or an archive unpacked. */
static bool size_fits(const struct tp_file *file, const struct tp_manifest_file *entry)
{
    bool plain = strcmp(stored_name(file), file->name) == 0;
    return entry->size == file->disk_size || (plain && tp_ends_with(entry->name, ".zst")) ||
           (strcmp(entry->name, file->name) == 0 && entry->size == file->size);
}

static enum tp_code check_shard(struct verify *v, uint32_t f)
{
    const struct tp_file *file = &v->ckpt->files[f];
    const struct tp_manifest_file *entry = listed(v, file);
    const char *digits = tp_st_meta(&file->header, TP_META_HASH);
    uint8_t stored[TP_HASH_BYTES], actual[TP_HASH_BYTES];
    struct pass pass = {v, file, f, UINT64_MAX};
    bool ours = is_ours(file);
    if (!ours && !entry)
        return v->manifest.plan ? tp_verify_problem(v->report, file->name, NULL, v->err,
                                                    "is not in the manifest")
                                : TP_OK;
    enum tp_code code = tp_file_hash_place(v->ckpt, f, &pass.hash_at, v->err);
    if (code || (code = tp_leafhash_file(file->size, v->options->jobs, read_leaf, &pass, actual,
                                         v->err)))
        return code;
    v->report->by_tilepack = true;
    v->report->hashed++;
    v->report->bytes += file->size;
    if (!digits || pass.hash_at == UINT64_MAX || !tp_hash_parse(digits, strlen(digits), stored))
        code = tp_verify_problem(v->report, file->name, NULL, v->err,
                                 "its header does not hold its hash");
    else
        code = compare_hash(v, file->name, "its header", stored, actual);
    if (code == TP_OK && entry && !size_fits(file, entry))
        code = tp_verify_problem(v->report, entry->name, NULL, v->err,
                                 "has %llu bytes, the manifest says %llu",
                                 (unsigned long long)file->disk_size,
                                 (unsigned long long)entry->size);
    else if (code == TP_OK && entry)
        code = compare_hash(v, file->name, "the manifest", entry->hash, actual);
    if (code == TP_OK && !entry && v->manifest.plan)
        code = tp_verify_problem(v->report, file->name, NULL, v->err, "is not in the manifest");
    return code;
}

/* A model card is made to be edited, and says nothing to a loader. */
static bool may_change(const struct verify *v, const struct tp_manifest_file *entry)
{
    return !v->options->strict && strcmp(entry->name, "README.md") == 0;
}

/* An archive whose hash, that of the file inside, nobody has looked at: the plain file is read. */
static bool is_hidden(const struct verify *v, const struct tp_manifest_file *entry)
{
    return tp_ends_with(entry->name, ".safetensors.zst") &&
           is_there(v, entry->name, strlen(entry->name) - strlen(".zst"));
}

/* A file of the manifest that is no shard: config, index, tokenizer. */
static enum tp_code check_other(struct verify *v, const struct tp_manifest_file *entry)
{
    uint8_t actual[TP_HASH_BYTES];
    struct tp_err err = {0};
    struct stat st;
    int fd = -1;
    if (is_hidden(v, entry))
        return tp_verify_problem(v->report, entry->name, NULL, v->err, "is not read: the file "
                                 "without .zst, which is not in the manifest, is in its place");
    if (v->err->code)
        return v->err->code;
    char *path = tp_os_format(v->err, "%s/%s", v->ckpt->path, entry->name);
    if (!path)
        return TP_E_MEMORY;
    enum tp_code code = tp_os_open_regular(path, 0, &fd, &st, &err);
    if (code == TP_OK && (uint64_t)st.st_size != entry->size && may_change(v, entry))
        code = add_note(v->report, false, entry->name, TP_CHANGED_CARD, v->err);
    else if (code == TP_OK && (uint64_t)st.st_size != entry->size)
        code = tp_verify_problem(v->report, entry->name, NULL, v->err,
                                 "has %llu bytes, the manifest says %llu",
                                 (unsigned long long)st.st_size, (unsigned long long)entry->size);
    else if (code == TP_OK &&
             (code = tp_leafhash_fd(fd, path, entry->size, actual, &err)) == TP_OK) {
        v->report->hashed++;
        v->report->bytes += entry->size;
        code = may_change(v, entry) && memcmp(entry->hash, actual, sizeof actual) != 0
                   ? add_note(v->report, false, entry->name, TP_CHANGED_CARD, v->err)
                   : compare_hash(v, entry->name, "the manifest", entry->hash, actual);
    }
    if (err.code && tp_err_unread(&err))
        *v->err = err;
    else if (err.code)
        code = tp_verify_problem(v->report, entry->name, NULL, v->err, "%s", err.what);
    v->report->others++;
    tp_os_close(&fd);
    free(path);
    return code;
}

/* ---- the directory -------------------------------------------------------- */

/* An archive goes by the name of the plain file that it was made of, which is gone. True after an
 * error, too. */
static bool is_listed(const struct verify *v, const char *name)
{
    size_t size = strlen(name), plain = size - strlen(".zst");
    if (tp_manifest_has(&v->manifest, name, size))
        return true;
    return tp_ends_with(name, ".zst") && tp_manifest_has(&v->manifest, name, plain) &&
           (!is_there(v, name, plain) || v->err->code);
}

/* Whether it was read as a shard, of which check_shard() says what is to be said. */
static bool is_shard(const struct verify *v, const char *name)
{
    for (size_t f = 0; f < v->ckpt->file_count; f++)
        if (strcmp(stored_name(&v->ckpt->files[f]), name) == 0)
            return true;
    return false;
}

static enum tp_code check_folder(struct verify *v, const char *folder);

/* A name in the directory, or in a folder of it in which the manifest lists files. Hidden files
 * and all other folders are the user's, and so are other files, unless they are weights: engines
 * load what is called so. A link is what it leads to, or a file where that is nothing. */
static enum tp_code check_name(struct verify *v, const char *name)
{
    struct stat st;
    struct tp_err why = {0};
    char *path = is_listed(v, name) ? NULL : tp_os_format(v->err, "%s/%s", v->ckpt->path, name);
    if (!path)
        return v->err->code;
    bool found = tp_os_there(path, &st, &why);
    tp_err_take_unread(v->err, &why);
    found = found || (!v->err->code && tp_os_link_there(path, &st, v->err));
    free(path);
    if (v->err->code)
        return v->err->code;
    bool weights = tp_ends_with(name, ".safetensors.zst") || tp_ends_with(name, ".safetensors") ||
                   tp_ends_with(name, ".safetensors.index.json");
    if (found && !S_ISDIR(st.st_mode))
        return weights && is_shard(v, name)
                   ? TP_OK
                   : add_note(v->report, v->options->strict || weights, name,
                              "is not in the manifest", v->err);
    return found && tp_manifest_has_folder(&v->manifest, name)
               ? check_folder(v, name)
               : TP_OK;
}

/* `folder` NULL: the directory itself. */
static enum tp_code check_folder(struct verify *v, const char *folder)
{
    struct tp_os_list list = {0};
    char *path = tp_os_format(v->err, "%s%s%s", v->ckpt->path, folder ? "/" : "",
                              folder ? folder : "");
    enum tp_code code = path ? tp_os_list(path, &list, v->err) : TP_E_MEMORY;
    for (size_t i = 0; i < list.count && code == TP_OK; i++) {
        const char *base = list.names[i];
        if (base[0] == '.' || (!folder && strcmp(base, TP_MANIFEST_NAME) == 0))
            continue;
        char *name = tp_os_format(v->err, "%s%s%s", folder ? folder : "", folder ? "/" : "", base);
        code = name ? check_name(v, name) : TP_E_MEMORY;
        free(name);
    }
    tp_os_list_free(&list);
    free(path);
    return code;
}

static enum tp_code check_directory(struct verify *v)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < v->manifest.file_count && code == TP_OK; i++)
        if (!v->matched[i])
            code = check_other(v, &v->manifest.files[i]);
    return code ? code : check_folder(v, NULL);
}

static bool has_note(const struct tp_verify_report *report, const char *file)
{
    for (size_t i = 0; i < report->note_count; i++)
        if (strcmp(report->notes[i].file, file) == 0)
            return true;
    return false;
}

static enum tp_code compare_sha256(struct verify *v, const struct tp_manifest_file *entry,
                                   const struct tp_sha256_file *file)
{
    char theirs[TP_SHA256_TEXT], ours[TP_SHA256_TEXT];
    if (tp_err_unread(&file->err))
        return *v->err = file->err, file->err.code;
    if (file->err.code)
        return tp_verify_problem(v->report, entry->name, NULL, v->err,
                                 "its SHA-256 cannot be checked: %s", file->err.what);
    bool same = memcmp(entry->sha256, file->digest, TP_SHA256_BYTES) == 0;
    v->report->digests += same || !may_change(v, entry);
    if (same)
        return TP_OK;
    if (may_change(v, entry))
        return has_note(v->report, entry->name)
                   ? TP_OK : add_note(v->report, false, entry->name, TP_CHANGED_CARD, v->err);
    tp_sha256_print(entry->sha256, theirs);
    tp_sha256_print(file->digest, ours);
    return tp_verify_problem(v->report, entry->name, NULL, v->err,
                             "its SHA-256 is %s, the manifest says %s", ours, theirs);
}

static char *path_of(void *arg, size_t i, struct tp_err *err)
{
    const struct verify *v = arg;
    return tp_os_format(err, "%s/%s", v->ckpt->path, v->manifest.files[i].name);
}

static enum tp_code check_digest(void *arg, size_t i, const struct tp_sha256_file *file,
                                 struct tp_err *err)
{
    struct verify *v = arg;
    const struct tp_manifest_file *entry = &v->manifest.files[i];
    return entry->has_sha256 ? compare_sha256(v, entry, file)
                             : tp_verify_problem(v->report, entry->name, NULL, err, "has no "
                                                 "SHA-256 in the manifest, other files have");
}

/* The digests of a manifest that has them: each of its files is read once more, as it lies on
 * the disk. One without is a difference where others have theirs. */
static enum tp_code check_digests(struct verify *v)
{
    struct tp_sha256_list list = {v->manifest.file_count, v, path_of, check_digest};
    bool any = false;
    for (size_t i = 0; i < list.count && !any; i++)
        any = v->manifest.files[i].has_sha256;
    return any ? tp_sha256_each(&list, v->options->jobs, v->options->stop, v->err) : TP_OK;
}

static enum tp_code open_manifest(struct verify *v)
{
    struct tp_err err = {0};
    struct stat st;
    bool ours = false;
    char *path = tp_os_format(v->err, "%s/%s", v->ckpt->path, TP_MANIFEST_NAME);
    if (!path)
        return TP_E_MEMORY;
    bool exists = tp_os_there(path, &st, v->err);
    free(path);
    if (v->err->code)
        return v->err->code;
    for (size_t f = 0; f < v->ckpt->file_count; f++)
        ours |= is_ours(&v->ckpt->files[f]);
    if (!exists)
        return ours ? tp_verify_problem(v->report, TP_MANIFEST_NAME, NULL, v->err,
                                        "is missing, though the shards are of tilepack")
                    : TP_OK;
    v->report->by_tilepack = true;
    if (tp_manifest_read(v->ckpt->path, &v->manifest, &err))
        return tp_err_unread(&err)
                   ? (*v->err = err, err.code)
                   : tp_verify_problem(v->report, TP_MANIFEST_NAME, NULL, v->err, "%s", err.what);
    v->matched = tp_os_zalloc(v->manifest.file_count + 1, sizeof *v->matched, v->err);
    if (!v->matched)
        return TP_E_MEMORY;
    return v->manifest.intact ? TP_OK
                              : tp_verify_problem(v->report, TP_MANIFEST_NAME, NULL, v->err,
                                                  "its text has changed: its own hash is wrong");
}

/* ---- what descriptors say -------------------------------------------------- */

static bool same_layouts(const struct tp_weight *a, const struct tp_weight *b)
{
    return a->form->format == b->form->format &&
           memcmp(&a->form->box, &b->form->box, sizeof a->form->box) == 0 &&
           memcmp(&a->form->settings, &b->form->settings, sizeof a->form->settings) == 0;
}

static enum tp_code check_layouts(struct verify *v, const struct tp_weight *weight)
{
    for (uint32_t i = 0; i < weight->form->op.outs; i++) {
        struct tp_layout layout;
        struct tp_err err = {0};
        uint64_t bytes = 0;
        if (!weight->form->op.out[i].layout || weight->tensor[i] == TP_NO_TENSOR)
            continue;
        const struct tp_tensor *tensor = &v->ckpt->tensors[weight->tensor[i]];
        enum tp_code code = tp_op_whole_layout(&weight->form->op, i, weight->form->box, &layout,
                                                &err);
        if (code == TP_OK && (code = tp_layout_check(&layout, &err)) == TP_OK)
            code = tp_op_whole_bytes(&weight->form->op, i, weight->form->box, &bytes, &err);
        if (code == TP_OK && bytes != tensor->bytes)
            code = tp_fail(&err, TP_E_DIFF, "its layout covers %llu bytes, it has %llu",
                           (unsigned long long)bytes, (unsigned long long)tensor->bytes);
        if (code && (code = tp_verify_problem(v->report, v->ckpt->files[tensor->file].name,
                                              tensor->name, v->err, "%s", err.what)))
            return code;
    }
    return TP_OK;
}

static enum tp_code check_words(struct verify *v, const struct tp_weight *weight, uint32_t i)
{
    char what[TP_WORD_TEXT];
    enum tp_code code = tp_words_check(v->ckpt, weight, i, what, v->err);
    if (code || !*what)
        return code;
    const struct tp_tensor *tensor = &v->ckpt->tensors[weight->tensor[i]];
    return tp_verify_problem(v->report, v->ckpt->files[tensor->file].name, tensor->name, v->err,
                             "%s", what);
}

static enum tp_code check_weights(struct verify *v)
{
    enum tp_code code = TP_OK;
    for (size_t w = 0; w < v->weights->count && code == TP_OK; w++) {
        const struct tp_weight *weight = &v->weights->items[w];
        if (!weight->form->format)
            continue;
        v->report->packed++;
        size_t back = 1;
        while (back <= 16 && back <= w && !same_layouts(weight, weight - back))
            back++;
        if (back > 16 || back > w)
            code = check_layouts(v, weight);
        for (uint32_t i = 0; i < weight->form->op.outs && code == TP_OK; i++)
            code = check_words(v, weight, i);
    }
    return code;
}

/* One problem is reported: the tensors behind it are not looked at. */
static enum tp_code check_origins(struct verify *v)
{
    struct tp_err why = {0};
    enum tp_code code = tp_plan_check_origins(v->ckpt, v->weights, v->ckpt->directory, &why);
    if (code == TP_E_INPUT)
        return tp_verify_problem(v->report, NULL, why.tensor, v->err, "%s", why.what);
    if (code)
        *v->err = why;
    return code;
}

static enum tp_code report_invariants(struct verify *v)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < v->invariants.count && code == TP_OK; i++) {
        const struct tp_invariant *c = &v->invariants.items[i];
        const struct tp_op_out *out = &c->weight->form->op.out[c->out];
        const struct tp_tensor *tensor = &v->ckpt->tensors[c->tensor];
        unsigned bits = tp_element_bits(out->element);
        bool group8 = out->role == TP_ROLE_GROUP8;
        v->report->padded += !group8;
        if (c->bad)
            code = tp_verify_problem(
                v->report, v->ckpt->files[tensor->file].name, tensor->name, v->err,
                "%llu %s, the first at byte %llu of the tensor", (unsigned long long)c->bad,
                group8 ? "scales are not the eight multiples of one number"
                       : "elements of padding do not hold the fill value",
                (unsigned long long)(c->first * bits / 8));
    }
    return code;
}

static enum tp_code check_files(struct verify *v)
{
    enum tp_code code = v->ckpt->directory ? open_manifest(v) : TP_OK;
    for (uint32_t f = 0; f < v->ckpt->file_count && code == TP_OK; f++)
        code = check_shard(v, f);
    if (code == TP_OK && v->manifest.plan)
        code = check_directory(v);
    return code ? code : check_digests(v);
}

enum tp_code tp_verify(const struct tp_checkpoint *ckpt, struct tp_weights *weights,
                       const struct tp_verify_options *options, struct tp_verify_report *report,
                       struct tp_err *err)
{
    struct verify v = {.ckpt = ckpt, .weights = weights, .options = options, .report = report,
                       .err = err};
    struct tp_err meaning = {0};
    *report = (struct tp_verify_report){.shards = ckpt->file_count, .tensors = ckpt->tensor_count};
    enum tp_code unclear = tp_weights_find_any(ckpt, weights, &meaning);
    enum tp_code code =
        unclear ? TP_OK : tp_invariants_open(ckpt, weights, NULL, false, &v.invariants, err);
    if (unclear)
        v.invariants.ckpt = NULL; /* what the tensors mean is not known: hashes only */
    if (code == TP_OK && tp_budget_too_large(tp_checkpoint_bytes(ckpt)))
        code = tp_page_cache_open(&v.cache, ckpt, err);
    if (code == TP_OK)
        code = check_files(&v);
    if (code == TP_OK && unclear && report->problem_count && !tp_err_unread(&meaning))
        code = tp_verify_problem(report, NULL, meaning.tensor[0] ? meaning.tensor : NULL, err, "%s",
                                 meaning.what);
    else if (code == TP_OK && unclear) {
        *err = meaning;
        code = unclear;
    }
    if (code == TP_OK && !unclear && (code = report_invariants(&v)) == TP_OK &&
        (code = check_weights(&v)) == TP_OK)
        code = check_origins(&v);
    for (size_t i = 0; i < TP_ODDS && code == TP_OK; i++)
        if (ckpt->odds[i])
            code = tp_verify_problem(report, ckpt->index_name, NULL, err, "%s", ckpt->odds[i]);
    if (code == TP_OK && !report->by_tilepack)
        code = add_note(report, options->strict, ckpt->path,
                        "was not written by tilepack: there is nothing to prove", err);
    tp_page_cache_close(&v.cache);
    tp_invariants_close(&v.invariants);
    tp_manifest_close(&v.manifest);
    free(v.matched);
    return code;
}
