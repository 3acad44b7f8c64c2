/* Names in bulk: an open-addressing hash set, and a sort.
 *
 * Knows nothing of tensors or files. Invariant: the set is at most half full, so a probe always
 * ends.
 */
#include "pack/text/name_set.h"

#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static uint32_t hash_of(const struct tp_names *names, const char *name, size_t length)
{
    return (uint32_t)XXH3_64bits_withSeed(name, length, names->seed);
}

/* The slot that holds the name, or the free one where it belongs. Slots are small
 * and names elsewhere, so that most probes touch one cache line. */
static struct tp_names_slot *slot_of(const struct tp_names *names, const char *name,
                                     size_t length, uint32_t hash)
{
    size_t mask = names->capacity - 1;
    size_t at = hash & mask;
    for (;;) {
        struct tp_names_slot *slot = &names->slots[at];
        const char *item = slot->number ? names->items[slot->number - 1] : NULL;
        if (!item || (slot->hash == hash && strncmp(item, name, length) == 0 && !item[length]))
            return slot;
        at = (at + 1) & mask;
    }
}

static enum tp_code grow(struct tp_names *names, struct tp_err *err)
{
    size_t factor = names->capacity < 65536 ? 4 : 2;
    size_t capacity = names->capacity ? names->capacity * factor : 64;
    struct tp_names_slot *slots = tp_os_zalloc(capacity, sizeof *slots, err);
    if (!slots)
        return TP_E_MEMORY;
    for (size_t i = 0; i < names->capacity; i++) {
        struct tp_names_slot from = names->slots[i];
        size_t at = from.hash & (capacity - 1);
        if (!from.number)
            continue;
        while (slots[at].number)
            at = (at + 1) & (capacity - 1);
        slots[at] = from;
    }
    free(names->slots);
    names->slots = slots;
    names->capacity = capacity;
    return TP_OK;
}

enum tp_code tp_names_add(struct tp_names *names, const char *name, size_t length,
                          uint32_t *number, struct tp_err *err)
{
    void *items = names->items;
    enum tp_code code =
        tp_os_grow(&items, &names->item_capacity, names->count + 1, sizeof *names->items, err);
    names->items = items;
    if (!code && names->count + 1 > names->capacity / 2) {
        /* An address that differs from run to run, so that no file can be made
         * of names that all fall into one slot. */
        if (!names->capacity)
            names->seed = (uint64_t)(uintptr_t)name;
        code = grow(names, err);
    }
    if (code)
        return code;
    uint32_t hash = hash_of(names, name, length);
    struct tp_names_slot *slot = slot_of(names, name, length, hash);
    if (!slot->number) {
        names->items[names->count++] = name;
        *slot = (struct tp_names_slot){hash, (uint32_t)names->count};
    }
    *number = slot->number - 1;
    return TP_OK;
}

enum tp_code tp_names_number(struct tp_names *names, struct tp_store *store, const char *name,
                             size_t length, void *array, size_t *capacity, size_t size,
                             uint32_t *number, struct tp_err *err)
{
    int64_t found = tp_names_find(names, name, length);
    *number = (uint32_t)found;
    if (found >= 0)
        return TP_OK;
    void *items;
    memcpy(&items, array, sizeof items);
    const char *own = tp_store_join(store, name, length, "", err);
    enum tp_code code = own ? tp_os_grow(&items, capacity, names->count + 1, size, err)
                            : TP_E_MEMORY;
    memcpy(array, &items, sizeof items);
    if (code || (code = tp_names_add(names, own, length, number, err)))
        return code;
    memset((char *)items + *number * size, 0, size);
    return TP_OK;
}

int64_t tp_names_find(const struct tp_names *names, const char *name, size_t length)
{
    if (!names->capacity)
        return -1;
    return (int64_t)slot_of(names, name, length, hash_of(names, name, length))->number - 1;
}

void tp_names_close(struct tp_names *names)
{
    free(names->items);
    free(names->slots);
    *names = (struct tp_names){0};
}

enum tp_code tp_names_repeated(const char *(*name_at)(void *arg, size_t i), void *arg,
                               size_t count, size_t *first, struct tp_err *err)
{
    struct tp_names names = {0};
    enum tp_code code = TP_OK;
    uint32_t number = 0;
    *first = count;
    for (size_t i = 0; i < count && *first == count && code == TP_OK; i++) {
        const char *name = name_at(arg, i);
        code = tp_names_add(&names, name, strlen(name), &number, err);
        if (code == TP_OK && number < i)
            *first = i;
    }
    tp_names_close(&names);
    return code;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tp_name_key *)a)->name, ((const struct tp_name_key *)b)->name);
}

void tp_names_sort(struct tp_name_key *keys, size_t count)
{
    bool sorted = true;
    for (size_t i = 1; i < count && sorted; i++)
        sorted = strcmp(keys[i - 1].name, keys[i].name) <= 0;
    if (!sorted) /* mostly they are: indexes are written so */
        qsort(keys, count, sizeof *keys, by_name);
}

const struct tp_name_key *tp_names_sorted_find(const struct tp_name_key *keys, size_t count,
                                               const char *name, size_t length, char end)
{
    while (count) {
        const struct tp_name_key *middle = keys + count / 2;
        int order = strncmp(middle->name, name, length);
        if (!order)
            order = (uint8_t)middle->name[length] - (uint8_t)end;
        if (!order)
            return middle;
        count = order < 0 ? count - count / 2 - 1 : count / 2;
        keys = order < 0 ? middle + 1 : keys;
    }
    return NULL;
}

bool tp_names_sorted_have(const struct tp_name_key *keys, size_t count, const char *name,
                          size_t length, char end)
{
    return tp_names_sorted_find(keys, count, name, length, end) != NULL;
}
