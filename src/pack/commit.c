/* Committing: partial directory, journal, small files, manifest, rename.
 *
 * At every moment the output's name is absent, or the old complete content, or
 * the new complete content.
 */
#include "pack/commit.h"

#include "pack/config.h"
#include "pack/journal.h"
#include "pack/os.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

struct commit {
    const struct tp_plan *plan;
    const struct tp_request *request;
    const struct tp_convert_options *options;
    const char *output;
    char *partial, *parent;
    struct tp_journal journal;
    pthread_mutex_t lock; /* of the journal */
    struct tp_manifest_file *files;
    size_t file_count;
    struct tp_err *err;
};

static char *parent_of(const char *path, struct tp_err *err)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return tp_os_format(err, ".");
    return slash == path ? tp_os_format(err, "/")
                         : tp_os_format(err, "%.*s", (int)(slash - path), path);
}

/* Never write into what is being read. */
static enum tp_code check_not_source(const struct tp_plan *plan, const char *output,
                                     struct tp_err *err)
{
    struct stat out, src;
    if (tp_os.stat(output, &out))
        return TP_OK; /* does not exist: cannot be the source */
    bool same = tp_os.stat(plan->ckpt->path, &src) == 0 && src.st_dev == out.st_dev &&
                src.st_ino == out.st_ino;
    for (size_t i = 0; i < plan->ckpt->file_count && !same; i++)
        same = plan->ckpt->files[i].device == (uint64_t)out.st_dev &&
               plan->ckpt->files[i].inode == (uint64_t)out.st_ino;
    if (!same)
        return TP_OK;
    tp_err_path(err, output);
    tp_err_hint(err, "choose another output with -o");
    return tp_fail(err, TP_E_USAGE, "output and source are the same");
}

/* The output is complete and from this very plan, and no source is newer. */
static bool is_done(const struct tp_plan *plan, const char *output)
{
    struct tp_manifest manifest;
    struct tp_err ignored = {0};
    struct stat st;
    char id[TP_HASH_TEXT];
    char *path = tp_os_format(&ignored, "%s/%s", output, TP_MANIFEST_NAME);
    bool done = path && tp_os.stat(path, &st) == 0 &&
                tp_manifest_read(output, &manifest, &ignored) == TP_OK;
    free(path);
    if (!done)
        return false;
    tp_manifest_plan_id(plan, id);
    done = strcmp(manifest.plan, id) == 0;
    int64_t made = (int64_t)st.st_mtim.tv_sec * 1000000000 + st.st_mtim.tv_nsec;
    for (size_t i = 0; i < plan->ckpt->file_count; i++)
        done = done && plan->ckpt->files[i].mtime_ns <= made;
    for (size_t i = 0; i < manifest.file_count && done; i++) {
        path = tp_os_format(&ignored, "%s/%s", output, manifest.files[i].name);
        done = path && tp_os.stat(path, &st) == 0 && (uint64_t)st.st_size == manifest.files[i].size;
        free(path);
    }
    tp_manifest_close(&manifest);
    return done;
}

/* An empty directory is not in the way. */
static bool is_empty_directory(const char *path)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    bool empty = dir != NULL;
    while (empty && (entry = readdir(dir)))
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    if (dir)
        closedir(dir);
    return empty;
}

static enum tp_code in_the_way(const char *path, struct tp_err *err)
{
    tp_err_path(err, path);
    tp_err_hint(err, "--force replaces it once the new output is complete");
    return tp_fail(err, TP_E_USAGE, "the output exists already");
}

/* Removes a directory of plain files, as this program writes them. */
static enum tp_code remove_directory(const char *path, struct tp_err *err)
{
    DIR *dir = opendir(path);
    struct dirent *entry;
    enum tp_code code = TP_OK;
    if (!dir) {
        tp_err_path(err, path);
        return tp_fail_sys(err, errno, "cannot open the directory to be replaced");
    }
    while (code == TP_OK && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char *name = tp_os_format(err, "%s/%s", path, entry->d_name);
        if (!name)
            code = TP_E_MEMORY;
        else if (tp_os.unlink(name)) {
            int failed = errno;
            tp_err_path(err, name);
            code = tp_fail_sys(err, failed, "cannot remove it");
        }
        free(name);
    }
    closedir(dir);
    if (code == TP_OK && tp_os.rmdir(path)) {
        tp_err_path(err, path);
        code = tp_fail_sys(err, errno, "cannot remove it");
    }
    return code;
}

static enum tp_code open_partial(struct commit *c)
{
    bool foreign;
    struct stat st;
    if (!(c->partial = tp_os_format(c->err, "%s.partial", c->output)) ||
        !(c->parent = parent_of(c->output, c->err)))
        return TP_E_MEMORY;
    if (tp_os.stat(c->partial, &st) != 0) {
        enum tp_code code = tp_os_mkdir(c->partial, c->err);
        if (code)
            return code;
    }
    enum tp_code code = tp_journal_open(c->partial, c->plan, &c->journal, &foreign, c->err);
    if (code || !foreign)
        return code;
    tp_journal_close(&c->journal);
    if (!c->options->force) {
        tp_err_path(c->err, c->partial);
        tp_err_hint(c->err, "finish that one, remove the directory, or start over with --force");
        return tp_fail(c->err, TP_E_USAGE, "an interrupted run of another conversion is here");
    }
    if ((code = remove_directory(c->partial, c->err)) ||
        (code = tp_os_mkdir(c->partial, c->err)))
        return code;
    return tp_journal_open(c->partial, c->plan, &c->journal, &foreign, c->err);
}

static enum tp_code shard_done(void *arg, uint32_t file, const uint8_t hash[TP_HASH_BYTES],
                               struct tp_err *err)
{
    struct commit *c = arg;
    pthread_mutex_lock(&c->lock);
    enum tp_code code = tp_journal_add(&c->journal, c->plan, file, hash, err);
    pthread_mutex_unlock(&c->lock);
    return code;
}

static enum tp_code record(struct commit *c, const char *name, uint64_t size,
                           const uint8_t hash[TP_HASH_BYTES])
{
    struct tp_manifest_file *file = &c->files[c->file_count];
    file->size = size;
    memcpy(file->hash, hash, TP_HASH_BYTES);
    file->name = tp_os_format(c->err, "%s", name);
    c->file_count += file->name != NULL;
    return file->name ? TP_OK : TP_E_MEMORY;
}

struct bytes {
    const char *data;
};

static enum tp_code read_bytes(void *arg, void *data, uint64_t size, uint64_t offset,
                               struct tp_err *err)
{
    (void)err;
    memcpy(data, ((const struct bytes *)arg)->data + offset, size);
    return TP_OK;
}

/* A small file made here: index, config. */
static enum tp_code write_small(struct commit *c, const char *name, const char *data, size_t size,
                                bool listed)
{
    int fd = -1;
    uint8_t hash[TP_HASH_BYTES];
    struct bytes bytes = {data};
    char *path = tp_os_format(c->err, "%s/%s", c->partial, name);
    enum tp_code code = path ? tp_os_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666, &fd,
                                          c->err)
                             : TP_E_MEMORY;
    if (code == TP_OK && (code = tp_os_write(fd, data, size, 0, path, c->err)) == TP_OK)
        code = tp_os_fsync(fd, path, c->err);
    if (fd >= 0 && tp_os.close(fd) && code == TP_OK) {
        tp_err_path(c->err, path);
        code = tp_fail_sys(c->err, errno, "cannot close the output");
    }
    if (code == TP_OK && listed &&
        (code = tp_leafhash_file(size, 1, read_bytes, &bytes, hash, c->err)) == TP_OK)
        code = record(c, name, size, hash);
    free(path);
    return code;
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

static enum tp_code copy_other(struct commit *c, const char *name)
{
    uint8_t hash[TP_HASH_BYTES];
    struct stat st;
    char *from = tp_os_format(c->err, "%s/%s", c->plan->ckpt->path, name);
    char *to = tp_os_format(c->err, "%s/%s", c->partial, name);
    struct copied copy = {-1, -1, from, to};
    enum tp_code code = from && to ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK &&
        (code = tp_os_open(from, O_RDONLY | O_CLOEXEC, 0, &copy.from, c->err)) == TP_OK)
        code = tp_os_open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666, &copy.to, c->err);
    if (code == TP_OK && tp_os.fstat(copy.from, &st)) {
        tp_err_path(c->err, from);
        code = tp_fail_sys(c->err, errno, "cannot read its size");
    }
    if (code == TP_OK &&
        (code = tp_leafhash_file((uint64_t)st.st_size, 1, copy_through, &copy, hash, c->err)) ==
            TP_OK &&
        (code = tp_os_fsync(copy.to, to, c->err)) == TP_OK)
        code = record(c, name, (uint64_t)st.st_size, hash);
    if (copy.from >= 0)
        tp_os.close(copy.from);
    if (copy.to >= 0 && tp_os.close(copy.to) && code == TP_OK) {
        tp_err_path(c->err, to);
        code = tp_fail_sys(c->err, errno, "cannot close the output");
    }
    free(from);
    free(to);
    return code;
}

static int output_by_name(const void *a, const void *b)
{
    return strcmp((*(const struct tp_output *const *)a)->name,
                  (*(const struct tp_output *const *)b)->name);
}

static enum tp_code index_text(const struct tp_plan *plan, struct tp_text *text,
                               struct tp_err *err)
{
    const struct tp_output **sorted = tp_os_zalloc(plan->output_count + 1, sizeof *sorted, err);
    if (!sorted)
        return TP_E_MEMORY;
    for (size_t o = 0; o < plan->output_count; o++)
        sorted[o] = &plan->outputs[o];
    qsort(sorted, plan->output_count, sizeof *sorted, output_by_name);
    enum tp_code code =
        tp_text_addf(text, err, "{\n  \"metadata\": {\n    \"total_size\": %llu\n  },\n"
                                "  \"weight_map\": {", (unsigned long long)plan->bytes_out);
    for (size_t o = 0; o < plan->output_count && code == TP_OK; o++) {
        code = tp_text_addf(text, err, "%s\n    ", o ? "," : "");
        if (code == TP_OK && (code = tp_text_add_json(text, sorted[o]->name, err)) == TP_OK)
            code = tp_text_addf(text, err, ": \"%s\"", plan->files[sorted[o]->file].name);
    }
    free(sorted);
    return code ? code : tp_text_addf(text, err, "\n  }\n}\n");
}

static enum tp_code write_texts(struct commit *c)
{
    struct tp_text index = {0}, config = {0}, manifest = {0};
    enum tp_code code = index_text(c->plan, &index, c->err);
    if (code == TP_OK)
        code = write_small(c, "model.safetensors.index.json", index.data, index.size, true);
    if (code == TP_OK && (code = tp_config_text(c->plan, &config, c->err)) == TP_OK && config.data)
        code = write_small(c, "config.json", config.data, config.size, true);
    for (size_t i = 0; i < c->plan->ckpt->other_count && code == TP_OK; i++)
        code = copy_other(c, c->plan->ckpt->others[i]);
    if (code == TP_OK && (code = tp_checkpoint_unchanged(c->plan->ckpt, c->err)) == TP_OK &&
        (code = tp_manifest_text(c->plan, c->request, c->files, c->file_count, &manifest,
                                 c->err)) == TP_OK)
        code = write_small(c, TP_MANIFEST_NAME, manifest.data, manifest.size, false);
    tp_text_free(&index);
    tp_text_free(&config);
    tp_text_free(&manifest);
    return code;
}

/* After the rename: the journal has served, and the commit is made durable. */
static enum tp_code end_journal(struct commit *c)
{
    enum tp_code code = TP_OK;
    char *path = tp_os_format(c->err, "%s/%s", c->output, TP_JOURNAL_NAME);
    if (!path)
        return TP_E_MEMORY;
    if (tp_os.unlink(path) && errno != ENOENT) {
        tp_err_path(c->err, path);
        code = tp_fail_sys(c->err, errno, "cannot remove the journal");
    }
    free(path);
    return code ? code : tp_os_fsync_dir(c->parent, c->err);
}

/* The moment of commit. Existing content is exchanged, then removed. */
static enum tp_code publish(struct commit *c)
{
    struct stat st;
    enum tp_code code = tp_os_fsync_dir(c->partial, c->err);
    if (code)
        return code;
    bool exists = tp_os.stat(c->output, &st) == 0 && !is_empty_directory(c->output);
    if (!exists) {
        if ((code = tp_os_rename(c->partial, c->output, c->err)))
            return code;
        return end_journal(c);
    }
    if (tp_os.exchange(c->partial, c->output)) {
        tp_err_path(c->err, c->output);
        tp_err_hint(c->err, "the new output is complete in %s: move it yourself", c->partial);
        return tp_fail_sys(c->err, errno, "cannot exchange the old output for the new");
    }
    if ((code = end_journal(c)))
        return code;
    code = remove_directory(c->partial, c->err); /* now the old content */
    if (code)
        tp_err_hint(c->err, "the new output is complete; remove the rest of the old one yourself");
    return code;
}

static enum tp_code run_directory(struct commit *c, struct tp_convert_result *result)
{
    struct tp_file_sink sink = {0};
    struct tp_run_options run = c->options->run;
    enum tp_code code = open_partial(c);
    if (code)
        return code;
    result->resumed = c->journal.done_count;
    run.skip_file = c->journal.done;
    c->files = tp_os_zalloc(c->plan->file_count + c->plan->ckpt->other_count + 4,
                            sizeof *c->files, c->err);
    code = c->files ? tp_file_sink_open(&sink, c->plan, c->partial, NULL, c->err) : TP_E_MEMORY;
    sink.done = shard_done;
    sink.done_arg = c;
    if (code == TP_OK)
        code = tp_run(c->plan, &sink.sink, &run, c->err);
    tp_file_sink_close(&sink);
    for (size_t f = 0; f < c->plan->file_count && code == TP_OK; f++)
        code = record(c, c->plan->files[f].name, c->plan->files[f].size, c->journal.hash[f]);
    if (code == TP_OK && (code = write_texts(c)) == TP_OK)
        code = publish(c);
    return code;
}

static enum tp_code run_file(struct commit *c)
{
    struct tp_file_sink sink = {0};
    const char *slash = strrchr(c->output, '/');
    const char *base = slash ? slash + 1 : c->output;
    if (!(c->parent = parent_of(c->output, c->err)) ||
        !(c->partial = tp_os_format(c->err, "%s/.%s.partial", c->parent, base)))
        return TP_E_MEMORY;
    int lock = -1;
    enum tp_code code = tp_os_open(c->partial, O_RDWR | O_CREAT | O_CLOEXEC, 0666, &lock, c->err);
    if (code || (code = tp_os_lock(lock, c->partial, c->err))) {
        if (lock >= 0)
            tp_os.close(lock);
        return code;
    }
    if ((code = tp_file_sink_open(&sink, c->plan, c->parent, c->partial, c->err)) == TP_OK)
        code = tp_run(c->plan, &sink.sink, &c->options->run, c->err);
    tp_file_sink_close(&sink);
    if (code == TP_OK)
        code = tp_checkpoint_unchanged(c->plan->ckpt, c->err);
    if (code == TP_OK)
        code = tp_os_rename(c->partial, c->output, c->err);
    else
        tp_os.unlink(c->partial); /* a single file is not resumed */
    tp_os.close(lock);
    return code ? code : tp_os_fsync_dir(c->parent, c->err);
}

/* --force replaces a file by a file, or a directory that holds nothing but files,
 * as a checkpoint does; never a tree. */
static enum tp_code check_replaceable(struct commit *c, const struct stat *output)
{
    tp_err_path(c->err, c->output);
    tp_err_hint(c->err, "choose another output with -o");
    if (c->plan->single_file != !S_ISDIR(output->st_mode))
        return tp_fail(c->err, TP_E_USAGE, "the output is a %s already and would become a %s",
                       S_ISDIR(output->st_mode) ? "directory" : "file",
                       S_ISDIR(output->st_mode) ? "file" : "directory");
    DIR *dir = S_ISDIR(output->st_mode) ? opendir(c->output) : NULL;
    struct dirent *entry;
    bool tree = false;
    while (dir && !tree && (entry = readdir(dir)))
        tree = entry->d_type == DT_DIR && strcmp(entry->d_name, ".") != 0 &&
               strcmp(entry->d_name, "..") != 0;
    if (dir)
        closedir(dir);
    if (tree)
        return tp_fail(c->err, TP_E_USAGE, "the output holds directories: not a checkpoint that "
                       "--force may replace");
    memset(c->err, 0, sizeof *c->err);
    return TP_OK;
}

static enum tp_code check_output(struct commit *c, struct tp_convert_result *result)
{
    struct stat st;
    enum tp_code code = check_not_source(c->plan, c->output, c->err);
    if (code || tp_os.stat(c->output, &st) != 0)
        return code;
    if (c->options->force)
        return check_replaceable(c, &st);
    if (S_ISDIR(st.st_mode) && is_done(c->plan, c->output)) {
        result->already_done = true;
        return TP_OK;
    }
    return S_ISDIR(st.st_mode) && is_empty_directory(c->output) ? TP_OK
                                                                : in_the_way(c->output, c->err);
}

enum tp_code tp_convert(const struct tp_plan *plan, const struct tp_request *request,
                        const char *output, const struct tp_convert_options *options,
                        struct tp_convert_result *result, struct tp_err *err)
{
    struct commit c = {.plan = plan, .request = request, .options = options, .output = output,
                       .err = err, .journal = {.fd = -1}};
    *result = (struct tp_convert_result){.bytes_in = plan->bytes_in, .bytes_out = plan->bytes_out};
    if (options->discard)
        return tp_run(plan, &tp_discard_sink, &options->run, err);
    pthread_mutex_init(&c.lock, NULL);
    enum tp_code code = check_output(&c, result);
    if (code == TP_OK && !result->already_done)
        code = plan->single_file ? run_file(&c) : run_directory(&c, result);
    tp_journal_close(&c.journal);
    for (size_t i = 0; i < c.file_count; i++)
        free(c.files[i].name);
    free(c.files);
    free(c.partial);
    free(c.parent);
    pthread_mutex_destroy(&c.lock);
    return code;
}
