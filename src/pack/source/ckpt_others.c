/* Files that are copied along, in folders of any depth, and those that are not: weights in other
 * formats would be stale beside converted ones, and folders may hold a whole model again.
 *
 * Opens nothing. Invariant: names are relative to the directory, with no "." or "..", and each of
 * them that is not hidden is a part of the checkpoint, copied, or named as left out. Links that are
 * followed, which a few can multiply without end, make the names no longer than MAX_NAMES.
 */
#include "pack/source/ckpt_others.h"

#include "pack/source/ckpt_links.h"
#include "pack/source/index.h"

#include "base/suffix.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DEPTH = 16,
    MAX_NAMES = 256 << 20,
    NAME = 64, /* bytes of each, beside itself */
};

static const char *const weight_endings[] = {
    ".safetensors", ".safetensors.zst", ".bin", ".bin.index.json", ".pt", ".pth",
    ".ckpt", ".gguf", ".onnx", ".onnx_data", ".h5", ".msgpack", ".ot", ".tflite",
};

struct walk {
    struct tp_checkpoint *ckpt;
    size_t other_capacity, stamp_capacity, left_capacity;
    size_t size; /* of all names */
    struct tp_err *err;
};

char *tp_ckpt_path(const struct tp_checkpoint *ckpt, const char *name, struct tp_err *err)
{
    size_t length = strlen(ckpt->path);
    while (length > 1 && ckpt->path[length - 1] == '/')
        length--;
    bool slash = length == 1 && ckpt->path[0] == '/';
    return tp_os_format(err, "%.*s%s%s", (int)length, ckpt->path, slash ? "" : "/", name);
}

bool tp_ckpt_is_shard(const char *name)
{
    return tp_ends_with(name, ".safetensors") || tp_ends_with(name, ".safetensors.zst");
}

bool tp_checkpoint_copy_matches(const char *glob, const char *name)
{
    return fnmatch(glob, name, FNM_LEADING_DIR) == 0 ||
           (tp_ends_with(glob, "/") && tp_begins_with(name, glob));
}

bool tp_ckpt_is_asked(const struct tp_checkpoint *ckpt, const char *name)
{
    for (size_t i = 0; i < ckpt->copy_count; i++)
        if (tp_checkpoint_copy_matches(ckpt->copy[i], name))
            return true;
    return false;
}

static bool is_weight(const char *name)
{
    const char *slash = strrchr(name, '/');
    if (tp_index_is(name) || strcmp(slash ? slash + 1 : name, "adapter_config.json") == 0)
        return true; /* the latter is of an adapter's weights */
    for (size_t i = 0; i < sizeof weight_endings / sizeof *weight_endings; i++)
        if (tp_ends_with(name, weight_endings[i]))
            return true;
    return false;
}

/* "2_Dense/model.safetensors": the small weights of a module of sentence-transformers, which
 * stand in folders of their own and are no part of the checkpoint. */
static bool is_of_module(const char *name)
{
    size_t digits = strspn(name, "0123456789");
    return digits && name[digits] == '_' && strchr(name, '/');
}

/* Takes over `name`. */
static enum tp_code add(char ***names, size_t *count, size_t *capacity, char *name,
                        struct tp_err *err)
{
    void *list = *names;
    enum tp_code code = name ? tp_os_grow(&list, capacity, *count + 1, sizeof **names, err)
                             : TP_E_MEMORY;
    *names = list;
    if (code)
        free(name);
    else
        (*names)[(*count)++] = name;
    return code;
}

static enum tp_code leave_out(struct walk *w, const char *name, const char *marker)
{
    return add(&w->ckpt->left, &w->ckpt->left_count, &w->left_capacity,
               tp_os_format(w->err, "%s%s", name, marker), w->err);
}

/* What Git LFS puts in a file's place is short. */
static enum tp_code check_lfs(const struct walk *w, const char *path, const struct stat *st)
{
    enum { MAX_BYTES = 1024 };
    char *text = NULL;
    size_t size;
    if (!w->ckpt->folders || st->st_size > MAX_BYTES ||
        tp_os_slurp(path, MAX_BYTES, &text, &size, w->err))
        return w->err->code;
    enum tp_code code = tp_lfs_check(text, size, w->err);
    tp_err_path(code ? w->err : NULL, path);
    free(text);
    return code;
}

static enum tp_code take_file(struct walk *w, const char *name, const char *path,
                              const struct stat *st)
{
    char *real = NULL;
    void *stamps = w->ckpt->other_stamps;
    if (is_weight(name) && !is_of_module(name) && !tp_ckpt_is_asked(w->ckpt, name))
        return leave_out(w, name, "");
    enum tp_code code = tp_ckpt_other(w->ckpt, path, &real, w->err);
    if (code == TP_OK)
        code = check_lfs(w, real ? real : path, st);
    free(real);
    if (code == TP_OK)
        code = tp_os_grow(&stamps, &w->stamp_capacity, w->ckpt->other_count + 1,
                          sizeof *w->ckpt->other_stamps, w->err);
    w->ckpt->other_stamps = stamps;
    if (code == TP_OK)
        w->ckpt->other_stamps[w->ckpt->other_count] = tp_stamp_of(st);
    return code ? code : add(&w->ckpt->others, &w->ckpt->other_count, &w->other_capacity,
                             tp_os_format(w->err, "%s", name), w->err);
}

/* Whether a folder is no part of the checkpoint: a link to one, a cache of Python, one where the
 * output has its card, or an output of this program, finished or not, which could be the one that
 * is about to be written. */
static bool is_foreign(const struct walk *w, const char *name, const char *path)
{
    struct stat st;
    bool links = !w->ckpt->strict && !w->ckpt->copies; /* are followed */
    if (!links && tp_os_link_there(path, &st, w->err) && S_ISLNK(st.st_mode))
        return true;
    const char *slash = strrchr(name, '/');
    if (tp_ends_with(name, ".partial") || strcmp(slash ? slash + 1 : name, "__pycache__") == 0 ||
        strcmp(name, TP_CARD_NAME) == 0)
        return true;
    char *manifest = tp_os_format(w->err, "%s/tilepack.json", path);
    bool ours = manifest && tp_os_link_there(manifest, &st, w->err);
    free(manifest);
    return ours;
}

static enum tp_code take(struct walk *w, const char *name, unsigned depth);

static enum tp_code take_list(struct walk *w, const char *name, const struct tp_os_list *list,
                              unsigned depth)
{
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < list->count && code == TP_OK; i++) {
        if (list->names[i][0] == '.')
            continue;
        char *below = tp_os_format(w->err, "%s/%s", name, list->names[i]);
        code = below ? take(w, below, depth + 1) : TP_E_MEMORY;
        free(below);
    }
    return code;
}

/* A folder of which nothing is copied is named in place of its files. */
static enum tp_code take_folder(struct walk *w, const char *name, const char *path, unsigned depth)
{
    struct tp_checkpoint *ckpt = w->ckpt;
    struct tp_os_list list = {0};
    size_t copied = ckpt->other_count, left = ckpt->left_count;
    if (depth > MAX_DEPTH) {
        tp_err_path(w->err, path);
        tp_err_hint(w->err, "a link may lead back into the directory");
        return tp_fail(w->err, TP_E_INPUT, "folders are deeper than %d", MAX_DEPTH);
    }
    bool foreign = is_foreign(w, name, path);
    enum tp_code code = w->err->code || foreign ? w->err->code : tp_os_list(path, &list, w->err);
    if (code == TP_OK)
        code = take_list(w, name, &list, depth);
    if (code == TP_OK && (foreign || (ckpt->other_count == copied && ckpt->left_count > left))) {
        while (ckpt->left_count > left)
            free(ckpt->left[--ckpt->left_count]);
        code = leave_out(w, name, "/");
    }
    tp_os_list_free(&list);
    return code;
}

/* Whether there is room for another name. */
static enum tp_code reserve_name(struct walk *w, const char *name, const char *path)
{
    w->size += NAME + strlen(name);
    if (w->size <= MAX_NAMES)
        return TP_OK;
    tp_err_path(w->err, path);
    tp_err_hint(w->err, "links to folders multiply what is below them: leave out --follow-links, "
                "or remove them");
    return tp_fail(w->err, TP_E_INPUT, "the list of all files is longer than %d MiB",
                   MAX_NAMES >> 20);
}

/* A link that leads nowhere is none of who copies nothing. */
static enum tp_code take_unseen(struct walk *w, const char *name, const char *path, int sys)
{
    struct tp_err why = {.code = TP_E_IO, .sys = sys};
    if (!w->ckpt->folders && !tp_err_unread(&why))
        return leave_out(w, name, "");
    if (sys == ENOENT)
        tp_err_hint(w->err, "a link leads nowhere: complete the download, or remove the link");
    return tp_os_fail(w->err, sys, path, "cannot look at the file");
}

static enum tp_code take(struct walk *w, const char *name, unsigned depth)
{
    struct stat st;
    char *path = tp_ckpt_path(w->ckpt, name, w->err);
    enum tp_code code = path ? reserve_name(w, name, path) : TP_E_MEMORY;
    if (code) {
        free(path);
        return code;
    }
    if (tp_os.stat(path, &st) != 0) {
        code = take_unseen(w, name, path, errno);
    } else if (S_ISREG(st.st_mode)) {
        code = take_file(w, name, path, &st);
    } else if (S_ISDIR(st.st_mode) && w->ckpt->folders) {
        code = take_folder(w, name, path, depth);
    } else if (!S_ISDIR(st.st_mode)) { /* a pipe, a device: nothing that can be copied */
        code = leave_out(w, name, "");
    }
    free(path);
    return code;
}

/* Names that others deal with: weights of the folder, unless they are asked for and none of the
 * checkpoint's. */
static bool is_part(const struct tp_checkpoint *ckpt, const char *const *shards, size_t count,
                    const char *name)
{
    static const char *const names[] = {"config.json", "tilepack.json"};
    if (ckpt->index_name && strcmp(name, ckpt->index_name) == 0)
        return true;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    if (!tp_ckpt_is_shard(name) || !count || !tp_ckpt_is_asked(ckpt, name))
        return name[0] == '.' || tp_ckpt_is_shard(name);
    const size_t size = strstr(name, ".safetensors") - name;
    for (size_t i = 0; i < count; i++)
        if (strncmp(name, shards[i], size) == 0 && tp_begins_with(shards[i] + size, ".safetensors"))
            return true;
    return false;
}

enum tp_code tp_ckpt_others(struct tp_checkpoint *ckpt, const struct tp_os_list *list,
                            const char *const *shards, size_t count, struct tp_err *err)
{
    struct walk w = {.ckpt = ckpt, .err = err};
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < list->count && code == TP_OK; i++)
        if (!is_part(ckpt, shards, count, list->names[i]))
            code = take(&w, list->names[i], 1);
    return code;
}
