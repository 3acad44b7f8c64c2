/* What parts note of themselves in the partial directory. */
#include "pack/commit/parts_notes.h"

#include "base/suffix.h"
#include "pack/commit/commit_build.h"
#include "pack/os/below.h"
#include "pack/text/json_tree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The request in it has all that a recipe leaves out: of one of TP_RECIPE_MAX_BYTES it is many
 * times as long. */
#define MOST (UINT64_C(256) << 20)

char *tp_part_file(const char *kind, struct tp_share share, struct tp_err *err)
{
    return tp_os_format(err, "%s.%u-of-%u", kind, share.index, share.count);
}

/* Whether the name is KIND.I-of-P and `end`, to the letter. */
static bool is_name(const char *name, const char *kind, const char *end, struct tp_share *share)
{
    char again[80];
    if (!tp_begins_with(name, kind) ||
        sscanf(name + strlen(kind), ".%u-of-%u", &share->index, &share->count) != 2)
        return false;
    snprintf(again, sizeof again, "%s.%u-of-%u%s", kind, share->index, share->count, end);
    return strcmp(name, again) == 0 && share->index >= 1 && share->index <= share->count;
}

bool tp_part_of_name(const char *name, struct tp_share *share)
{
    return is_name(name, TP_PART_NAME, "", share);
}

bool tp_part_owns(const char *name)
{
    struct tp_share share;
    return is_name(name, TP_PART_NAME, "", &share) || is_name(name, TP_JOURNAL_NAME, "", &share) ||
           is_name(name, TP_PART_NAME, TP_PART_NEW, &share);
}

static enum tp_code read_note(const json_t *json, struct tp_parts *parts, struct tp_err *err)
{
    const char *source = json_string_value(json_object_get(json, "source"));
    const char *plan = json_string_value(json_object_get(json, "plan"));
    const json_t *request = json_object_get(json, "request");
    json_int_t zstd = json_integer_value(json_object_get(json, "zstd"));
    if (json_integer_value(json_object_get(json, "tilepack_part")) != 1 || !source || !plan ||
        !json_is_object(request) || !tp_hash_parse(plan, strlen(plan), parts->hash) || zstd < 0 ||
        zstd > UINT32_MAX)
        return tp_fail(err, TP_E_INPUT, "not the note of a part as this version writes it");
    parts->zstd = (unsigned)zstd;
    parts->source = tp_os_format(err, "%s", source);
    parts->request = tp_json_dump(request, JSON_COMPACT);
    return parts->source && parts->request ? TP_OK
                                           : tp_fail(err, TP_E_MEMORY, "out of memory");
}

enum tp_code tp_part_read(int dir, const char *directory, const char *name,
                          struct tp_parts *parts, struct tp_err *err)
{
    char *path = tp_os_format(err, "%s/%s", directory, name), *text = NULL;
    size_t size;
    json_error_t where;
    uint64_t mark = tp_json_mark();
    memset(parts, 0, sizeof *parts);
    enum tp_code code = path ? tp_below_slurp(dir, name, path, MOST, &text, &size, err)
                             : TP_E_MEMORY;
    if (code == TP_OK) {
        json_t *json = tp_json_load(text, size, &where);
        code = json ? read_note(json, parts, err)
                    : tp_fail(err, TP_E_INPUT, "line %d: %s", where.line, where.text);
        json_decref(json);
    }
    code = tp_json_check(mark, code, err);
    if (code) {
        tp_err_path(err, path);
        tp_err_hint(err, "remove the directory and start the parts over");
        tp_parts_close(parts);
    }
    free(text);
    free(path);
    return code;
}

void tp_parts_close(struct tp_parts *parts)
{
    free(parts->source);
    free(parts->request);
    memset(parts, 0, sizeof *parts);
}

const char *tp_parts_differ(const struct tp_parts *a, const struct tp_parts *b)
{
    if (a->count != b->count)
        return "the work was cut into another number of parts";
    if (strcmp(a->request, b->request) != 0)
        return "their options differ";
    if (a->zstd != b->zstd)
        return "their --zstd differs";
    if (memcmp(a->hash, b->hash, sizeof a->hash) != 0)
        return "their sources differ (a file's name, size, time or header), or the versions of "
               "tilepack do";
    return NULL;
}
