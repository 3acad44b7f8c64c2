/* Quantizer files: JSON text to struct tp_quantizer. */
#include "pack/quantizer/quantizer.h"

#include "base/suffix.h"
#include "pack/text/json_fields.h"
#include "pack/text/json_tree.h"

#include <string.h>
#include <strings.h>

static const char *const stacks[] = {"", "transposed", "interleaved", NULL};
static const char *const matches[] = {"names", "regex", NULL};

static const struct tp_json_field form[] = {
    TP_ONE("format", TEXT, TP_NEEDED, tp_quantizer_form, format),
    TP_ONE("codes", ANY, TP_NEEDED, tp_quantizer_form, suffix),
    TP_ONE("dtype", TEXT, TP_NEEDED, tp_quantizer_form, stored),
    TP_ONE("joint", ANY, TP_MAY_BE, tp_quantizer_form, separator),
    TP_ONE("stem", ANY, TP_MAY_BE, tp_quantizer_form, base),
    TP_ONE("marker", TEXT, TP_MAY_BE, tp_quantizer_form, marker),
    TP_ONE("refused", TEXT, TP_MAY_BE, tp_quantizer_form, refused),
    TP_LIST("absent", TEXTS, TP_MAY_BE, tp_quantizer_form, absent.item, absent.count),
    TP_LIST("says", TEXTS, TP_MAY_BE, tp_quantizer_form, says.item, says.count),
    TP_ONE("alone", NO, TP_MAY_BE, tp_quantizer_form, alone),
    TP_ONE("stack", WORD, TP_MAY_BE, tp_quantizer_form, stack, .words = stacks),
    TP_ONE("spelled", TREE, TP_MAY_BE, tp_quantizer_form, spelled),
    {0}};
static const struct tp_json_field list[] = {
    TP_ONE("key", TEXT, TP_NEEDED, tp_quantizer_list, key),
    TP_ONE("match", WORD, TP_MAY_BE, tp_quantizer_list, match, .words = matches),
    TP_ONE("members", ANY, TP_MAY_BE, tp_quantizer_list, prefix),
    TP_ONE("bits", NUMBER, TP_MAY_BE, tp_quantizer_list, min_bits),
    {0}};
static const struct tp_json_field refusal[] = {
    TP_ONE("key", TEXT, TP_NEEDED, tp_quantizer_refusal, key),
    TP_LIST("values", TEXTS, TP_MAY_BE, tp_quantizer_refusal, value.item, value.count),
    TP_ONE("why", TEXT, TP_NEEDED, tp_quantizer_refusal, why),
    {0}};
static const struct tp_json_field zeros[] = {
    TP_LIST("keys", TEXTS, TP_MAY_BE, tp_quantizer, zeros_key.item, zeros_key.count),
    TP_LIST("less_one", TEXTS, TP_MAY_BE, tp_quantizer, zeros_less.item, zeros_less.count),
    TP_LIST("as_stored", TEXTS, TP_MAY_BE, tp_quantizer, zeros_as.item, zeros_as.count),
    {0}};
static const struct tp_json_field marker[] = {
    TP_ONE("tensor", TEXT, TP_NEEDED, tp_quantizer, marker),
    TP_ONE("metadata", TEXT, TP_MAY_BE, tp_quantizer, marker_meta),
    TP_ONE("key", TEXT, TP_NEEDED, tp_quantizer, marker_key),
    {0}};
static const struct tp_json_field fields[] = {
    TP_ONE("name", TEXT, TP_NEEDED, tp_quantizer, name),
    TP_ONE("title", TEXT, TP_NEEDED, tp_quantizer, title),
    TP_ONE("source", TEXT, TP_NEEDED, tp_quantizer, source),
    TP_ONE("file", TEXT, TP_MAY_BE, tp_quantizer, file),
    TP_ONE("file_key", TEXT, TP_MAY_BE, tp_quantizer, file_key),
    TP_ONE("refused", TEXT, TP_MAY_BE, tp_quantizer, refused),
    TP_ONE("described", NO, TP_MAY_BE, tp_quantizer, described),
    TP_ONE("file_says_more", NO, TP_MAY_BE, tp_quantizer, file_says_more),
    TP_ONE("file_format", TEXT, TP_MAY_BE, tp_quantizer, file_format),
    TP_LIST("methods", TEXTS, TP_MAY_BE, tp_quantizer, method.item, method.count),
    TP_LIST("signs", TEXTS, TP_MAY_BE, tp_quantizer, sign.item, sign.count),
    TP_LIST("forms", OBJECTS, TP_MAY_BE, tp_quantizer, form, forms,
            TP_OF(form, tp_quantizer_form)),
    TP_LIST("plain", OBJECTS, TP_MAY_BE, tp_quantizer, list, lists,
            TP_OF(list, tp_quantizer_list)),
    TP_LIST("refuses", OBJECTS, TP_MAY_BE, tp_quantizer, refusal, refusals,
            TP_OF(refusal, tp_quantizer_refusal)),
    TP_ONE("beside", TREE, TP_MAY_BE, tp_quantizer, beside_json),
    {.key = "zeros", .kind = TP_JSON_OBJECT, .of = zeros},
    {.key = "marker", .kind = TP_JSON_OBJECT, .of = marker},
    {0}};

static enum tp_code finish_form(struct tp_quantizer_form *is, size_t i, struct tp_err *err)
{
    is->transposed = is->stack == 1;
    is->interleaved = is->stack == 2;
    is->separator = is->separator ? is->separator : ".";
    is->dtype = tp_dtype_parse(is->stored, strlen(is->stored));
    return is->dtype != TP_DTYPE_NONE
               ? TP_OK
               : tp_json_wrong(&(struct tp_json_place){"forms", i, err}, "dtype",
                               "is none of safetensors");
}

static enum tp_code parse_beside(struct tp_quantizer *q, struct tp_err *err)
{
    static const char *const words[] = {"input", "divisor", "kv", "marker", "old", NULL};
    const struct tp_json_place file = {NULL, 0, err};
    const char *key;
    json_t *value;
    if (json_object_size(q->beside_json) > TP_MAX_BESIDE)
        return tp_json_wrong(&file, "beside", "is no object of so few members");
    json_object_foreach((json_t *)(uintptr_t)q->beside_json, key, value)
    {
        int is = tp_word_of(json_string_value(value), words, SIZE_MAX);
        if (is < 0)
            return tp_json_wrong(&file, key, "is no known word");
        q->beside[q->besides].is = (enum tp_beside)is;
        q->beside[q->besides++].suffix = key;
    }
    return TP_OK;
}

static enum tp_code parse_all(const json_t *json, struct tp_quantizer *q, struct tp_err *err)
{
    const struct tp_json_place file = {NULL, 0, err};
    enum tp_code code = tp_json_fields(&file, fields, json, q);
    if (code == TP_OK)
        code = parse_beside(q, err);
    for (size_t i = 0; i < q->forms && code == TP_OK; i++)
        code = finish_form(&q->form[i], i, err);
    if (code)
        return code;
    if (q->file_says_more && !(q->file && q->file_key))
        return tp_fail(err, TP_E_INPUT, "\"file_says_more\" needs \"file\" and \"file_key\"");
    return (q->forms > 0) != (q->refused != NULL)
               ? TP_OK
               : tp_fail(err, TP_E_INPUT, "it needs \"forms\" or \"refused\", one of the two");
}

enum tp_code tp_quantizer_parse(const char *text, size_t size, struct tp_quantizer *quantizer,
                                struct tp_err *err)
{
    json_error_t where;
    uint64_t before = tp_json_failures();
    json_t *json = tp_json_load(text, size, &where);
    *quantizer = (struct tp_quantizer){.json = json};
    enum tp_code code = json ? parse_all(json, quantizer, err)
                             : tp_fail(err, TP_E_INPUT, "line %d: %s", where.line, where.text);
    code = tp_json_check(before, code, err);
    if (code)
        tp_quantizer_close(quantizer);
    return code;
}

void tp_quantizer_close(struct tp_quantizer *quantizer)
{
    tp_json_fields_free(fields, quantizer);
    json_decref(quantizer->json);
    *quantizer = (struct tp_quantizer){0};
}

bool tp_words_have(const struct tp_words *words, const char *word)
{
    for (size_t i = 0; i < words->count; i++)
        if (word && strcasecmp(words->item[i], word) == 0)
            return true;
    return false;
}
