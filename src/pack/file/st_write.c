/* The safetensors header writer. Invariant: what it writes, the reader accepts
 * (for tensors whose bytes fit their shape and whose names differ). */
#include "pack/file/safetensors.h"

#include "base/num.h"


static enum tp_code add_metadata(struct tp_text *out, const struct tp_st_meta *meta, size_t count,
                                 struct tp_err *err)
{
    enum tp_code code = tp_text_addf(out, err, "\"__metadata__\":{");
    for (size_t i = 0; i < count && !code; i++) {
        if ((code = tp_text_add_word(out, i ? "," : "", err)) == TP_OK &&
            (code = tp_text_add_json(out, meta[i].key, err)) == TP_OK &&
            (code = tp_text_add_word(out, ":", err)) == TP_OK)
            code = tp_text_add_json(out, meta[i].value, err);
    }
    return code ? code : tp_text_add_word(out, "}", err);
}

/* Without printf, which would be half of the time for a plan of 300,000 tensors. */
static enum tp_code add_tensor(struct tp_text *out, const struct tp_st_tensor *tensor,
                               struct tp_err *err)
{
    enum tp_code code = tp_text_add_json(out, tensor->name, err);
    if (!code && (code = tp_text_add_word(out, ":{\"dtype\":\"", err)) == TP_OK &&
        (code = tp_text_add_word(out, tp_dtype_name(tensor->dtype), err)) == TP_OK)
        code = tp_text_add_word(out, "\",\"shape\":[", err);
    for (uint32_t i = 0; i < tensor->rank && !code; i++)
        code = tp_text_add_number(out, i ? "," : "", tensor->shape[i], err);
    if (!code)
        code = tp_text_add_number(out, "],\"data_offsets\":[", tensor->begin, err);
    if (!code)
        code = tp_text_add_number(out, ",", tensor->end, err);
    return code ? code : tp_text_add_word(out, "]}", err);
}

static enum tp_code check_order(const struct tp_st_tensor *tensors, size_t count,
                                struct tp_err *err)
{
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        const struct tp_st_tensor *tensor = &tensors[i];
        if (tensor->begin != at || tensor->end < tensor->begin ||
            tensor->dtype == TP_DTYPE_NONE || tensor->dtype >= TP_DTYPE_COUNT ||
            tensor->rank > TP_ST_MAX_RANK) {
            enum tp_code code = tp_fail(err, TP_E_INPUT,
                                        "a header cannot be written: this tensor does not follow "
                                        "the one before it, or has no legal type");
            tp_err_tensor(err, tensor->name);
            return code;
        }
        at = tensor->end;
    }
    return TP_OK;
}

/* Pads with spaces and fills in the length. */
static enum tp_code finish(struct tp_text *out, size_t start, uint64_t align, struct tp_err *err)
{
    uint64_t used = out->size - start, total;
    if (!tp_align_u64(&total, used, align) || total - 8 > TP_ST_MAX_HEADER) {
        enum tp_code code = tp_fail(err, TP_E_UNSUPPORTED,
                                    "the header would be larger than %llu bytes",
                                    (unsigned long long)TP_ST_MAX_HEADER);
        tp_err_hint(err, "spread the tensors over several files with a smaller shard size");
        return code;
    }
    enum tp_code code = tp_text_addf(out, err, "%*s", (int)(total - used), "");
    if (code)
        return code;
    for (int i = 0; i < 8; i++)
        out->data[start + (size_t)i] = (char)((total - 8) >> (8 * i) & 0xff);
    return TP_OK;
}

enum tp_code tp_st_write_header(const struct tp_st_tensor *tensors, size_t count,
                                const struct tp_st_meta *meta, size_t meta_count, uint64_t align,
                                struct tp_text *out, struct tp_err *err)
{
    static const char length[8] = {0};
    size_t start = out->size;
    enum tp_code code = check_order(tensors, count, err);
    if (!code && (code = tp_text_add(out, length, sizeof length, err)) == TP_OK)
        code = tp_text_add_word(out, "{", err);
    if (!code && meta_count)
        code = add_metadata(out, meta, meta_count, err);
    for (size_t i = 0; i < count && !code; i++) {
        if (i || meta_count)
            code = tp_text_add_word(out, ",", err);
        if (!code)
            code = add_tensor(out, &tensors[i], err);
        if (code)
            tp_err_tensor(err, tensors[i].name);
    }
    if (!code)
        code = tp_text_add_word(out, "}", err);
    return code ? code : finish(out, start, align, err);
}
