/* Lists of what is embedded. Knows neither formats nor models.
 *
 * Invariant: what was handed out stays as it is, and a list that callers see is complete. One
 * failed allocation does not shorten it for the life of the process: the call fails.
 */
#include "pack/text/embedded.h"

#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

static const char *name_of(const void *item) { return *(const char *const *)item; }

static int by_name(const void *a, const void *b)
{
    return strcmp(name_of(*(const void *const *)a), name_of(*(const void *const *)b));
}

static size_t files_of(const struct tp_embedded_list *list)
{
    size_t count = 0;
    while (list->files[count].name)
        count++;
    return count;
}

/* Room for so many items. */
static enum tp_code grow(struct tp_embedded_list *list, size_t count, struct tp_err *err)
{
    const void **items = tp_os_zalloc(count, sizeof *items, err);
    if (!items)
        return TP_E_MEMORY;
    for (size_t i = 0; list->items && i < list->count; i++)
        items[i] = list->items[i];
    free(list->items);
    list->items = items;
    list->count = count;
    return TP_OK;
}

static enum tp_code get(struct tp_embedded_list *list, size_t i, const void **item,
                        struct tp_err *err)
{
    struct tp_err wrong = {0};
    enum tp_code code = list->items ? TP_OK : grow(list, files_of(list), err);
    if (code == TP_OK && !list->items[i]) {
        void *parsed = tp_os_zalloc(1, list->size, &wrong);
        if (parsed && list->parse(list->files[i].text, parsed, &wrong) == TP_OK) {
            list->items[i] = parsed;
        } else {
            free(parsed);
            if (wrong.code != TP_E_MEMORY) /* else the file is right */
                tp_err_path(&wrong, list->files[i].name);
            *err = wrong;
            code = wrong.code;
        }
    }
    *item = code ? NULL : list->items[i];
    return code;
}

static enum tp_code find(struct tp_embedded_list *list, const char *name, const void **item,
                         struct tp_err *err)
{
    const size_t files = files_of(list);
    *item = NULL;
    for (size_t i = 0; i < files; i++)
        if (list->files[i].name[0] == name[0] && strcmp(list->files[i].name, name) == 0)
            return get(list, i, item, err);
    for (size_t i = files; i < list->count; i++)
        if (strcmp(name_of(list->items[i]), name) == 0)
            *item = list->items[i];
    return TP_OK;
}

static enum tp_code make_all(struct tp_embedded_list *list, struct tp_err *err)
{
    const size_t files = files_of(list), max = files > list->count ? files : list->count;
    const void **all = tp_os_zalloc(max + 1, sizeof *all, err);
    size_t count = 0;
    list->err = (struct tp_err){0};
    for (size_t i = 0; i < max && all; i++) {
        struct tp_err wrong = {0};
        enum tp_code code = get(list, i, &all[count], &wrong);
        count += code == TP_OK;
        if (code == TP_E_MEMORY) {
            free(all);
            *err = wrong;
            return code;
        }
        if (list->err.code == TP_OK)
            list->err = wrong;
    }
    if (!all)
        return TP_E_MEMORY;
    qsort(all, count, sizeof *all, by_name);
    list->all = all;
    list->all_count = count;
    return TP_OK;
}

/* Of several errors the caller's first one stays. */
static enum tp_code tell(const struct tp_err *seen, struct tp_err *err)
{
    if (err && err->code == TP_OK)
        *err = *seen;
    return seen->code;
}

enum tp_code tp_embedded_get(struct tp_embedded_list *list, size_t i, const void **item,
                             struct tp_err *err)
{
    struct tp_err seen = {0};
    pthread_mutex_lock(&list->lock);
    get(list, i, item, &seen);
    pthread_mutex_unlock(&list->lock);
    return tell(&seen, err);
}

enum tp_code tp_embedded_find(struct tp_embedded_list *list, const char *name, const void **item,
                              struct tp_err *err)
{
    struct tp_err seen = {0};
    pthread_mutex_lock(&list->lock);
    find(list, name, item, &seen);
    pthread_mutex_unlock(&list->lock);
    return tell(&seen, err);
}

const void *const *tp_embedded_all(struct tp_embedded_list *list, size_t *count,
                                   struct tp_err *err)
{
    struct tp_err seen = {0};
    pthread_mutex_lock(&list->lock);
    enum tp_code code = list->all ? TP_OK : make_all(list, &seen);
    const void *const *all = code ? NULL : list->all;
    *count = code ? 0 : list->all_count;
    tell(code ? &seen : &list->err, err);
    pthread_mutex_unlock(&list->lock);
    return all;
}

enum tp_code tp_embedded_check(struct tp_embedded_list *list, struct tp_err *err)
{
    struct tp_err seen = {0};
    size_t count;
    tp_embedded_all(list, &count, &seen);
    return tell(&seen, err);
}

enum tp_code tp_embedded_add(struct tp_embedded_list *list, const char *text, size_t size,
                             struct tp_err *err)
{
    const size_t files = files_of(list);
    const void *other = NULL;
    char *item = tp_os_zalloc(1, list->size + size + 1, err);
    if (!item)
        return TP_E_MEMORY;
    memcpy(item + list->size, text, size); /* the item's, as long as it is there */
    enum tp_code code = list->parse(item + list->size, item, err);
    if (code) {
        free(item);
        return code;
    }
    if (list->admit)
        code = list->admit(item, err);
    if (code == TP_OK && (code = tp_embedded_find(list, name_of(item), &other, err)) == TP_OK &&
        other)
        code = tp_fail(err, TP_E_USAGE, "'%s' is there already: a file cannot be another one of "
                       "that name", name_of(item));
    pthread_mutex_lock(&list->lock);
    if (code == TP_OK)
        code = grow(list, (list->count > files ? list->count : files) + 1, err);
    if (code == TP_OK) {
        list->items[list->count - 1] = item;
        free(list->all);
        list->all = NULL;
    } else {
        list->close(item);
        free(item);
    }
    pthread_mutex_unlock(&list->lock);
    return code;
}
