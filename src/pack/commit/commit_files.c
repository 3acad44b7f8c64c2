/* The files of a commit besides the shards' bytes: index, config, copies of the
 * source's small files, the manifest, and the list of all with their hashes.
 *
 * Every function writes into the partial directory; none makes anything visible.
 */
#include "pack/commit/commit_build.h"

#include "pack/sink/compress.h"
#include "pack/plan/file/card.h"
#include "pack/plan/file/config.h"
#include "pack/text/json_tree.h"
#include "pack/os/below.h"
#include "pack/source/ckpt_links.h"
#include "pack/source/index.h"
#include "pack/plan/file/describe.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum tp_code tp_commit_reserve_files(struct tp_commit *c)
{
    size_t count = c->plan->file_count + c->plan->ckpt->other_count + 4;
    if (count > TP_MANIFEST_FILES)
        return tp_refuse(c->err, TP_E_UNSUPPORTED, "choose a larger --shard-size",
                         "the output would have more than %u files", (unsigned)TP_MANIFEST_FILES);
    c->files = tp_os_zalloc(count, sizeof *c->files, c->err);
    return c->files ? TP_OK : TP_E_MEMORY;
}

static enum tp_code record(struct tp_commit *c, const char *name, uint64_t size,
                           const uint8_t hash[TP_HASH_BYTES])
{
    struct tp_manifest_file *file = &c->files[c->file_count];
    file->size = size;
    memcpy(file->hash, hash, TP_HASH_BYTES);
    file->name = tp_os_format(c->err, "%s", name);
    c->file_count += file->name != NULL;
    return file->name ? TP_OK : TP_E_MEMORY;
}

enum tp_code tp_commit_hash_text(const char *data, size_t size, uint8_t hash[TP_HASH_BYTES],
                                 struct tp_err *err)
{
    struct tp_leafhash leaves;
    enum tp_code code = tp_leafhash_init(&leaves, size, err);
    if (code == TP_OK && (code = tp_leafhash_written(&leaves, 0, data, size, err)) == TP_OK)
        code = tp_leafhash_final(&leaves, hash, err);
    tp_leafhash_close(&leaves);
    return code;
}

static enum tp_code write_small(struct tp_commit *c, const char *name, const char *data,
                                size_t size, bool listed, mode_t mode)
{
    uint8_t hash[TP_HASH_BYTES];
    char *path = tp_os_format(c->err, "%s/%s", c->partial, name);
    enum tp_code code = path ? tp_below_write(c->dir, name, mode, path, data, size, c->err)
                             : TP_E_MEMORY;
    if (code == TP_OK && listed &&
        (code = tp_commit_hash_text(data, size, hash, c->err)) == TP_OK)
        code = record(c, name, size, hash);
    free(path);
    return code;
}

/* A small file made here: index, config. */
enum tp_code tp_commit_write_small(struct tp_commit *c, const char *name, const char *data,
                                   size_t size, bool listed)
{
    return write_small(c, name, data, size, listed, c->plan->ckpt->mode);
}

struct copied {
    int from, to;
    const char *from_path, *to_path;
};

/* Reads for hashing and writes what it read: one pass over the file. */
static enum tp_code copy_through(void *arg, void *data, uint64_t size, uint64_t offset,
                                 struct tp_err *err)
{
    const struct copied *copy = arg;
    enum tp_code code = tp_os_read(copy->from, data, size, offset, copy->from_path, err);
    return code ? code : tp_os_write(copy->to, data, size, offset, copy->to_path, err);
}

enum tp_code tp_commit_open_other(const struct tp_checkpoint *ckpt, const char *path, int *fd,
                                  struct stat *st, struct tp_err *err)
{
    char *real = NULL;
    enum tp_code code = tp_ckpt_other(ckpt, path, &real, err);
    if (code == TP_OK)
        code = tp_os_open_regular(real ? real : path,
                                  ckpt->strict || ckpt->copies ? O_NOFOLLOW : 0, fd, st, err);
    free(real);
    return code;
}

static enum tp_code copy_other(struct tp_commit *c, const char *name)
{
    uint8_t hash[TP_HASH_BYTES];
    struct stat st;
    char *from = tp_os_format(c->err, "%s/%s", c->plan->ckpt->path, name);
    char *to = tp_os_format(c->err, "%s/%s", c->partial, name);
    struct copied copy = {-1, -1, from, to};
    enum tp_code code = from && to ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK &&
        (code = tp_commit_open_other(c->plan->ckpt, from, &copy.from, &st, c->err)) == TP_OK)
        code = tp_below_create(c->dir, name, st.st_mode, to, &copy.to, c->err);
    if (code == TP_OK &&
        (code = tp_leafhash_file((uint64_t)st.st_size, 1, copy_through, &copy, hash, c->err)) ==
            TP_OK &&
        (code = tp_os_read_end(copy.from, (uint64_t)st.st_size, from, c->err)) == TP_OK &&
        (code = tp_os_fsync(copy.to, to, c->err)) == TP_OK)
        code = record(c, name, (uint64_t)st.st_size, hash);
    if (copy.from >= 0)
        tp_os.close(copy.from);
    if (copy.to >= 0 && tp_os.close(copy.to) && code == TP_OK)
        code = tp_os_fail(c->err, errno, to, "cannot close the output");
    free(from);
    free(to);
    return code;
}

/* What describes the weights, among other things, describes those of the output. */
static enum tp_code write_other(struct tp_commit *c, const char *name)
{
    struct tp_text text = {0};
    enum tp_code code = tp_config_edit(c->plan, name, &text, c->err);
    if (code == TP_OK)
        code = text.size ? tp_commit_write_small(c, name, text.data, text.size, true)
                         : copy_other(c, name);
    tp_text_free(&text);
    return code;
}

/* Does `act` with each folder of a name, from the outermost on. */
static enum tp_code each_folder(struct tp_commit *c, const char *name,
                                enum tp_code (*act)(struct tp_commit *c, const char *folder,
                                                    const char *path))
{
    enum tp_code code = TP_OK;
    for (const char *slash = strchr(name, '/'); slash && code == TP_OK;
         slash = strchr(slash + 1, '/')) {
        char *folder = tp_os_format(c->err, "%.*s", (int)(slash - name), name);
        char *path = tp_os_format(c->err, "%s/%.*s", c->partial, (int)(slash - name), name);
        code = folder && path ? act(c, folder, path) : TP_E_MEMORY;
        free(folder);
        free(path);
    }
    return code;
}

/* With the mode of the source's folder. */
static enum tp_code make_folder(struct tp_commit *c, const char *folder, const char *path)
{
    struct stat st;
    char *from = tp_os_format(c->err, "%s/%s", c->plan->ckpt->path, folder);
    enum tp_code code = from ? TP_OK : TP_E_MEMORY;
    if (from && tp_os.stat(from, &st) != 0)
        code = tp_os_fail(c->err, errno, from, "cannot open");
    free(from);
    return code ? code : tp_below_mkdir(c->dir, folder, st.st_mode & 0777, path, c->err);
}

static enum tp_code sync_folder(struct tp_commit *c, const char *folder, const char *path)
{
    (void)folder;
    return tp_os_fsync_dir(path, c->err);
}

static bool same_folder(const char *a, const char *b)
{
    const char *slash = strrchr(a, '/');
    size_t size = slash ? (size_t)(slash - a) + 1 : 0;
    return strncmp(a, b, size) == 0 && !strchr(b + size, '/');
}

/* The path of the source's card in fresh memory; NULL, without an error: there is none. */
static char *find_card(const struct tp_commit *c)
{
    const struct tp_checkpoint *ckpt = c->plan->ckpt;
    for (size_t i = 0; i < ckpt->other_count; i++)
        if (strcmp(ckpt->others[i], TP_CARD_NAME) == 0)
            return tp_os_format(c->err, "%s/%s", ckpt->path, TP_CARD_NAME);
    return NULL;
}

/* Its text in fresh memory; NULL: there is none. One that is too large to be a text is none
 * (tp_plan_warn() says it). */
static enum tp_code read_card(struct tp_commit *c, char **text)
{
    struct stat st;
    size_t size = 0;
    int fd = -1;
    char *path = find_card(c);
    enum tp_code code =
        path ? tp_commit_open_other(c->plan->ckpt, path, &fd, &st, c->err) : c->err->code;
    *text = NULL;
    if (path && code == TP_OK && st.st_size <= TP_CARD_MAX_BYTES)
        code = tp_os_slurp_fd(fd, &st, path, TP_CARD_MAX_BYTES, text, &size, c->err);
    if (*text) {
        c->data.card = true;
        c->data.card_size = size;
        code = tp_commit_hash_text(*text, size, c->data.card_hash, c->err);
    }
    for (size_t at = 0; *text && at < size; at++)
        if (!(*text)[at]) /* would end it */
            (*text)[at] = ' ';
    tp_os_close(&fd);
    free(path);
    return code;
}

/* The model card; nothing where no weight is made. */
static enum tp_code card_text(struct tp_commit *c, struct tp_text *text)
{
    char *source = NULL;
    struct tp_card_use *uses = NULL;
    size_t count = 0;
    if (!c->plan->unit_count)
        return TP_OK;
    enum tp_code code = tp_card_uses(c->plan, &uses, &count, c->err);
    if (code == TP_OK && c->options->errors)
        code = c->options->errors(c->plan, &c->options->run, uses, count, c->err);
    if (code == TP_E_INTERRUPT || code == TP_E_TERMINATE)
        tp_err_hint(c->err, "run the same command again to go on from here");
    if (code == TP_OK && (code = read_card(c, &source)) == TP_OK)
        code = tp_card_text(c->plan, c->request, uses, count, source, text, c->err);
    free(source);
    free(uses);
    return code;
}

/* The source's card is a part of it, and so is what may be read of that. */
static enum tp_code write_card(struct tp_commit *c, const struct tp_text *text)
{
    mode_t mode = c->plan->ckpt->mode;
    struct stat st;
    char *path = find_card(c);
    if (path && tp_os.stat(path, &st) != 0)
        tp_os_fail(c->err, errno, path, "cannot open");
    else if (path)
        mode &= st.st_mode;
    free(path);
    return c->err->code ? c->err->code
                        : write_small(c, TP_CARD_NAME, text->data, text->size, true, mode);
}

/* One file of the source, in a folder of its own where its name has one. */
static enum tp_code copy_in_folder(struct tp_commit *c, size_t i)
{
    char *const *names = c->plan->ckpt->others;
    size_t count = c->plan->ckpt->other_count;
    enum tp_code code = TP_OK;
    if (i == 0 || !same_folder(names[i], names[i - 1]))
        code = each_folder(c, names[i], make_folder);
    if (code == TP_OK)
        code = write_other(c, names[i]);
    if (code == TP_OK && (i + 1 == count || !same_folder(names[i], names[i + 1])))
        code = each_folder(c, names[i], sync_folder);
    return code;
}

/* Whether a name stands behind the card in the order of a directory's names. */
static bool is_behind_card(const char *name)
{
    size_t size = strcspn(name, "/");
    int order = strncmp(name, TP_CARD_NAME, size);
    return order > 0 || (order == 0 && size >= strlen(TP_CARD_NAME));
}

bool tp_commit_copies(const struct tp_plan *plan, const char *name)
{
    return !tp_config_leaves_out(plan, name) &&
           !(plan->unit_count && strcmp(name, TP_CARD_NAME) == 0);
}

uint64_t tp_commit_copied_bytes(const struct tp_commit *c)
{
    const struct tp_checkpoint *ckpt = c->plan->ckpt;
    uint64_t bytes = 0;
    for (size_t i = 0; i < ckpt->other_count; i++) {
        struct stat st;
        char *path = tp_os_format(c->err, "%s/%s", ckpt->path, ckpt->others[i]);
        if (path && tp_commit_copies(c->plan, ckpt->others[i]) && tp_os.stat(path, &st) == 0 &&
            S_ISREG(st.st_mode))
            bytes += (uint64_t)st.st_size;
        free(path);
    }
    return bytes;
}

/* Copies the source's other files, which have to be those of when it was opened, as its config is;
 * makes their folders. The card stands where one of the source would. */
static enum tp_code copy_others(struct tp_commit *c)
{
    char *const *names = c->plan->ckpt->others;
    bool card = c->plan->unit_count > 0;
    struct tp_text text = {0};
    enum tp_code code = card ? card_text(c, &text) : TP_OK;
    for (size_t i = 0; i < c->plan->ckpt->other_count && code == TP_OK; i++) {
        if (card && is_behind_card(names[i])) {
            code = write_card(c, &text);
            card = false;
        }
        if (code == TP_OK && tp_commit_copies(c->plan, names[i]))
            code = copy_in_folder(c, i);
    }
    if (card && code == TP_OK)
        code = write_card(c, &text);
    tp_text_free(&text);
    return code ? code : tp_checkpoint_others_unchanged(c->plan->ckpt, tp_commit_is_usual, c->err);
}

static enum tp_code write_index(struct tp_commit *c)
{
    struct tp_text text = {0};
    char name[64];
    enum tp_code code = tp_index_text(c->plan, &text, c->err);
    snprintf(name, sizeof name, "%s" TP_INDEX_END, c->plan->ckpt->base);
    if (code == TP_OK)
        code = tp_commit_write_small(c, name, text.data, text.size, true);
    tp_text_free(&text);
    return code;
}

static enum tp_code write_config(struct tp_commit *c)
{
    struct tp_text text = {0};
    uint64_t before = tp_json_failures();
    enum tp_code code = tp_json_check(before, tp_config_text(c->plan, &text, c->err), c->err);
    if (code == TP_OK && text.data)
        code = tp_commit_write_small(c, "config.json", text.data, text.size, true);
    tp_text_free(&text);
    return code;
}

static enum tp_code write_manifest(struct tp_commit *c)
{
    struct tp_text text = {0};
    enum tp_code code =
        tp_manifest_text(c->plan, c->request, &c->data, c->files, c->file_count, &text, c->err);
    if (code == TP_OK)
        code = tp_commit_write_small(c, TP_MANIFEST_NAME, text.data, text.size, false);
    tp_text_free(&text);
    return code;
}

static enum tp_code total_data(struct tp_commit *c)
{
    const size_t count = c->plan->ckpt->file_count + 1;
    c->data.sums = tp_os_zalloc(count, sizeof *c->data.sums, c->err);
    c->data.known = tp_os_zalloc(count, sizeof *c->data.known, c->err);
    return c->data.sums && c->data.known
               ? tp_read_sums_total(c->plan, c->journal.read, c->data.sums, c->data.known, c->err)
               : TP_E_MEMORY;
}

enum tp_code tp_commit_write_texts(struct tp_commit *c)
{
    enum tp_code code = write_index(c);
    if (code == TP_OK && (code = write_config(c)) == TP_OK)
        code = copy_others(c);
    if (code == TP_OK && c->request->digests)
        code = tp_manifest_digest(c->partial, c->files, c->file_count, c->options->run.jobs,
                                  c->options->run.stop, c->err);
    if (code == TP_OK && (code = tp_checkpoint_unchanged(c->plan->ckpt, c->err)) == TP_OK &&
        (code = total_data(c)) == TP_OK)
        code = write_manifest(c);
    return code;
}

/* An archive is listed with its own size and the hash of what it holds. */
enum tp_code tp_commit_record_shard(struct tp_commit *c, uint32_t f)
{
    const struct tp_plan_file *file = &c->plan->files[f];
    const char *suffix = c->options->zstd ? TP_ZST_SUFFIX : "";
    char *name = tp_os_format(c->err, "%s%s", file->name, suffix);
    char *path = tp_os_format(c->err, "%s/%s%s", c->partial, file->name, suffix);
    struct stat st;
    int fd = -1;
    enum tp_code code = name && path ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK)
        code = tp_below_open_regular(c->dir, name, path, &fd, &st, c->err);
    tp_os_close(&fd);
    if (code == TP_OK)
        code = record(c, name, (uint64_t)st.st_size, c->journal.hash[f]);
    free(name);
    free(path);
    return code;
}

enum tp_code tp_commit_remove_file(int dir, const char *path, const char *name,
                                   struct tp_err *err)
{
    char *whole = tp_os_format(err, "%s/%s", path, name);
    enum tp_code code = whole ? tp_below_remove(dir, name, whole, err) : TP_E_MEMORY;
    free(whole);
    return code;
}

void tp_convert_result_close(struct tp_convert_result *result)
{
    free(result->old);
    result->old = NULL;
}

void tp_commit_close(struct tp_commit *c)
{
    tp_os_close(&c->dir);
    tp_journal_close(&c->journal);
    for (size_t i = 0; i < c->file_count; i++)
        free(c->files[i].name);
    free(c->files);
    free(c->data.sums);
    free(c->data.known);
    free(c->partial);
    free(c->parent);
    free(c->old);
    pthread_mutex_destroy(&c->lock);
}
