/* What a command found out, described once for both printed forms: all of it as JSON (report.h),
 * or what a table has columns for as its rows (table.h). A field is named where it is written,
 * and nowhere else.
 *
 * Where memory ends the writer knows it: nothing needs to be checked until it is printed.
 */
#ifndef TP_CLI_WRITER_H
#define TP_CLI_WRITER_H

#include "base/layout.h"
#include "pack/text/text.h"

#include <jansson.h>

struct tp_writer;

/* Writes what element `i` of a list is, of the thing that the list is of: one value, or none. */
typedef void tp_put(struct tp_writer *w, size_t i, const void *of);

/* A member of an object, under its key, or an element of a list. */
struct tp_member {
    enum tp_member_kind {
        TP_MEMBERS_END,
        TP_MEMBER_NONE, /* is left out */
        TP_MEMBER_NULL,
        TP_MEMBER_TEXT,
        TP_MEMBER_NUM,
        TP_MEMBER_REAL,
        TP_MEMBER_BOOL,
        TP_MEMBER_NUMBERS,
        TP_MEMBER_JSON,
        TP_MEMBER_LIST,
        TP_MEMBER_LINES,
        TP_MEMBER_CELL,
    } kind;
    const char *key; /* NULL in a list */
    union {
        const char *text;
        uint64_t num;
        double real;
        const json_t *json;
    };
    const void *of; /* numbers, or for `each` */
    size_t count;
    tp_put *each;
};

/* Any bytes, also of untrusted input; NULL: null. */
static inline struct tp_member tp_str(const char *key, const char *text)
{
    return (struct tp_member){text ? TP_MEMBER_TEXT : TP_MEMBER_NULL, key, .text = text};
}

static inline struct tp_member tp_num(const char *key, uint64_t value)
{
    return (struct tp_member){TP_MEMBER_NUM, key, .num = value};
}

/* JSON has no infinity and no NaN: such a figure is null. */
static inline struct tp_member tp_real(const char *key, double value)
{
    return (struct tp_member){TP_MEMBER_REAL, key, .real = value};
}

static inline struct tp_member tp_bool(const char *key, bool value)
{
    return (struct tp_member){TP_MEMBER_BOOL, key, .num = value};
}

static inline struct tp_member tp_null(const char *key)
{
    return (struct tp_member){TP_MEMBER_NULL, .key = key};
}

static inline struct tp_member tp_numbers(const char *key, const uint64_t *numbers, size_t count)
{
    return (struct tp_member){TP_MEMBER_NUMBERS, key, .of = numbers, .count = count};
}

/* [E,N,K] */
static inline struct tp_member tp_box(const char *key, const struct tp_box3 *box)
{
    return tp_numbers(key, (const uint64_t *)box, 3);
}

/* What a file says, as it says it. */
static inline struct tp_member tp_json(const char *key, const json_t *json)
{
    return (struct tp_member){json ? TP_MEMBER_JSON : TP_MEMBER_NULL, key, .json = json};
}

/* A list of what `each` writes of every one of `count` things. */
static inline struct tp_member tp_list(const char *key, size_t count, tp_put *each,
                                       const void *of)
{
    return (struct tp_member){TP_MEMBER_LIST, key, .of = of, .count = count, .each = each};
}

/* The same; JSON has each of them in one line. */
static inline struct tp_member tp_lines(const char *key, size_t count, tp_put *each,
                                        const void *of)
{
    return (struct tp_member){TP_MEMBER_LINES, key, .of = of, .count = count, .each = each};
}

/* A text for tables only. One with the key "cost_" is how they show the member "cost". */
static inline struct tp_member tp_cell(const char *key, const char *text)
{
    return (struct tp_member){TP_MEMBER_CELL, key, .text = text};
}

/* A member that is there only in this case. */
static inline struct tp_member tp_if(bool is_there, struct tp_member member)
{
    return is_there ? member : (struct tp_member){TP_MEMBER_NONE, .key = NULL};
}

/* One of the two forms. */
struct tp_writer {
    void (*begin)(struct tp_writer *w, const char *key, char bracket);
    void (*end)(struct tp_writer *w, char bracket);
    void (*member)(struct tp_writer *w, const struct tp_member *member);
    size_t depth; /* of objects and lists that have begun */
    struct tp_err err; /* the first failure */
    /* of JSON: */
    struct tp_text text;
    bool compact;       /* without any blanks */
    bool empty;         /* nothing yet in the innermost object or list */
    size_t in_line;     /* from this depth on there are no lines */
};

/* Begins a JSON object. */
void tp_writer_open(struct tp_writer *w);
/* Ends it. The text, which the caller frees, or what failed. */
enum tp_code tp_writer_end(struct tp_writer *w, struct tp_text *text, struct tp_err *err);

/* Writes members: tp_write(w, tp_str("name", name), tp_num("bytes", bytes)). */
#define tp_write(w, ...) tp_write_all(w, TP_MEMBERS(__VA_ARGS__))
#define TP_MEMBERS(...) (const struct tp_member[]){__VA_ARGS__, {TP_MEMBERS_END, .key = NULL}}
void tp_write_all(struct tp_writer *w, const struct tp_member *members);

/* The same, of up to 200 bytes. */
void tp_cellf(struct tp_writer *w, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* An object of these members; one of more is begun ('{') and ended ('}'), as a list is ('['). */
#define tp_object(w, key, ...) tp_write_object(w, key, TP_MEMBERS(__VA_ARGS__))
void tp_write_object(struct tp_writer *w, const char *key, const struct tp_member *members);
void tp_begin(struct tp_writer *w, const char *key, char bracket);
void tp_end(struct tp_writer *w, char bracket);

/* Adds a text as a string of JSON. A byte NN that is no UTF-8, which JSON cannot carry, stands
 * there as a character that tp_print_json() prints as \udcNN, and so do the bytes of the few
 * characters that stand for one. */
enum tp_code tp_add_string(struct tp_text *to, const char *text, struct tp_err *err);

#endif
