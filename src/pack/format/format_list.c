/* The formats that there are: the embedded ones and those of files that the user named, each
 * parsed when it is asked for, and those that a source's group size asks for.
 *
 * Invariant: what was handed out stays as it is, and a list that others see lacks nothing for want
 * of memory: one allocation that fails must not decide for the life of a process what there is.
 */
#include "pack/format/format_parse.h"

#include "pack/os/os.h"
#include "pack/text/embedded.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

extern const struct tp_embedded tp_embedded_formats[];

/* Formats that the user's files describe; the text of each follows it. */
struct added {
    struct tp_format format;
    struct added *next;
    char text[];
};

static struct {
    pthread_mutex_t lock;
    struct tp_format **parsed;     /* by place in tp_embedded_formats; NULL: not yet */
    struct added *added;           /* by name */
    const struct tp_format **all;  /* by name; NULL: not yet */
    size_t count;
    struct tp_err err;             /* of the first file that was left out of them */
} list = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const struct tp_format_as as_is = {0};

static size_t embedded_count(void)
{
    size_t count = 0;
    while (tp_embedded_formats[count].name)
        count++;
    return count;
}

static enum tp_code parse_embedded(size_t i, struct tp_err *err)
{
    if (!list.parsed &&
        !(list.parsed = tp_os_zalloc(embedded_count(), sizeof *list.parsed, err)))
        return TP_E_MEMORY;
    if (list.parsed[i])
        return TP_OK;
    struct tp_err wrong = {0};
    struct tp_format *format = tp_os_zalloc(1, sizeof *format, &wrong);
    if (format && tp_format_parse(tp_embedded_formats[i].text, &as_is, format, &wrong) == TP_OK) {
        list.parsed[i] = format;
        return TP_OK;
    }
    free(format);
    if (wrong.code != TP_E_MEMORY) /* else the file is right */
        tp_err_path(&wrong, tp_embedded_formats[i].name);
    *err = wrong;
    return wrong.code;
}

static enum tp_code get(const char *name, const struct tp_format **format, struct tp_err *err)
{
    *format = NULL;
    for (const struct added *a = list.added; a; a = a->next)
        if (strcmp(a->format.name, name) == 0)
            *format = &a->format;
    for (size_t i = 0; tp_embedded_formats[i].name && !*format; i++)
        if (strcmp(tp_embedded_formats[i].name, name) == 0) {
            enum tp_code code = parse_embedded(i, err);
            if (code)
                return code;
            *format = list.parsed[i];
        }
    return TP_OK;
}

enum tp_code tp_format_get(const char *name, const struct tp_format **format, struct tp_err *err)
{
    struct tp_err seen = {0};
    pthread_mutex_lock(&list.lock);
    enum tp_code code = get(name, format, &seen);
    pthread_mutex_unlock(&list.lock);
    if (err && err->code == TP_OK)
        *err = seen;
    return code;
}

const struct tp_format *tp_format_find(const char *name)
{
    const struct tp_format *format;
    return tp_format_get(name, &format, NULL) == TP_OK ? format : NULL;
}

/* ---- all of them --------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    const struct tp_format *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
}

static enum tp_code find_all(struct tp_err *err)
{
    size_t embedded = embedded_count(), most = embedded, count = 0;
    struct tp_err wrong = {0};
    for (const struct added *a = list.added; a; a = a->next)
        most++;
    const struct tp_format **all = tp_os_zalloc(most + 1, sizeof *all, err);
    if (!all)
        return TP_E_MEMORY;
    for (size_t i = 0; i < embedded; i++) {
        struct tp_err one = {0};
        enum tp_code code = parse_embedded(i, &one);
        if (code == TP_OK)
            all[count++] = list.parsed[i];
        else if (code == TP_E_MEMORY || wrong.code == TP_OK)
            wrong = one;
        if (code == TP_E_MEMORY)
            break;
    }
    if (wrong.code == TP_E_MEMORY) {
        free(all);
        *err = wrong;
        return TP_E_MEMORY;
    }
    for (const struct added *a = list.added; a; a = a->next)
        all[count++] = &a->format;
    qsort(all, count, sizeof *all, by_name);
    list.err = wrong;
    list.count = count;
    list.all = all;
    return TP_OK;
}

/* From TP_OK on the list is constant: it is read without the lock. */
static enum tp_code have_all(struct tp_err *err)
{
    pthread_mutex_lock(&list.lock);
    enum tp_code code = list.all ? TP_OK : find_all(err);
    pthread_mutex_unlock(&list.lock);
    return code;
}

const struct tp_format *const *tp_formats(size_t *count)
{
    struct tp_err err = {0};
    enum tp_code code = have_all(&err);
    *count = code ? 0 : list.count;
    return code ? NULL : list.all;
}

enum tp_code tp_formats_check(struct tp_err *err)
{
    struct tp_err seen = {0};
    if (have_all(&seen) == TP_OK)
        seen = list.err;
    if (err && err->code == TP_OK)
        *err = seen;
    return seen.code;
}

/* ---- the user's files ---------------------------------------------------- */

/* Names are printed as they are, and stored. */
static enum tp_code check_name(const char *name, struct tp_err *err)
{
    size_t size = strlen(name), plain = 0;
    while (plain < size && name[plain] > 0x20 && name[plain] < 0x7F)
        plain++;
    if (size == 0 || plain < size || size > TP_FORMAT_NAME)
        return tp_fail(err, TP_E_INPUT, "\"name\" is not 1 to %d printable ASCII characters "
                       "without blanks", TP_FORMAT_NAME);
    for (size_t i = 0; tp_embedded_formats[i].name; i++)
        if (strcmp(tp_embedded_formats[i].name, name) == 0)
            return tp_fail(err, TP_E_USAGE, "the format '%s' is built in: a file cannot be "
                           "another one of that name", name);
    for (const struct added *a = list.added; a; a = a->next)
        if (strcmp(a->format.name, name) == 0)
            return tp_fail(err, TP_E_USAGE, "two files describe the format '%s'", name);
    return TP_OK;
}

enum tp_code tp_format_add(const char *text, size_t size, struct tp_err *err)
{
    struct added *item = tp_os_zalloc(1, sizeof *item + size + 1, err);
    if (!item)
        return TP_E_MEMORY;
    memcpy(item->text, text, size);
    enum tp_code code = tp_format_parse(item->text, &as_is, &item->format, err);
    if (code == TP_OK) {
        pthread_mutex_lock(&list.lock);
        if ((code = check_name(item->format.name, err)) == TP_OK) {
            item->next = list.added;
            list.added = item;
            free(list.all);
            list.all = NULL; /* to be made anew, before others read it */
        }
        pthread_mutex_unlock(&list.lock);
    }
    if (code) {
        tp_format_close(&item->format);
        free(item);
    }
    return code;
}

bool tp_format_is_added(const struct tp_format *format)
{
    const struct added *a = list.added;
    while (a && strcmp(a->format.name, format->name) != 0)
        a = a->next;
    return a != NULL;
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
