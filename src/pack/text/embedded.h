/* Files that are embedded in the program, and the lists that are parsed from them. */
#ifndef TP_PACK_EMBEDDED_H
#define TP_PACK_EMBEDDED_H

#include "base/error.h"

#include <pthread.h>
#include <stddef.h>

/* Written by scripts/embed.sh: rows ended by {NULL, NULL}. */
struct tp_embedded {
    const char *name, *text;
};

/* What is parsed from files, on first use. The first five members are its owner's. */
struct tp_embedded_list {
    const struct tp_embedded *files;
    size_t size; /* of an item, which begins with its name, a const char * */
    enum tp_code (*parse)(const char *text, void *item, struct tp_err *err);
    void (*close)(void *item);
    pthread_mutex_t lock; /* PTHREAD_MUTEX_INITIALIZER */
    void *items; /* sorted by name; NULL: not parsed yet */
    size_t count;
    struct tp_err err; /* of the first file that was left out */
    struct tp_embedded *added; /* users' files, the newest last; texts and names are the list's */
    size_t adds, adds_capacity;
};

/* Adds a user's file, before others ask for the items. TP_E_USAGE where an item has that name,
 * TP_E_INPUT where `parse` fails; the text is copied. */
enum tp_code tp_embedded_add(struct tp_embedded_list *list, const char *text, size_t size,
                             struct tp_err *err);

/* The items. A file whose `parse` fails is left out. While memory for the list is short there
 * are none, and the next call begins anew: afterwards the list stays as it is. */
const void *tp_embedded_items(struct tp_embedded_list *list, size_t *count);
/* TP_E_MEMORY, or what is wrong with the first file that was left out. Once it has succeeded,
 * the others find all items. */
enum tp_code tp_embedded_check(struct tp_embedded_list *list, struct tp_err *err);
/* The item of that name, or NULL. */
const void *tp_embedded_find(struct tp_embedded_list *list, const char *name);

#endif
