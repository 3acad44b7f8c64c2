/* Editing a JSON file around one key: a scan that notes where the members of the
 * top-level object begin and end, and splices between those borders.
 *
 * Decodes nothing but keys, and changes no number. Invariant: outside the member
 * concerned (and one comma beside it) the bytes of the input are copied as they are.
 */
#include "pack/text/json_edit.h"

#include "pack/text/json_scan.h"
#include "pack/os/os.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_INDENT = 16 };

struct member {
    const char *key;               /* decoded, in the object's arena */
    uint64_t at, colon, value, end; /* of the key; of the value and behind it */
};

struct object {
    const char *text;
    size_t size;
    uint64_t open, close; /* of the braces */
    struct member *members;
    size_t count, capacity;
    size_t found; /* index of the wanted key, or count */
    char *arena;
};

static bool is_space(char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; }

static enum tp_code expect_end(struct tp_json *json)
{
    if (tp_json_peek(json) < 0)
        return TP_OK;
    return tp_json_fail(json, json->pos, "the %s goes on behind its end", json->noun);
}

static enum tp_code scan_members(struct object *o, struct tp_json *json)
{
    uint64_t count = 0;
    bool more;
    tp_json_peek(json);
    o->open = json->pos;
    enum tp_code code = tp_json_expect(json, '{');
    while (!code && !(code = tp_json_next(json, '}', &count, &more)) && more) {
        struct tp_json_string key;
        code = tp_json_key(json, &key);
        if (!code)
            code = tp_os_grow((void **)&o->members, &o->capacity, o->count + 1,
                              sizeof *o->members, json->err);
        if (code)
            break;
        struct member *m = &o->members[o->count++];
        *m = (struct member){.key = key.data, .at = key.pos, .colon = json->pos - 1};
        tp_json_peek(json);
        m->value = json->pos;
        code = tp_json_skip(json);
        m->end = json->pos;
    }
    o->close = json->pos - 1;
    return code ? code : expect_end(json);
}

static int compare_keys(const void *a, const void *b)
{
    const struct member *x = *(const struct member *const *)a;
    const struct member *y = *(const struct member *const *)b;
    int order = strcmp(x->key, y->key);
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

static enum tp_code check_unique(const struct object *o, struct tp_json *json)
{
    const struct member **sorted = tp_os_alloc(o->count * sizeof *sorted, json->err);
    if (!sorted)
        return TP_E_MEMORY;
    for (size_t i = 0; i < o->count; i++)
        sorted[i] = &o->members[i];
    qsort(sorted, o->count, sizeof *sorted, compare_keys);
    enum tp_code code = TP_OK;
    for (size_t i = 1; i < o->count && !code; i++)
        if (strcmp(sorted[i - 1]->key, sorted[i]->key) == 0)
            code = tp_json_fail(json, sorted[i]->at, "the key '%.100s' appears twice",
                                sorted[i]->key);
    free(sorted);
    return code;
}

static void close_object(struct object *o)
{
    free(o->members);
    free(o->arena);
    *o = (struct object){0};
}

/* `base`: what stands before it in its file. */
static enum tp_code open_object(const char *text, size_t size, uint64_t base, const char *key,
                                struct object *o, struct tp_err *err)
{
    *o = (struct object){.text = text, .size = size};
    o->arena = tp_os_alloc(size, err);
    if (!o->arena)
        return TP_E_MEMORY;
    struct tp_json json = {.text = text, .size = size, .base = base, .noun = "file", .python = true,
                           .arena = o->arena, .err = err};
    enum tp_code code = scan_members(o, &json);
    if (!code)
        code = check_unique(o, &json);
    if (code) {
        if (code == TP_E_INPUT)
            tp_err_hint(err, "the file must be one JSON object, as tilepack(1) says: repair it, "
                             "for instance with the help of `python3 -m json.tool`");
        close_object(o);
        return code;
    }
    while (o->found < o->count && strcmp(o->members[o->found].key, key) != 0)
        o->found++;
    return TP_OK;
}

/* How the file is laid out. */
struct style {
    const char *newline; /* "" when it is on one line */
    char indent[MAX_INDENT + 1];
    const char *comma, *colon;
};

/* Looks at the white space [from, to) in front of a member. */
static bool find_newline(const struct object *o, uint64_t from, uint64_t to, struct style *style)
{
    uint64_t end = to;
    while (end > from && o->text[end - 1] != '\n')
        end--;
    if (end == from)
        return false;
    style->newline = end - from >= 2 && o->text[end - 2] == '\r' ? "\r\n" : "\n";
    size_t length = (size_t)(to - end);
    if (length <= MAX_INDENT) {
        memcpy(style->indent, o->text + end, length);
        style->indent[length] = '\0';
    }
    return true;
}

static struct style style_of(const struct object *o)
{
    struct style style = {.newline = "", .indent = "  ", .comma = ", ", .colon = ": "};
    uint64_t first = o->count ? o->members[0].at : o->close;
    bool lines = find_newline(o, o->open + 1, first, &style);
    if (o->count == 0) {
        memcpy(style.indent, "  ", 3); /* what stands there is the brace's own */
    } else if (o->members[0].value == o->members[0].colon + 1) {
        style.colon = ":";
    }
    bool tight = o->count > 1 ? o->text[o->members[1].at - 1] == ',' : style.colon[1] == '\0';
    if (lines || tight)
        style.comma = ",";
    return style;
}

static enum tp_code add_line(struct tp_text *out, const struct style *style, int depth,
                             struct tp_err *err)
{
    if (!style->newline[0])
        return TP_OK;
    enum tp_code code = tp_text_add_word(out, style->newline, err);
    for (int i = 0; i < depth && !code; i++)
        code = tp_text_add_word(out, style->indent, err);
    return code;
}

/* Adds a checked value token by token, with the file's line breaks and spaces. */
static enum tp_code add_value(struct tp_text *out, const char *value, const struct style *style,
                              struct tp_err *err)
{
    int depth = 1;
    enum tp_code code = TP_OK;
    const char *end = value + strlen(value);
    while (value < end && !code) {
        const char *token = value;
        size_t n = *value == '"' ? tp_json_string_length(value, (size_t)(end - value)) : 1;
        value += n;
        if (is_space(*token))
            continue;
        if (*token == '}' || *token == ']')
            code = add_line(out, style, --depth, err);
        if (!code && *token != ',' && *token != ':')
            code = tp_text_add(out, token, n, err);
        if (*token == '{' || *token == '[') {
            while (is_space(*value))
                value++;
            if (*value == '}' || *value == ']')
                code = code ? code : tp_text_add(out, value++, 1, err);
            else
                code = code ? code : add_line(out, style, ++depth, err);
        } else if (*token == ',') {
            code = tp_text_add_word(out, style->comma, err);
            code = code ? code : add_line(out, style, depth, err);
        } else if (*token == ':') {
            code = tp_text_add_word(out, style->colon, err);
        }
    }
    return code;
}

static enum tp_code check_value(const char *value, struct tp_err *err)
{
    size_t size = strlen(value);
    char *arena = tp_os_alloc(size, err);
    if (!arena)
        return TP_E_MEMORY;
    struct tp_err why = {0};
    struct tp_json json = {.text = value, .size = size, .noun = "value", .python = true,
                           .arena = arena, .err = &why};
    enum tp_code code = tp_json_skip(&json);
    if (!code)
        code = expect_end(&json);
    free(arena);
    return code ? tp_fail(err, code, "the new value is not JSON: %s", why.what) : TP_OK;
}

static enum tp_code copy(const struct object *o, uint64_t from, uint64_t to, struct tp_text *out,
                         struct tp_err *err)
{
    return tp_text_add(out, o->text + from, (size_t)(to - from), err);
}

static enum tp_code remove_key(const struct object *o, struct tp_text *out, struct tp_err *err)
{
    uint64_t from = o->size, to = from; /* what is left out */
    size_t i = o->found;
    if (i < o->count && i > 0) {
        from = o->members[i - 1].end;
        to = o->members[i].end;
    } else if (i < o->count && o->count > 1) {
        from = o->members[0].at;
        to = o->members[1].at;
    } else if (i < o->count) {
        from = o->open + 1;
        to = o->close;
    }
    enum tp_code code = copy(o, 0, from, out, err);
    return code ? code : copy(o, to, o->size, out, err);
}

static enum tp_code replace_value(const struct object *o, const char *value, struct tp_text *out,
                                  struct tp_err *err)
{
    const struct member *m = &o->members[o->found];
    struct style style = style_of(o);
    enum tp_code code = copy(o, 0, m->value, out, err);
    if (!code)
        code = add_value(out, value, &style, err);
    return code ? code : copy(o, m->end, o->size, out, err);
}

static enum tp_code insert_last(const struct object *o, const char *key, const char *value,
                                struct tp_text *out, struct tp_err *err)
{
    struct style style = style_of(o);
    uint64_t at = o->count ? o->members[o->count - 1].end : o->open + 1;
    enum tp_code code = copy(o, 0, at, out, err);
    if (!code && o->count)
        code = tp_text_add_word(out, style.comma, err);
    if (!code && (code = add_line(out, &style, 1, err)) == TP_OK &&
        (code = tp_text_add_json(out, key, err)) == TP_OK &&
        (code = tp_text_add_word(out, style.colon, err)) == TP_OK)
        code = add_value(out, value, &style, err);
    return code ? code : copy(o, at, o->size, out, err);
}

enum tp_code tp_json_get_inner(const char *text, struct tp_json_span object, const char *key,
                               struct tp_json_span *value, struct tp_err *err)
{
    *value = (struct tp_json_span){0};
    struct object o;
    enum tp_code code = open_object(object.data, object.size, (uint64_t)(object.data - text), key,
                                    &o, err);
    if (code)
        return code;
    if (o.found < o.count) {
        const struct member *m = &o.members[o.found];
        *value = (struct tp_json_span){object.data + m->value, (size_t)(m->end - m->value)};
    }
    close_object(&o);
    return TP_OK;
}

enum tp_code tp_json_get_key(const char *text, size_t size, const char *key,
                             struct tp_json_span *value, struct tp_err *err)
{
    return tp_json_get_inner(text, (struct tp_json_span){text, size}, key, value, err);
}

enum tp_code tp_json_set_key(const char *text, size_t size, const char *key, const char *value,
                             struct tp_text *out, struct tp_err *err)
{
    struct object o;
    enum tp_code code = value ? check_value(value, err) : TP_OK;
    if (!code)
        code = open_object(text, size, 0, key, &o, err);
    if (code)
        return code;
    size_t before = out->size;
    if (!value)
        code = remove_key(&o, out, err);
    else if (o.found < o.count)
        code = replace_value(&o, value, out, err);
    else
        code = insert_last(&o, key, value, out, err);
    if (code && out->data) {
        out->size = before;
        out->data[before] = '\0';
    }
    close_object(&o);
    return code;
}
