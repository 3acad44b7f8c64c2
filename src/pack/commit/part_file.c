/* The file of a part: JSON that names its plan, source and request, and holds the text of its
 * journal, which says what its shards are. It is written last, so that a part that has it is
 * complete.
 */
#include "pack/commit/part_file.h"

#include "base/suffix.h"
#include "pack/commit/partial_name.h"
#include "pack/os/below.h"
#include "pack/sink/compress.h"
#include "pack/text/json_tree.h"
#include "pack/text/json_scan.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define VERSION 2 /* 1 was a note in the unfinished output, until 0.2.0 */
/* The request in it has all that a recipe leaves out: of one of TP_RECIPE_MAX_BYTES it is many
 * times as long. */
#define MAX_BYTES (UINT64_C(256) << 20)

char *tp_part_path(const char *output, struct tp_share share, struct tp_err *err)
{
    char *all = tp_beside_name(output, "", ".part-", strlen("4294967295-of-4294967295"), err);
    if (!all || !share.count)
        return all;
    char *path = tp_os_format(err, "%s%u-of-%u", all, share.index, share.count);
    free(all);
    return path;
}

enum tp_code tp_part_write(struct tp_commit *c)
{
    char plan[TP_HASH_TEXT], id[TP_HASH_TEXT], *journal = NULL, *text = NULL;
    uint8_t source_id[TP_HASH_BYTES];
    size_t size;
    uint64_t before = tp_json_failures();
    char *source = tp_os.realpath(c->plan->ckpt->path, NULL);
    enum tp_code code = source ? tp_commit_source_id(c, source_id)
                               : tp_os_fail(c->err, errno, c->plan->ckpt->path,
                                            "cannot resolve the path");
    if (code == TP_OK &&
        (code = tp_journal_text(&c->journal, &journal, &size, c->err)) == TP_OK) {
        tp_hash_print(c->plan->hash, plan);
        tp_hash_print(source_id, id);
        json_t *json = json_pack("{s:i,s:s,s:s,s:s,s:i,s:o,s:s%}", "tilepack_part", VERSION, "plan",
                                 plan, "source", tp_is_utf8(source) ? source : "", "source_id", id,
                                 "zstd", (int)c->options->zstd, "request",
                                 tp_request_record(c->request), "journal", journal, size);
        text = json ? tp_json_dump(json, JSON_INDENT(1)) : NULL;
        json_decref(json);
        if (!text)
            code = tp_fail(c->err, TP_E_MEMORY, "out of memory for what the part says of itself");
    }
    if ((code = tp_json_check(before, code, c->err)) == TP_OK && text)
        code = tp_commit_write_small(c, TP_PART_FILE, text, strlen(text), false);
    free(text);
    free(journal);
    free(source);
    return code;
}

static bool is_hash(const json_t *json, const char *key, uint8_t hash[TP_HASH_BYTES])
{
    const char *text = json_string_value(json_object_get(json, key));
    return text && tp_hash_parse(text, strlen(text), hash);
}

static enum tp_code read_part(const json_t *json, struct tp_done_part *part, struct tp_err *err)
{
    const char *source = json_string_value(json_object_get(json, "source"));
    const char *journal = json_string_value(json_object_get(json, "journal"));
    const json_t *request = json_object_get(json, "request");
    json_int_t zstd = json_integer_value(json_object_get(json, "zstd"));
    if (json_integer_value(json_object_get(json, "tilepack_part")) != VERSION || !source ||
        !journal || !json_is_object(request) || !is_hash(json, "plan", part->hash) ||
        !is_hash(json, "source_id", part->source_id) || zstd < 0 || zstd > INT32_MAX)
        return tp_fail(err, TP_E_INPUT, "not what a part writes of itself in this version");
    part->zstd = (unsigned)zstd;
    part->source = tp_os_format(err, "%s", source);
    part->journal = tp_os_format(err, "%s", journal);
    part->request = tp_json_dump(request, JSON_COMPACT);
    return part->source && part->journal && part->request
               ? TP_OK : tp_fail(err, TP_E_MEMORY, "out of memory for what a part says of itself");
}

enum tp_code tp_part_read(const char *path, struct tp_done_part *part, struct tp_err *err)
{
    char *file = tp_os_format(err, "%s/" TP_PART_FILE, path), *text = NULL;
    size_t size;
    int dir = -1;
    json_error_t where;
    uint64_t before = tp_json_failures();
    *part = (struct tp_done_part){.path = tp_os_format(err, "%s", path)};
    enum tp_code code = file && part->path ? tp_below_open_dir(path, &dir, err) : TP_E_MEMORY;
    if (code == TP_OK)
        code = tp_below_slurp(dir, TP_PART_FILE, file, MAX_BYTES, &text, &size, err);
    if (code == TP_OK) {
        json_t *json = tp_json_load(text, size, &where);
        code = json ? read_part(json, part, err)
                    : tp_fail(err, TP_E_INPUT, "line %d: %s", where.line, where.text);
        json_decref(json);
        tp_err_path(code ? err : NULL, file);
    }
    code = tp_json_check(before, code, err);
    if (code == TP_E_IO && err->sys == ENOENT) {
        *err = (struct tp_err){0};
        tp_err_path(err, path);
        tp_err_hint(err, "move it away, or choose another output with -o");
        err->reason = tp_found_reason(TP_FOUND_FOREIGN);
        code = tp_fail(err, TP_E_EXISTS, "it has the name of a part, and no " TP_PART_FILE);
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

/* A shard that a line of the journal names. */
static enum tp_code remove_shard(const struct tp_done_part *part, int dir, const char *line,
                                 struct tp_err *err)
{
    char *name = tp_os_format(err, "%.*s", (int)strcspn(line, " \n"), line);
    char *file = name ? tp_os_format(err, "%s%s", name, part->zstd ? TP_ZST_SUFFIX : "") : NULL;
    enum tp_code code = file ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK && tp_ends_with(name, ".safetensors") && !strchr(name, '/'))
        code = tp_commit_remove_file(dir, part->path, file, err);
    free(name);
    free(file);
    return code;
}

enum tp_code tp_part_remove(const struct tp_done_part *part, struct tp_err *err)
{
    int dir;
    const char *line = part->journal, *stop;
    enum tp_code code = tp_below_open_dir(part->path, &dir, err);
    for (; code == TP_OK && (stop = strchr(line, '\n')); line = stop + 1)
        code = remove_shard(part, dir, line, err);
    if (code == TP_OK &&
        (code = tp_commit_remove_file(dir, part->path, TP_JOURNAL_NAME, err)) == TP_OK)
        code = tp_commit_remove_file(dir, part->path, TP_PART_FILE, err);
    tp_os_close(&dir);
    if (code == TP_OK && tp_os.unlinkat(AT_FDCWD, part->path, AT_REMOVEDIR) && errno != ENOTEMPTY &&
        errno != EEXIST) /* else another program has put something there, which stays */
        code = tp_os_fail(err, errno, part->path, "cannot remove it");
    return code;
}

void tp_part_close(struct tp_done_part *part)
{
    free(part->path);
    free(part->journal);
    free(part->source);
    free(part->request);
    *part = (struct tp_done_part){0};
}
