/* Objects of JSON files as structs: a table says which key is which member, of which kind. Strict:
 * an unknown key, a missing one, a value of another kind is TP_E_INPUT and says where. Who owns the
 * tree owns the texts; lists are the struct's.
 */
#ifndef TP_PACK_JSON_FIELDS_H
#define TP_PACK_JSON_FIELDS_H

#include "base/error.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum tp_json_kind {
    TP_JSON_TEXT,
    TP_JSON_ANY,      /* a text that may be empty */
    TP_JSON_SEGMENT,  /* a text: one segment of a name */
    TP_JSON_STACK,    /* a text: two segments of a name, or more */
    TP_JSON_MODULE,   /* a text, as a struct tp_module_pattern: see models/README.md */
    TP_JSON_WORD,     /* one of some words: its number, as an int */
    TP_JSON_SECOND,   /* one of two words: whether it is the second one */
    TP_JSON_YES,      /* true or false; true where it is missing */
    TP_JSON_NO,       /* the same, false where it is missing */
    TP_JSON_NUMBER,   /* a whole number of at least 1, as a uint64_t; 0 where it is missing */
    TP_JSON_TREE,     /* an object, as a const json_t * */
    TP_JSON_MOVED,    /* a key of former files that is refused: engines/ says it */
    TP_JSON_BITS,     /* a list of some words: a bit for each, as an unsigned */
    TP_JSON_TEXTS,    /* a list of texts, with NULL behind the last one */
    TP_JSON_MODULES,  /* a list of such patterns */
    TP_JSON_OBJECTS,  /* a list of objects */
    TP_JSON_OBJECT,   /* fields of the same struct, in an object of their own */
};

/* A key of an object, and where its value goes in the struct that the object becomes. */
struct tp_json_field {
    const char *key;
    enum tp_json_kind kind;
    bool needed;
    size_t at, count;         /* lists: of the pointer to the items, and of how many they are */
    const char *const *words; /* ended by NULL */
    const struct tp_json_field *of; /* of an object; ended by {0} */
    size_t size;                    /* of one */
};

#define TP_NEEDED true
#define TP_MAY_BE false
#define TP_ONE(name, what, must, type, member, ...)                                              \
    {.key = (name), .kind = TP_JSON_##what, .needed = (must), .at = offsetof(struct type, member), \
     __VA_ARGS__}
#define TP_LIST(name, what, must, type, member, counter, ...)                                    \
    TP_ONE(name, what, must, type, member, .count = offsetof(struct type, counter), __VA_ARGS__)
#define TP_OF(fields, type) .of = (fields), .size = sizeof(struct type)

/* An object of the file, for messages: "keep[2]", or with NULL the file itself. */
struct tp_json_place {
    const char *list;
    size_t index;
    struct tp_err *err;
};
enum tp_code tp_json_wrong(const struct tp_json_place *at, const char *key, const char *what);

/* The object into the zeroed struct, which is to be freed whatever comes. */
enum tp_code tp_json_fields(const struct tp_json_place *at, const struct tp_json_field *fields,
                            const json_t *json, void *out);
/* The lists of the struct; it is not zeroed. */
void tp_json_fields_free(const struct tp_json_field *fields, void *item);

#endif
