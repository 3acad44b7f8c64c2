/* The formats that there are: the embedded ones, parsed on first use, and those that a
 * source's group size asks for. Invariant: what was handed out stays as it is.
 */
#include "pack/format/format_parse.h"

#include "pack/os/os.h"
#include "pack/text/embedded.h"

#include <pthread.h>
#include <stdlib.h>

extern const struct tp_embedded tp_embedded_formats[];

static enum tp_code parse(const char *text, void *item, struct tp_err *err)
{
    return tp_format_parse(text, 0, item, err);
}

static void close_item(void *item) { tp_format_close(item); }

static struct tp_embedded_list formats = {.files = tp_embedded_formats,
                                          .size = sizeof(struct tp_format),
                                          .parse = parse,
                                          .close = close_item,
                                          .lock = PTHREAD_MUTEX_INITIALIZER};

const struct tp_format *tp_formats(size_t *count) { return tp_embedded_items(&formats, count); }

enum tp_code tp_formats_check(struct tp_err *err) { return tp_embedded_check(&formats, err); }

const struct tp_format *tp_format_find(const char *name)
{
    return tp_embedded_find(&formats, name);
}

const struct tp_format *tp_format_bias(const struct tp_format *format)
{
    return tp_format_find(format->name)->bias;
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
