/* The files of a checkpoint directory. Invariant: every path it returns is the
 * directory's path, a slash and one plain file name.
 */
#include "pack/source/ckpt_dir.h"

#include "pack/source/ckpt_links.h"
#include "pack/source/ckpt_others.h"
#include "pack/source/hub.h"

#include "base/suffix.h"
#include "pack/text/name_set.h"
#include "pack/text/text.h"
#include "pack/os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *tp_ckpt_plain_name(const char *name, struct tp_err *err)
{
    size_t length = strlen(name);
    if (tp_ends_with(name, ".safetensors.zst"))
        length -= strlen(".zst");
    return tp_os_format(err, "%.*s", (int)length, name);
}

/* The path of a shard, plain or compressed, whichever exists; the name as
 * written goes first. */
static enum tp_code locate(const struct tp_checkpoint *ckpt, const struct tp_ckpt_dir *dir,
                           const char *written, char **path, struct tp_err *err)
{
    char *plain = tp_ckpt_plain_name(written, err);
    char *other = !plain ? NULL
                  : strcmp(plain, written) == 0 ? tp_os_format(err, "%s.zst", plain)
                                                : tp_os_format(err, "%s", plain);
    const char *names[2] = {written, other};
    enum tp_code code = other ? TP_OK : TP_E_MEMORY;
    for (int i = 0; i < 2 && !code && !*path; i++) {
        struct stat st;
        char *at = tp_ckpt_path(ckpt, names[i], err);
        if (!at)
            code = TP_E_MEMORY;
        else if (tp_os_there(at, &st, err))
            *path = at;
        else
            code = err->code;
        if (at != *path)
            free(at);
    }
    if (!code && !*path) {
        code = tp_fail(err, TP_E_INPUT,
                       dir->index_path ? "the index names the shard '%.200s', which does not exist"
                                       : "the shard '%.200s' is a link that leads nowhere",
                       written);
        tp_err_path(err, dir->index_path ? dir->index_path : ckpt->path);
        tp_err_hint(err, "complete the download; a link that leads nowhere counts as missing");
    }
    free(plain);
    free(other);
    return code;
}

/* Takes over `name`, also when it fails. */
static enum tp_code add_shard(const struct tp_checkpoint *ckpt, struct tp_ckpt_dir *dir,
                              const char *written, char *name, struct tp_err *err)
{
    struct tp_ckpt_shard *shard = &dir->shards[dir->shard_count++];
    shard->name = name;
    return name ? locate(ckpt, dir, written, &shard->path, err) : TP_E_MEMORY;
}

static enum tp_code alloc_shards(struct tp_ckpt_dir *dir, size_t count, struct tp_err *err)
{
    dir->shards = tp_os_zalloc(count, sizeof *dir->shards, err);
    dir->shard_of = tp_os_zalloc(count, sizeof *dir->shard_of, err);
    return dir->shards && dir->shard_of ? TP_OK : TP_E_MEMORY;
}

/* The shards that the index names. "x.safetensors" and "x.safetensors.zst" are
 * one shard, which the index may name either way. */
static enum tp_code indexed_shards(const struct tp_checkpoint *ckpt, struct tp_ckpt_dir *dir,
                                   struct tp_err *err)
{
    const struct tp_index *index = &dir->index;
    struct tp_names plain = {0};
    enum tp_code code = alloc_shards(dir, index->shard_count, err);
    if (!code && !index->shard_count) {
        code = tp_fail(err, TP_E_INPUT, "the index names no tensor");
        tp_err_path(err, dir->index_path);
        tp_err_hint(err, "download the index again");
    }
    for (size_t i = 0; i < index->shard_count && !code; i++) {
        const char *written = index->shards[i];
        char *name = tp_ckpt_plain_name(written, err);
        code = name ? tp_names_add(&plain, name, strlen(name), &dir->shard_of[i], err)
                    : TP_E_MEMORY;
        if (!code && dir->shard_of[i] == dir->shard_count)
            code = add_shard(ckpt, dir, written, name, err);
        else
            free(name);
    }
    tp_names_close(&plain);
    return code;
}

/* "...-00001-of-00003.safetensors": one of several, which needs an index. */
bool tp_ckpt_is_part(const char *name)
{
    static const char pattern[] = "-00000-of-00000"; /* 0 stands for any digit */
    const size_t length = sizeof pattern - 1;
    const char *end = strstr(name, ".safetensors");
    if (!end || (size_t)(end - name) < length)
        return false;
    for (size_t i = 0; i < length; i++) {
        char c = end[(ptrdiff_t)i - (ptrdiff_t)length];
        if (pattern[i] == '0' ? c < '0' || c > '9' : c != pattern[i])
            return false;
    }
    return strtoul(end - 5, NULL, 10) > 1;
}

/* The first file that is left out and ends so, or NULL. */
static const char *left_with(const struct tp_checkpoint *ckpt, const char *const *endings)
{
    for (size_t i = 0; i < ckpt->left_count; i++)
        for (size_t e = 0; endings[e]; e++)
            if (tp_ends_with(ckpt->left[i], endings[e]))
                return ckpt->left[i];
    return NULL;
}

enum tp_code tp_ckpt_fail_rank(struct tp_err *err)
{
    tp_err_hint(err, "convert the model again, whole: engines divide it when they load it");
    return tp_fail(err, TP_E_UNSUPPORTED, "an earlier version has cut it for tensor-parallel ranks "
                   "(--tp): such slices are not read any more");
}

/* Beside the ranks there is a file that says how they were cut. */
static bool holds_ranks(const char *path, struct tp_err *err)
{
    struct stat st;
    char *name = tp_os_format(err, "%s/tilepack-tp.json", path);
    bool holds = tp_os_there(name, &st, err);
    free(name);
    return holds;
}

static bool holds_shards(const struct tp_checkpoint *ckpt, const char *folder, struct tp_err *err)
{
    struct tp_os_list list = {0};
    struct tp_err why = {0};
    struct stat st;
    bool holds = false;
    char *path = tp_ckpt_path(ckpt, folder, err);
    if (path && tp_os_there(path, &st, &why) && S_ISDIR(st.st_mode) &&
        tp_os_list(path, &list, &why) == TP_OK)
        for (size_t i = 0; i < list.count && !holds; i++)
            holds = tp_ckpt_is_shard(list.names[i]);
    tp_err_take_unread(err, &why);
    tp_os_list_free(&list);
    free(path);
    return holds;
}

/* Folders with weights, as the pipelines of diffusers are made of. */
static enum tp_code fail_folders(const struct tp_checkpoint *ckpt, const struct tp_os_list *list,
                                 struct tp_err *err)
{
    struct tp_text names = {0};
    const char *first = NULL;
    for (size_t i = 0; i < list->count && !err->code; i++)
        if (list->names[i][0] != '.' && holds_shards(ckpt, list->names[i], err) &&
            !tp_text_addf(&names, err, "%s'%s/'", first ? ", " : "", list->names[i]) && !first)
            first = list->names[i];
    if (first && !err->code) {
        tp_err_path(err, ckpt->path);
        tp_err_hint(err, "each of them is a checkpoint: convert '%s/%s', and so on", ckpt->path,
                    first);
        tp_fail(err, TP_E_INPUT, "no .safetensors file in the directory, but in its folders %.300s",
                names.data);
    }
    tp_text_free(&names);
    return err->code;
}

/* Says what is there instead, and how to get what is wanted. */
static enum tp_code fail_no_weights(const struct tp_checkpoint *ckpt, const struct tp_os_list *list,
                                    struct tp_err *err)
{
    static const char *const pickles[] = {".bin", ".pt", ".pth", ".ckpt", NULL},
                      *const ggufs[] = {".gguf", NULL};
    const char *pickle = left_with(ckpt, pickles), *gguf = left_with(ckpt, ggufs);
    bool ranks = holds_ranks(ckpt->path, err);
    if (!ranks && fail_folders(ckpt, list, err))
        return err->code;
    char *download = err->code ? NULL : tp_hub_download(ckpt->path, err);
    enum tp_code code = err->code;
    if (code)
        return code;
    tp_err_path(err, ckpt->path);
    if (pickle)
        tp_err_hint(err, "get a revision with safetensors, or make them in Python: "
                         "AutoModel.from_pretrained(SRC).save_pretrained(DST)");
    else if (gguf)
        tp_err_hint(err, "GGUF is llama.cpp's own quantization: get the model that it was made of");
    else if (ranks)
        code = tp_ckpt_fail_rank(err);
    else if (download)
        tp_err_hint(err, "complete the download: hf download %s", download);
    else
        tp_err_hint(err, "name a directory that holds a checkpoint in safetensors format");
    free(download);
    if (code)
        return code;
    if (pickle || gguf)
        return tp_fail(err, TP_E_INPUT, "no .safetensors file in the directory, but '%.200s': "
                       "weights in a format that is not read", pickle ? pickle : gguf);
    return tp_fail(err, TP_E_INPUT, "no .safetensors file in the directory");
}

/* A name of the directory that is STEM and END, or NULL. */
static const char *find_name(const struct tp_os_list *list, const char *base, const char *end)
{
    const size_t size = strlen(base);
    for (size_t i = 0; i < list->count; i++)
        if (strncmp(list->names[i], base, size) == 0 && strcmp(list->names[i] + size, end) == 0)
            return list->names[i];
    return NULL;
}

/* What is the checkpoint: an index, or else a file that comes before others. */
static enum tp_code find_main(const struct tp_checkpoint *ckpt, const struct tp_os_list *list,
                              const char **index, const char **file, struct tp_err *err)
{
    size_t count = 0;
    *index = *file = NULL;
    for (size_t s = 0; s < TP_STEMS; s++)
        if ((*index = find_name(list, tp_stem[s], TP_INDEX_END)) ||
            (*file = find_name(list, tp_stem[s], ".safetensors")) ||
            (*file = find_name(list, tp_stem[s], ".safetensors.zst")))
            return TP_OK;
    for (size_t i = 0; i < list->count; i++)
        if (list->names[i][0] != '.' && tp_index_is(list->names[i])) {
            *index = list->names[i];
            count++;
        }
    if (count <= 1)
        return TP_OK;
    tp_err_path(err, ckpt->path);
    tp_err_hint(err, "move all but one of them away");
    return tp_fail(err, TP_E_INPUT, "%zu indexes, of which none is called model" TP_INDEX_END
                   ": '%.200s' is one", count, *index);
}

/* "model0-mp8.safetensors": what DeepSeek's inference/convert.py writes for one of 8 GPUs. */
static bool is_rank(const char *name)
{
    unsigned rank, count;
    return sscanf(name, "model%u-mp%u.safetensors", &rank, &count) == 2 && count > 1;
}

static enum tp_code fail_several(const struct tp_checkpoint *ckpt, const char *one, size_t count,
                                 struct tp_err *err)
{
    tp_err_path(err, ckpt->path);
    tp_err_hint(err, is_rank(one) ? "convert the model that they were made of, whole: engines "
                                    "divide it when they load it"
                                  : "download the index, or name one of the files");
    if (is_rank(one))
        return tp_fail(err, TP_E_UNSUPPORTED, "'%.200s' is what DeepSeek's convert.py has cut for "
                       "one of several tensor-parallel ranks", one);
    if (count == 1)
        return tp_fail(err, TP_E_INPUT, "'%.200s' is one of several shards, and there is no %s"
                       TP_INDEX_END, one, tp_stem_of(one));
    return tp_fail(err, TP_E_INPUT, "%zu .safetensors files and no %s" TP_INDEX_END
                   " to say which count", count, tp_stem_of(one));
}

/* Without an index: a file that comes before others, or the only one there is. */
static enum tp_code lone_shard(struct tp_checkpoint *ckpt, const struct tp_os_list *list,
                               const char *found, struct tp_ckpt_dir *dir, struct tp_err *err)
{
    size_t count = found != NULL;
    for (size_t i = 0, all = found ? 0 : list->count; i < all; i++) {
        const char *name = list->names[i];
        if (name[0] == '.' || !tp_ckpt_is_shard(name))
            continue;
        /* x.safetensors sorts before x.safetensors.zst: both are one. */
        bool same = found && tp_ends_with(name, ".zst") && strlen(name) == strlen(found) + 4 &&
                    strncmp(name, found, strlen(found)) == 0;
        if (!same) {
            found = name;
            count++;
        }
    }
    if (count == 0)
        return fail_no_weights(ckpt, list, err);
    if (count > 1 || tp_ckpt_is_part(found) || is_rank(found))
        return fail_several(ckpt, found, count, err);
    ckpt->base = tp_stem_of(found);
    enum tp_code code = alloc_shards(dir, 1, err);
    return code ? code : add_shard(ckpt, dir, found, tp_ckpt_plain_name(found, err), err);
}

/* Whole file of the directory, which in strict mode must lie in it; `real` is where it does then,
 * or NULL, and is freed. */
static enum tp_code slurp(struct tp_checkpoint *ckpt, const char *path, char *real,
                          uint64_t limit, char **data, size_t *size, struct tp_stamp *stamp,
                          struct tp_err *err)
{
    int fd = -1;
    struct stat st;
    enum tp_code code =
        tp_os_open_regular(real ? real : path, real ? O_NOFOLLOW : 0, &fd, &st, err);
    if (!code) {
        ckpt->mode &= st.st_mode;
        *stamp = tp_stamp_of(&st);
        code = tp_os_slurp_fd(fd, &st, real ? real : path, limit, data, size, err);
    }
    tp_os_close(&fd);
    free(real);
    return code;
}

static enum tp_code read_index(struct tp_checkpoint *ckpt, struct tp_ckpt_dir *dir,
                               struct tp_err *err)
{
    char *text;
    size_t size;
    char *real = NULL;
    enum tp_code code = TP_OK;
    if (ckpt->strict)
        code = tp_ckpt_inside(ckpt->path, dir->index_path, TP_STRICT_LINK_HINT, &real, err);
    if (code || (code = slurp(ckpt, dir->index_path, real, TP_INDEX_MAX_BYTES, &text, &size,
                              &ckpt->index_stamp, err)))
        return code;
    code = tp_lfs_check(text, size, err);
    if (!code)
        code = tp_index_parse(text, size, &dir->index, err);
    tp_err_path(code ? err : NULL, dir->index_path);
    free(text);
    return code;
}

/* It goes into the output, as the files do that are copied, and its links lead no further. */
static enum tp_code read_config(struct tp_checkpoint *ckpt, const char *path, struct tp_err *err)
{
    char *real = NULL;
    struct stat st;
    if (!ckpt->strict && tp_os.stat(path, &st) != 0) /* a link that leads nowhere */
        return tp_os_fail(err, errno, path, "cannot open");
    enum tp_code code = tp_ckpt_other(ckpt, path, &real, err);
    if (code || (code = slurp(ckpt, path, real, TP_CONFIG_MAX_BYTES, &ckpt->config,
                              &ckpt->config_size, &ckpt->config_stamp, err)))
        return code;
    code = tp_lfs_check(ckpt->config, ckpt->config_size, err);
    tp_err_path(code ? err : NULL, path);
    return code;
}

/* Reads index and config, and finds the others among the names of the directory. */
static enum tp_code read_names(struct tp_checkpoint *ckpt, const struct tp_os_list *list,
                               const char *index, const char *file, struct tp_ckpt_dir *dir,
                               struct tp_err *err)
{
    enum tp_code code = TP_OK;
    if (index) {
        ckpt->base = tp_stem_of(index);
        ckpt->index_name = tp_os_copy(err, index);
        dir->index_path = tp_ckpt_path(ckpt, index, err);
        code = ckpt->index_name && dir->index_path ? read_index(ckpt, dir, err) : TP_E_MEMORY;
    }
    if (!code && find_name(list, "config", ".json")) {
        char *path = tp_ckpt_path(ckpt, "config.json", err);
        code = path ? read_config(ckpt, path, err) : TP_E_MEMORY;
        free(path);
    }
    if (code)
        return code;
    return index ? tp_ckpt_others(ckpt, list, dir->index.shards, dir->index.shard_count, err)
                 : tp_ckpt_others(ckpt, list, &file, file != NULL, err);
}

static int compare_shards(const void *name, const void *shard)
{
    return strcmp(name, ((const struct tp_ckpt_shard *)shard)->name);
}

/* Notes the shards that are not the checkpoint's: whoever forgot them in the index
 * would miss their tensors in the output only when it is too late. */
static enum tp_code note_unread(struct tp_checkpoint *ckpt, const struct tp_os_list *list,
                                const struct tp_ckpt_dir *dir, struct tp_err *err)
{
    size_t capacity = 0;
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < list->count && !code; i++) {
        if (list->names[i][0] == '.' || !tp_ckpt_is_shard(list->names[i]))
            continue;
        char *plain = tp_ckpt_plain_name(list->names[i], err);
        void *unread = ckpt->unread;
        if (!plain)
            return TP_E_MEMORY;
        if (bsearch(plain, dir->shards, dir->shard_count, sizeof *dir->shards, compare_shards) ||
            tp_ckpt_is_asked(ckpt, list->names[i])) {
            free(plain);
            continue;
        }
        code = tp_os_grow(&unread, &capacity, ckpt->unread_count + 1, sizeof *ckpt->unread, err);
        ckpt->unread = unread;
        if (!code)
            ckpt->unread[ckpt->unread_count++] = plain;
        else
            free(plain);
    }
    return code;
}

enum tp_code tp_ckpt_dir_read(struct tp_checkpoint *ckpt, struct tp_ckpt_dir *dir,
                              struct tp_err *err)
{
    struct tp_os_list list;
    *dir = (struct tp_ckpt_dir){0};
    enum tp_code code = tp_os_list(ckpt->path, &list, err);
    const char *index, *file;
    if (code)
        return code;
    code = find_main(ckpt, &list, &index, &file, err);
    if (!code)
        code = read_names(ckpt, &list, index, file, dir, err);
    if (!code)
        code = index ? indexed_shards(ckpt, dir, err) : lone_shard(ckpt, &list, file, dir, err);
    if (!code)
        code = note_unread(ckpt, &list, dir, err);
    tp_os_list_free(&list);
    return code;
}

void tp_ckpt_dir_close(struct tp_ckpt_dir *dir)
{
    for (size_t i = 0; i < dir->shard_count; i++) {
        free(dir->shards[i].name);
        free(dir->shards[i].path);
    }
    free(dir->shards);
    free(dir->shard_of);
    free(dir->index_path);
    tp_index_close(&dir->index);
    *dir = (struct tp_ckpt_dir){0};
}
