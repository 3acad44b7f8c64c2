/* Fuzz target: any text as a config.json to be edited.
 * Build: make fuzz.
 *
 * Beyond not crashing: setting and removing keep the text an object, the value
 * reads back, other keys keep their bytes, doing it twice changes nothing more, and
 * a text that jansson reads it reads afterwards with just that change.
 */
#include "pack/text/json_edit.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(int condition)
{
    if (!condition)
        abort();
}

/* The span's bytes are equal in both texts, or the key is in neither. */
static void same_value(const char *a, size_t a_size, const struct tp_text *b, const char *key)
{
    struct tp_json_span x, y;
    struct tp_err err = {0};
    require(tp_json_get_key(a, a_size, key, &x, &err) == TP_OK);
    require(tp_json_get_key(b->data, b->size, key, &y, &err) == TP_OK);
    require(!x.data == !y.data);
    require(!x.data || (x.size == y.size && memcmp(x.data, y.data, x.size) == 0));
}

static void compare_with_jansson(const char *text, size_t size, const char *value,
                                 const struct tp_text *out)
{
    json_t *before = json_loadb(text, size, 0, NULL);
    if (!before)
        return;
    json_t *after = json_loadb(out->data, out->size, 0, NULL);
    require(after != NULL);
    if (value)
        json_object_set_new(before, "q", json_loads(value, JSON_DECODE_ANY, NULL));
    else
        json_object_del(before, "q");
    require(json_equal(before, after));
    json_decref(before);
    json_decref(after);
}

static void edit(const char *text, size_t size, const char *value)
{
    struct tp_text out = {0};
    struct tp_err err = {0};
    enum tp_code code = tp_json_set_key(text, size, "q", value, &out, &err);
    require(code == err.code);
    require(code == TP_OK || (code == TP_E_INPUT && err.what[0] && err.offset <= size + 1));
    if (!code) {
        struct tp_json_span span;
        require(tp_json_get_key(out.data, out.size, "q", &span, &err) == TP_OK);
        require(!span.data == !value);
        same_value(text, size, &out, "a");
        same_value(text, size, &out, "b");
        compare_with_jansson(text, size, value, &out);
        struct tp_text again = {0};
        require(tp_json_set_key(out.data, out.size, "q", value, &again, &err) == TP_OK);
        require(again.size == out.size && memcmp(again.data, out.data, out.size) == 0);
        tp_text_free(&again);
    }
    tp_text_free(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const values[] = {NULL, "1", "{\"m\": [\"x, \\\"y\", {}], \"n\":null}"};
    char *text = malloc(size + 1);
    require(text != NULL);
    memcpy(text, data, size); /* an allocation of its own shows any overrun */
    for (int i = 0; i < 3; i++)
        edit(text, size, values[i]);
    /* As the value, it must be refused or leave an object. */
    text[size] = '\0';
    struct tp_text out = {0};
    struct tp_err err = {0};
    struct tp_json_span span;
    if (tp_json_set_key("{\n  \"a\": 1\n}", 12, "q", text, &out, &err) == TP_OK)
        require(tp_json_get_key(out.data, out.size, "q", &span, &err) == TP_OK && span.data);
    tp_text_free(&out);
    free(text);
    return 0;
}
