/* Trees of JSON. Invariant: a tree that is returned has all that its text has, and a function that
 * could not allocate has counted it.
 */
#include "pack/text/json_tree.h"

#include "pack/os/os.h"
#include "pack/text/json_scan.h"
#include "pack/text/text.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MARKER "\"\\u0000" /* as text: U+0000 at the beginning of a string */

static _Thread_local uint64_t failures;
static _Thread_local bool limited; /* the latest one was for --max-memory */

uint64_t tp_json_failures(void) { return failures; }

static void count_failure(bool for_limit)
{
    failures++;
    limited = for_limit;
}

void tp_json_no_memory(void) { count_failure(false); }

enum tp_code tp_json_check(uint64_t before, enum tp_code code, struct tp_err *err)
{
    if (failures == before || code == TP_E_MEMORY)
        return code;
    if (!err) /* who asks for the reason gets it */
        return TP_E_MEMORY;
    *err = (struct tp_err){0};
    if (limited)
        return tp_os_fail_limit(err);
    return tp_refuse(err, TP_E_MEMORY, "free memory or give the process more",
                     "out of memory for JSON");
}

/* ---- reading ---------------------------------------------------------------------- */

struct reader {
    struct tp_json json;
    bool python; /* takes the numbers of Python, and keys that come twice */
    uint64_t values;
};

/* A value that was made, or NULL, which is a failure. */
static json_t *made(json_t *value)
{
    if (!value)
        tp_json_no_memory();
    return value;
}

static json_t *read_string(struct reader *r)
{
    struct tp_json_string string;
    uint64_t before = r->json.used;
    if (tp_json_string(&r->json, &string))
        return NULL;
    r->json.used = before;
    return made(json_stringn_nocheck(string.data, string.length));
}

/* What there is of a number or word, NUL-terminated, and U+0000 before it. There is room in the
 * arena, as the bracket before it has taken none. */
static const char *copy_token(struct reader *r)
{
    const struct tp_json *json = &r->json;
    char *token = json->arena + json->used;
    *token++ = '\0';
    size_t length = 0;
    for (uint64_t at = json->pos; at < json->size && json->text[at] &&
                                  !strchr(",]} \t\r\n", json->text[at]); at++)
        token[length++] = json->text[at];
    token[length] = '\0';
    return token;
}

/* A number that jansson has no type for. */
static json_t *unknown_number(const struct reader *r, const char *token)
{
    return r->python ? made(json_stringn_nocheck(token - 1, strlen(token) + 1)) : NULL;
}

/* Whatever the locale of the program that has the library says of decimal points. */
static json_t *read_real(const struct reader *r, const char *token)
{
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0); /* which is there, and is not freed */
    double real = c ? strtod_l(token, NULL, c) : 0;
    return !c ? made(NULL) : isfinite(real) ? made(json_real(real)) : unknown_number(r, token);
}

/* A number, or true, false or null. */
static json_t *read_token(struct reader *r)
{
    const char *token = copy_token(r);
    if (strcmp(token, "NaN") == 0 || strcmp(token + (*token == '-'), "Infinity") == 0) {
        r->json.pos += strlen(token);
        return unknown_number(r, token);
    }
    if (tp_json_skip(&r->json))
        return NULL;
    if (*token == 't' || *token == 'f')
        return json_boolean(*token == 't');
    if (*token == 'n')
        return json_null();
    if (strpbrk(token, ".eE"))
        return read_real(r, token);
    errno = 0;
    long long number = strtoll(token, NULL, 10);
    return errno != ERANGE ? made(json_integer(number)) : unknown_number(r, token);
}

static json_t *read_value(struct reader *r, unsigned depth);

/* One more member of an object or a list; false: the text is none, or memory is short. */
static bool read_member(struct reader *r, json_t *all, unsigned depth)
{
    enum { OFTEN = 1024 }; /* what the heap holds is not known at once */
    struct tp_json_string key = {.data = NULL};
    uint64_t before = r->json.used;
    if (json_is_object(all) &&
        (tp_json_key(&r->json, &key) || (!r->python && json_object_get(all, key.data))))
        return false;
    json_t *value = read_value(r, depth);
    r->json.used = before;
    if (value && (key.data ? json_object_set_new_nocheck(all, key.data, value)
                           : json_array_append_new(all, value))) {
        tp_json_no_memory();
        return false;
    }
    if (++r->values % OFTEN == 0 && !tp_os_heap_left()) { /* many small ones take more than most */
        count_failure(true);
        return false;
    }
    return value != NULL;
}

static json_t *read_members(struct reader *r, char closing, unsigned depth)
{
    enum { DEEPEST = JSON_PARSER_MAX_DEPTH };
    json_t *all = made(closing == '}' ? json_object() : json_array());
    uint64_t count = 0;
    bool more = true, good = all && depth < DEEPEST;
    r->json.pos++;
    while (good && (good = tp_json_next(&r->json, closing, &count, &more) == TP_OK) && more)
        good = read_member(r, all, depth + 1);
    if (!good)
        json_decref(all);
    return good ? all : NULL;
}

static json_t *read_value(struct reader *r, unsigned depth)
{
    int byte = tp_json_peek(&r->json);
    return byte == '{'   ? read_members(r, '}', depth)
           : byte == '[' ? read_members(r, ']', depth)
           : byte == '"' ? read_string(r)
           : byte >= 0   ? read_token(r)
                         : NULL;
}

/* NULL: the text is none, with *why, or memory is short, which is counted. */
static json_t *read_text(const char *text, size_t size, bool python, struct tp_err *why)
{
    enum { TREE = 25 }; /* times the bytes of its text: of lists of small numbers */
    struct reader r = {.python = python};
    json_t *value = NULL;
    if (size > tp_os_heap_left() / TREE) {
        count_failure(true);
        return NULL;
    }
    r.json = (struct tp_json){.text = text, .size = size, .noun = "text", .err = why,
                              .arena = tp_os.malloc(size + 1)};
    if (!r.json.arena) {
        tp_json_no_memory();
        return NULL;
    }
    int byte = tp_json_peek(&r.json);
    if (byte == '{' || byte == '[')
        value = read_value(&r, 0);
    free(r.json.arena);
    if (value && tp_json_peek(&r.json) != -1) {
        json_decref(value);
        value = NULL;
    }
    return value;
}

json_t *tp_json_load(const char *text, size_t size, json_error_t *where)
{
    const uint64_t before = failures;
    struct tp_err why = {0};
    json_t *value = read_text(text, size, false, &why), *other;
    if (value || failures != before || !where)
        return value;
    if ((other = json_loadb(text, size, JSON_REJECT_DUPLICATES, where))) /* it finds the words */
        snprintf(where->text, sizeof where->text, "%.100s", why.what);
    json_decref(other);
    return NULL;
}

enum tp_code tp_json_load_python(const char *text, size_t size, json_t **value,
                                 struct tp_err *err)
{
    const uint64_t before = failures;
    struct tp_err why = {0};
    *value = read_text(text, size, true, &why);
    if (*value || failures != before)
        return tp_json_check(before, TP_OK, err);
    return tp_fail(err, TP_E_INPUT, "%s", why.what);
}

/* Every other quote in a string has a backslash before it, and so has every other backslash. */
static void unquote_all(char *text)
{
    char *to = text, *from = text;
    for (char *at; (at = strstr(from, MARKER)); from += *from == '"') {
        memmove(to, from, (size_t)(at - from));
        to += at - from;
        from = at + strlen(MARKER);
        size_t length = strcspn(from, "\"");
        memmove(to, from, length);
        to += length;
        from += length;
    }
    memmove(to, from, strlen(from) + 1);
}

static int add_text(const char *data, size_t size, void *text)
{
    struct tp_err ignored = {0};
    if (tp_text_add(text, data, size, &ignored) == TP_OK)
        return 0;
    tp_json_no_memory();
    return -1;
}

char *tp_json_dump(const json_t *value, size_t flags)
{
    struct tp_text text = {0};
    const uint64_t before = failures;
    if (json_dump_callback(value, add_text, &text, flags))
        tp_json_no_memory();
    if (failures == before)
        unquote_all(text.data);
    else
        tp_text_free(&text);
    return text.data;
}

/* ---- building --------------------------------------------------------------------- */

void tp_json_set(json_t *object, const char *key, json_t *value)
{
    if (json_object_set_new(object, key, value))
        tp_json_no_memory();
}

void tp_json_append(json_t *array, json_t *value)
{
    if (json_array_append_new(array, value))
        tp_json_no_memory();
}

void tp_json_update(json_t *object, const json_t *with)
{
    if (with && json_object_update(object, (json_t *)(uintptr_t)with))
        tp_json_no_memory();
}

json_t *tp_json_merge(json_t *object, const json_t *with)
{
    const char *key;
    json_t *value;
    if (!with)
        return object;
    json_t *merged = made(json_object());
    tp_json_update(merged, object);
    json_object_foreach((json_t *)(uintptr_t)with, key, value)
    {
        json_t *own = json_object_get(object, key);
        tp_json_set(merged, key, json_is_object(own) && json_is_object(value)
                                     ? tp_json_merge(json_incref(own), value)
                                     : json_incref(value));
    }
    json_decref(object);
    return merged;
}
