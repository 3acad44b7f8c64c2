/* The file of a part: JSON that names its plan, source and request, and its shards with their
 * hashes. It is written last, so that a part that has it is complete.
 */
#include "pack/commit/part_file.h"

#include "pack/commit/partial_name.h"
#include "pack/os/below.h"
#include "pack/text/json_memory.h"
#include "pack/text/json_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 2 /* 1 was a note in the unfinished output, until 0.2.0 */
/* The request in it has all that a recipe leaves out: of one of TP_RECIPE_MAX_BYTES it is many
 * times as long. */
#define MOST (UINT64_C(256) << 20)

char *tp_part_path(const char *output, struct tp_share share, struct tp_err *err)
{
    char *all = tp_beside_name(output, "", ".part-", strlen("4294967295-of-4294967295"), err);
    if (!all || !share.count)
        return all;
    char *path = tp_os_format(err, "%s%u-of-%u", all, share.index, share.count);
    free(all);
    return path;
}

static json_t *file_list(const struct tp_commit *c)
{
    json_t *files = json_array();
    for (size_t i = 0, f = 0; i < c->file_count; i++, f++) {
        struct tp_text read = {0};
        char hash[TP_HASH_TEXT];
        while (c->others[f])
            f++;
        tp_hash_print(c->files[i].hash, hash);
        tp_read_list_text(&c->journal.read[f], &read, c->err);
        json_array_append_new(files, json_pack("{s:s,s:I,s:s,s:s}", "name", c->files[i].name,
                                               "size", (json_int_t)c->files[i].size, "xxh3", hash,
                                               "read", read.data ? read.data : ""));
        tp_text_free(&read);
    }
    return files;
}

enum tp_code tp_part_write(struct tp_commit *c)
{
    char plan[TP_HASH_TEXT], id[TP_HASH_TEXT], *text = NULL;
    uint8_t source_id[TP_HASH_BYTES];
    uint64_t mark = tp_json_mark();
    char *source = tp_os.realpath(c->plan->ckpt->path, NULL);
    enum tp_code code = source ? tp_commit_source_id(c, source_id)
                               : tp_os_fail(c->err, errno, c->plan->ckpt->path,
                                            "cannot resolve the path");
    if (code == TP_OK) {
        tp_hash_print(c->plan->hash, plan);
        tp_hash_print(source_id, id);
        json_t *json = json_pack("{s:i,s:s,s:s,s:s,s:i,s:o,s:o}", "tilepack_part", VERSION, "plan",
                                 plan, "source", tp_is_utf8(source) ? source : "", "source_id", id,
                                 "zstd", (int)c->options->zstd, "request",
                                 tp_request_record(c->request), "files", file_list(c));
        text = json ? json_dumps(json, JSON_INDENT(1)) : NULL;
        json_decref(json);
        if (!text)
            code = tp_fail(c->err, TP_E_MEMORY, "out of memory for the list of the part's shards");
    }
    if ((code = tp_json_check(mark, code, c->err)) == TP_OK)
        code = tp_commit_write_small(c, TP_PART_FILE, text, strlen(text), false);
    free(text);
    free(source);
    return code;
}

static enum tp_code wrong(struct tp_err *err)
{
    return tp_fail(err, TP_E_INPUT, "not what a part writes of itself in this version");
}

static bool is_hash(const json_t *json, const char *key, uint8_t hash[TP_HASH_BYTES])
{
    const char *text = json_string_value(json_object_get(json, key));
    return text && tp_hash_parse(text, strlen(text), hash);
}

static enum tp_code read_files(const json_t *list, struct tp_done_part *part, struct tp_err *err)
{
    size_t count = json_array_size(list);
    if (!json_is_array(list))
        return wrong(err);
    part->files = tp_os_zalloc(count + 1, sizeof *part->files, err);
    part->read = tp_os_zalloc(count + 1, sizeof *part->read, err);
    if (!part->files || !part->read)
        return TP_E_MEMORY;
    for (size_t i = 0; i < count; i++) {
        const json_t *entry = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        const char *read = json_string_value(json_object_get(entry, "read"));
        json_int_t size = json_integer_value(json_object_get(entry, "size"));
        struct tp_manifest_file *file = &part->files[part->file_count];
        if (!name || !*name || *name == '.' || strchr(name, '/') || size < 0 ||
            !is_hash(entry, "xxh3", file->hash) || !read ||
            !tp_read_list_parse(read, strlen(read), &part->read[part->file_count], err))
            return wrong(err);
        file->size = (uint64_t)size;
        if (!(file->name = tp_os_format(err, "%s", name)))
            return TP_E_MEMORY;
        part->file_count++;
    }
    return TP_OK;
}

static enum tp_code read_part(const json_t *json, struct tp_done_part *part, struct tp_err *err)
{
    const char *source = json_string_value(json_object_get(json, "source"));
    const json_t *request = json_object_get(json, "request");
    json_int_t zstd = json_integer_value(json_object_get(json, "zstd"));
    if (json_integer_value(json_object_get(json, "tilepack_part")) != VERSION || !source ||
        !json_is_object(request) || !is_hash(json, "plan", part->hash) ||
        !is_hash(json, "source_id", part->source_id) || zstd < 0 || zstd > INT32_MAX)
        return wrong(err);
    part->zstd = (unsigned)zstd;
    part->source = tp_os_format(err, "%s", source);
    part->request = json_dumps(request, JSON_COMPACT);
    if (!part->source || !part->request)
        return tp_fail(err, TP_E_MEMORY, "out of memory for what a part writes of itself");
    return read_files(json_object_get(json, "files"), part, err);
}

enum tp_code tp_part_read(const char *path, struct tp_done_part *part, struct tp_err *err)
{
    char *file = tp_os_format(err, "%s/" TP_PART_FILE, path), *text = NULL;
    size_t size;
    int dir = -1;
    json_error_t where;
    uint64_t mark = tp_json_mark();
    *part = (struct tp_done_part){.path = tp_os_format(err, "%s", path)};
    enum tp_code code = file && part->path ? tp_below_open_dir(path, &dir, err) : TP_E_MEMORY;
    if (code == TP_OK)
        code = tp_below_slurp(dir, TP_PART_FILE, file, MOST, &text, &size, err);
    if (code == TP_OK) {
        json_t *json = tp_json_load(text, size, JSON_REJECT_DUPLICATES, &where);
        code = json ? read_part(json, part, err)
                    : tp_fail(err, TP_E_INPUT, "line %d: %s", where.line, where.text);
        json_decref(json);
        tp_err_path(code ? err : NULL, file);
    }
    code = tp_json_check(mark, code, err);
    if (code == TP_E_IO && err->sys == ENOENT) {
        *err = (struct tp_err){0};
        tp_err_path(err, path);
        tp_err_hint(err, "move it away, or choose another output with -o");
        code = tp_fail(err, TP_E_USAGE, "it has the name of a part, and no " TP_PART_FILE);
    } else if (code) {
        tp_err_hint(err, "remove the directory of the part and run the part again");
    }
    if (code)
        tp_part_close(part);
    tp_os_close(&dir);
    free(text);
    free(file);
    return code;
}

bool tp_part_is_empty(const char *path)
{
    return tp_os.unlinkat(AT_FDCWD, path, AT_REMOVEDIR) == 0;
}

enum tp_code tp_part_remove(const struct tp_done_part *part, struct tp_err *err)
{
    int dir;
    enum tp_code code = tp_below_open_dir(part->path, &dir, err);
    for (size_t i = 0; i < part->file_count && code == TP_OK; i++)
        code = tp_commit_remove_file(dir, part->path, part->files[i].name, err);
    if (code == TP_OK &&
        (code = tp_commit_remove_file(dir, part->path, TP_JOURNAL_NAME, err)) == TP_OK)
        code = tp_commit_remove_file(dir, part->path, TP_PART_FILE, err);
    tp_os_close(&dir);
    if (code == TP_OK && tp_os.unlinkat(AT_FDCWD, part->path, AT_REMOVEDIR) && errno != ENOTEMPTY &&
        errno != EEXIST) /* else somebody has put something there, which stays */
        code = tp_os_fail(err, errno, part->path, "cannot remove it");
    return code;
}

void tp_part_close(struct tp_done_part *part)
{
    for (size_t i = 0; i < part->file_count; i++)
        free(part->files[i].name);
    for (size_t i = 0; part->read && i <= part->file_count; i++) /* the last may be half read */
        free(part->read[i].items);
    free(part->read);
    free(part->files);
    free(part->path);
    free(part->source);
    free(part->request);
    *part = (struct tp_done_part){0};
}
