/* Lists of what is embedded. Knows neither formats nor models. */
#include "pack/text/embedded.h"

#include "pack/os/os.h"

#include <stdlib.h>
#include <string.h>

static const char *name_of(const void *item) { return *(const char *const *)item; }

static int by_name(const void *a, const void *b) { return strcmp(name_of(a), name_of(b)); }

void tp_embedded_parse(const struct tp_embedded *files, size_t size,
                       enum tp_code (*parse)(const char *text, void *item, struct tp_err *err),
                       struct tp_embedded_list *list)
{
    size_t total = 0;
    while (files[total].name)
        total++;
    list->items = tp_os_zalloc(total, size, &list->err);
    for (size_t i = 0; list->items && i < total; i++) {
        struct tp_err err = {0};
        if (parse(files[i].text, (char *)list->items + list->count * size, &err) == TP_OK) {
            list->count++;
            continue;
        }
        tp_err_path(err.code == TP_E_MEMORY ? NULL : &err, files[i].name); /* it is right */
        if (list->err.code == TP_OK)
            list->err = err;
    }
    if (list->items)
        qsort(list->items, list->count, size, by_name);
}

const void *tp_embedded_find(const struct tp_embedded_list *list, size_t size, const char *name)
{
    for (size_t i = 0; i < list->count; i++) {
        const char *item = (const char *)list->items + i * size;
        if (strcmp(name_of(item), name) == 0)
            return item;
    }
    return NULL;
}
