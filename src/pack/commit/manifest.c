/* The manifest: writing. Same request and source, same text. manifest_read.c reads it. */
#include "pack/commit/manifest.h"

#include "pack/file/own_hash.h"
#include "pack/plan/file/describe.h"
#include "pack/text/json_indent.h"
#include "pack/text/json_tree.h"
#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

void tp_manifest_plan_id(const struct tp_plan *plan, char text[TP_HASH_TEXT])
{
    tp_hash_print(plan->id, text);
}

static void set_hash(json_t *json, const char *key, const uint8_t hash[TP_HASH_BYTES])
{
    char digits[TP_HASH_TEXT];
    tp_hash_print(hash, digits);
    tp_json_set(json, key, json_string(digits));
}

/* The source: its weight files, and its card. */
static json_t *sources_json(const struct tp_checkpoint *ckpt, const struct tp_manifest_data *data)
{
    json_t *list = json_array();
    uint8_t sum[TP_SUM_BYTES];
    for (size_t f = 0; f < ckpt->file_count; f++) {
        json_t *json = json_pack("{s:s,s:I}", "name", ckpt->files[f].name, "size",
                                 (json_int_t)ckpt->files[f].size);
        set_hash(json, "header", ckpt->files[f].header_hash);
        if (data->known[f]) {
            tp_sum_bytes(&data->sums[f], sum);
            set_hash(json, "data", sum);
        }
        tp_json_append(list, json);
    }
    if (data->card) {
        json_t *json = json_pack("{s:s,s:I}", "name", TP_CARD_NAME, "size",
                                 (json_int_t)data->card_size);
        set_hash(json, "xxh3", data->card_hash);
        tp_json_append(list, json);
    }
    return list;
}

static json_t *files_json(const struct tp_manifest_file *files, size_t count)
{
    json_t *list = json_array();
    for (size_t f = 0; f < count; f++) {
        char hash[TP_HASH_TEXT], digits[TP_SHA256_TEXT];
        tp_hash_print(files[f].hash, hash);
        json_t *json = json_pack("{s:s,s:I,s:s}", "name", files[f].name, "size",
                                 (json_int_t)files[f].size, "xxh3", hash);
        tp_sha256_print(files[f].sha256, digits);
        if (files[f].has_sha256)
            tp_json_set(json, "sha256", json_string(digits));
        tp_json_append(list, json);
    }
    return list;
}

/* A text of one member, indented, behind those before it. */
static enum tp_code add_member(struct tp_text *text, const char *key, const char *value,
                               struct tp_err *err)
{
    enum tp_code code = tp_text_addf(text, err, ",\n \"%s\": ", key);
    return code ? code : tp_json_indent(value, 1, text, err);
}

/* All of it before "kept", as the text of an object whose last brace is missing. */
static enum tp_code begin_text(const struct tp_plan *plan, const struct tp_request *request,
                               const struct tp_manifest_data *data,
                               const struct tp_manifest_file *files, size_t file_count,
                               struct tp_text *text, struct tp_err *err)
{
    char id[TP_HASH_TEXT];
    tp_manifest_plan_id(plan, id);
    json_t *json = json_pack("{s:i,s:s,s:s,s:o,s:o,s:o}", "tilepack", 1, TP_OWN_KEY, TP_OWN_ZEROS,
                             "plan", id, "request", tp_request_record(request), "source",
                             sources_json(plan->ckpt, data), "files",
                             files_json(files, file_count));
    char *dump = json ? tp_json_dump(json, JSON_INDENT(1)) : NULL;
    json_decref(json);
    if (!dump)
        return tp_fail(err, TP_E_MEMORY, "out of memory for the manifest");
    enum tp_code code = tp_text_add(text, dump, strlen(dump) - strlen("\n}"), err);
    free(dump);
    return code;
}

/* Tensors that are copied, and why, as a compact object. Lists of tensors and weights are too long
 * for trees. */
static enum tp_code kept_text(const struct tp_plan *plan, struct tp_text *text, struct tp_err *err)
{
    enum tp_code code = tp_text_add_word(text, "{", err);
    for (size_t k = 0; k < plan->kept_count && code == TP_OK; k++) {
        const struct tp_kept *kept = &plan->kept[k];
        if (kept->reason &&
            (code = tp_text_add_word(text, text->size > 1 ? "," : "", err)) == TP_OK &&
            (code = tp_text_add_json(text, plan->ckpt->tensors[kept->tensor].name, err)) ==
                TP_OK &&
            (code = tp_text_add_word(text, ":", err)) == TP_OK)
            code = tp_text_add_json(text, kept->reason, err);
    }
    return code ? code : tp_text_add_word(text, "}", err);
}

enum tp_code tp_manifest_text(const struct tp_plan *plan, const struct tp_request *request,
                              const struct tp_manifest_data *data,
                              const struct tp_manifest_file *files, size_t file_count,
                              struct tp_text *text, struct tp_err *err)
{
    struct tp_text kept = {0}, units = {0};
    char *descriptors = NULL;
    uint64_t before = tp_json_failures();
    enum tp_code code = kept_text(plan, &kept, err);
    if (code == TP_OK &&
        (code = tp_descriptors_text(plan, UINT32_MAX, &descriptors, &units, err)) == TP_OK &&
        (code = begin_text(plan, request, data, files, file_count, text, err)) == TP_OK &&
        (code = add_member(text, "kept", kept.data, err)) == TP_OK &&
        (code = add_member(text, "descriptors", descriptors, err)) == TP_OK &&
        (code = add_member(text, "units", units.data, err)) == TP_OK &&
        (code = tp_text_add_word(text, "\n}\n", err)) == TP_OK)
        tp_own_hash_sign(text->data, text->size);
    free(descriptors);
    tp_text_free(&kept);
    tp_text_free(&units);
    return tp_json_check(before, code, err);
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
