/* The manifest: writing. Same request and source, same text. manifest_read.c reads it. */
#include "pack/commit/manifest.h"

#include "pack/file/own_hash.h"
#include "pack/plan/describe.h"
#include "pack/text/json_indent.h"
#include "pack/text/json_items.h"
#include "pack/text/json_memory.h"
#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

void tp_manifest_plan_id(const struct tp_plan *plan, char text[TP_HASH_TEXT])
{
    tp_hash_print(plan->id, text);
}

/* The source: its weight files, and its card. */
struct source {
    const struct tp_checkpoint *ckpt;
    const struct tp_manifest_data *data;
};

static void set_hash(json_t *json, const char *key, const uint8_t hash[TP_HASH_BYTES])
{
    char digits[TP_HASH_TEXT];
    tp_hash_print(hash, digits);
    json_object_set_new(json, key, json_string(digits));
}

static json_t *source_json(const void *list, size_t i)
{
    const struct source *source = list;
    const struct tp_manifest_data *data = source->data;
    const struct tp_file *file = &source->ckpt->files[i];
    uint8_t sum[TP_SUM_BYTES];
    bool card = i == source->ckpt->file_count;
    json_t *json = json_pack("{s:s,s:I}", "name", card ? TP_CARD_NAME : file->name, "size",
                             (json_int_t)(card ? data->card_size : file->size));
    set_hash(json, card ? "xxh3" : "header", card ? data->card_hash : file->header_hash);
    if (!card && data->known[i]) {
        tp_sum_bytes(&data->sums[i], sum);
        set_hash(json, "data", sum);
    }
    return json;
}

static void set_sha256(json_t *json, const struct tp_manifest_file *file)
{
    char digits[TP_SHA256_TEXT];
    if (!file->has_sha256)
        return;
    tp_sha256_print(file->sha256, digits);
    json_object_set_new(json, "sha256", json_string(digits));
}

static json_t *file_json(const void *list, size_t i)
{
    const struct tp_manifest_file *file = &((const struct tp_manifest_file *)list)[i];
    char hash[TP_HASH_TEXT];
    tp_hash_print(file->hash, hash);
    json_t *json = json_pack("{s:s,s:I,s:s}", "name", file->name, "size", (json_int_t)file->size,
                             "xxh3", hash);
    set_sha256(json, file);
    return json;
}

/* A list, an item at a time: there may be many small files. */
static enum tp_code add_list(struct tp_text *text, const char *key, const void *list, size_t count,
                             json_t *(*item)(const void *list, size_t i), struct tp_err *err)
{
    struct tp_items items = {.text = text};
    enum tp_code code = tp_text_addf(text, err, ",\n \"%s\": ", key);
    for (size_t i = 0; i < count && code == TP_OK; i++) {
        uint64_t mark = tp_json_mark();
        json_t *json = item(list, i);
        char *dump = json ? json_dumps(json, JSON_COMPACT) : NULL;
        json_decref(json);
        code = dump ? tp_json_check(mark, TP_OK, err)
                    : tp_fail(err, TP_E_MEMORY, "out of memory for the manifest");
        if (code == TP_OK && (code = tp_items_next(&items, '[', err)) == TP_OK)
            code = tp_json_indent(dump, 2, text, err);
        free(dump);
    }
    return code ? code : tp_items_end(&items, "[]", err);
}

/* A text of one member, indented, behind those before it. */
static enum tp_code add_member(struct tp_text *text, const char *key, const char *value,
                               struct tp_err *err)
{
    enum tp_code code = tp_text_addf(text, err, ",\n \"%s\": ", key);
    if (code == TP_OK)
        code = tp_json_indent(value, 1, text, err);
    return code ? code : tp_text_part(text, err);
}

/* All of it before "kept", as the text of an object whose last brace is missing. */
static enum tp_code begin_text(const struct tp_plan *plan, const struct tp_request *request,
                               const struct tp_manifest_data *data,
                               const struct tp_manifest_file *files, size_t file_count,
                               struct tp_text *text, struct tp_err *err)
{
    char id[TP_HASH_TEXT];
    tp_manifest_plan_id(plan, id);
    json_t *json = json_pack("{s:i,s:s,s:s,s:o}", "tilepack", 1, TP_OWN_KEY, TP_OWN_ZEROS, "plan",
                             id, "request", tp_request_record(request));
    if (!json)
        return tp_fail(err, TP_E_MEMORY, "out of memory for the manifest");
    char *dump = json_dumps(json, JSON_INDENT(1));
    json_decref(json);
    if (!dump)
        return tp_fail(err, TP_E_MEMORY, "out of memory for the manifest");
    enum tp_code code = tp_text_add(text, dump, strlen(dump) - strlen("\n}"), err);
    free(dump);
    if (code == TP_OK)
        code = add_list(text, "source", &(struct source){plan->ckpt, data},
                        plan->ckpt->file_count + data->card, source_json, err);
    return code ? code : add_list(text, "files", files, file_count, file_json, err);
}

static enum tp_code add_kept(const struct tp_plan *plan, struct tp_text *text, struct tp_err *err)
{
    struct tp_items items = {.text = text};
    struct tp_text item = {0};
    enum tp_code code = tp_text_add_word(text, ",\n \"kept\": ", err);
    for (size_t k = 0; k < plan->kept_count && code == TP_OK; k++) {
        const struct tp_kept *kept = &plan->kept[k];
        if (!kept->reason)
            continue;
        item.size = 0;
        if ((code = tp_items_next(&items, '{', err)) == TP_OK &&
            (code = tp_text_add_json(&item, plan->ckpt->tensors[kept->tensor].name, err)) ==
                TP_OK &&
            (code = tp_text_add_word(&item, ":", err)) == TP_OK &&
            (code = tp_text_add_json(&item, kept->reason, err)) == TP_OK)
            code = tp_json_indent(item.data, 2, text, err);
    }
    tp_text_free(&item);
    return code ? code : tp_items_end(&items, "{}", err);
}

static enum tp_code add_unit(void *arg, const char *unit, struct tp_err *err)
{
    struct tp_items *items = arg;
    enum tp_code code = tp_items_next(items, '[', err);
    return code ? code : tp_json_indent(unit, 2, items->text, err);
}

static enum tp_code add_units(const struct tp_plan *plan, struct tp_text *text,
                              struct tp_err *err)
{
    struct tp_items items = {.text = text};
    enum tp_code code = tp_text_add_word(text, ",\n \"units\": ", err);
    if (code == TP_OK)
        code = tp_units_describe(plan, UINT32_MAX, NULL, add_unit, &items, err);
    return code ? code : tp_items_end(&items, "[]", err);
}

enum tp_code tp_manifest_text(const struct tp_plan *plan, const struct tp_request *request,
                              const struct tp_manifest_data *data,
                              const struct tp_manifest_file *files, size_t file_count,
                              struct tp_text *text, struct tp_err *err)
{
    char *descriptors = NULL;
    enum tp_code code = tp_units_describe(plan, UINT32_MAX, &descriptors, NULL, NULL, err);
    if (code == TP_OK &&
        (code = begin_text(plan, request, data, files, file_count, text, err)) == TP_OK &&
        (code = add_kept(plan, text, err)) == TP_OK &&
        (code = add_member(text, "descriptors", descriptors, err)) == TP_OK &&
        (code = add_units(plan, text, err)) == TP_OK &&
        (code = tp_text_add_word(text, "\n}\n", err)) == TP_OK && !text->drain)
        tp_own_hash_sign(text->data, text->size);
    free(descriptors);
    return code;
}

/* Files of a directory that get their SHA-256. */
struct digests {
    const char *directory;
    struct tp_manifest_file *files;
};

static char *path_of(void *arg, size_t i, struct tp_err *err)
{
    const struct digests *digests = arg;
    return tp_os_format(err, "%s/%s", digests->directory, digests->files[i].name);
}

static enum tp_code take_digest(void *arg, size_t i, const struct tp_sha256_file *file,
                                struct tp_err *err)
{
    const struct digests *digests = arg;
    if (file->err.code)
        return *err = file->err, err->code;
    if (file->size != digests->files[i].size) {
        tp_err_path(err, file->path);
        return tp_fail(err, TP_E_INPUT, "the file has changed since it was written");
    }
    memcpy(digests->files[i].sha256, file->digest, TP_SHA256_BYTES);
    digests->files[i].has_sha256 = true;
    return TP_OK;
}

enum tp_code tp_manifest_digest(const char *directory, struct tp_manifest_file *files,
                                size_t file_count, unsigned jobs, atomic_int *stop,
                                struct tp_err *err)
{
    struct digests digests = {directory, files};
    struct tp_sha256_list list = {file_count, &digests, path_of, take_digest};
    return tp_sha256_each(&list, jobs, stop, err);
}
