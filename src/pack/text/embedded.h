/* Files that are embedded in the program, and the lists of what is parsed from them. */
#ifndef TP_PACK_EMBEDDED_H
#define TP_PACK_EMBEDDED_H

#include "base/error.h"

#include <pthread.h>
#include <stddef.h>

/* Written by scripts/embed.sh: rows ended by {NULL, NULL}. The name is also the item's. */
struct tp_embedded {
    const char *name, *text;
};

/* What is parsed from files, each when it is asked for, and what is added. Items begin with their
 * name, a const char *, and are never freed. The first six members are the list's owner's. */
struct tp_embedded_list {
    const struct tp_embedded *files;
    size_t size; /* of an item */
    enum tp_code (*parse)(const char *text, void *item, struct tp_err *err);
    void (*close)(void *item);                             /* of one that is not added */
    enum tp_code (*admit)(void *item, struct tp_err *err); /* of a user's, or NULL */
    pthread_mutex_t lock; /* PTHREAD_MUTEX_INITIALIZER */
    const void **items;   /* by file, then those that were added; NULL: not parsed yet */
    size_t count;         /* of both */
    const void **all;     /* by name; NULL: to be made */
    size_t all_count;
    struct tp_err err;    /* of the first file that was left out of them */
};

/* The item of file i; with text that its `parse` refuses an error that names the file. */
enum tp_code tp_embedded_get(struct tp_embedded_list *list, size_t i, const void **item,
                             struct tp_err *err);
/* The item of that name; *item NULL: there is none. */
enum tp_code tp_embedded_find(struct tp_embedded_list *list, const char *name, const void **item,
                              struct tp_err *err);
/* All of them, sorted by name. A file whose `parse` fails is left out, with *err: of the first.
 * NULL while memory is short: the next call begins anew. */
const void *const *tp_embedded_all(struct tp_embedded_list *list, size_t *count,
                                   struct tp_err *err);
/* TP_E_MEMORY, or what is wrong with the first file that was left out. */
enum tp_code tp_embedded_check(struct tp_embedded_list *list, struct tp_err *err);
/* Adds a user's file, before others read what tp_embedded_all() gave: the text is copied.
 * TP_E_USAGE where an item has that name; what `parse` and `admit` say. */
enum tp_code tp_embedded_add(struct tp_embedded_list *list, const char *text, size_t size,
                             struct tp_err *err);

#endif
