/* The formats that there are: the embedded ones, parsed on first use, and those that a
 * source's group size asks for. Invariant: what was handed out stays as it is.
 */
#include "pack/format/format_parse.h"

#include "pack/os/os.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* Written by scripts/embed.sh: rows ended by {NULL, NULL}. */
struct tp_embedded {
    const char *name, *text;
};
extern const struct tp_embedded tp_embedded_formats[];

static struct tp_format *formats;
static size_t format_count;
static struct tp_err formats_err;
static pthread_once_t formats_once = PTHREAD_ONCE_INIT;

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct tp_format *)a)->name, ((const struct tp_format *)b)->name);
}

static void load_formats(void)
{
    size_t total = 0;
    while (tp_embedded_formats[total].name)
        total++;
    formats = tp_os_zalloc(total, sizeof *formats, &formats_err);
    for (size_t i = 0; formats && i < total; i++) {
        struct tp_err err = {0};
        const char *text = tp_embedded_formats[i].text;
        if (tp_format_parse(text, 0, &formats[format_count], &err) == TP_OK) {
            format_count++;
            continue;
        }
        tp_err_path(&err, tp_embedded_formats[i].name);
        if (formats_err.code == TP_OK)
            formats_err = err;
    }
    if (formats)
        qsort(formats, format_count, sizeof *formats, by_name);
}

const struct tp_format *tp_formats(size_t *count)
{
    pthread_once(&formats_once, load_formats);
    *count = format_count;
    return formats;
}

enum tp_code tp_formats_check(struct tp_err *err)
{
    pthread_once(&formats_once, load_formats);
    if (err && err->code == TP_OK)
        *err = formats_err;
    return formats_err.code;
}

const struct tp_format *tp_format_find(const char *name)
{
    size_t count;
    const struct tp_format *all = tp_formats(&count);
    for (size_t i = 0; i < count; i++)
        if (strcmp(all[i].name, name) == 0)
            return &all[i];
    return NULL;
}

/* Formats with other group sizes than their files', made when a source has one or a
 * parameter asks for it. */
static struct grouped {
    struct tp_format format;
    struct grouped *next;
} *grouped;
static pthread_mutex_t grouped_lock = PTHREAD_MUTEX_INITIALIZER;

const struct tp_format *tp_format_grouped(const struct tp_format *format, uint64_t group,
                                          struct tp_err *err)
{
    const struct tp_format *base = tp_format_find(format->name);
    if (base->group == group)
        return base;
    pthread_mutex_lock(&grouped_lock);
    struct grouped *item = grouped;
    while (item && (item->format.text != base->text || item->format.group != group))
        item = item->next;
    if (!item && (item = tp_os_zalloc(1, sizeof *item, err)) != NULL) {
        item->next = grouped;
        if (tp_format_parse(base->text, group, &item->format, err) == TP_OK) {
            grouped = item;
        } else {
            free(item);
            item = NULL;
        }
    }
    pthread_mutex_unlock(&grouped_lock);
    return item ? &item->format : NULL;
}
