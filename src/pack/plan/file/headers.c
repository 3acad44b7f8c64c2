/* The plan: offsets, the header of each file, and the hash of all. An outline does without
 * them.
 *
 * Invariant: the hash is of everything that decides the bytes.
 */
#include "pack/plan/unit/build.h"

#include "base/num.h"
#include "pack/file/leafhash.h"
#include "pack/os/os.h"
#include "pack/plan/file/describe.h"
#include "pack/source/descriptor.h"
#include "pack/text/json_tree.h"

#include <stdlib.h>
#include <string.h>

#define DATA_ALIGN 4096
#define HASH_DIGITS "00000000000000000000000000000000"

static enum tp_code file_meta(struct tp_builder *b, uint32_t file, char *texts[3])
{
    struct tp_text units = {0};
    enum tp_code code = tp_descriptors_text(b->plan, file, &texts[0], &units, b->err);
    if (code)
        return code;
    json_t *request = tp_request_json(b->request);
    texts[1] = units.data;
    texts[2] = tp_json_dump(request, JSON_COMPACT);
    json_decref(request);
    return texts[2] ? TP_OK : tp_fail(b->err, TP_E_MEMORY, "out of memory for the descriptors");
}

/* Sets offsets relative to the data and lists the tensors; *size: bytes of data. */
static enum tp_code list_tensors(struct tp_builder *b, const struct tp_plan_file *file,
                                 struct tp_st_tensor *tensors, uint64_t *size)
{
    struct tp_plan *plan = b->plan;
    uint64_t at = 0;
    for (uint32_t i = 0; i < file->output_count; i++) {
        struct tp_output *output = &plan->outputs[file->first_output + i];
        output->offset = at;
        tensors[i] = (struct tp_st_tensor){output->name, output->dtype, output->rank, {0}, at, at};
        memcpy(tensors[i].shape, output->shape, output->rank * sizeof *output->shape);
        if (!tp_add_u64(&at, at, output->bytes))
            return tp_fail(b->err, TP_E_UNSUPPORTED, "the output file is too large");
        tensors[i].end = at;
    }
    *size = at;
    return TP_OK;
}

/* The header with its tensors and what it says of them. */
static enum tp_code header_text(struct tp_builder *b, uint32_t f,
                                const struct tp_st_tensor *tensors, struct tp_text *text)
{
    const struct tp_plan *plan = b->plan;
    char *texts[3] = {0};
    enum tp_code code = file_meta(b, f, texts);
    struct tp_st_meta meta[] = {{"format", "pt"},
                                {TP_META_VERSION, TP_DESCRIPTOR_VERSION},
                                {TP_META_HASH, HASH_DIGITS},
                                {TP_META_REQUEST, texts[2]},
                                {TP_META_DESCRIPTORS, texts[0]},
                                {TP_META_UNITS, texts[1]}};
    if (code == TP_OK)
        code = tp_st_write_header(tensors, plan->files[f].output_count, meta,
                                  plan->restores ? 4 : 6, DATA_ALIGN, text, b->err);
    for (int i = 0; i < 3; i++)
        free(texts[i]);
    return code;
}

/* Sets the offsets and writes the header. */
static enum tp_code write_header(struct tp_builder *b, uint32_t f, struct tp_st_tensor *tensors)
{
    struct tp_plan *plan = b->plan;
    struct tp_plan_file *file = &plan->files[f];
    struct tp_text text = {0};
    uint64_t at = 0;
    enum tp_code code = list_tensors(b, file, tensors, &at);
    if (code == TP_OK)
        code = header_text(b, f, tensors, &text);
    if (code) {
        tp_text_free(&text);
        return code;
    }
    file->header_size = text.size;
    const char *marker = memmem(text.data, text.size, "\"" TP_META_HASH "\":\"",
                                strlen("\"" TP_META_HASH "\":\""));
    file->hash_at = (uint64_t)(marker - text.data) + strlen("\"" TP_META_HASH "\":\"");
    for (uint32_t i = 0; i < file->output_count; i++)
        plan->outputs[file->first_output + i].offset += text.size;
    tp_hash(text.data, text.size, file->header_hash);
    file->header = text.data;
    return tp_add_u64(&file->size, at, text.size)
               ? TP_OK
               : tp_fail(b->err, TP_E_UNSUPPORTED, "the output file is too large");
}

/* Identity of source and result: the hash of everything that decides the bytes. */
static enum tp_code hash_plan(const struct tp_plan *plan, bool times, uint8_t hash[16],
                              struct tp_err *err)
{
    struct tp_text text = {0};
    enum tp_code code = TP_OK;
    for (size_t i = 0; i < plan->ckpt->file_count && code == TP_OK; i++) {
        const struct tp_file *file = &plan->ckpt->files[i];
        code = tp_text_addf(&text, err, "%s %llu %lld\n", file->name,
                            (unsigned long long)file->size,
                            times ? (long long)file->stamp.mtime_ns : 0);
        if (code == TP_OK)
            code = tp_text_add(&text, (const char *)file->header_hash, 16, err);
    }
    if (code == TP_OK && plan->ckpt->config)
        code = tp_text_add(&text, plan->ckpt->config, plan->ckpt->config_size, err);
    for (size_t f = 0; f < plan->file_count && code == TP_OK; f++)
        code = tp_text_add(&text, (const char *)plan->files[f].header_hash, TP_HASH_BYTES, err);
    if (code == TP_OK)
        tp_hash(text.data, text.size, hash);
    tp_text_free(&text);
    return code;
}

enum tp_code tp_plan_headers(struct tp_builder *b)
{
    struct tp_plan *plan = b->plan;
    size_t max = 0;
    for (uint32_t f = 0; f < plan->file_count; f++)
        max = tp_max_u64(max, plan->files[f].output_count);
    struct tp_st_tensor *tensors = tp_os_zalloc(max + 1, sizeof *tensors, b->err);
    enum tp_code code = tensors ? TP_OK : TP_E_MEMORY;
    for (uint32_t f = 0; f < plan->file_count && code == TP_OK; f++)
        code = write_header(b, f, tensors);
    free(tensors);
    if (code == TP_OK && (code = hash_plan(plan, true, plan->hash, b->err)) == TP_OK)
        code = hash_plan(plan, false, plan->id, b->err);
    return code;
}
