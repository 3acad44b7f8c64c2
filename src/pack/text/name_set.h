/* Names in bulk: a hash set that finds duplicates, and a sort in byte order, with a search in it.
 * Both are made for 100,000 tensor names with long common beginnings.
 */
#ifndef TP_PACK_NAME_SET_H
#define TP_PACK_NAME_SET_H

#include "base/error.h"
#include "pack/os/store.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tp_names_slot {
    uint32_t hash;
    uint32_t number; /* number of the name + 1; 0: free */
};

/* A set of names, numbered 0, 1, 2, ... as they were added. {0} is a valid empty
 * set; the names stay the caller's and have to live as long as the set. */
struct tp_names {
    const char **items; /* by number */
    size_t count, item_capacity;
    struct tp_names_slot *slots;
    size_t capacity; /* of slots: 0 or a power of two */
    uint64_t seed;
};

/* Adds a NUL-terminated name of `length` bytes unless it is there already. *number
 * is the name's: the count before the call when it is new, less when it is not. */
enum tp_code tp_names_add(struct tp_names *names, const char *name, size_t length,
                          uint32_t *number, struct tp_err *err);
/* The same with a copy of a new name's bytes in the store, and with *array, of the caller's items
 * of `size` bytes by number, large enough: the item of a new name is zeroed. *capacity: of the
 * array. */
enum tp_code tp_names_number(struct tp_names *names, struct tp_store *store, const char *name,
                             size_t length, void *array, size_t *capacity, size_t size,
                             uint32_t *number, struct tp_err *err);
/* Number of a name of `length` bytes, which may go on behind them, or -1. */
int64_t tp_names_find(const struct tp_names *names, const char *name, size_t length);
void tp_names_close(struct tp_names *names); /* legal on {0} and twice */

/* *first: the lowest number of a name that an earlier one equals, `count` when all differ. */
enum tp_code tp_names_repeated(const char *(*name_at)(void *arg, size_t i), void *arg,
                               size_t count, size_t *first, struct tp_err *err);

struct tp_name_key {
    const char *name; /* NUL-terminated */
    size_t index;     /* the caller's */
};

/* Sorts by name as strcmp() does. Equal names end up side by side. */
void tp_names_sort(struct tp_name_key *keys, size_t count);

/* One of the sorted names that begin with the `length` bytes of `name` and then `end`: a 0 for that
 * name itself, '/' for any in a folder of that name. NULL: there is none. */
const struct tp_name_key *tp_names_sorted_find(const struct tp_name_key *keys, size_t count,
                                               const char *name, size_t length, char end);
bool tp_names_sorted_have(const struct tp_name_key *keys, size_t count, const char *name,
                          size_t length, char end);

#endif
