/* The formats that there are: the embedded ones and those of files that the user named, each
 * parsed when it is asked for, and those that a source's group size asks for.
 *
 * Invariant: what was handed out stays as it is.
 */
#include "pack/format/format_parse.h"

#include "pack/os/os.h"
#include "pack/text/embedded.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

extern const struct tp_embedded tp_embedded_formats[];

static const struct tp_format_as as_is = {0};

static enum tp_code parse(const char *text, void *item, struct tp_err *err)
{
    return tp_format_parse(text, &as_is, item, err);
}

static void close_item(void *item) { tp_format_close(item); }

/* Names are printed as they are, and stored. */
static enum tp_code admit(void *item, struct tp_err *err)
{
    struct tp_format *format = item;
    const char *name = format->name;
    const struct tp_format *other;
    format->added = true;
    size_t size = strlen(name), plain = 0;
    while (plain < size && name[plain] > 0x20 && name[plain] < 0x7F)
        plain++;
    if (size == 0 || plain < size || size > TP_FORMAT_NAME)
        return tp_fail(err, TP_E_INPUT, "\"name\" is not 1 to %d printable ASCII characters "
                       "without blanks", TP_FORMAT_NAME);
    enum tp_code code = tp_format_get(name, &other, err);
    if (code || !other)
        return code;
    return tp_fail(err, TP_E_USAGE, other->added ? "two files describe the format '%s'"
                   : "the format '%s' is built in: a file cannot be another one of that name",
                   name);
}

static struct tp_embedded_list list = {.files = tp_embedded_formats,
                                       .size = sizeof(struct tp_format),
                                       .parse = parse,
                                       .close = close_item,
                                       .admit = admit,
                                       .lock = PTHREAD_MUTEX_INITIALIZER};

enum tp_code tp_format_get(const char *name, const struct tp_format **format, struct tp_err *err)
{
    const void *item;
    enum tp_code code = tp_embedded_find(&list, name, &item, err);
    *format = item;
    return code;
}

const struct tp_format *tp_format_find(const char *name)
{
    const struct tp_format *format;
    tp_format_get(name, &format, NULL);
    return format;
}

const struct tp_format *const *tp_formats(size_t *count)
{
    return (const struct tp_format *const *)tp_embedded_all(&list, count, NULL);
}

enum tp_code tp_formats_check(struct tp_err *err) { return tp_embedded_check(&list, err); }

/* ---- the user's files ---------------------------------------------------- */

enum tp_code tp_format_add(const char *text, size_t size, struct tp_err *err)
{
    return tp_embedded_add(&list, text, size, err);
}

bool tp_format_is_added(const struct tp_format *format)
{
    const struct tp_format *base = tp_format_find(format->name);
    return base && base->added;
}

/* ---- other sizes and spellings --------------------------------------------------- */

const struct tp_format *tp_format_bias(const struct tp_format *format)
{
    const struct tp_format *base = tp_format_find(format->name);
    return base ? base->bias : NULL; /* none of an unknown one */
}

/* Formats in other sizes or spellings than their files', made when a source has them or a parameter
 * asks for them. */
static struct derived {
    struct tp_format format;
    struct tp_format_as as;
    struct derived *next;
} *derived;
static pthread_mutex_t derived_lock = PTHREAD_MUTEX_INITIALIZER;

const struct tp_format *tp_format_as(const struct tp_format *format, const struct tp_format_as *as,
                                     struct tp_err *err)
{
    const struct tp_format *base = tp_format_find(format->name);
    if (base->group == as->columns && base->row_group == as->rows && !as->spelled)
        return base;
    pthread_mutex_lock(&derived_lock);
    struct derived *item = derived;
    while (item && (item->format.text != base->text || item->as.columns != as->columns ||
                    item->as.rows != as->rows || item->as.spelled != as->spelled))
        item = item->next;
    if (!item && (item = tp_os_zalloc(1, sizeof *item, err)) != NULL) {
        item->next = derived;
        item->as = *as;
        if (tp_format_parse(base->text, &item->as, &item->format, err) == TP_OK) {
            derived = item;
        } else {
            free(item);
            item = NULL;
        }
    }
    pthread_mutex_unlock(&derived_lock);
    return item ? &item->format : NULL;
}

const struct tp_format *tp_format_grouped(const struct tp_format *format, uint64_t group,
                                          struct tp_err *err)
{
    const struct tp_format_as as = {group, format->row_group, format->spelled};
    return tp_format_as(format, &as, err);
}
