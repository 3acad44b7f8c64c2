/* Quantizer files: JSON text to struct tp_quantizer.
 *
 * Strict: an unknown key, a missing one, a word that is none is an error that says where.
 */
#include "pack/quantizer/quantizer.h"

#include "pack/os/os.h"
#include "pack/text/json_tree.h"

#include <string.h>

static enum tp_code wrong(const char *where, const char *key, const char *what, struct tp_err *err)
{
    return tp_fail(err, TP_E_INPUT, "\"%.80s\"%s%s %s", key, *where ? " of " : "", where, what);
}

static enum tp_code only(const json_t *object, const char *where, const char *const known[],
                         struct tp_err *err)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object))
        return tp_fail(err, TP_E_INPUT, "%s is no object", *where ? where : "the file");
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key) != 0)
            i++;
        if (!known[i])
            return wrong(where, key, "is an unknown key", err);
    }
    return TP_OK;
}

/* *text: NULL where it is missing and need not be there. */
static enum tp_code text_of(const json_t *object, const char *where, const char *key, bool needed,
                            const char **text, struct tp_err *err)
{
    const json_t *value = json_object_get(object, key);
    *text = json_string_value(value);
    if (value && !*text)
        return wrong(where, key, "is no text", err);
    return value || !needed ? TP_OK : wrong(where, key, "is missing", err);
}

static enum tp_code words_of(const json_t *object, const char *where, const char *key,
                             const char *list[TP_MAX_WORDS], struct tp_err *err)
{
    const json_t *array = json_object_get(object, key);
    size_t count = json_array_size(array);
    bool right = !array || (count > 0 && count < TP_MAX_WORDS);
    for (size_t i = 0; i < count && right; i++)
        right = (list[i] = json_string_value(json_array_get(array, i))) != NULL;
    return right ? TP_OK : wrong(where, key, "is no list of one to seven texts", err);
}

static enum tp_code yes_or_no(const json_t *object, const char *where, const char *key, bool *is,
                              struct tp_err *err)
{
    const json_t *value = json_object_get(object, key);
    *is = json_is_true(value);
    return !value || json_is_boolean(value) ? TP_OK
                                            : wrong(where, key, "is neither true nor false", err);
}

/* *out: which of the words it is, 0 where there is none and it need not be there. */
static enum tp_code word_of(const json_t *value, const char *where, const char *key,
                            const char *const words[], int *out, struct tp_err *err)
{
    const char *text = json_string_value(value);
    for (*out = 0; value && words[*out]; ++*out)
        if (text && strcmp(words[*out], text) == 0)
            return TP_OK;
    return value ? wrong(where, key, "is no known word", err) : TP_OK;
}

static enum tp_code parse_form(const json_t *json, struct tp_quantizer_form *form,
                               struct tp_err *err)
{
    static const char *const keys[] = {"format", "codes", "dtype",  "joint", "stem",    "absent",
                                       "says",   "alone", "marker", "stack", "spelled",
                                       "refused", NULL};
    static const char *const stacks[] = {"", "transposed", "interleaved", NULL};
    static const char in[] = "a form";
    const char *dtype;
    int stack = 0;
    enum tp_code code;
    if ((code = only(json, in, keys, err)) ||
        (code = text_of(json, in, "format", true, &form->format, err)) ||
        (code = text_of(json, in, "codes", true, &form->suffix, err)) ||
        (code = text_of(json, in, "dtype", true, &dtype, err)) ||
        (code = text_of(json, in, "joint", false, &form->separator, err)) ||
        (code = text_of(json, in, "stem", false, &form->base, err)) ||
        (code = text_of(json, in, "marker", false, &form->marker, err)) ||
        (code = text_of(json, in, "refused", false, &form->refused, err)) ||
        (code = words_of(json, in, "absent", form->absent, err)) ||
        (code = words_of(json, in, "says", form->says, err)) ||
        (code = yes_or_no(json, in, "alone", &form->alone, err)) ||
        (code = word_of(json_object_get(json, "stack"), in, "stack", stacks, &stack, err)))
        return code;
    form->transposed = stack == 1;
    form->interleaved = stack == 2;
    form->separator = form->separator ? form->separator : ".";
    form->spelled = json_object_get(json, "spelled");
    form->dtype = tp_dtype_parse(dtype, strlen(dtype));
    if (form->dtype == TP_DTYPE_NONE)
        return wrong(in, "dtype", "is none of safetensors", err);
    return !form->spelled || json_is_object(form->spelled)
               ? TP_OK
               : wrong(in, "spelled", "is no object", err);
}

static enum tp_code parse_list(const json_t *json, struct tp_quantizer_list *list,
                               struct tp_err *err)
{
    static const char *const keys[] = {"key", "match", "members", "bits", NULL};
    static const char *const matches[] = {"names", "regex", NULL};
    static const char in[] = "a list of \"plain\"";
    int match = 0;
    enum tp_code code;
    if ((code = only(json, in, keys, err)) ||
        (code = text_of(json, in, "key", true, &list->key, err)) ||
        (code = text_of(json, in, "members", false, &list->prefix, err)) ||
        (code = word_of(json_object_get(json, "match"), in, "match", matches, &match, err)))
        return code;
    list->match = (enum tp_list_match)match;
    list->min_bits = json_integer_value(json_object_get(json, "bits"));
    return TP_OK;
}

static enum tp_code parse_refusal(const json_t *json, struct tp_quantizer_refusal *refusal,
                                  struct tp_err *err)
{
    static const char *const keys[] = {"key", "values", "why", NULL};
    static const char in[] = "a member of \"refuses\"";
    enum tp_code code;
    if ((code = only(json, in, keys, err)) ||
        (code = text_of(json, in, "key", true, &refusal->key, err)) ||
        (code = words_of(json, in, "values", refusal->value, err)))
        return code;
    return text_of(json, in, "why", true, &refusal->why, err);
}

static enum tp_code parse_beside(const json_t *json, struct tp_quantizer *q, struct tp_err *err)
{
    static const char *const words[] = {"input", "divisor", "kv", "marker", "old", NULL};
    const json_t *all = json_object_get(json, "beside");
    const char *key;
    json_t *value;
    enum tp_code code = TP_OK;
    if (json_object_size(all) > TP_MAX_BESIDE || (all && !json_is_object(all)))
        return wrong("", "beside", "is no object of so few members", err);
    json_object_foreach((json_t *)(uintptr_t)all, key, value)
    {
        int is;
        if (!code)
            code = word_of(value, "\"beside\"", key, words, &is, err);
        if (!code)
            q->beside[q->besides].is = (enum tp_beside)is;
        q->beside[q->besides++].suffix = key;
    }
    return code;
}

static enum tp_code parse_lists(const json_t *json, struct tp_quantizer *q, struct tp_err *err)
{
    const json_t *forms = json_object_get(json, "forms"), *lists = json_object_get(json, "plain");
    const json_t *refuses = json_object_get(json, "refuses");
    enum tp_code code = parse_beside(json, q, err);
    if (json_array_size(forms) > TP_MAX_FORMS || json_array_size(lists) > TP_MAX_LISTS ||
        json_array_size(refuses) > TP_MAX_REFUSALS)
        return tp_fail(err, TP_E_INPUT, "\"forms\", \"plain\" or \"refuses\" is too long");
    for (size_t i = 0; i < json_array_size(forms) && !code; i++)
        code = parse_form(json_array_get(forms, i), &q->form[q->forms++], err);
    for (size_t i = 0; i < json_array_size(lists) && !code; i++)
        code = parse_list(json_array_get(lists, i), &q->list[q->lists++], err);
    for (size_t i = 0; i < json_array_size(refuses) && !code; i++)
        code = parse_refusal(json_array_get(refuses, i), &q->refusal[q->refusals++], err);
    return code;
}

static enum tp_code parse_zeros(const json_t *json, struct tp_quantizer *q, struct tp_err *err)
{
    static const char *const keys[] = {"keys", "less_one", "as_stored", NULL};
    const json_t *zeros = json_object_get(json, "zeros");
    enum tp_code code;
    if (!zeros)
        return TP_OK;
    if ((code = only(zeros, "\"zeros\"", keys, err)) ||
        (code = words_of(zeros, "\"zeros\"", "keys", q->zeros_key, err)) ||
        (code = words_of(zeros, "\"zeros\"", "less_one", q->zeros_less, err)))
        return code;
    return words_of(zeros, "\"zeros\"", "as_stored", q->zeros_as, err);
}

static enum tp_code parse_marker(const json_t *json, struct tp_quantizer *q, struct tp_err *err)
{
    static const char *const keys[] = {"tensor", "metadata", "key", NULL};
    const json_t *marker = json_object_get(json, "marker");
    enum tp_code code;
    if (!marker)
        return TP_OK;
    if ((code = only(marker, "\"marker\"", keys, err)) ||
        (code = text_of(marker, "\"marker\"", "tensor", true, &q->marker, err)) ||
        (code = text_of(marker, "\"marker\"", "metadata", false, &q->marker_meta, err)))
        return code;
    return text_of(marker, "\"marker\"", "key", true, &q->marker_key, err);
}

static enum tp_code parse_all(const json_t *json, struct tp_quantizer *q, struct tp_err *err)
{
    static const char *const keys[] = {"name",  "title", "source",  "methods", "file",
                                       "file_key", "refused", "signs", "forms", "beside",
                                       "plain", "refuses", "zeros", "marker", "file_format",
                                       "described", "file_says_more", NULL};
    enum tp_code code;
    if ((code = only(json, "", keys, err)) ||
        (code = text_of(json, "", "name", true, &q->name, err)) ||
        (code = text_of(json, "", "title", true, &q->title, err)) ||
        (code = text_of(json, "", "source", true, &q->source, err)) ||
        (code = text_of(json, "", "file", false, &q->file, err)) ||
        (code = text_of(json, "", "file_key", false, &q->file_key, err)) ||
        (code = text_of(json, "", "refused", false, &q->refused, err)) ||
        (code = yes_or_no(json, "", "described", &q->described, err)) ||
        (code = yes_or_no(json, "", "file_says_more", &q->file_says_more, err)) ||
        (code = text_of(json, "", "file_format", false, &q->file_format, err)) ||
        (code = words_of(json, "", "methods", q->method, err)) ||
        (code = words_of(json, "", "signs", q->sign, err)) ||
        (code = parse_lists(json, q, err)) || (code = parse_zeros(json, q, err)) ||
        (code = parse_marker(json, q, err)))
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
    memset(quantizer, 0, sizeof *quantizer);
    quantizer->json = json;
    enum tp_code code = json ? parse_all(json, quantizer, err)
                             : tp_fail(err, TP_E_INPUT, "line %d: %s", where.line, where.text);
    code = tp_json_check(before, code, err);
    if (code)
        tp_quantizer_close(quantizer);
    return code;
}

void tp_quantizer_close(struct tp_quantizer *quantizer)
{
    json_decref(quantizer->json);
    *quantizer = (struct tp_quantizer){0};
}

bool tp_words_have(const char *const list[TP_MAX_WORDS], const char *word)
{
    for (size_t i = 0; i < TP_MAX_WORDS && list[i]; i++)
        if (word && strcasecmp(list[i], word) == 0)
            return true;
    return false;
}
