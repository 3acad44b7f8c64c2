/* Lists of what is embedded. Knows neither formats nor models.
 *
 * Invariant: a list that others see lacks nothing for want of memory. One allocation that
 * fails must not decide for the life of a process what there is.
 */
#include "pack/text/embedded.h"

#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

static const char *name_of(const void *item) { return *(const char *const *)item; }

static int by_name(const void *a, const void *b) { return strcmp(name_of(a), name_of(b)); }

static void discard(struct tp_embedded_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        list->close((char *)list->items + i * list->size);
    free(list->items);
    list->items = NULL;
    list->count = 0;
    list->err = (struct tp_err){0};
}

static enum tp_code parse_all(struct tp_embedded_list *list, struct tp_err *err)
{
    size_t total = 0;
    while (list->files[total].name)
        total++;
    if (!(list->items = tp_os_zalloc(total + list->adds, list->size, err)))
        return TP_E_MEMORY;
    for (size_t i = 0; i < total + list->adds; i++) {
        const struct tp_embedded *file = i < total ? &list->files[i] : &list->added[i - total];
        struct tp_err wrong = {0};
        void *item = (char *)list->items + list->count * list->size;
        if (list->parse(file->text, item, &wrong) == TP_OK) {
            list->count++;
        } else if (wrong.code == TP_E_MEMORY) { /* the file is right */
            discard(list);
            *err = wrong;
            return TP_E_MEMORY;
        } else {
            tp_err_path(&wrong, file->name);
            if (list->err.code == TP_OK)
                list->err = wrong;
        }
    }
    qsort(list->items, list->count, list->size, by_name);
    return TP_OK;
}

/* From TP_OK on the list is constant: it is read without the lock. */
static enum tp_code have(struct tp_embedded_list *list, struct tp_err *err)
{
    pthread_mutex_lock(&list->lock);
    enum tp_code code = list->items ? TP_OK : parse_all(list, err);
    pthread_mutex_unlock(&list->lock);
    return code;
}

const void *tp_embedded_items(struct tp_embedded_list *list, size_t *count)
{
    struct tp_err err = {0};
    enum tp_code code = have(list, &err);
    *count = code ? 0 : list->count;
    return code ? NULL : list->items;
}

enum tp_code tp_embedded_check(struct tp_embedded_list *list, struct tp_err *err)
{
    struct tp_err seen = {0};
    if (have(list, &seen) == TP_OK)
        seen = list->err;
    if (err && err->code == TP_OK)
        *err = seen;
    return seen.code;
}

const void *tp_embedded_find(struct tp_embedded_list *list, const char *name)
{
    size_t count;
    const char *item = tp_embedded_items(list, &count);
    for (size_t i = 0; i < count; i++, item += list->size)
        if (strcmp(name_of(item), name) == 0)
            return item;
    return NULL;
}

enum tp_code tp_embedded_add(struct tp_embedded_list *list, const char *text, size_t size,
                             struct tp_err *err)
{
    void *item = tp_os_zalloc(1, list->size, err);
    char *own = tp_os_alloc(size + 1, err);
    enum tp_code code = item && own ? TP_OK : TP_E_MEMORY;
    if (code == TP_OK) {
        memcpy(own, text, size);
        own[size] = '\0';
        code = list->parse(own, item, err);
    }
    if (code == TP_OK && tp_embedded_find(list, name_of(item)))
        code = tp_fail(err, TP_E_USAGE, "'%s' is there already: a file cannot be another one of "
                       "that name", name_of(item));
    char *name = code ? NULL : tp_os_copy(err, name_of(item));
    void *added = list->added;
    if (code == TP_OK && (!name || tp_os_grow(&added, &list->adds_capacity, list->adds + 1,
                                              sizeof *list->added, err)))
        code = TP_E_MEMORY;
    list->added = added;
    if (item)
        list->close(item);
    free(item);
    if (code) {
        free(own);
        free(name);
        return code;
    }
    list->added[list->adds++] = (struct tp_embedded){name, own};
    pthread_mutex_lock(&list->lock);
    discard(list); /* to be made anew */
    pthread_mutex_unlock(&list->lock);
    return TP_OK;
}
