/* Names in bulk: an open-addressing hash set and a multikey quicksort.
 *
 * Knows nothing of tensors or files. Invariants: the set is at most half full,
 * so a probe always ends; the sort compares each byte of a name a bounded
 * number of times, whatever the names have in common.
 */
#include "pack/text/name_set.h"

#include "pack/os/os.h"
#include "pack/os/store.h"

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
        tp_os_grow(&items, &names->room, names->count + 1, sizeof *names->items, err);
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

/* Bits by hash: of the names seen, and of those whose bit was set before they came. The seed is
 * no secret, so that a run allocates what the one before did: names made to share bits are only
 * compared one by one, as all would be without marks. */
struct marks {
    uint64_t *seen, *again;
    uint64_t mask; /* of a bit's number */
    uint64_t seed;
};

static uint64_t bit_of(const struct marks *marks, const char *name)
{
    return XXH3_64bits_withSeed(name, strlen(name), marks->seed) & marks->mask;
}

static bool is_set(const uint64_t *bits, uint64_t bit) { return bits[bit / 64] >> bit % 64 & 1; }

static void mark(struct marks *marks, const char *name)
{
    uint64_t bit = bit_of(marks, name);
    uint64_t *bits = is_set(marks->seen, bit) ? marks->again : marks->seen;
    bits[bit / 64] |= UINT64_C(1) << bit % 64;
}

/* Equal names have one bit, so only names whose bit was set twice are compared. */
static enum tp_code find_repeated(const struct marks *marks,
                                  const char *(*name_at)(void *arg, size_t i), void *arg,
                                  size_t count, size_t *first, struct tp_err *err)
{
    struct tp_names names = {0};
    struct tp_store texts = {0};
    enum tp_code code = TP_OK;
    *first = count;
    for (size_t i = 0; i < count && *first == count && code == TP_OK; i++) {
        const char *name = name_at(arg, i);
        size_t before = names.count;
        uint32_t number = 0;
        if (!is_set(marks->again, bit_of(marks, name)))
            continue;
        size_t length = strlen(name);
        const char *text = tp_store_join(&texts, name, length, "", err);
        code = text ? tp_names_add(&names, text, length, &number, err) : TP_E_MEMORY;
        if (code == TP_OK && number < before)
            *first = i;
    }
    tp_names_close(&names);
    tp_store_close(&texts);
    return code;
}

enum tp_code tp_names_repeated(const char *(*name_at)(void *arg, size_t i), void *arg,
                               size_t count, size_t *first, struct tp_err *err)
{
    uint64_t bits = 64;
    while (bits / 16 < count)
        bits *= 2;
    struct marks marks = {tp_os_zalloc(bits / 64, 8, err), tp_os_zalloc(bits / 64, 8, err),
                          bits - 1, count};
    enum tp_code code = marks.seen && marks.again ? TP_OK : TP_E_MEMORY;
    for (size_t i = 0; i < count && code == TP_OK; i++)
        mark(&marks, name_at(arg, i));
    if (code == TP_OK)
        code = find_repeated(&marks, name_at, arg, count, first, err);
    free(marks.seen);
    free(marks.again);
    return code;
}

/* The next 8 bytes of a name as a number that compares like them; bytes from the
 * end of the name on are 0, so a chunk whose last byte is 0 is the last one. */
static uint64_t chunk_of(const char *name)
{
    uint64_t chunk = 0;
    for (int shift = 56; shift >= 0 && *name; shift -= 8)
        chunk |= (uint64_t)(uint8_t)*name++ << shift;
    return chunk;
}

static bool is_last(uint64_t chunk) { return (chunk & 0xff) == 0; }

/* Both names are equal before `depth` and have their chunks taken there. */
static bool key_less(const struct tp_name_key *a, const struct tp_name_key *b, size_t depth)
{
    if (a->chunk != b->chunk)
        return a->chunk < b->chunk;
    return !is_last(a->chunk) && strcmp(a->name + depth + 8, b->name + depth + 8) < 0;
}

static void insertion_sort(struct tp_name_key *keys, size_t count, size_t depth)
{
    for (size_t i = 1; i < count; i++) {
        struct tp_name_key key = keys[i];
        size_t at = i;
        for (; at && key_less(&key, &keys[at - 1], depth); at--)
            keys[at] = keys[at - 1];
        keys[at] = key;
    }
}

static void swap(struct tp_name_key *a, struct tp_name_key *b)
{
    struct tp_name_key key = *a;
    *a = *b;
    *b = key;
}

/* Cuts keys into chunk < pivot, == pivot, > pivot: [0,*less), [*less,*more), [*more,count). */
static void partition(struct tp_name_key *keys, size_t count, uint64_t pivot, size_t *less,
                      size_t *more)
{
    size_t low = 0, high = count, at = 0;
    while (at < high) {
        if (keys[at].chunk < pivot)
            swap(&keys[low++], &keys[at++]);
        else if (keys[at].chunk > pivot)
            swap(&keys[at], &keys[--high]);
        else
            at++;
    }
    *less = low;
    *more = high;
}

struct slice {
    struct tp_name_key *keys;
    size_t count, depth;
};

static void sort_slice(struct slice slice, uint64_t *random)
{
    while (slice.count > 12) {
        /* A pivot that no file can foresee, so that none can make this slow. */
        *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        uint64_t pivot = slice.keys[(*random >> 33) % slice.count].chunk;
        size_t less, more;
        partition(slice.keys, slice.count, pivot, &less, &more);
        struct slice part[3] = {{slice.keys, less, slice.depth},
                                {slice.keys + less, more - less, slice.depth + 8},
                                {slice.keys + more, slice.count - more, slice.depth}};
        if (is_last(pivot))
            part[1].count = 0; /* these names are equal to the end */
        for (size_t i = 0; i < part[1].count; i++)
            part[1].keys[i].chunk = chunk_of(part[1].keys[i].name + part[1].depth);
        /* Recursion into the smaller two keeps the stack logarithmic. */
        int largest = part[0].count > part[1].count ? 0 : 1;
        if (part[2].count > part[largest].count)
            largest = 2;
        for (int i = 0; i < 3; i++)
            if (i != largest)
                sort_slice(part[i], random);
        slice = part[largest];
    }
    insertion_sort(slice.keys, slice.count, slice.depth);
}

void tp_names_sort(struct tp_name_key *keys, size_t count)
{
    bool sorted = true;
    for (size_t i = 1; i < count && sorted; i++)
        sorted = strcmp(keys[i - 1].name, keys[i].name) <= 0;
    if (sorted) /* the usual case: indexes are written sorted */
        return;
    for (size_t i = 0; i < count; i++)
        keys[i].chunk = chunk_of(keys[i].name);
    uint64_t random = (uint64_t)(uintptr_t)keys;
    sort_slice((struct slice){keys, count, 0}, &random);
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
